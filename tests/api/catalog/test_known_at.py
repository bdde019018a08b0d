"""`known_at` answers with the prices that were known on a day: later imports change nothing."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, insert

from service.app import create_app
from service.db import live_catalog
from service.db.feeds.replay import history_known_on
from service.db.feeds.write_capture import confirm_capture, write_capture
from service.db.tables import METADATA
from service.domain.catalog.history import CatalogHistory
from service.settings import Settings
from tests.builders.captures import capture, day, feed_row, with_feeds
from tests.builders.rows import event_row, instance_type_row, record_of
from tests.builders.sources import source

TYPE, LATER_TYPE = "p4d.24xlarge", "p9.48xlarge"
TODAY = date(2026, 10, 20)
PATHS = ("/prices", "/instances?market=on_demand", f"/instances/aws/{TYPE}", "/prices/changes?from=2026-10-01")
ESTIMATE = {"machine": f"aws/{TYPE}", "hours": 10}
RECOMMEND = {"workload": {"task": "training"}, "constraints": {"min_gpu_count": 1}}


def dollars(micros_per_day: int) -> int:
    return 10_000_000 + micros_per_day * 1_000_000


@pytest.fixture
def client(tables_url: str) -> Iterator[TestClient]:
    """A service on the 20th, whose feed showed another price on the 3rd, 6th and 9th; each is known from its day on."""
    engine = with_feeds(tables_url, feed_row("one"), feed_row("two", rank=5))
    with engine.begin() as connection:
        connection.execute(insert(METADATA.tables["source"]), record_of(source("feed-two"), "source"))
    for number in (3, 6, 9):
        write_capture(engine, capture(day(number), {TYPE: dollars(number)}), day(number))
    client = TestClient(create_app(Settings(database_url=tables_url), today=lambda: TODAY))
    client.engine = engine  # type: ignore[attr-defined]
    yield client
    client.close()
    engine.dispose()


def import_later(client: TestClient) -> None:
    """Imports after the 9th: a price that corrects an earlier day, a new instance type, a confirmation and a change."""
    engine = client.engine  # type: ignore[attr-defined]
    write_capture(engine, capture(day(5), {TYPE: dollars(1)}), day(12))
    row = {**instance_type_row(LATER_TYPE, vcpus=4.0), "gpu_count": 1, "source": "feed-two"}
    event = {**event_row(row["family"], date(2026, 10, 4), name=LATER_TYPE), "source": "feed-two"}
    shown = {TYPE: dollars(2), LATER_TYPE: dollars(3)}
    new = {"instance_type": [row], "lifecycle": [event]}
    write_capture(engine, capture(day(4), shown, feed="two", new=new), day(13))
    confirm_capture(engine, "one", "", day(14))
    write_capture(engine, capture(day(15), {TYPE: dollars(9), "g5.xlarge": dollars(4)}), day(15))
    client.app.state.live_catalog.refresh()  # type: ignore[attr-defined]


def answers(client: TestClient, **asked: str) -> list[Any]:
    """The answers of all endpoints to a question, without the version of the catalog and the question itself."""
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    got = [client.get(f"{path}{'&' if '?' in path else '?'}{query}") for path in PATHS]
    got += [client.post("/estimate", json=ESTIMATE | asked), client.post("/recommend", json=RECOMMEND | asked)]
    assert [answer.status_code for answer in got] == [200] * len(got), [answer.text for answer in got]
    bodies = [answer.json() for answer in got]
    for body in bodies:
        body["catalog"].pop("version")
        body.pop("question", None)
    return bodies


def price(client: TestClient, **asked: str) -> list[float]:
    items = client.get("/prices", params={"instance": f"aws/{TYPE}", **asked}).json()["items"]
    return [item["usd_per_hour"] for item in items]


def test_one_day_is_read_at_a_time(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a day takes a core for up to a minute, so that a second one must not start meanwhile."""
    refused = []

    def meanwhile(engine: Engine, day_read: date) -> CatalogHistory:
        refused.append(client.get("/prices", params={"known_at": "2026-10-06"}))
        return history_known_on(engine, day_read)

    monkeypatch.setattr(live_catalog, "history_known_on", meanwhile)
    assert price(client, known_at="2026-10-03") == [13.0]
    (answer,) = refused
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.json()["errors"][0]["field"] == "known_at"
    monkeypatch.undo()
    assert price(client, known_at="2026-10-06") == [16.0]


