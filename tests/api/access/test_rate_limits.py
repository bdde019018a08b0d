"""Keys, and addresses without a key, send a limited number of requests per minute; probes are free."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import httpx2
import pytest
from fastapi.testclient import TestClient
from limits.storage import MemoryStorage

from service.api.access import rate_limits
from service.api.access.rate_limits import Allowance, RateLimits, counted_as
from service.app import create_app
from service.domain.keys import id_of
from service.settings import Settings, SettingsWrong, read_settings
from tests.api.keys import TOKEN, bearer
from tests.server import PATIENCE_SECONDS, running

HERE, THERE = "203.0.113.9", "2001:db8:1:2::3"
Serving = Callable[..., TestClient]


@pytest.fixture
def serving(seeded_copy: str) -> Iterator[Serving]:
    """Clients at an address, of one service that takes 3 requests per key and 2 per address."""
    settings = Settings(database_url=seeded_copy, requests_per_minute_and_key=3, requests_per_minute_and_address=2)
    app = create_app(settings)
    clients: list[TestClient] = []

    def serve(address: str) -> TestClient:
        clients.append(TestClient(app, client=(address, 1)))
        return clients[-1]

    yield serve
    for client in clients:
        client.close()


def test_an_address_is_limited_and_learns_when_to_come_back(serving: Serving) -> None:
    client, other = serving(HERE), serving(THERE)
    for remaining in ("1", "0"):
        answer = client.get("/gpus?limit=1")
        assert (answer.status_code, answer.headers["ratelimit-limit"]) == (200, "2")
        assert answer.headers["ratelimit-remaining"] == remaining
        assert 1 <= int(answer.headers["ratelimit-reset"]) <= 60
    refused = client.get("/gpus?limit=1")
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["retry-after"] == refused.headers["ratelimit-reset"]
    assert refused.json()["detail"].startswith("This address without an API key may send 2 requests per minute.")
    assert other.get("/gpus?limit=1").status_code == 200


def test_a_key_has_its_own_count_at_every_address(serving: Serving) -> None:
    for address, status in ((HERE, 200), (HERE, 200), (THERE, 200), ("198.51.100.7", 429)):
        answer = serving(address).get("/gpus?limit=1", headers=bearer())
        assert (answer.status_code, answer.headers["ratelimit-limit"]) == (status, "3")
    assert f"The API key {id_of(TOKEN)} may send 3" in answer.json()["detail"]
    assert serving(HERE).get("/gpus?limit=1").status_code == 200


def test_a_guessed_key_counts_for_its_address(serving: Serving) -> None:
    client = serving(HERE)
    statuses = [client.get("/gpus", headers=bearer(f"guess-{turn}")).status_code for turn in range(3)]
    assert statuses == [401, 401, 429]


def test_probes_and_this_machine_are_not_limited(serving: Serving) -> None:
    there = serving(HERE)
    for target in ("/healthz", "/readyz", "/metrics"):
        assert {there.get(target).status_code for _ in range(4)} == {200}
    for address in ("127.0.0.1", "::1", "testclient"):
        answers = [serving(address).get("/gpus?limit=1") for _ in range(4)]
        assert {answer.status_code for answer in answers} == {200}
        assert "ratelimit-limit" not in answers[0].headers


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("203.0.113.9", "203.0.113.9/32"),
        ("2001:db8:1:2::3", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("127.8.9.1", ""),
        ("", ""),
    ],
)
def test_neighbours_with_ipv6_are_counted_together(address: str, counted: str) -> None:
    assert counted_as(address) == counted


def test_zero_is_no_limit(seeded_file: Path) -> None:
    settings = Settings(
        database_url=f"sqlite:///{seeded_file}", requests_per_minute_and_key=0, requests_per_minute_and_address=0
    )
    client = TestClient(create_app(settings), client=(HERE, 1))
    assert "ratelimit-limit" not in client.get("/gpus?limit=1").headers
    client.close()


@pytest.mark.parametrize("url", ["cards://cache", "redis://cache:6379"])
def test_a_storage_that_cannot_be_used_is_refused_at_the_start(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver of Redis is not among the packages of this project."""
    monkeypatch.setenv("SELECTOR_RATE_LIMIT_STORAGE_URL", url)
    with pytest.raises(SettingsWrong, match="SELECTOR_RATE_LIMIT_STORAGE_URL: "):
        read_settings()


def test_while_a_shared_storage_fails_nothing_is_limited(
    seeded_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(
        database_url=f"sqlite:///{seeded_file}",
        requests_per_minute_and_address=1,
        rate_limit_storage_url="memory://shared",
    )
    monkeypatch.setattr(rate_limits, "STORAGE_SECONDS", 60)  # for machines that are busy
    client = TestClient(create_app(settings), client=(HERE, 1))
    assert [client.get("/gpus?limit=1").status_code for _ in range(2)] == [200, 429]

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("the storage is away")

    monkeypatch.setattr("limits.storage.MemoryStorage.incr", fail)
    assert client.get("/gpus?limit=1").status_code == 200
    assert "the storage is away" in caplog.text
    client.close()


def test_a_storage_that_is_silent_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, answering = [], Event()

    def wait(*_: object, **__: object) -> int:
        asked.append(1)
        answering.wait(5)
        return 1

    monkeypatch.setattr("limits.storage.MemoryStorage.incr", wait)
    monkeypatch.setattr(rate_limits, "STORAGE_SECONDS", 0.05)
    limits = RateLimits(per_key=1, per_address=1, storage_url="memory://shared")

    async def spend_twice() -> list[Allowance | None]:
        try:
            return [await limits.spend(None, HERE) for _ in range(2)]
        finally:
            answering.set()

    assert asyncio.run(spend_twice()) == [None, None]
    assert len(asked) <= 1, "the second request did not wait"
    assert "Requests are not limited for 5 seconds" in caplog.text
    monkeypatch.setattr(rate_limits, "STORAGE_SECONDS", 60)
    monkeypatch.setattr(limits, "_paused_until", 0.0)
    assert asyncio.run(limits.spend(None, HERE)) is not None


@pytest.mark.parametrize("url", ["redis://cache:6379", "rediss://cache", "valkey://cache", "memory://shared"])
def test_the_driver_of_a_storage_on_another_machine_has_a_time_limit(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, object]] = []

    def storage(_url: str, **options: object) -> MemoryStorage:
        given.append(options)
        return MemoryStorage()

    monkeypatch.setattr("limits.storage.storage_from_string", storage)
    asyncio.run(RateLimits(per_key=1, per_address=1, storage_url=url).spend(None, HERE))
    expected = {"socket_timeout": 0.25, "socket_connect_timeout": 0.25}
    assert given == [{} if url.startswith("memory") else expected]


def test_behind_a_proxy_the_client_counts_and_not_the_proxy(seeded_file: Path, tmp_path: Path) -> None:
    """uvicorn takes the address from a proxy that it trusts, which is by default one on this machine."""
    limit = {"SELECTOR_REQUESTS_PER_MINUTE_AND_ADDRESS": "2"}
    with (
        running(f"sqlite:///{seeded_file}", tmp_path / "log", **limit) as server,
        httpx2.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client,
    ):
        statuses = {
            address: [client.get("/gpus?limit=1", headers={"X-Forwarded-For": address}).status_code for _ in range(3)]
            for address in (HERE, THERE)
        }
    assert statuses == {HERE: [200, 200, 429], THERE: [200, 200, 429]}
