"""Reading lists through the API, page by page."""

from collections.abc import Iterator
from typing import Any

from fastapi.testclient import TestClient


def told(client: TestClient, target: str) -> Any:
    answer = client.get(target)
    assert answer.status_code == 200, answer.text
    return answer.json()


def pages(client: TestClient, target: str, limit: int) -> Iterator[Any]:
    """The pages of a list, first to last."""
    separator = "&" if "?" in target else "?"
    page = told(client, f"{target}{separator}limit={limit}")
    yield page
    while page["next_cursor"]:
        page = told(client, f"{target}{separator}limit={limit}&cursor={page['next_cursor']}")
        yield page


def everything(client: TestClient, target: str, limit: int = 500) -> list[Any]:
    return [item for page in pages(client, target, limit) for item in page["items"]]


def names(items: list[Any]) -> set[str]:
    return {f"{item['provider']}/{item['name']}" for item in items}
