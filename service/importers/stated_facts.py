"""Checks that a batch has the figures that the articles behind this project state."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

from service.db.write_catalog import Batch, Record
from service.importers.seed import TABLE_OF, SeedLine
from service.importers.table_checks import row_key

RecordsByKey = Mapping[str, Sequence[Record]]


def facts_are_found(batch: Batch, facts: Sequence[SeedLine]) -> Iterator[str]:
    """Yields a sentence for each stated figure that the batch does not have."""
    tables = {name: _rows_of(batch, name) for name in {fact.cells["table"] for fact in facts}}
    sources = {source["id"] for source in batch.tables["source"]}
    for fact in facts:
        cell = fact.cells
        if cell["source"] not in sources:
            yield f"{fact}: sources.csv has no {cell['source']}."
        values = [row.get(cell["column"]) for row in _in_force(cell, tables[cell["table"]].get(cell["key"], ()))]
        if not any(_is_stated(value, cell["value"]) for value in values):
            has = ", ".join(sorted({str(value) for value in values})) or "no such row"
            on = f" on {cell['as_of']}" if cell["as_of"] else ""
            should = f"{cell['key']} should have the {cell['column']} {cell['value']}{on}"
            yield f"{fact}: {should}; {cell['table']}.csv has {has}."


def _rows_of(batch: Batch, table: str) -> RecordsByKey:
    rows: dict[str, list[Record]] = defaultdict(list)
    if table == "prices":
        for _, chain in groupby(batch.observations, key=itemgetter("key")):
            for price, following in pairwise((*chain, {"effective_from": None})):
                if price["operating_system"] == "linux" and not price["term"]:
                    key = (price[name] or "" for name in ("provider", "name", "region", "zone", "market"))
                    rows["/".join(key)].append(_price(price, following["effective_from"]))
    elif table in TABLE_OF:
        name = TABLE_OF[table]
        for record in batch.tables[name]:
            rows[row_key(name, record)].append(record)
    return rows


def _price(row: Record, end: datetime | None) -> Record:
    micros = row["per_hour_micros"]
    per_hour = None if micros is None else micros / 1_000_000
    return {**row, "per_hour": per_hour, "valid_from": row["effective_from"], "valid_to": end}


def _in_force(fact: Mapping[str, str], rows: Sequence[Record]) -> Sequence[Record]:
    """Returns the rows that are valid on the day of the fact, or all rows if the fact has no day."""
    if not fact["as_of"]:
        return rows
    day = date.fromisoformat(fact["as_of"])
    return [
        row for row in rows if _day_of(row.get("valid_from"), date.min) <= day < _day_of(row.get("valid_to"), date.max)
    ]


def _day_of(moment: date | None, open_end: date) -> date:
    return moment.date() if isinstance(moment, datetime) else moment or open_end


def _is_stated(value: Any, stated: str) -> bool:
    if value is None or str(value) == stated:
        return value is not None
    try:
        # Compared as decimals, because articles write 96 and the catalog holds 96.0.
        return Decimal(str(value)) == Decimal(stated)
    except InvalidOperation:
        return False
