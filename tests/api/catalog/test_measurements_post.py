"""Measurements sent are kept once and visible at once in every process; a refusal names the wrong field."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import text

from service.api.http import examples
from service.app import create_app
from service.db import engine as engines
from service.db.engine import connect
from service.files import SEED
from service.importers.load_seed import load_seed
from service.settings import Settings
from tests.api.answers import get_json
from tests.api.keys import bearer
from tests.api.raw_asgi import JSON, KEY, Answer, call

Sent = dict[str, Any]
PATIENCE_SECONDS = 5


@pytest.fixture(scope="module")
def client(app_to_write: FastAPI) -> Iterator[TestClient]:
    client = TestClient(app_to_write, headers=bearer())
    yield client
    client.close()


def item(**given: Any) -> Sent:
    return {"name": "a-net", "machine": "aws/g5.xlarge", "samples_per_second": 360.0, **given}


LOOP = {"name": "a-loop", "machine": "aws/p3.16xlarge", "steps": 100, "seconds": 40, "batch_size": 128, "world_size": 8}


def send(client: TestClient, *items: Sent) -> list[Any]:
    answer = client.post("/measurements", json={"items": items})
    assert answer.status_code == 201, answer.text
    found: list[Any] = answer.json()["items"]
    return found


def named(client: TestClient, workload: str) -> list[Any]:
    """The measurements of a workload by its name; empty for an unknown name."""
    answer = client.get("/measurements", params={"workload": workload, "limit": 500})
    return answer.json()["items"] if answer.status_code == 200 else []


def test_a_sent_measurement_is_in_the_next_list_as_it_was_answered(client: TestClient) -> None:
    (kept,) = send(
        client,
        item(
            name="whole",
            machine="G5.XLARGE",
            nodes=2,
            precision="BF16",
            batch_size=64,
            software={"framework": "torch==2.0"},
            usd_per_hour=1.006,
            measured_at="2023-06-01",
            source="nightly",
            note="two\nlines",
        ),
    )
    assert named(client, "whole") == [kept]
    assert get_json(client, "/measurements?q=nightly%20whole")["items"] == [kept]
    expected = {
        "kind": "workload_throughput",
        "workload": "whole",
        "machine": "aws/g5.xlarge",
        "gpu": "a10g-24gb",
        "gpu_count": 1,
        "nodes": 2,
        "precision": "bf16",
        "batch_size": 64,
        "framework": "pytorch",
        "software": "torch==2.0",
        "samples_per_second": 360.0,
        "value": 360.0,
        "unit": "samples_per_second",
        "usd_per_hour": 1.006,
        "measured_on": "2023-06-01",
        "source": "nightly",
        "note": "two\nlines",
    }
    assert {name: kept[name] for name in expected} == expected


def test_a_loop_is_divided(client: TestClient) -> None:
    (kept,) = send(client, LOOP)
    figures = [kept[name] for name in ("samples_per_second", "batch_size", "seconds_per_batch", "measured_on")]
    assert figures == [2560.0, 1024, 0.4, examples.DAY.isoformat()]


def test_a_workload_is_named_in_three_ways(client: TestClient) -> None:
    ways: list[Sent] = [{"name": "three-ways"}, {"workload": "three-ways"}, {"workload": {"name": "three-ways"}}]
    ids = {send(client, {**way, "machine": "g5.xlarge", "samples_per_second": 1})[0]["id"] for way in ways}
    assert len(ids) == len(named(client, "three-ways")) == 1


def test_a_repeated_measurement_is_kept_once_and_has_the_same_answer(client: TestClient) -> None:
    one, other = item(name="again", samples_per_second=1), item(name="again", samples_per_second=2)
    first = send(client, one)
    before = get_json(client, "/catalog")["catalog"]["version"]
    assert send(client, one, one) == first * 2
    assert get_json(client, "/catalog")["catalog"]["version"] == before
    assert [each["value"] for each in send(client, other, one)] == [2.0, 1.0]
    assert len(named(client, "again")) == 2


def test_a_measurement_counts_from_its_day_on(client: TestClient) -> None:
    send(client, item(name="in-spring", measured_at="2024-04-01"))
    assert get_json(client, "/measurements?workload=in-spring&as_of=2024-04-01")["total"] == 1
    assert client.get("/measurements?workload=in-spring&as_of=2024-03-31").status_code == 422


def test_compare_takes_sent_measurements_of_one_machine(client: TestClient) -> None:
    send(client, item(name="to-compare"), item(name="to-compare", nodes=4, samples_per_second=1400))
    row = get_json(client, "/compare?instance=aws/g5.xlarge&workload=to-compare")["items"][0]
    assert (row["basis"], row["speed"]) == ("measured", 360.0)


def test_a_thousand_go_in_at_once_and_one_more_does_not(client: TestClient) -> None:
    many = [item(name="many", samples_per_second=number + 1) for number in range(1001)]
    assert len({each["id"] for each in send(client, *many[:1000])}) == 1000
    answer = client.post("/measurements", json={"items": many})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "items")
    assert get_json(client, "/measurements?workload=many")["total"] == 1000


LONG = "a" * 201
WRONG: list[tuple[Sent, str, str]] = [
    (item(machine="aws/g5.xlrge"), "machine", "aws/g5.xlarge"),
    (item(machine={"gpu": "t4"}), "machine", ""),
    (item(machine=""), "machine", ""),
    (item(machine=LONG), "machine", ""),
    (item(precision="bf17"), "precision", "bf16"),
    (item(nodes=0), "nodes", ""),
    (item(nodes=1.5), "nodes", ""),
    (item(nodes=True), "nodes", ""),
    (item(nodes=10_001), "nodes", ""),
    (item(samples_per_second=0), "samples_per_second", ""),
    (item(samples_per_second=-1), "samples_per_second", ""),
    (item(samples_per_second=1e16), "samples_per_second", ""),
    (item(samples_per_second=5e-324), "samples_per_second", ""),
    (item(samples_per_second="360"), "samples_per_second", ""),
    (item(samples_per_second=True), "samples_per_second", ""),
    (item(samples_per_second=None), "samples_per_second", ""),
    (item(batch_size=0), "batch_size", ""),
    (item(batch_size=10**9), "batch_size", ""),
    (item(world_size=8), "samples_per_second", ""),
    ({**LOOP, "samples_per_second": 1}, "samples_per_second", ""),
    ({**LOOP, "seconds": None}, "seconds", ""),
    ({**LOOP, "world_size": None}, "world_size", ""),
    ({**LOOP, "seconds": 0}, "seconds", ""),
    ({**LOOP, "steps": 0}, "steps", ""),
    ({**LOOP, "seconds": 1e15, "steps": 1}, "seconds", ""),
    ({**LOOP, "batch_size": 10**8, "world_size": 10**6}, "batch_size", ""),
    ({**LOOP, "seconds": 1e-300}, "seconds", ""),
    (item(usd_per_hour=0), "usd_per_hour", ""),
    (item(usd_per_hour=1e-7), "usd_per_hour", ""),
    (item(usd_per_hour=1e10), "usd_per_hour", ""),
    (item(measured_at="2026-11-02"), "measured_at", ""),
    (item(measured_at="1999-12-31"), "measured_at", ""),
    (item(measured_at="2026-02-30"), "measured_at", ""),
    (item(measured_at=1645056000), "measured_at", ""),
    (item(name=""), "name", ""),
    (item(name=LONG), "name", ""),
    (item(name="a\x00b"), "name", ""),
    (item(name="a\ud800b"), "name", ""),
    (item(name=None), "name", ""),
    (item(workload="another"), "name", ""),
    (item(name=None, workload={"name": LONG}), "workload.name", ""),
    (item(name=None, workload={"name": "x", "task": "training"}), "workload.task", ""),
    (item(source=""), "source", ""),
    (item(source="a\nb"), "source", ""),
    (item(note="a" * 1001), "note", ""),
    (item(note="a\x00b"), "note", ""),
    (item(note="\udfff"), "note", ""),
    (item(software="pytorch"), "software", ""),
    (item(software={"framework": LONG}), "software.framework", ""),
    (item(software={"framework": "pytorch==two"}), "software.framework", ""),
    (item(software={"frameworks": "pytorch"}), "software.frameworks", "framework"),
    (item(sample_per_second=1), "sample_per_second", "samples_per_second"),
    (item(id="mine"), "id", ""),
]


def post(app: FastAPI, body: str) -> Answer:
    return call(app, "POST", "/measurements", headers=(*JSON, KEY), chunks=[body.encode()])


@pytest.mark.parametrize(("wrong", "field", "near"), WRONG)
def test_a_bad_item_refuses_the_whole_call(
    wrong: Sent, field: str, near: str, app_to_write: FastAPI, client: TestClient
) -> None:
    before = get_json(client, "/catalog")["catalog"]["version"]
    answer = post(app_to_write, json.dumps({"items": [item(name="good"), wrong]}))
    assert answer.status == 422, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.fields[0] == f"items.1.{field}", answer.body
    assert not near or any(name.endswith(near) for name in answer.near)
    assert get_json(client, "/catalog")["catalog"]["version"] == before
    assert named(client, "good") == []


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ("{}", 422, "items"),
        ('{"items": []}', 422, "items"),
        ('{"items": {}}', 422, "items"),
        ('{"items": [1]}', 422, "items.0"),
        ('{"items": [{"name": "a", "samples_per_second": 1}]}', 422, "items.0.machine"),
        ('{"items": [{"name": "a", "machine": "g5.xlarge", "samples_per_second": NaN}]}', 422, None),
        ('{"items": [{"name": "a", "machine": "g5.xlarge", "samples_per_second": 1e999}]}', 422, None),
        ('{"items": [{"name": "a", "name": "b"}]}', 400, "name"),
        ('{"itmes": []}', 422, None),
        ("[", 400, "body"),
    ],
)
def test_a_body_that_means_nothing(body: str, status: int, field: str | None, app_to_write: FastAPI) -> None:
    answer = post(app_to_write, body)
    assert answer.status == status, answer.body
    assert field is None or answer.fields[0] == field


def test_another_method_gets_both_in_allow(client: TestClient) -> None:
    answer = client.delete("/measurements")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


def test_it_takes_no_query(client: TestClient) -> None:
    answer = client.post("/measurements?as_of=2024-01-01", json={"items": [item()]})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "as_of")


def test_an_unknown_workload_is_answered_with_near_ones(client: TestClient) -> None:
    answer = client.get("/measurements?workload=alexnet_trian")
    assert answer.status_code == 422
    assert "alexnet_train" in answer.json()["errors"][0]["near"]


# Databases

Serving = Callable[[str], TestClient]


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Begins processes of the service, which end with the test."""
    with ExitStack() as running:

        def serve(url: str) -> TestClient:
            app = create_app(Settings(database_url=url), today=lambda: examples.DAY)
            return running.enter_context(TestClient(app, headers=bearer()))

        yield serve


