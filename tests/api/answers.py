"""Answers of the API to a client: lists page by page, recommendations and estimates."""

from collections.abc import Iterator
from typing import Any

from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from service.api.estimate.estimate import EstimateResponse
from tests.builders.request_bodies import Body


def get_json(client: TestClient, target: str) -> Any:
    answer = client.get(target)
    assert answer.status_code == 200, answer.text
    return answer.json()


def pages(client: TestClient, target: str, limit: int) -> Iterator[Any]:
    """The pages of a list, first to last."""
    separator = "&" if "?" in target else "?"
    page = get_json(client, f"{target}{separator}limit={limit}")
    yield page
    while page["next_cursor"]:
        page = get_json(client, f"{target}{separator}limit={limit}&cursor={page['next_cursor']}")
        yield page


def all_items(client: TestClient, target: str, limit: int = 500) -> list[Any]:
    return [item for page in pages(client, target, limit) for item in page["items"]]


def names(items: list[Any]) -> set[str]:
    return {f"{item['provider']}/{item['name']}" for item in items}


def full_name(item: Any) -> str:
    """The instance type of a choice or an offer, as `provider/name`."""
    return f"{item['provider']}/{item['instance']}"


def ranked_factor(price: Any) -> float:
    """The price that ranks as a factor of the believed one: an old price ranks at its high end."""
    return price["usd_per_hour_high"] / price["usd_per_hour"] if price["old"] and price["usd_per_hour"] else 1.0


def price_ignored(answer: Any) -> bool:
    """Whether a recommendation ranks machines without a known price, because no other one is admitted."""
    return "price_ignored" in {note["code"] for note in answer["notes"]}


def offers_of(client: TestClient, instance: str, market: str = "on_demand") -> list[Any]:
    """The believed prices of an instance type in a market that are known."""
    offers = get_json(client, f"/instances/{instance}")["offers"]
    return [each for each in offers if each["market"] == market and each["usd_per_hour"] is not None]


def post_recommend(client: TestClient, body: Body) -> Any:
    answer = client.post("/recommend", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post_estimate(client: TestClient, body: Body) -> Any:
    """The estimate, after a check that it has the documented structure."""
    answer = client.post("/estimate", json=body)
    assert answer.status_code == 200, answer.text
    TypeAdapter(EstimateResponse).validate_json(answer.content)
    return answer.json()
