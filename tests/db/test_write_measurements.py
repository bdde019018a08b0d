"""A measurement sent is kept once, whole or not at all, shown at once, and left alone by imports."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from service.db import engine as engines
from service.db import live_catalog, write_measurements
from service.db import read_history as reading
from service.db.engine import connect
from service.db.errors import DatabaseUnusable
from service.db.live_catalog import LiveCatalog
from service.db.read_history import read_history
from service.db.write_catalog import Record, write
from service.domain.catalog.reference import Measurement
from tests.builders.rows import batch
from tests.builders.sources import SOURCE

DAY = date(2026, 11, 21)
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SENT = Measurement(
    id="sent-1",
    workload="résumé, large",
    framework="pytorch",
    machine="aws/g5.xlarge",
    gpu_count=1,
    precision="bf16",
    batch_size=64,
    seconds_per_batch=0.25,
    samples_per_second=256.0,
    usd_per_hour=1.006,
    measured_on=date(2026, 11, 20),
    source="sent",
    note=None,
    nodes=2,
    software="pytorch==2.0",
)


@pytest.fixture
def engine(engine: Engine) -> Engine:
    write(engine, batch(tables={"measurement": [seeded("of-the-seed")]}), NOW)
    return engine


def seeded(id: str) -> Record:  # noqa: A002 - it is called that everywhere
    plain: dict[str, Any] = {"workload": "alexnet", "machine": "aws/g5.xlarge", "samples_per_second": 100.0}
    return {"id": id, **plain, "measured_on": date(2026, 1, 1), "source": SOURCE, "nodes": 1}


def ids(engine: Engine) -> list[str]:
    return sorted(each.id for each in stored(engine))


def stored(engine: Engine) -> list[Measurement]:
    return read_history(engine).measurements.of(None)


def version(engine: Engine) -> int:
    return read_history(engine).version


def test_it_comes_back_as_it_went_in(engine: Engine) -> None:
    before = version(engine)
    assert write_measurements.write_measurements(engine, [SENT], NOW) == [SENT]
    assert stored(engine)[-1] == SENT
    assert version(engine) == before + 1


def test_money_is_answered_as_it_is_stored(engine: Engine) -> None:
    """The database holds micro-units: what the caller sent in more detail is rounded in the answer too."""
    (answered,) = write_measurements.write_measurements(engine, [replace(SENT, usd_per_hour=1.0061234567)], NOW)
    assert answered == stored(engine)[-1]
    assert answered.usd_per_hour == 1.006123


def test_the_same_again_changes_nothing_and_answers_the_same(engine: Engine) -> None:
    other = replace(SENT, id="sent-2")
    write_measurements.write_measurements(engine, [SENT], NOW)
    before = version(engine)
    assert write_measurements.write_measurements(engine, [SENT, SENT], NOW) == [SENT, SENT]
    assert version(engine) == before
    assert write_measurements.write_measurements(engine, [other, SENT, other], NOW) == [other, SENT, other]
    assert ids(engine) == ["of-the-seed", "sent-1", "sent-2"]
    assert version(engine) == before + 1


def test_a_bad_one_among_them_keeps_all_out(engine: Engine) -> None:
    before = version(engine)
    with pytest.raises(Exception, match="samples_per_second_positive"):
        write_measurements.write_measurements(engine, [SENT, replace(SENT, id="bad", samples_per_second=-1.0)], NOW)
    assert ids(engine) == ["of-the-seed"]
    assert version(engine) == before
    write(engine, batch("the next import works"), NOW)


def test_an_import_replaces_its_own_rows_and_leaves_sent_ones(engine: Engine) -> None:
    write_measurements.write_measurements(engine, [SENT], NOW)
    write(engine, batch("another", tables={"measurement": [seeded("newer")]}), NOW)
    assert ids(engine) == ["newer", "sent-1"]
    write(engine, batch("none", tables={"measurement": []}), NOW)
    assert ids(engine) == ["sent-1"]


def test_the_live_catalog_has_it_once_it_is_acknowledged(engine: Engine) -> None:
    live = LiveCatalog(engine, today=lambda: DAY)
    assert live.add_measurements([SENT]) == [SENT]
    assert SENT in live.on(None).measurements
    assert SENT not in live.on(date(2026, 11, 19)).measurements


def test_prices_are_not_read_again_for_a_measurement(engine: Engine) -> None:
    mine, others = (LiveCatalog(engine, today=lambda: DAY) for _ in range(2))
    before = others.history
    mine.add_measurements([SENT])
    others.refresh()
    assert SENT in others.on(None).measurements
    assert others.history.prices is before.prices
    assert (others.history.version, others.history.facts_version) == (before.version + 1, before.facts_version)
    assert others.history == read_history_like(engine, others)


def read_history_like(engine: Engine, live: LiveCatalog) -> object:
    """The history read again in full, with the parts of the held one that compare by identity."""
    whole = read_history(engine)
    held = live.history
    assert whole.measurements.of(None) == held.measurements.of(None)
    reference = replace(whole.reference, calibration=held.reference.calibration)
    return replace(whole, offers=held.offers, prices=held.prices, reference=reference, measurements=held.measurements)


def test_only_what_is_newer_is_read_and_nothing_is_built_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, others = (LiveCatalog(engine, today=lambda: DAY) for _ in range(2))
    before = others.on(None)
    read: list[int] = []

    def counted(*given: Any, **parameters: Any) -> list[Measurement]:
        rows = plain(*given, **parameters)
        read.append(len(rows))
        return rows

    plain = reading.read_measurements
    monkeypatch.setattr(reading, "read_measurements", counted)
    for number in range(3):
        mine.add_measurements([replace(SENT, id=f"sent-{number}")])
        others.refresh()
        assert read.pop() == 1
        assert others.on(None).measurements.log is before.measurements.log
    after = others.on(None)
    assert len(list(after.measurements)) == len(list(before.measurements)) + 3
    assert after.offers is before.offers
    assert after.memory is before.memory
    assert [each.id for each in before.measurements] == ["of-the-seed"]


def test_a_measurement_that_an_older_release_writes_is_read(engine: Engine) -> None:
    """Both releases serve side by side during an upgrade; the older one knows neither owners nor versions."""
    live = LiveCatalog(engine, today=lambda: DAY)
    with engine.begin() as connection:
        connection.execute(text("UPDATE catalog_version SET importing = true"))
        connection.execute(
            text(
                "INSERT INTO measurement (id, workload, machine, samples_per_second, measured_on, source, sent_at) "
                "VALUES ('older', 'nightly', 'aws/g5.xlarge', 360, '2026-01-01', 'sent', '2026-01-01 00:00:00')"
            )
        )
        connection.execute(
            text("UPDATE catalog_version SET importing = false, version = version + 1, measured = measured + 1")
        )
    live.refresh()
    assert [each.id for each in live.on(None).measurements] == ["of-the-seed", "older"]


def test_other_changes_are_read_together_with_a_measurement(engine: Engine) -> None:
    live = LiveCatalog(engine, today=lambda: DAY)
    with engine.begin() as connection:
        connection.execute(text("UPDATE instance_type SET vcpus = 97 WHERE name = 'g5.xlarge'"))
    live.add_measurements([SENT])
    catalog = live.on(None)
    assert catalog.instance_types[catalog.index_of["aws/g5.xlarge"]].vcpus == 97
    assert SENT in catalog.measurements
    with engine.begin() as connection:
        connection.execute(text("UPDATE measurement SET note = 'by hand' WHERE id = 'sent-1'"))
    live.refresh()
    assert [each.note for each in live.on(None).measurements][-1] == "by hand"


def test_many_measurements_at_once_are_all_kept_and_all_listed(engine: Engine) -> None:
    live = LiveCatalog(engine, today=lambda: DAY)
    unseen: list[str] = []

    def send(sender: int) -> None:
        for number in range(5):
            sent = replace(SENT, id=f"sent-{sender}-{number}")
            live.add_measurements([sent])
            if sent not in live.on(None).measurements:
                unseen.append(sent.id)

    senders = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    assert unseen == []
    assert len(ids(engine)) == 1 + 20
    assert live.history.version == version(engine)


@contextmanager
def read_only(engine: Engine) -> Iterator[None]:
    statement = "PRAGMA query_only = ON" if engine.dialect.name == "sqlite" else "SET TRANSACTION READ ONLY"

    def begin(connection: Any) -> None:
        connection.exec_driver_sql(statement)

    event.listen(engine, "begin", begin)
    yield
    event.remove(engine, "begin", begin)
    if engine.dialect.name == "sqlite":
        engine.dispose()


def test_a_database_that_may_only_be_read_is_reported_in_a_sentence(engine: Engine) -> None:
    live = LiveCatalog(engine, today=lambda: DAY)
    with read_only(engine), pytest.raises(DatabaseUnusable):
        live.add_measurements([SENT])
    assert ids(engine) == ["of-the-seed"]


def test_a_locked_database_is_reported_in_a_sentence(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "SQLITE_BUSY_SECONDS", 0.05)
    monkeypatch.setattr(write_measurements, "LOCK_TIMEOUT", "50ms")
    hurried = connect(engine.url.render_as_string(hide_password=False))
    live = live_catalog.LiveCatalog(hurried, today=lambda: DAY)
    with engine.connect() as importing:
        importing.execute(text("UPDATE catalog_version SET importing = true"))
        with pytest.raises(DatabaseUnusable):
            live.add_measurements([SENT])
        importing.rollback()
    live.add_measurements([SENT])
    assert ids(engine) == ["of-the-seed", "sent-1"]
    hurried.dispose()
