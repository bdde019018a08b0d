"""Dates of the seed's files that must agree with each other."""

import csv
from collections.abc import Mapping

from service.files import SEED


def rows(name: str) -> list[Mapping[str, str]]:
    with (SEED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_no_price_is_older_than_the_first_listing_of_its_family() -> None:
    """The catalog of a day leaves out types that are listed later, and with them their prices."""
    family = {(row["provider"], row["name"]): row["family"] for row in rows("instance_types")}
    first_listed = {
        (row["provider"], row["family"]): row["starts_on"]
        for row in rows("lifecycle")
        if row["basis"] == "first_seen" and row["state"] == "available" and not row["name"]
    }
    too_early = set()
    for price in rows("prices"):
        of = price["provider"], family.get((price["provider"], price["name"]), "")
        if price["observed_on"] and price["observed_on"] < first_listed.get(of, ""):
            too_early.add((*of, price["observed_on"]))
    assert not too_early
