"""The list of prices: its filter by GPU, its order, and its fields."""

from itertools import combinations
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import all_items, get_json


def test_prices_of_a_gpu_are_those_of_the_machines_that_carry_it(client: TestClient) -> None:
    machines = {f"{item['provider']}/{item['name']}" for item in all_items(client, "/instances?gpu=h100")}
    every = all_items(client, "/prices?market=on_demand")
    of_gpu = all_items(client, "/prices?market=on_demand&gpu=h100")
    names = {f"{item['provider']}/{item['instance']}" for item in of_gpu}
    assert names <= machines | {f"{item['provider']}/{item['name']}" for item in retired(client, "h100")}
    assert len(of_gpu) == sum(f"{item['provider']}/{item['instance']}" in names for item in every)
    changes = all_items(client, "/prices/changes?from=2025-01-01&gpu=h100")
    assert {f"{item['provider']}/{item['instance']}" for item in changes} <= names | machines


def retired(client: TestClient, gpu: str) -> list[Any]:
    return all_items(client, f"/instances?gpu={gpu}&lifecycle=retired,announced")


@pytest.mark.parametrize("column", ["usd_per_hour", "observed_on", "valid_from"])
def test_prices_are_sorted_by_a_column_with_unknown_ones_last(client: TestClient, column: str) -> None:
    for query in ("provider=oci,vast&", "from=2024-01-01&provider=lambda&"):
        values = [item[column] for item in all_items(client, f"/prices?{query}sort={column}", limit=200)]
        known = [value for value in values if value is not None]
        assert values[: len(known)] == sorted(known)
        down = [item[column] for item in all_items(client, f"/prices?{query}sort=-{column}")]
        assert down[: len(known)] == sorted(known, reverse=True)
        assert len(down) == len(values)


def test_a_second_column_decides_ties(client: TestClient) -> None:
    items = get_json(client, "/prices?gpu=h100&sort=-observed_on,usd_per_hour&limit=500")["items"]
    keys = [(-int(item["observed_on"].replace("-", "")), item["usd_per_hour"]) for item in items if item["observed_on"]]
    assert len({day for day, _ in keys}) < len(keys)
    known = [key for key in keys if key[1] is not None]
    assert known == sorted(known)


def test_every_field_of_a_listed_price_differs_from_row_to_row_and_from_other_fields(client: TestClient) -> None:
    rows = all_items(client, "/prices?from=2006-01-01&provider=aws,autodl,scaleway,vast", limit=500)
    columns = {name: tuple(row[name] for row in rows) for name in rows[0]}
    assert [name for name, values in columns.items() if len(set(values)) == 1] == []
    equal = [(one, other) for one, other in combinations(columns, 2) if columns[one] == columns[other]]
    # Every price of the seed has a day; a feed's price without one is valid from the day of its capture.
    assert equal == [("observed_on", "valid_from")]


def test_no_price_is_listed_of_a_machine_that_the_catalog_of_the_day_does_not_have(client: TestClient) -> None:
    """The seed has a price of the 12xlarge from January 1, 2026, and its announcement on January 20."""
    day = "as_of=2026-01-05&provider=aws"
    states = "lifecycle=announced,preview,available,closed_to_new,retired"
    known = {item["name"] for item in all_items(client, f"/instances?{day}&{states}")}
    assert {item["instance"] for item in all_items(client, f"/prices?{day}")} <= known
    later = all_items(client, "/prices?as_of=2026-02-01&provider=aws&instance=aws/g7e.12xlarge")
    assert "2026-01-01" in {item["valid_from"] for item in later}
