"""Stores measurements that callers send: all of a call or none, each once, untouched by any import."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, Engine, insert, select, text, update

from service.db.errors import in_sentences
from service.db.read_history import read_measurements
from service.db.tables import API_KEY, CATALOG_VERSION, MEASUREMENT
from service.db.write_catalog import Record
from service.domain.catalog.reference import Measurement
from service.domain.errors import QuestionError
from service.domain.money import MICRO

LOCK_TIMEOUT = "10s"
"""How long Postgres waits for a running import; SQLite waits for `SQLITE_BUSY_SECONDS`."""


def write_measurements(
    engine: Engine,
    measurements: Sequence[Measurement],
    now: datetime,
    *,
    key: str | None = None,
    most: int | None = None,
) -> list[Measurement]:
    """Returns the measurements as stored, in the given order; one that is stored already stays as it is.

    `key` is the id of the API key that sends them, which may have sent `most` in all. Raises `QuestionError` beyond
    that, and `DatabaseUnusable`; the database is then unchanged.
    """
    by_id = {measurement.id: measurement for measurement in measurements}
    with in_sentences(engine), engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
        # An import locks this row too, so that only one writes at a time; the triggers that raise the version are off.
        connection.execute(update(CATALOG_VERSION).values(importing=True))
        stored = _stored(connection, list(by_id))
        new = [measurement for measurement in by_id.values() if measurement.id not in stored]
        raised = 1 if new else 0
        if new:
            version = connection.execute(select(CATALOG_VERSION.c.version)).scalar_one() + raised
            added = {"sent_at": now, "key": key, "since": version}
            connection.execute(insert(MEASUREMENT), [_record_of(measurement) | added for measurement in new])
            _count(connection, key, len(new), most)
            stored = _stored(connection, list(by_id))
        connection.execute(
            update(CATALOG_VERSION).values(
                importing=False,
                version=CATALOG_VERSION.c.version + raised,
                measured=CATALOG_VERSION.c.measured + raised,
            )
        )
    return [stored[measurement.id] for measurement in measurements]


def _stored(connection: Connection, ids: Sequence[str]) -> dict[str, Measurement]:
    rows = select(MEASUREMENT).where(MEASUREMENT.c.id.in_(ids))
    return {measurement.id: measurement for measurement in read_measurements(connection, rows)}


def _record_of(measurement: Measurement) -> Record:
    record = asdict(measurement)
    usd = record.pop("usd_per_hour")
    return {**record, "usd_per_hour_micros": None if usd is None else round(usd * MICRO)}


def _count(connection: Connection, key: str | None, new: int, most: int | None) -> None:
    """Raises the count of the key: counting its rows would take longer the more it has."""
    is_key = API_KEY.c.id == key
    counted = API_KEY.c.measurements + new
    connection.execute(update(API_KEY).where(is_key).values(measurements=counted))
    total = connection.execute(select(API_KEY.c.measurements).where(is_key)).scalar()
    if total is not None and most is not None and total > most:
        raise QuestionError(
            f"The API key {key} may store {most:,} measurements and has stored {total - new:,}, to which {new:,} "
            "cannot be added.",
            field="items",
        )
