"""Samples of documents of providers, which are not part of this repository, become the rows that are expected of them.

`FEED_SAMPLES` names a folder with one folder for each provider, each with an `expected.csv`.
"""

import csv
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from service.db.engine import connect
from service.feeds.folder import documents_in
from service.feeds.importing import Imported, import_documents
from service.feeds.listing import Listing
from tests.databases import copied_database

SAMPLES = Path(os.environ.get("FEED_SAMPLES", "no samples"))
FOLDERS = ("aws", "azure", "ecb", "gcp", "gpuhunt", "neoclouds", "oci", "skypilot")
NOW = datetime(2026, 11, 22, tzinfo=UTC)
FETCHED = datetime(2026, 11, 21, 22, tzinfo=UTC)

NOT_READ = {
    "gcp": ("skus", "machine-types-regions.csv", "bad_skus.json"),
    "neoclouds": (
        "nebius page", "tensordock", "hyperstack", "scaleway", "ovh", "akash",
    ),
}  # fmt: skip
"""Documents that no feed reads: pages in prose, sellers without one, and a price book without its flavors."""

ENTERS = ("gpu_16x_b300",)
"""Types that the catalog lacks and whose feed states all that it needs, so that they enter it."""

pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="FEED_SAMPLES names no folder with samples.")


@dataclass(frozen=True, slots=True)
class Sample:
    imports: dict[str, Imported]
    problems: dict[str, str]

    def outcomes(self) -> Iterator[tuple[Listing, str]]:
        for imported in self.imports.values():
            yield from imported.outcomes


@pytest.fixture(scope="module")
def samples(seeded_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sample]:
    return {name: imported(SAMPLES / name, seeded_file, tmp_path_factory.mktemp(name)) for name in FOLDERS}


def imported(folder: Path, seeded: Path, scratch: Path) -> Sample:
    engine = connect(copied_database(seeded, scratch / "catalog.db"))
    imports, problems = {}, {}
    for found in documents_in(folder, FETCHED):
        if found.source is None or found.documents is None:
            problems[found.name] = found.problem or ""
            continue
        result = import_documents(engine, found.source, found.documents, NOW)
        imports[found.name] = result
        if result.problem:
            problems[found.name] = result.problem
    engine.dispose()
    return Sample(imports, problems)


def expected_rows(folder: str) -> list[dict[str, str]]:
    with (SAMPLES / folder / "expected.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def compared(folder: str) -> list[dict[str, str]]:
    rows = expected_rows(folder) if folder != "ecb" else []
    skipped = NOT_READ.get(folder, ())
    return [row for row in rows if row["name"] and row.get("file", row["provider"]) not in skipped]


def is_meant(row: dict[str, str], listing: Listing) -> bool:
    """Whether a listing has the price and place of an expected row, as far as the row states them."""
    price = Decimal(row["per_hour"]) if row["per_hour"] else None
    names = {listing.name, str(row["name"]) if same_name(row["name"], listing.name) else ""}
    return (
        row["name"] in names
        and listing.provider == row["provider"]
        and (not row.get("region") or listing.region == row["region"])
        and (not row.get("zone") or listing.zone in (row["zone"], None))
        and (not row.get("market") or listing.market == row["market"])
        and (not row.get("term") or listing.term == row["term"])
        and (price is None or price == 0 or listing.per_hour is None or abs(listing.per_hour - price) < Decimal("1e-6"))
    )


def same_name(expected: str, name: str) -> bool:
    """`1x H200` is short for the catalog's `1x-H200-32-65536`, and `tpu-v6e-256` is the slice `v6e-256`."""
    plain = re.sub(r"[-_ ]", " ", expected.removeprefix("tpu-"))
    return re.sub(r"[-_ ]", " ", name).startswith(plain)


def verdict(row: dict[str, str], outcomes: list[str]) -> str:
    """The outcome that a row expects, in the words of an import: kept, unmapped, or set aside."""
    text = row["outcome"]
    no_price = row["per_hour"] in ("", "0") or "set aside" in text.partition(";")[0].partition(":")[0]
    optional = (
        " or " in text or text.startswith("optional") or "a size of a flexible shape" in text or "sample size" in text
    )
    if optional:
        return ""
    if "unknown" in text and row["name"] not in ENTERS:
        return "" if "unmapped" in outcomes or not set(outcomes) & {"kept"} else "unmapped"
    if no_price:
        # A row of the same name and price may be kept for another market, but one must be set aside.
        return "" if not outcomes or row["per_hour"] == "" or set(outcomes) - {"kept", "unmapped"} else "no price"
    return "" if {"kept", "unmapped"} & set(outcomes) else "kept"


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder != "ecb"])
def test_every_expected_row_becomes_what_is_expected(folder: str, samples: dict[str, Sample]) -> None:
    differences = []
    for row in compared(folder):
        outcomes = [outcome for listing, outcome in samples[folder].outcomes() if is_meant(row, listing)]
        missing = verdict(row, outcomes)
        print(f"{folder}: {row['name']} {row.get('region', '')} {row['per_hour']}: {sorted(set(outcomes))}")
        if missing:
            differences.append(f"{row}: {outcomes} and not {missing}")
    assert not differences, "\n".join(differences)


REFUSED = {
    "skypilot": ("bad_html_instead_of_csv.csv", "bad_rate_limited_429.txt"),
    "gpuhunt": ("bad_truncated_catalog.zip", "bad_wrong_member_catalog.zip"),
    "azure": ("bad_next_page_loops.json", "bad_too_many_requests_429.json", "bad_truncated.json"),
    "aws": (
        "bad_metered_truncated.json", "bad_offer_without_metadata.csv", "bad_s3_not_found_404.xml", "bad_spot_bad.json",
    ),
    "ecb": ("bad_inverted.xml", "bad_no_date.xml"),
    "gcp": ("bad_pricing_half.yml",),
    "oci": ("bad_maintenance.html",),
    "neoclouds": (
        "bad_runpod_html.json", "bad_verda_truncated.json", "runpod_errors_http200.json", "hyperstack_pricebook.json",
        "lambda_401.json",
    ),
}  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_broken_documents_are_refused_with_a_sentence(folder: str, samples: dict[str, Sample]) -> None:
    for name in REFUSED[folder]:
        assert samples[folder].problems[name].endswith((".", ")")), name


BAD_ROWS = {
    ("skypilot", "bad_aws_bad_rows.csv"): 7,
    ("gpuhunt", "bad_aws_bad_rows.csv"): 4,
    ("azure", "bad_rows.json"): 4,
    ("aws", "bad_offer_bad_rows.csv"): 4,
    ("neoclouds", "bad_vast_bad_rows.json"): 2,
    ("neoclouds", "bad_lambda_bad.json"): 1,
}


@pytest.mark.parametrize(("folder", "name"), BAD_ROWS)
def test_bad_rows_are_set_aside_and_none_is_kept(folder: str, name: str, samples: dict[str, Sample]) -> None:
    counts = samples[folder].imports[name].counts
    assert counts.total() == BAD_ROWS[folder, name]
    assert not {"kept", "unmapped"} & counts.keys()
