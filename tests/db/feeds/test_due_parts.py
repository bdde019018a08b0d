"""A part of a feed is due one interval after it was read, and sooner after a failure."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from sqlalchemy import Engine

from service.db.write_catalog import record_failure
from tests.builders.captures import day, feed_row, only_status, with_feeds

PARTS = ("a", "b", "c", "d")
MINUTE = timedelta(minutes=1)


@pytest.fixture
def engine(tables_url: str) -> Iterator[Engine]:
    engine = with_feeds(tables_url, feed_row("daily"))
    yield engine
    engine.dispose()


def run(engine: Engine, at: datetime, **states: str) -> None:
    """Records a run of parts, each with the state in which it ended."""
    for part, state in states.items():
        record_failure(engine, "daily", at, state, "", part)


def due(engine: Engine, at: datetime) -> str:
    return "".join(only_status(engine).due_parts(PARTS, at))


def test_a_feed_that_was_never_read_is_due_at_once(engine: Engine) -> None:
    assert due(engine, day(1)) == "abcd"
    assert only_status(engine).next_run_at is None


def test_a_daily_feed_that_fails_is_tried_again_after_minutes_that_double(engine: Engine) -> None:
    at = day(1)
    for minutes in (15, 30, 60):
        run(engine, at, a="failed")
        assert due(engine, at + (minutes - 1) * MINUTE) == ""
        at += minutes * MINUTE
        assert due(engine, at) == "bcda"  # the other parts were never tried
        assert only_status(engine).next_run_at == at
    run(engine, at, a="done", b="unchanged", c="refused", d="done")
    assert due(engine, at + timedelta(hours=20)) == ""
    assert due(engine, at + timedelta(hours=24)) == "abcd"
    assert only_status(engine).next_run_at == at + timedelta(hours=24)


def test_the_wait_after_failures_is_at_most_the_interval(engine: Engine) -> None:
    for number in range(40):
        run(engine, day(1) + number * MINUTE, a="failed")
    assert due(engine, day(2)) == ""
    assert due(engine, day(2) + 39 * MINUTE) == "bcda"


def test_a_part_that_failed_among_others_is_read_again_alone(engine: Engine) -> None:
    run(engine, day(1), a="done", b="failed", c="done", d="done")
    assert due(engine, day(1) + MINUTE) == "b"
    assert only_status(engine).next_run_at == day(1)
    run(engine, day(1) + MINUTE, b="failed")
    assert due(engine, day(1) + 2 * MINUTE) == ""
    assert due(engine, day(1) + 16 * MINUTE) == "b"


def test_a_part_that_always_fails_does_not_delay_the_others(engine: Engine) -> None:
    run(engine, day(1), a="done", c="done", d="done")
    for minutes in (1, 16, 46, 106, 226, 466, 946):
        run(engine, day(1) + minutes * MINUTE, b="failed")
    assert due(engine, day(2) - MINUTE) == ""
    assert due(engine, day(2)) == "acd"
    assert only_status(engine).next_run_at == day(2)


def test_parts_are_read_together_and_those_first_that_waited_longest(engine: Engine) -> None:
    for number, part in enumerate("cadb"):
        run(engine, day(1) + 30 * number * MINUTE, **{part: "done"})
    assert due(engine, day(2) - MINUTE) == ""
    assert due(engine, day(2)) == "cadb"
    run(engine, day(2), c="failed", a="failed")
    assert due(engine, day(2) + 15 * MINUTE) == ""
    assert due(engine, day(2) + 30 * MINUTE) == "dbac"
