"""Keep measurements that callers send: all of a call or none, each once, and beyond the reach of any import."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, Engine, insert, select, text, update

from service.db.errors import in_sentences
from service.db.read_history import measurement_from_row
from service.db.tables import CatalogVersionRow, MeasurementRow
from service.db.write_catalog import Record
from service.domain.catalog.reference import Measurement

MICRO = 1_000_000
PATIENCE = "10s"
"""How long Postgres waits for an import that is writing; SQLite waits as long, see `SQLITE_BUSY_SECONDS`."""


def write_measurements(engine: Engine, sent: Sequence[Measurement], now: datetime) -> list[Measurement]:
    """The measurements as they are kept, in the order in which they were sent; what is there already stays as it is.

    Raises `DatabaseUnusable`, and then nothing has changed.
    """
    by_id = {each.id: each for each in sent}
    with in_sentences(engine), engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SET LOCAL lock_timeout = '{PATIENCE}'"))
        # As in an import: whoever has this row writes alone, and the triggers that raise the version hold still.
        connection.execute(update(CatalogVersionRow).values(importing=True))
        kept = kept_among(connection, list(by_id))
        new = [record_of(each, now) for each in by_id.values() if each.id not in kept]
        raised = 1 if new else 0
        if new:
            connection.execute(insert(MeasurementRow), new)
            kept = kept_among(connection, list(by_id))
        connection.execute(
            update(CatalogVersionRow).values(
                importing=False,
                version=CatalogVersionRow.version + raised,
                measured=CatalogVersionRow.measured + raised,
            )
        )
    return [kept[each.id] for each in sent]


def kept_among(connection: Connection, ids: Sequence[str]) -> dict[str, Measurement]:
    table = MeasurementRow.__table__
    rows = connection.execute(select(table).where(MeasurementRow.id.in_(ids))).mappings()
    return {row["id"]: measurement_from_row(dict(row)) for row in rows}


def record_of(sent: Measurement, now: datetime) -> Record:
    record = asdict(sent)
    usd = record.pop("usd_per_hour")
    return {**record, "usd_per_hour_micros": None if usd is None else round(usd * MICRO), "sent_at": now}
