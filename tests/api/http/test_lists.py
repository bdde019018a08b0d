"""Every list and GET answer has the same envelope, pages, cursors, CSV, ETag and days."""

import csv
import io
import json
from datetime import date
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from service.api.http import examples
from service.app import create_app
from service.settings import Settings
from tests.api.answers import all_items, get_json, pages
from tests.server import PATIENCE_SECONDS, Server

LISTS = (
    "/instances",
    "/gpus",
    "/prices",
    "/precisions",
    "/providers",
    "/regions",
    "/frameworks",
    "/sources",
    "/models",
    "/measurements",
)
SOME = {
    "/instances": "/instances?provider=gcp",
    "/gpus": "/gpus?architecture=ampere",
    "/prices": "/prices?provider=lambda",
    "/regions": "/regions?provider=gcp",
    "/models": "/models?family=moe",
    "/measurements": "/measurements?framework=torchtune",
}
"""Long lists, cut to a few pages of seven."""
ONES = (
    "/instances/aws/g5.xlarge",
    "/instances/aws/g5.xlarge/similar",
    "/gpus/a100",
    "/models/llama-3-8b",
    "/compare?instance=g5.xlarge",
    "/catalog",
)
DAY = date(2022, 2, 17)


@pytest.mark.parametrize("path", LISTS)
def test_a_list_has_its_envelope(client: TestClient, path: str) -> None:
    page = get_json(client, f"{path}?limit=2")
    more = {"facets"} if path == "/instances" else set()
    assert set(page) == {"items", "total", "next_cursor", "catalog"} | more
    assert len(page["items"]) == 2
    assert page["total"] > 2
    assert set(page["catalog"]) == {"version", "as_of", "known_at", "prices_oldest", "prices_newest"}


@pytest.mark.parametrize("path", LISTS)
def test_paging_shows_every_item_once(client: TestClient, path: str) -> None:
    target = SOME.get(path, path)
    found = list(pages(client, target, 7))
    assert all(len(page["items"]) == 7 for page in found[:-1])
    items = [item for page in found for item in page["items"]]
    assert items == all_items(client, target)
    assert len(items) == found[0]["total"] > 7
    assert len({str(item) for item in items}) == len(items)


@pytest.mark.parametrize("path", LISTS)
def test_a_list_reads_back_from_csv(client: TestClient, path: str) -> None:
    target = SOME.get(path, path)
    items = get_json(client, f"{target}{'&' if '?' in target else '?'}limit=9")
    answer = client.get(f"{target}{'&' if '?' in target else '?'}limit=9", headers={"Accept": "text/csv"})
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers.get("X-Next-Cursor") == items["next_cursor"]
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert len(rows) == len(items["items"])
    for row, item in zip(rows, items["items"], strict=True):
        for name, value in row.items():
            assert value == cell(item, name), name


def test_pages_of_csv_have_the_same_columns_whatever_their_items_have(client: TestClient) -> None:
    """Machines without a GPU, or without a known price, have null where others have an object."""
    headers = set()
    for search in ("q=c5&limit=2", "q=g4dn&limit=2", "q=g4dn&limit=9", "market=reserved&q=g5g&limit=2"):
        text = client.get(f"/instances?provider=aws&{search}", headers={"Accept": "text/csv"}).text
        columns = text.splitlines()[0].split(",")
        headers.add(tuple(name for name in columns if not name.startswith("gpu.precisions.")))
    (names,) = headers
    assert {"gpu.id", "gpu.memory_gb", "price.usd_per_hour", "cpu.model"} < set(names)
    assert not {"gpu", "price", "cpu", "gpu.precisions"} & set(names)


def cell(item: Any, name: str) -> str:
    """The value of an item at a dotted name, as CSV writes it."""
    value = item
    for place, part in enumerate(name.split(".")):
        if not isinstance(value, dict):
            return ""
        rest = ".".join(name.split(".")[place:])
        if rest in value:
            value = value[rest]
            break
        value = value.get(part)
    match value:
        case None | dict():  # the names within an object are columns of their own
            return ""
        case list():
            return ";".join(each if isinstance(each, str) else json.dumps(each) for each in value)
        case _:
            return str(value)


