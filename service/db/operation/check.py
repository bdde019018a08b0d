"""Checks that a database is complete and consistent, for example after a restore."""

from collections.abc import Iterator

from sqlalchemy import Connection, Engine, and_, func, or_, select, text

from service.db.errors import DatabaseUnusable, in_sentences
from service.db.live_catalog import today
from service.db.migrate import require_usable
from service.db.read_history import read_history
from service.db.tables import METADATA, PRICE


def faults_of(engine: Engine) -> list[str]:
    """Returns a sentence for each fault. Raises `DatabaseUnusable` if the tables are not those of this version."""
    require_usable(engine)
    with in_sentences(engine), engine.connect() as connection:
        # The other queries could fail on a damaged file.
        faults = list(_damage(connection)) or [*_dangling_references(connection), *_overlapping_prices(connection)]
    return faults or list(_unreadable_catalog(engine))


def counts_of(engine: Engine) -> dict[str, int]:
    """Returns the number of rows of each table."""
    with in_sentences(engine), engine.connect() as connection:
        return {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in sorted(METADATA.tables.items())
        }


def _damage(connection: Connection) -> Iterator[str]:
    """Yields damages of a SQLite file. Postgres has no such check in SQL; a query that reads a damaged page fails."""
    if connection.dialect.name == "sqlite":
        for finding in connection.execute(text("PRAGMA integrity_check(10)")).scalars():
            if finding != "ok":
                yield f"The file is damaged: {finding}."


def _dangling_references(connection: Connection) -> Iterator[str]:
    """Yields references to missing rows, as from a restore without triggers or a tool without foreign keys."""
    for table in METADATA.sorted_tables:
        for key in table.foreign_key_constraints:
            pairs = [(element.parent, element.column) for element in key.elements]
            parent = pairs[0][1].table.alias("referred")
            matches = and_(*(child == parent.c[column.key] for child, column in pairs))
            lost = and_(*(child.is_not(None) for child, _ in pairs), ~select(parent).where(matches).exists())
            count = connection.execute(select(func.count()).select_from(table).where(lost)).scalar_one()
            if count:
                names = ", ".join(child.key for child, _ in pairs)
                yield f"{table.name}: {names} of {count:,} rows is not in {pairs[0][1].table.name}."


def _overlapping_prices(connection: Connection) -> Iterator[str]:
    next_from = func.lead(PRICE.c.valid_from).over(partition_by=PRICE.c.offer_id, order_by=PRICE.c.valid_from)
    prices = select(PRICE.c.offer_id, PRICE.c.valid_from, PRICE.c.valid_to, next_from.label("next_from")).subquery()
    overlaps = or_(
        prices.c.valid_to <= prices.c.valid_from,
        and_(prices.c.next_from.is_not(None), or_(prices.c.valid_to.is_(None), prices.c.valid_to > prices.c.next_from)),
    )
    count = connection.execute(select(func.count(func.distinct(prices.c.offer_id))).where(overlaps)).scalar_one()
    if count:
        yield f"price: the intervals of {count:,} offers overlap or end before they begin."


def _unreadable_catalog(engine: Engine) -> Iterator[str]:
    try:
        catalog = read_history(engine).on(today())
    except (DatabaseUnusable, ArithmeticError, LookupError, TypeError, ValueError) as error:
        yield f"The catalog cannot be built: {type(error).__name__}: {error}."
        return
    if not len(catalog.instance_types):
        yield "The catalog has no instance types today. Run: instance-selector seed"
