"""Stores measurements that callers send: all of a call or none, each once, untouched by any import."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, Engine, insert, select, text, update

from service.db.errors import in_sentences
from service.db.read_history import measurement_from_row
from service.db.tables import CATALOG_VERSION, MEASUREMENT
from service.db.write_catalog import Record
from service.domain.catalog.reference import Measurement

MICRO = 1_000_000
LOCK_TIMEOUT = "10s"
"""How long Postgres waits for a running import; SQLite waits for `SQLITE_BUSY_SECONDS`."""


def write_measurements(engine: Engine, measurements: Sequence[Measurement], now: datetime) -> list[Measurement]:
    """Returns the measurements as stored, in the given order; one that is stored already stays as it is.

    Raises `DatabaseUnusable`; the database is then unchanged.
    """
    by_id = {measurement.id: measurement for measurement in measurements}
    with in_sentences(engine), engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
        # An import locks this row too, so that only one writes at a time; the triggers that raise the version are off.
        connection.execute(update(CATALOG_VERSION).values(importing=True))
        stored = _stored(connection, list(by_id))
        new = [_record_of(measurement, now) for measurement in by_id.values() if measurement.id not in stored]
        raised = 1 if new else 0
        if new:
            connection.execute(insert(MEASUREMENT), new)
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
    rows = connection.execute(select(MEASUREMENT).where(MEASUREMENT.c.id.in_(ids))).mappings()
    return {row["id"]: measurement_from_row(dict(row)) for row in rows}


def _record_of(measurement: Measurement, now: datetime) -> Record:
    record = asdict(measurement)
    usd = record.pop("usd_per_hour")
    return {**record, "usd_per_hour_micros": None if usd is None else round(usd * MICRO), "sent_at": now}
