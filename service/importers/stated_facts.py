"""The figures that the articles behind this project state, each looked up in what would enter the catalog."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from service.db.tables import SourceRow
from service.db.write_catalog import Batch, Record
from service.importers.seed import TABLE_OF, SeedLine
from service.importers.table_checks import row_key

Rows = Mapping[str, Sequence[Record]]
"""Records by their key."""


def facts_are_found(batch: Batch, facts: Sequence[SeedLine]) -> Iterator[str]:
    tables = {name: rows_of(batch, name) for name in {fact.cells["table"] for fact in facts}}
    sources = {source["id"] for source in batch.tables[SourceRow]}
    for fact in facts:
        cell = fact.cells
        if cell["source"] not in sources:
            yield f"{fact}: sources.csv has no {cell['source']}."
        found = [row.get(cell["column"]) for row in in_force(cell, tables[cell["table"]].get(cell["key"], ()))]
        if not any(is_stated(value, cell["value"]) for value in found):
            has = ", ".join(sorted({str(value) for value in found})) or "no such row"
            on = f" on {cell['as_of']}" if cell["as_of"] else ""
            should = f"{cell['key']} should have the {cell['column']} {cell['value']}{on}"
            yield f"{fact}: {should}; {cell['table']}.csv has {has}."


def rows_of(batch: Batch, table: str) -> Rows:
    rows: dict[str, list[Record]] = defaultdict(list)
    if table == "prices":
        for offer in batch.offers:
            if offer["operating_system"] == "linux" and not offer["term"]:
                rows[offer_key(offer)] += [with_per_hour(price) for price in offer["prices"]]
    elif table in TABLE_OF:
        row = TABLE_OF[table]
        for record in batch.tables[row]:
            rows[row_key(row, record)].append(record)
    return rows


def offer_key(offer: Record) -> str:
    return "/".join((*offer["instance_type"], offer["region"] or "", offer["zone"] or "", offer["market"]))


def with_per_hour(price: Record) -> Record:
    micros = price["per_hour_micros"]
    return {**price, "per_hour": None if micros is None else micros / 1_000_000}


def in_force(fact: Mapping[str, str], rows: Sequence[Record]) -> Sequence[Record]:
    """The rows that hold on the fact's day; all where either has none."""
    if not fact["as_of"]:
        return rows
    day = date.fromisoformat(fact["as_of"])
    return [row for row in rows if starts(row) <= day < ends(row)]


def starts(row: Record) -> date:
    return day_of(row.get("valid_from")) or date.min


def ends(row: Record) -> date:
    return day_of(row.get("valid_to")) or date.max


def day_of(moment: date | None) -> date | None:
    return moment.date() if isinstance(moment, datetime) else moment


def is_stated(value: Any, stated: str) -> bool:
    if value is None or str(value) == stated:
        return value is not None
    try:
        return Decimal(str(value)) == Decimal(stated)
    except InvalidOperation:
        return False