def test_a_new_seed_leaves_it_and_a_new_process_has_it(seeded_copy: str, tmp_path: Path, serving: Serving) -> None:
    (kept,) = send(serving(seeded_copy), item(name="kept"))
    changed = tmp_path / "seed"
    changed.mkdir()
    for file in SEED.iterdir():
        if file.is_file():
            (changed / file.name).write_bytes(file.read_bytes())
    measurements = changed / "measurements.csv"
    measurements.write_text(measurements.read_text(encoding="utf-8").replace("caption", "title"), encoding="utf-8")
    engine = connect(seeded_copy)
    assert load_seed(engine, changed).state == "done"
    engine.dispose()
    anew = serving(seeded_copy)
    assert named(anew, "kept") == [kept]
    assert "from a title" in get_json(anew, "/measurements?q=alexnet%20g2.2xlarge")["items"][0]["note"]


def test_every_process_has_it_within_seconds(seeded_copy: str, serving: Serving) -> None:
    here, there = serving(seeded_copy), serving(seeded_copy)
    (kept,) = send(here, item(name="seen-by-all"))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while named(there, "seen-by-all") != [kept] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert named(there, "seen-by-all") == [kept]


def locked(url: str) -> Callable[[], None]:
    engine = connect(url)
    holding = engine.connect()
    holding.execute(text("UPDATE catalog_version SET importing = true"))

    def release() -> None:
        holding.rollback()
        holding.close()
        engine.dispose()

    return release


def test_a_locked_database_is_a_problem_to_try_again(
    seeded_copy: str, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "SQLITE_BUSY_SECONDS", 0.05)
    client = serving(seeded_copy)
    release = locked(seeded_copy)
    answer = client.post("/measurements", json={"items": [item(name="late")]})
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["retry-after"] == "10"
    assert answer.json()["detail"].endswith("Send the request again later.")
    assert "sqlite" not in answer.text
    assert named(client, "late") == []
    release()
    send(client, item(name="late"))
    assert len(named(client, "late")) == 1


def test_on_postgres_it_is_the_same(seeded_copy: str, seeded_postgres: str, serving: Serving) -> None:
    sqlite, postgres = serving(seeded_copy), serving(seeded_postgres)
    items = [item(note="naïve – 日本"), LOOP, item(nodes=3, samples_per_second=1e-9, usd_per_hour=1e9), LOOP]
    assert send(postgres, *items) == send(sqlite, *items)
    assert named(postgres, "a-net") == named(sqlite, "a-net")