@pytest.mark.parametrize(
    "target", ["/instances?q=no-such-thing", "/gpus?min_memory_gb=100000", "/prices?provider=oci&market=reserved"]
)
def test_an_empty_list_has_only_the_names_of_its_columns_in_csv(client: TestClient, target: str) -> None:
    page = get_json(client, target)
    assert (page["items"], page["total"], page["next_cursor"]) == ([], 0, None)
    (names,) = csv.reader(io.StringIO(client.get(target, headers={"Accept": "text/csv"}).text, newline=""))
    full = f"{target.partition('?')[0]}?limit=1"
    (with_items, _) = csv.reader(io.StringIO(client.get(full, headers={"Accept": "text/csv"}).text, newline=""))
    # A map, such as the precisions of a GPU, has columns only where an item has entries.
    assert names == [name for name in with_items if ".precisions." not in f".{name}"]


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("text/csv, */*", "text/csv"),
        ("application/json;q=0.9, Text/CSV; charset=utf-8; q=0.9", "text/csv"),
        ("text/csv;q=0.5, application/json", "application/json"),
        ("text/csv;q=0", "application/json"),
        ("*/*", "application/json"),
        ("text/csv;q=0.1, */*", "application/json"),
        ("text/csv;q=0.5, application/*;q=0.6, */*;q=0.1", "application/json"),
        ("text/csv;q=0.5, application/json;q=0.4, */*", "text/csv"),
        ("text/csv;q=0.9, */*;q=0.1", "text/csv"),
        ("application/json;x=text/csv;q=0.5", "application/json"),
        ("text/csvish, */*;q=0.1", "application/json"),
        ("application/json;q=0.2, text/csv ; q=0.1, text/csv;q=nonsense", "text/csv"),
    ],
)
def test_a_list_comes_in_the_form_that_the_client_prefers(client: TestClient, accept: str, media_type: str) -> None:
    answer = client.get("/regions?limit=1", headers={"Accept": accept})
    assert answer.headers["Content-Type"].partition(";")[0] == media_type


# Days


@pytest.mark.parametrize("path", [*LISTS, *ONES])
def test_every_answer_is_of_a_day(client: TestClient, path: str) -> None:
    separator = "&" if "?" in path else "?"
    today = get_json(client, path)["catalog"]
    past = get_json(client, f"{path}{separator}as_of={DAY}")["catalog"]
    assert today["as_of"] == str(examples.DAY)
    assert past["as_of"] == str(DAY)
    assert past["version"] == today["version"]
    assert past["prices_newest"] <= str(DAY)


# ETags


@pytest.mark.parametrize("path", [*LISTS, *ONES])
def test_an_answer_that_the_client_has_is_not_sent_again(client: TestClient, path: str) -> None:
    first = client.get(path)
    tag = first.headers["ETag"]
    assert tag.startswith('"')
    assert "no-cache" in first.headers["Cache-Control"]
    assert "Accept" in first.headers["Vary"]
    for have in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get(path, headers={"If-None-Match": have})
        assert again.status_code == 304, have
        assert again.content == b""
        assert again.headers["ETag"] == tag
    assert client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    assert client.get(f"{path}{'&' if '?' in path else '?'}as_of={DAY}").headers["ETag"] != tag


@pytest.mark.parametrize("path", [*LISTS, *ONES, "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"])
def test_head_has_the_headers_of_get(server: Server, path: str) -> None:
    with httpx2.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
        get, head = client.get(path), client.head(path)
    assert head.status_code == get.status_code == 200
    assert head.content == b""
    for name in ("Content-Type", "Content-Length", "ETag", "Cache-Control"):
        if (path, name) == ("/metrics", "Content-Length"):
            continue  # the figures count these very requests
        assert head.headers.get(name) == get.headers.get(name)


@pytest.mark.parametrize("path", LISTS)
def test_csv_has_a_tag_of_its_own(client: TestClient, path: str) -> None:
    """A client with the JSON of an address does not have its CSV."""
    tag, csv = client.get(path).headers["ETag"], {"Accept": "text/csv"}
    answer = client.get(path, headers={"If-None-Match": tag, **csv})
    assert answer.status_code == 200
    assert client.get(path, headers={"If-None-Match": answer.headers["ETag"], **csv}).status_code == 304


def test_problems_have_no_etag(client: TestClient) -> None:
    refused = client.get("/instances?precision=fp7", headers={"If-None-Match": "*"})
    assert refused.status_code == 422
    assert "ETag" not in refused.headers


# The catalog changes under a reader


class Changing:
    """A service, and its database to change."""

    def __init__(self, database_url: str) -> None:
        self.app = create_app(Settings(database_url=database_url), today=lambda: examples.DAY)
        self.client = TestClient(self.app)

    def change(self, *statements: str) -> None:
        live = self.app.state.live_catalog
        before = live.history.version
        with live._engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
        live.refresh()
        assert live.history.version > before


@pytest.fixture
def changing(seeded_copy: str) -> Changing:
    return Changing(seeded_copy)


