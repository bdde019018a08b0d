"""The state of the feeds over HTTP."""

import threading
from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.db.engine import connect
from service.db.feeds.write_capture import write_capture
from service.db.write_catalog import record_failure
from service.settings import Settings
from tests.builders.captures import capture, observed_row

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def client(seeded_copy: str) -> TestClient:
    """A service after one capture of a feed, with an unknown type, and a failure of another feed."""
    engine = connect(seeded_copy)
    prices = {"p5.48xlarge": 55_040_000, "p9.48xlarge": 150_000_000}
    rows = [observed_row(name, micros, source="feed-azure") for name, micros in prices.items()]
    shown = capture(NOW, {}, feed="azure", rows=rows)
    write_capture(engine, shown, NOW)
    record_failure(engine, "oci", NOW, "failed", "oci: https://apexapps.oracle.com does not answer.")
    engine.dispose()
    return TestClient(create_app(Settings(database_url=seeded_copy)))


def test_each_feed_shows_its_health_and_counts(client: TestClient) -> None:
    feeds = {feed["id"]: feed for feed in client.get("/feeds").json()["items"]}
    assert (feeds["azure"]["state"], feeds["azure"]["rows_kept"], feeds["azure"]["rows_unmapped"]) == ("ok", 2, 1)
    assert feeds["azure"]["next_run_at"] > feeds["azure"]["last_run_at"]
    assert (feeds["oci"]["state"], feeds["gpuhunt"]["state"]) == ("failed", "never")
    assert "does not answer" in feeds["oci"]["problem"]
    assert "seed" not in feeds


def test_unknown_types_are_listed_with_their_prices(client: TestClient) -> None:
    answer = client.get("/catalog/unmapped").json()
    assert [(item["name"], item["prices"], item["feeds"]) for item in answer["items"]] == [
        ("p9.48xlarge", 1, ["azure"])
    ]
    assert client.get("/catalog/unmapped?limit=0").status_code == 422


def test_metrics_are_sent_without_feeds_while_the_database_does_not_answer(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering = threading.Event()
    monkeypatch.setattr("service.api.catalog.health.FEEDS_SECONDS", 0.1)
    monkeypatch.setattr(client.app.state.live_catalog, "feeds", answering.wait)  # type: ignore[attr-defined]
    try:
        answer = client.get("/metrics")
    finally:
        answering.set()
    assert answer.status_code == 200
    assert "selector_catalog_version" in answer.text
    assert "selector_feed_healthy" not in answer.text


def test_metrics_have_a_gauge_for_each_feed_that_was_read(client: TestClient) -> None:
    lines = client.get("/metrics").text.splitlines()
    assert 'selector_feed_rows_kept{feed="azure"} 2.0' in lines
    assert 'selector_feed_healthy{feed="oci"} 0.0' in lines
    assert not any('feed="gpuhunt"' in line for line in lines)
