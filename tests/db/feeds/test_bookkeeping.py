"""The records of runs and documents grow with every run, and what is read of them does not."""

from collections.abc import Iterator
from datetime import datetime

import pytest
from sqlalchemy import Engine

from service.db.columns import UtcDateTime
from service.db.engine import connect
from service.db.feeds.read_feeds import feed_statuses
from service.db.feeds.write_capture import confirm_capture, write_capture
from service.db.read_history import read_history
from tests.builders.captures import capture, day, feed_row, only_status, with_feeds

TYPE = "p4d.24xlarge"


@pytest.fixture
def engine(tables_url: str) -> Iterator[Engine]:
    engine = with_feeds(tables_url, feed_row("one"))
    write_capture(engine, capture(day(1), {TYPE: 30}), day(1))
    yield engine
    engine.dispose()


def test_the_number_of_instants_that_are_read_does_not_grow_with_runs_and_documents(
    engine: Engine, tables_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instants = []
    read = UtcDateTime.process_result_value

    def noted(self: UtcDateTime, value: datetime | None, dialect: object) -> datetime | None:
        instants.append(value)
        return read(self, value, dialect)  # type: ignore[arg-type]

    monkeypatch.setattr(UtcDateTime, "process_result_value", noted)
    reader = connect(tables_url)  # a new one, because an engine remembers how it reads a type

    def read_at(number: int) -> list[int]:
        """How many instants each reading takes after captures on so many days."""
        counts = []
        confirm_capture(engine, "one", "", day(number))
        for act in (
            lambda: feed_statuses(reader),
            lambda: read_history(reader),
            lambda: confirm_capture(reader, "one", "", day(number, hour=1)),
        ):
            instants.clear()
            act()
            counts.append(len(instants))
        return counts

    before = read_at(2)
    for number in range(3, 20):
        write_capture(engine, capture(day(number), {TYPE: 30}), day(number))
    after = read_at(20)
    reader.dispose()
    assert all(before)
    assert after == before


def test_a_feed_changed_when_a_part_of_it_first_had_its_present_content(engine: Engine) -> None:
    assert only_status(engine).changed_at == day(1)
    for number, part, micros in ((2, "", 31), (3, "", 30), (4, "", 30), (2, "b", 7), (5, "b", 7)):
        write_capture(engine, capture(day(number), {TYPE: micros}, part=part), day(number))
    assert only_status(engine).changed_at == day(3)
    assert only_status(engine).captured_at == day(5)


def test_the_last_import_that_changed_the_catalog_is_shown_for_each_feed(engine: Engine) -> None:
    write_capture(engine, capture(day(2), {TYPE: 31}), day(3))
    confirm_capture(engine, "one", "", day(4))
    confirm_capture(engine, "one", "", day(4, hour=1))
    imports = read_history(engine).reference.imports
    assert [(each.feed, each.finished_at) for each in imports] == [("one", day(3)), ("seed", day(1))]
