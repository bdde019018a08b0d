"""What the tables promise, asked of records before they are written; each breach is a sentence that names the row."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from sqlalchemy import CheckConstraint, String, Table

from service.db.tables import (
    BillingRuleRow,
    FeeRow,
    GpuRow,
    InstanceTypeRow,
    InterruptionPriorRow,
    LifecycleRow,
    MeasurementRow,
    ProviderRow,
    RegionCpuRow,
    RegionRow,
    Row,
    ServiceLifecycleRow,
    ServiceRow,
    SoftwareSupportRow,
    SourceRow,
    StoragePriceRow,
    TransferPriceRow,
)
from service.db.write_catalog import Record, key_columns
from service.importers.seed import TABLE_OF

Tables = Mapping[type[Row], Sequence[Record]]
Columns = tuple[str, ...]

FILE_OF = {row: f"{name}.csv" for name, row in TABLE_OF.items()}
ROW_OF = {row.__tablename__: row for row in TABLE_OF.values()}
SPOKEN_KEY: dict[type[Row], Columns] = {SoftwareSupportRow: ("software", "scope", "scope_value", "task")}
"""Where the key is longer than a person would say it."""


@dataclass(frozen=True, slots=True)
class KnownNames:
    """Columns of a table that must be found in another; an empty last one refers to nothing."""

    columns: Columns
    target: type[Row]
    target_columns: Columns


BEYOND_FOREIGN_KEYS: dict[type[Row], tuple[KnownNames, ...]] = {
    BillingRuleRow: (KnownNames(("provider", "service"), InstanceTypeRow, ("provider", "service")),),
    FeeRow: (
        KnownNames(("provider", "service"), ServiceRow, ("provider", "id")),
        KnownNames(("provider", "family"), InstanceTypeRow, ("provider", "family")),
    ),
    InterruptionPriorRow: (
        KnownNames(("provider",), ProviderRow, ("id",)),
        KnownNames(("gpu",), GpuRow, ("id",)),
    ),
    InstanceTypeRow: (KnownNames(("provider", "twin_of"), InstanceTypeRow, ("provider", "name")),),
    LifecycleRow: (
        KnownNames(("provider", "family"), InstanceTypeRow, ("provider", "family")),
        KnownNames(("provider", "family", "name"), InstanceTypeRow, ("provider", "family", "name")),
    ),
    MeasurementRow: (KnownNames(("source",), SourceRow, ("id",)),),
    RegionCpuRow: (KnownNames(("provider", "region"), RegionRow, ("provider", "id")),),
    ServiceLifecycleRow: (KnownNames(("provider", "service"), ServiceRow, ("provider", "id")),),
    StoragePriceRow: (KnownNames(("provider", "region"), RegionRow, ("provider", "id")),),
    TransferPriceRow: (KnownNames(("provider", "from_region"), RegionRow, ("provider", "id")),),
}


def row_key(row: type[Row], record: Record) -> str:
    """A row's key as a person writes it: `aws/p4d.24xlarge`, `aws/trn1//preview`."""
    values = (record[column] for column in SPOKEN_KEY.get(row) or key_columns(row))
    return "/".join(
        value.isoformat() if isinstance(value, date) else str(value) for value in values if value is not None
    )


def name_of(row: type[Row], record: Record) -> str:
    return f"{FILE_OF[row]}, {row_key(row, record)}"


def keys_are_unique(tables: Tables) -> Iterator[str]:
    for row, records in tables.items():
        times = Counter(tuple(record[column] for column in key_columns(row)) for record in records)
        for record in records:
            if times.pop(tuple(record[column] for column in key_columns(row)), 1) > 1:
                yield f"{name_of(row, record)} stands there more than once."


def references_resolve(tables: Tables) -> Iterator[str]:
    for row, records in tables.items():
        for reference in references(row):
            known = {tuple(found[column] for column in reference.target_columns) for found in tables[reference.target]}
            for record in records:
                wanted = tuple(record[column] for column in reference.columns)
                if wanted[-1] and wanted not in known:
                    named = " ".join(str(value) for value in wanted)
                    yield f"{name_of(row, record)}: {FILE_OF[reference.target]} has no {named}."


def references(row: type[Row]) -> Iterator[KnownNames]:
    table = row.__table__
    assert isinstance(table, Table)
    for key in sorted(table.foreign_keys, key=lambda key: key.parent.key):
        yield KnownNames((key.parent.key,), ROW_OF[key.column.table.name], (key.column.key,))
    yield from BEYOND_FOREIGN_KEYS.get(row, ())


def words_are_known(tables: Tables) -> Iterator[str]:
    for row, records in tables.items():
        for column, known in vocabulary(row).items():
            for record in records:
                if record[column] is not None and record[column] not in known:
                    yield f"{name_of(row, record)}: {unknown_word(column, record[column], known)}"


def unknown_word(column: str, word: str, known: Columns) -> str:
    return f"no {column} is called {word!r}. Known: {', '.join(known)}."


def numbers_are_positive(tables: Tables) -> Iterator[str]:
    for row, records in tables.items():
        positive = [info["column"] for info in promises(row) if "above" in info]
        for record in records:
            for column in positive:
                if record[column] is not None and record[column] <= 0:
                    yield f"{name_of(row, record)}: {column} is {record[column]}, and unknown would be empty."


def texts_are_there(tables: Tables) -> Iterator[str]:
    """A part of a key may be empty and mean all; any other text that must be there must say something."""
    for row, records in tables.items():
        table = row.__table__
        assert isinstance(table, Table)
        needed = [each.key for each in table.columns if isinstance(each.type, String) and not each.nullable]
        for record in records:
            for column in needed:
                if not record[column] and (column not in key_columns(row) or column == key_columns(row)[0]):
                    yield f"{name_of(row, record)} has no {column}."


def vocabulary(row: type[Row]) -> dict[str, Columns]:
    """Per column, the closed list of words it may hold."""
    return {info["column"]: info["one_of"] for info in promises(row) if "one_of" in info}


def promises(row: type[Row]) -> list[dict[str, Any]]:
    table = row.__table__
    assert isinstance(table, Table)
    return [dict(each.info) for each in table.constraints if isinstance(each, CheckConstraint) and each.info]


TABLE_CHECKS = (keys_are_unique, references_resolve, words_are_known, numbers_are_positive, texts_are_there)