def test_the_price_that_was_known_on_a_day_answers(client: TestClient) -> None:
    assert [price(client, known_at=f"2026-10-0{number}") for number in (3, 5, 6, 9)] == [[13.0], [13.0], [16.0], [19.0]]
    import_later(client)
    assert [price(client, known_at=f"2026-10-0{number}") for number in (3, 5, 6, 9)] == [[13.0], [13.0], [16.0], [19.0]]


def test_a_correction_counts_from_the_day_on_which_it_was_imported(client: TestClient) -> None:
    import_later(client)
    assert price(client, as_of="2026-10-05", known_at="2026-10-09") == [13.0]
    assert price(client, as_of="2026-10-05", known_at="2026-10-12") == [11.0]
    assert price(client, as_of="2026-10-05") == [11.0]


def test_known_today_is_the_answer_without_it(client: TestClient) -> None:
    import_later(client)
    assert answers(client, known_at=TODAY.isoformat()) == answers(client)


def without_echo(bodies: list[Any]) -> str:
    """The answers without the days that were asked, which an answer repeats."""
    text = json.dumps(bodies)
    return text.replace('"known_at": "2026-10-10"', '"known_at": null')


def test_later_imports_change_no_answer_of_an_earlier_day(client: TestClient) -> None:
    before = answers(client, known_at="2026-10-10")
    then = answers(client, as_of="2026-10-10")
    assert without_echo(before) == without_echo(then)
    import_later(client)
    assert answers(client, known_at="2026-10-10") == before


def test_an_instance_type_that_a_feed_added_later_was_not_known(client: TestClient) -> None:
    import_later(client)
    path = f"/instances/aws/{LATER_TYPE}"
    assert client.get(path).status_code == 200
    assert client.get(path, params={"known_at": "2026-10-13"}).status_code == 200
    assert client.get(path, params={"known_at": "2026-10-12"}).status_code == 404


@pytest.mark.parametrize(
    ("asked", "field", "sentence"),
    [
        ({"known_at": "2026-10-21"}, "known_at", "lies in the future"),
        ({"known_at": "2026-09-30"}, "known_at", "The first import was on 2026-10-01."),
        ({"known_at": "2026-10-05", "as_of": "2026-10-06"}, "as_of", "lies after known_at"),
    ],
)
def test_a_day_without_an_answer_is_refused(
    asked: dict[str, str], field: str, sentence: str, client: TestClient
) -> None:
    for refused in (client.get("/prices", params=asked), client.post("/recommend", json=RECOMMEND | asked)):
        assert refused.status_code == 422
        assert field in refused.text
        assert sentence in refused.text


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    imports=st.lists(
        st.tuples(st.integers(2, 19), st.integers(0, 3), st.sampled_from(["one", "two"]), st.sampled_from([9, 10, 30])),
        min_size=1,
        max_size=6,
        unique_by=lambda each: (each[0], each[2]),
    ),
    known=st.integers(2, 19),
)
def test_a_replay_equals_a_database_that_has_only_the_imports_of_that_time(
    migrated_file: Path, tmp_path_factory: pytest.TempPathFactory, imports: list[tuple[int, int, str, int]], known: int
) -> None:
    """Imports are the day of the capture, the days until it was imported, the feed and dollars."""
    folder, arrived = tmp_path_factory.mktemp("replay"), sorted(imports, key=lambda each: each[0] + each[1])
    until = [each for each in arrived if each[0] + each[1] <= known]

    def shown(name: str, some: list[tuple[int, int, str, int]], **asked: str) -> Any:
        url = f"sqlite:///{shutil.copy(migrated_file, folder / f'{name}.db')}"
        engine = with_feeds(url, feed_row("one"), feed_row("two", rank=5), written_at=datetime(2026, 9, 1, tzinfo=UTC))
        for number, later, feed, price_ in some:
            write_capture(engine, capture(day(number), {TYPE: price_ * 10**6}, feed=feed), day(number + later))
        client = TestClient(create_app(Settings(database_url=url), today=lambda: TODAY))
        answer = client.get("/prices", params={"from": "2026-10-01", **asked}).json()["items"]
        client.close()
        engine.dispose()
        return answer

    assert shown("all", arrived, known_at=f"2026-10-{known:02}") == shown("some", until, as_of=f"2026-10-{known:02}")
