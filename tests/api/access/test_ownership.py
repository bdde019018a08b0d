"""Measurements are visible to the owner of their key alone, unless they are public; a key stores a limited number."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.http import examples
from service.app import create_app
from service.db.engine import connect
from service.domain.keys import id_of
from service.settings import Settings
from tests.api.keys import add_key, bearer

ITEM = {"machine": "aws/g5.xlarge", "samples_per_second": 360.0, "measured_at": "2026-01-01"}
LOOP = {"samples_per_second": None, "steps": 10**9, "batch_size": 10**4, "world_size": 1}
QUESTION = {"workload": {"task": "training", "name": "ours"}, "constraints": {"provider": ["aws"]}, "limit": 1}


@dataclass(frozen=True)
class Clients:
    """Clients of one service: two keys of one owner, the key of another, and none."""

    ours: TestClient
    ours_too: TestClient
    theirs: TestClient
    stranger: TestClient
    url: str

    @property
    def others(self) -> tuple[TestClient, TestClient]:
        return self.theirs, self.stranger


@pytest.fixture
def callers(seeded_url: str) -> Iterator[Clients]:
    owners = ("us", "us", "them")
    tokens = [add_key(seeded_url, owner, ("measurements",)) for owner in owners]
    app = create_app(Settings(database_url=seeded_url, measurements_per_key=3), today=lambda: examples.DAY)
    ours, ours_too, theirs = (TestClient(app, headers=bearer(token)) for token in tokens)
    yield Clients(ours, ours_too, theirs, TestClient(app), seeded_url)
    app.state.live_catalog._engine.dispose()


def send(client: TestClient, *items: dict[str, Any]) -> Any:
    answer = client.post("/measurements", json={"items": [{**ITEM, **item} for item in items]})
    assert answer.status_code == 201, answer.text
    return answer.json()["items"]


def listed(client: TestClient, workload: str) -> list[Any]:
    answer = client.get("/measurements", params={"workload": workload})
    items: list[Any] = answer.json()["items"] if answer.status_code == 200 else []
    return items


def test_only_the_owner_sees_and_uses_them(callers: Clients) -> None:
    paths = ("/instances/aws/g5.xlarge", "/catalog")
    before = [client.get(path).json() for client in callers.others for path in paths]
    (kept,) = send(callers.ours, {"name": "ours"})
    assert kept["public"] is False
    for client in (callers.ours, callers.ours_too):
        assert listed(client, "ours") == [kept]
        assert kept["id"] in [each["id"] for each in client.get(paths[0]).json()["evidence"]]
        assert client.get("/compare?instance=aws/g5.xlarge&workload=ours").json()["items"][0]["basis"] == "measured"
    for client in callers.others:
        assert listed(client, "ours") == []
        assert client.get("/compare?instance=aws/g5.xlarge&workload=ours").status_code == 422
        assert "ours" not in client.get("/measurements?workload=our").text
    after = [client.get(path).json() for client in callers.others for path in paths]
    for one, other in zip(before, after, strict=True):
        assert {**one, "catalog": None} == {**other, "catalog": None}


def test_the_same_question_has_each_callers_own_answer_however_often_it_is_asked(callers: Clients) -> None:
    job = {"task": "training", "name": "ours", "model": "resnet-50", "precision": ["fp16"], "amount": {"samples": 1e7}}
    for workload in (QUESTION["workload"], job):
        send(callers.ours, {"name": "ours"})
        send(callers.theirs, {"name": "ours", "samples_per_second": 7.0})
        question = {**QUESTION, "workload": workload, "constraints": {"instance": ["aws/g5.xlarge"]}}
        for _ in range(2):
            for client, rate in ((callers.ours, 360.0), (callers.theirs, 7.0), (callers.stranger, None)):
                (choice,) = client.post("/recommend", json=question).json()["choices"]
                estimate = choice["estimate"]
                assert (estimate["basis"] == "measured") == (rate is not None)
                assert rate is None or estimate["samples_per_second"]["likely"] == rate


def test_public_measurements_take_the_scope_admin_and_are_for_everyone(callers: Clients) -> None:
    refused = callers.ours.post("/measurements", json={"items": [{**ITEM, "name": "all", "public": True}]})
    assert refused.status_code == 403
    assert "lacks the scope 'admin'" in refused.json()["detail"]
    assert listed(callers.ours, "all") == []
    token = add_key(callers.url, "editor", ("measurements", "admin"))
    callers.ours.app.state.live_catalog.refresh()  # type: ignore[attr-defined]
    editor = TestClient(callers.ours.app, headers=bearer(token))
    (kept,) = send(editor, {"name": "all", "public": True})
    assert kept["public"] is True
    for client in (*callers.others, callers.ours, editor):
        assert listed(client, "all") == [kept]


def test_an_answer_kept_for_one_caller_does_not_hold_for_another(callers: Clients) -> None:
    send(callers.ours, {"name": "ours"})
    ours = callers.ours.get("/measurements?limit=1")
    assert (
        callers.ours_too.get("/measurements?limit=1", headers={"If-None-Match": ours.headers["etag"]}).status_code
        == 304
    )
    for client in callers.others:
        assert client.get("/measurements?limit=1", headers={"If-None-Match": ours.headers["etag"]}).status_code == 200
    assert "Authorization" in ours.headers["vary"]
    assert ours.headers["cache-control"].startswith("private")


def test_the_same_figures_of_two_callers_are_two_measurements(callers: Clients) -> None:
    (ours,), (again,), (theirs,) = (
        send(client, {"name": "ours"}) for client in (callers.ours, callers.ours_too, callers.theirs)
    )
    assert ours["id"] == again["id"] != theirs["id"]


def test_a_key_stores_so_many_and_no_more(callers: Clients) -> None:
    items = [{"name": "ours", "samples_per_second": rate} for rate in (1.0, 2.0, 3.0, 4.0)]
    send(callers.ours, *items[:2])
    refused = callers.ours.post("/measurements", json={"items": [{**ITEM, **item} for item in items]})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "items")
    assert "may store 3 measurements and has stored 2, so that 2 more cannot be stored" in refused.json()["detail"]
    assert len(listed(callers.ours, "ours")) == 2
    send(callers.ours, *items[:3])
    send(callers.ours, *items[:3])
    send(callers.theirs, items[3])
    engine = connect(callers.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM measurement WHERE samples_per_second = 1.0 AND owner = 'us'")
    engine.dispose()
    send(callers.ours, items[3])


def test_the_key_that_sent_a_measurement_is_on_record(callers: Clients) -> None:
    send(callers.ours, {"name": "ours"})
    engine = connect(callers.url)
    with engine.connect() as connection:
        (row,) = connection.exec_driver_sql("SELECT key, owner FROM measurement WHERE workload = 'ours'").all()
    engine.dispose()
    token = callers.ours.headers["Authorization"].removeprefix("Bearer ")
    assert (row.key, row.owner) == (id_of(token), "us")


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"samples_per_second": 1e15}, "items.0.samples_per_second"),
        (
            {"samples_per_second": None, "steps": 10**9, "seconds": 1, "batch_size": 10**4, "world_size": 1},
            "items.0.seconds",
        ),
    ],
)
def test_a_rate_that_no_machine_reaches_is_refused_with_the_most_that_it_can(
    client_to_write: TestClient, item: dict[str, Any], field: str
) -> None:
    sent = {key: value for key, value in {**ITEM, "name": "ours", **item}.items() if value is not None}
    refused = client_to_write.post("/measurements", json={"items": [sent]})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)
    assert "impossible on 1 x aws/g5.xlarge: the GPUs read at most 6e+11 bytes per second" in refused.json()["detail"]
    two = {**ITEM, "name": "ours", "nodes": 2, "samples_per_second": 1.1e12}
    assert client_to_write.post("/measurements", json={"items": [two]}).status_code == 201