def test_a_change_of_the_catalog_is_a_new_etag_and_a_new_answer(changing: Changing) -> None:
    path = "/instances?instance=aws/g5.xlarge"
    before = changing.client.get(path)
    changing.change("UPDATE price SET per_hour_micros = per_hour_micros + 1")
    after = changing.client.get(path, headers={"If-None-Match": before.headers["ETag"]})
    assert after.status_code == 200
    assert after.headers["ETag"] != before.headers["ETag"]
    assert after.json()["items"][0]["price"]["usd_per_hour"] != before.json()["items"][0]["price"]["usd_per_hour"]
    assert after.json()["catalog"]["version"] > before.json()["catalog"]["version"]


def test_cursors_survive_a_change_of_prices(changing: Changing) -> None:
    def after_the_first() -> list[Any]:
        return [get_json(changing.client, f"{path}?limit=3&cursor={cursor}") for path, cursor in cursors.items()]

    cursors = {path: get_json(changing.client, f"{path}?limit=3")["next_cursor"] for path in LISTS}
    before = after_the_first()
    changing.change("UPDATE price SET per_hour_micros = per_hour_micros + 1")
    for path, then, now in zip(cursors, before, after_the_first(), strict=True):
        assert now["catalog"]["version"] > then["catalog"]["version"]
        ids, ids_then = ([item.get("id", item.get("name")) for item in page["items"]] for page in (now, then))
        assert ids == ids_then, path


def test_a_cursor_follows_its_item_to_another_place(changing: Changing) -> None:
    first = get_json(changing.client, "/instances?provider=aws&sort=-vcpus&limit=3")
    last = first["items"][-1]["name"]
    changing.change(f"UPDATE instance_type SET vcpus = 1 WHERE provider = 'aws' AND name = '{last}'")
    now = get_json(changing.client, f"/instances?provider=aws&sort=-vcpus&limit=500&cursor={first['next_cursor']}")
    whole = all_items(changing.client, "/instances?provider=aws&sort=-vcpus")
    place = [item["name"] for item in whole].index(last)
    assert place > 3
    assert now["items"] == whole[place + 1 :]


def test_a_cursor_whose_item_is_gone_says_so(changing: Changing) -> None:
    first = get_json(changing.client, "/instances?provider=aws&limit=3")
    name = first["items"][-1]["name"]
    changing.change(f"DELETE FROM instance_type WHERE provider = 'aws' AND name = '{name}'")
    answer = changing.client.get(f"/instances?provider=aws&limit=3&cursor={first['next_cursor']}")
    assert answer.status_code == 410
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["errors"][0]["field"] == "cursor"


# Operations


def test_the_service_reports_its_health(client: TestClient) -> None:
    assert get_json(client, "/healthz") == {"status": "ok"}
    ready = get_json(client, "/readyz")
    assert ready["status"] == "ready"
    assert ready["problem"] is None
    assert ready["catalog"]["as_of"] == str(examples.DAY)
    metrics = client.get("/metrics").text
    assert f"selector_catalog_version {float(ready['catalog']['version'])}" in metrics
    assert "selector_database_reachable 1.0" in metrics
    for path in ("/healthz", "/readyz", "/metrics"):
        assert client.get(path).headers["Cache-Control"] == "no-store"


def test_a_lost_database_is_reported_while_the_catalog_keeps_answering(changing: Changing) -> None:
    live = changing.app.state.live_catalog
    with live._engine.begin() as connection:
        connection.execute(text("DROP TABLE catalog_version"))
    live.refresh()
    assert "cannot be read" in get_json(changing.client, "/readyz")["problem"]
    assert "selector_database_reachable 0.0" in changing.client.get("/metrics").text
    assert get_json(changing.client, "/instances")["total"] > 100


def test_the_catalog_counts_what_the_lists_hold(client: TestClient) -> None:
    catalog = get_json(client, "/catalog")
    rows = catalog["rows"]
    assert rows["measurements"] + rows["published_runs"] == get_json(client, "/measurements?limit=1")["total"]
    for path in ("gpus", "precisions", "providers", "regions"):
        assert rows[path] == get_json(client, f"/{path}?limit=1")["total"]
    assert rows["offers"] == get_json(client, "/prices?limit=1")["total"]
    assert sum(each["offers"] for each in catalog["providers"]) == rows["offers"]
    assert sum(each["instance_types"] for each in catalog["providers"]) == rows["instance_types"]
    assert catalog["imports"][0]["rows_seen"] >= catalog["imports"][0]["rows_kept"] > 1000
