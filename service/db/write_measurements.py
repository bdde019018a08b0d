"""Stores measurements of callers: all of a request or none, and each measurement once."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, Engine, bindparam, insert, text, update

from service.db.errors import in_sentences
from service.db.read_history import MEASURED, MEASUREMENTS, read_measurements
from service.db.tables import API_KEY, CATALOG_VERSION, MEASUREMENT
from service.db.write_catalog import Record
from service.domain.catalog.reference import Measurement
from service.domain.errors import QuestionError
from service.domain.money import MICRO

LOCK_TIMEOUT = "10s"
"""How long Postgres waits for a running import; SQLite waits for `SQLITE_BUSY_SECONDS`."""

# Statements are built once: building one for each write would take longer than running it.
LOCK = update(CATALOG_VERSION).values(importing=True).returning(CATALOG_VERSION.c.version)
UNLOCK = update(CATALOG_VERSION).values(
    importing=False,
    version=CATALOG_VERSION.c.version + bindparam("raised"),
    measured=CATALOG_VERSION.c.measured + bindparam("raised"),
)
STORED = MEASUREMENTS.where(MEASUREMENT.c.id.in_(bindparam("ids", expanding=True)))
COUNT = (
    update(API_KEY)
    .where(API_KEY.c.id == bindparam("id_"))
    .values(measurements=API_KEY.c.measurements + bindparam("new"))
    .returning(API_KEY.c.measurements)
)


def write_measurements(
    engine: Engine,
    measurements: Sequence[Measurement],
    now: datetime,
    *,
    key: str | None = None,
    most: int | None = None,
) -> list[Measurement]:
    """Stores measurements and returns them in the given order; one that is stored already stays as it is.

    `key` is the id of the API key that sends them, and `most` the number that it may send altogether. Raises
    `QuestionError` for more, and `DatabaseUnusable`; the database is then unchanged.
    """
    by_id = {measurement.id: measurement for measurement in measurements}
    with in_sentences(engine), engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
        # An import locks the same row, so that one writes at a time. The triggers that raise the version are off.
        before = connection.execute(LOCK).scalar_one()
        stored = {measurement.id: measurement for measurement in read_measurements(connection, STORED, ids=list(by_id))}
        new = [_as_stored(by_id[id_], before + 1) for id_ in by_id if id_ not in stored]
        if new:
            records = [_record_of(measurement) | {"sent_at": now, "key": key} for measurement in new]
            connection.execute(insert(MEASUREMENT), records)
            _add_to_count(connection, key, len(new), most)
        connection.execute(UNLOCK, {"raised": 1 if new else 0})
    stored |= {measurement.id: measurement for measurement in new}
    return [stored[measurement.id] for measurement in measurements]


def _as_stored(measurement: Measurement, version: int) -> Measurement:
    """Returns the measurement as the database will return it, with money rounded to micro-units."""
    usd = measurement.usd_per_hour
    return replace(measurement, since=version, usd_per_hour=None if usd is None else round(usd * MICRO) / MICRO)


def _record_of(measurement: Measurement) -> Record:
    record = {name: getattr(measurement, name) for name in MEASURED}
    usd = record.pop("usd_per_hour")
    return {**record, "usd_per_hour_micros": None if usd is None else round(usd * MICRO)}


def _add_to_count(connection: Connection, key: str | None, new: int, most: int | None) -> None:
    """Adds to the count of the key, which is stored because counting many rows takes long. Raises `QuestionError`."""
    total = connection.execute(COUNT, {"id_": key, "new": new}).scalar()
    if total is not None and most is not None and total > most:
        raise QuestionError(
            f"The API key {key} may store {most:,} measurements and has stored {total - new:,}, so that {new:,} "
            "more cannot be stored.",
            field="items",
        )
