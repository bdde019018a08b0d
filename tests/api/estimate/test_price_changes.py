"""GET /prices/changes: what moved between two days, and a run's cost with it."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

P4D = "/prices/changes?from=2025-05-01&to=2025-07-01&instance=aws/p4d.24xlarge&market=on_demand"


def answered(client: TestClient, path: str) -> Any:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_price_cut_of_june_2025_and_what_it_did_to_a_run(client: TestClient) -> None:
    (item,) = answered(client, f"{P4D}&hours=100&nodes=2")["items"]
    assert (item["usd_per_hour_before"], item["usd_per_hour_after"]) == (32.7726, 21.957642)
    assert (item["change"], item["change_percent"]) == ("cheaper", -33.0)
    assert item["run"] == {
        "usd_before": 6554.52,
        "usd_after": 4391.5284,
        "change_usd": -2162.9916,
        "change_percent": -33.0,
    }
    assert answered(client, P4D)["items"][0]["run"] is None


def test_estimates_of_both_days_say_the_same(client: TestClient) -> None:
    body = {"hours": 100, "machine": "aws/p4d.24xlarge", "region": "us-east-1", "market": "on_demand"}
    before, after = (
        client.post("/estimate", json={**body, "as_of": day}).json()["cost"][0]["usd"]["likely"]
        for day in ("2025-05-01", "2025-07-01")
    )
    run = answered(client, f"{P4D}&hours=100")["items"][0]["run"]
    # Changes are those of listed prices; that of May was two years old, and the estimate believes it nearly as it was.
    assert run["usd_after"] == after
    assert run["usd_before"] == pytest.approx(before, rel=0.001)


def test_every_change_is_one_by_the_prices_of_the_two_days(client: TestClient) -> None:
    path = "/prices/changes?from=2025-05-01&to=2025-07-01&provider=aws&limit=500"
    found = answered(client, path)["items"]
    assert {item["change"] for item in found} >= {"cheaper", "new"}
    assert all(item["usd_per_hour_before"] != item["usd_per_hour_after"] for item in found)

    def prices(day: str) -> dict[Any, Any]:
        kept, cursor = {}, ""
        while True:
            page = answered(client, f"/prices?provider=aws&as_of={day}&limit=500{cursor}")
            for each in page["items"]:
                kept[tuple(each[n] for n in ("instance", "region", "zone", "market", "term"))] = each["usd_per_hour"]
            if page["next_cursor"] is None:
                return kept
            cursor = f"&cursor={page['next_cursor']}"

    before, after = prices("2025-05-01"), prices("2025-07-01")
    nothing = object()
    moved = {key for key in before.keys() | after.keys() if before.get(key, nothing) != after.get(key, nothing)}
    assert {tuple(i[n] for n in ("instance", "region", "zone", "market", "term")) for i in found} == moved


def test_nothing_changes_in_a_day_of_no_news(client: TestClient) -> None:
    assert answered(client, "/prices/changes?from=2026-11-01&to=2026-11-01")["items"] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "from"),
        ("from=2026-01-01&to=2025-01-01", "from"),
        ("from=2026-01-01&to=2027-01-01", "to"),
        ("from=2026-01-01&hours=-1", "hours"),
        ("from=2026-01-01&nodes=3", "hours"),
        ("from=2026-01-01&market=spott", "market"),
    ],
)
def test_what_cannot_be_is_a_sentence(client: TestClient, query: str, field: str) -> None:
    answer = client.get(f"/prices/changes?{query}")
    assert answer.status_code == 422
    assert field in [error["field"] for error in answer.json()["errors"]]
