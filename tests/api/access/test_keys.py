"""A write takes a key with its scope; a key that is not valid is refused everywhere; reading is open unless closed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from service.api.http import examples
from service.app import create_app
from service.db.engine import connect
from service.db.keys import KeyRing, read_keys, revoke_key
from service.domain.keys import id_of
from service.settings import Settings
from tests.api.keys import TOKEN, add_key, bearer

ITEM = {"name": "a-net", "machine": "aws/g5.xlarge", "samples_per_second": 360.0, "measured_at": "2026-01-01"}
BODY = {"items": [ITEM]}
PAST = datetime(2026, 1, 2, tzinfo=UTC)


def test_a_write_without_a_key_is_refused_before_its_body_is_read(client: TestClient) -> None:
    for body in (b"[", b'{"items": []}'):
        answer = client.post("/measurements", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["errors"][0]["field"] == "Authorization"
    assert client.get("/measurements?workload=a-net").status_code == 422


def test_a_key_without_the_scope_is_refused_by_the_name_of_the_scope(seeded_copy: str) -> None:
    token = add_key(seeded_copy, scopes=("outcomes", "admin"))
    with TestClient(create_app(Settings(database_url=seeded_copy)), headers=bearer(token)) as service:
        answer = service.post("/measurements", json=BODY)
        assert answer.status_code == 403
        assert answer.json()["detail"] == (
            f"The API key {id_of(token)} lacks the scope 'measurements'; it has: outcomes, admin."
        )
        assert answer.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="measurements"'
        assert service.get("/gpus?limit=1").status_code == 200


def test_a_key_with_the_scope_writes(seeded_copy: str) -> None:
    token = add_key(seeded_copy, scopes=("measurements",))
    with TestClient(create_app(Settings(database_url=seeded_copy)), headers=bearer(token)) as service:
        assert service.post("/measurements", json=BODY).status_code == 201


@pytest.mark.parametrize(
    "token", ["", "x", TOKEN[:-1], TOKEN + "x", "sel_000000000000_" + "A" * 43, "é", "a b", "\x00", "x" * 8000]
)
def test_an_unknown_key_is_refused_everywhere(client: TestClient, token: str) -> None:
    headers = [(b"Authorization", f"Bearer {token}".encode("latin-1"))]
    for target in ("/gpus", "/measurements", "/nothing-here"):
        answer = client.get(target, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
        assert TOKEN not in answer.text


def test_the_right_id_with_the_wrong_secret_is_unknown(seeded_copy: str) -> None:
    token = add_key(seeded_copy)
    forged = token[:-1] + ("A" if token[-1] != "A" else "B")
    assert id_of(forged) == id_of(token)
    with TestClient(create_app(Settings(database_url=seeded_copy))) as service:
        answer = service.get("/gpus", headers=bearer(forged))
        assert (answer.status_code, answer.json()["detail"]) == (401, "The API key is not known.")


def test_an_expired_and_a_revoked_key_are_refused(seeded_copy: str) -> None:
    expired, revoked = add_key(seeded_copy, expires_at=PAST), add_key(seeded_copy)
    late = add_key(seeded_copy, expires_at=datetime.now(UTC) + timedelta(days=1))
    engine = connect(seeded_copy)
    assert revoke_key(engine, id_of(revoked), PAST)
    assert not revoke_key(engine, id_of(revoked), PAST)
    engine.dispose()
    with TestClient(create_app(Settings(database_url=seeded_copy))) as service:
        for token, state in ((expired, "expired"), (revoked, "revoked")):
            answer = service.post("/measurements", json=BODY, headers=bearer(token))
            assert (answer.status_code, answer.json()["detail"]) == (401, f"The API key {id_of(token)} is {state}.")
        assert service.get("/gpus?limit=1", headers=bearer(late)).status_code == 200


def test_another_scheme_is_not_a_key(client: TestClient) -> None:
    assert client.get("/gpus?limit=1", headers={"Authorization": "Basic dTpw"}).status_code == 200
    assert client.get("/gpus?limit=1", headers={"Authorization": f"bEaReR {TOKEN}"}).status_code == 200


def test_closed_reads_take_any_valid_key(seeded_copy: str) -> None:
    token = add_key(seeded_copy, scopes=("offers",))
    with TestClient(create_app(Settings(database_url=seeded_copy, open_reads=False))) as service:
        question = {"workload": {"task": "training"}}
        assert service.get("/instances").status_code == 401
        assert service.post("/recommend", json=question).status_code == 401
        assert service.get("/instances?limit=1", headers=bearer(token)).status_code == 200
        assert service.post("/recommend", json=question, headers=bearer(token)).status_code == 200
        for target in ("/healthz", "/readyz", "/metrics", "/docs", "/docs/files/swagger-ui.css", "/openapi.json"):
            assert service.get(target).status_code == 200, target


def test_on_both_databases_keys_follow_what_the_command_line_does(seeded_url: str) -> None:
    engine = connect(seeded_url)
    app = create_app(Settings(database_url=seeded_url), today=lambda: examples.DAY)
    service, live = TestClient(app), app.state.live_catalog
    token = add_key(seeded_url)
    assert service.post("/measurements", json=BODY, headers=bearer(token)).status_code == 401
    live.refresh()
    before = datetime.now(UTC)
    assert service.post("/measurements", json=BODY, headers=bearer(token)).status_code == 201
    (stored,) = [key for key in read_keys(engine) if key.owner == "tests"]
    assert stored.last_used_at is None, "a request does not write to the key"
    assert token not in repr(stored)
    live.keys.write_uses()
    (stored,) = [key for key in read_keys(engine) if key.owner == "tests"]
    assert stored.last_used_at is not None
    assert stored.last_used_at >= before
    revoke_key(engine, id_of(token), datetime.now(UTC))
    live.refresh()
    assert service.post("/measurements", json=BODY, headers=bearer(token)).status_code == 401
    live._engine.dispose()
    engine.dispose()


def test_while_the_database_is_away_the_last_keys_hold(seeded_url: str) -> None:
    engine = connect(seeded_url)
    token = add_key(seeded_url)
    app = create_app(Settings(database_url=seeded_url))
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE api_key RENAME TO gone")
    service, live = TestClient(app), app.state.live_catalog
    live.refresh()
    assert service.get("/gpus?limit=1", headers=bearer(token)).status_code == 200
    assert live.health.problem is not None, "a key that is revoked now would stay valid"
    live._engine.dispose()
    engine.dispose()


def test_each_use_of_a_key_is_written_once_and_kept_while_it_cannot_be_written(
    seeded_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.db.keys.WRITE_USES_EVERY", timedelta(0))
    engine, token = connect(seeded_url), add_key(seeded_url)
    keys, updates, is_away = KeyRing(engine), list[str](), [False]

    @event.listens_for(engine, "before_cursor_execute")
    def _note(_connection: Any, _cursor: Any, sql: str, *_rest: Any) -> None:
        if sql.startswith("UPDATE api_key"):
            updates.append(sql)
            if is_away[0]:
                raise OperationalError(sql, {}, Exception("away"))

    first, second = (datetime(2026, 11, 27, hour, tzinfo=UTC) for hour in (1, 2))
    keys.key_with(token, first)
    is_away[0] = True
    keys.write_uses()
    assert (len(updates), used(engine, token)) == (1, None)
    is_away[0] = False
    keys.write_uses()
    assert (len(updates), used(engine, token)) == (2, first)
    keys.write_uses()
    assert len(updates) == 2, "a key that was not used again is not written"
    keys.key_with(token, second)
    keys.write_uses()
    assert (len(updates), used(engine, token)) == (3, second)
    engine.dispose()


def used(engine: Engine, token: str) -> datetime | None:
    (key,) = [key for key in read_keys(engine) if key.id == id_of(token)]
    return key.last_used_at
