"""Reads the catalogs as they were known on an earlier day, from observations, which are never overwritten."""

from dataclasses import replace
from datetime import UTC, date, datetime, time

from sqlalchemy import Column, Connection, Engine, MetaData, Table, func, insert, not_, or_, select

from service.db.feeds.resolve_prices import resolve_prices
from service.db.read_history import history_in, snapshot
from service.db.tables import DOCUMENT, INSTANCE_TYPE, OBSERVATION, OFFER, PRICE
from service.db.write_catalog import FROM_FEEDS
from service.domain.catalog.history import CatalogHistory
from service.domain.errors import QuestionError


def history_known_on(engine: Engine, day: date) -> CatalogHistory:
    """Returns all prices as they were known at the end of a day (UTC), and the instance types that were known then.

    Facts of the seed other than prices are those of today. Raises `QuestionError` for a day before the first import,
    and `DatabaseUnusable`.
    """
    moment = datetime.combine(day, time.max, UTC)
    with snapshot(engine) as connection:
        first = connection.execute(select(func.min(DOCUMENT.c.recorded_at))).scalar_one()
        if first is None or first > moment:
            since = "" if first is None else f" The first import was on {first.date()}."
            raise QuestionError(f"Nothing was known on {day}.{since}", field="known_at")
        _hide_later_rows(connection, moment)
        keys = select(OBSERVATION.c.key).where(OBSERVATION.c.recorded_at <= moment).distinct()
        resolve_prices(connection, set(connection.execute(keys).scalars()), moment, known_at=moment)
        history = history_in(connection)
        connection.rollback()
    return replace(history, known_at=day)


def _hide_later_rows(connection: Connection, moment: datetime) -> None:
    """Hides tables of the catalog behind temporary tables of the same names, until the transaction ends.

    Both databases look for a table among temporary ones first. So nothing of the catalog is locked or written, and the
    code that resolves prices and reads the catalog works unchanged.
    """
    of_type = (OBSERVATION.c.provider == INSTANCE_TYPE.c.provider, OBSERVATION.c.name == INSTANCE_TYPE.c.name)
    was_shown = select(OBSERVATION.c.id).where(*of_type, OBSERVATION.c.recorded_at <= moment).exists()
    then_in_catalog = select(INSTANCE_TYPE).where(or_(not_(INSTANCE_TYPE.c.source.startswith(FROM_FEEDS)), was_shown))
    types = [dict(row) for row in connection.execute(then_in_catalog).mappings()]
    for table in (INSTANCE_TYPE, OFFER, PRICE):
        columns = (Column(column.name, column.type, primary_key=column.primary_key) for column in table.columns)
        Table(table.name, MetaData(), *columns, prefixes=["TEMPORARY"]).create(connection)
    if types:
        connection.execute(insert(INSTANCE_TYPE), types)
