"""Checks records against the constraints of their tables before they are written. Each violation is a sentence."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from service.db.schema import (
    Names,
    NamesElsewhere,
    fields_of,
    foreign_keys,
    key_columns,
    positive_columns,
    vocabulary,
)
from service.db.write_catalog import Record
from service.importers.seed import FILE_OF

Tables = Mapping[str, Sequence[Record]]
Problems = Iterator[str]

SPOKEN_KEYS: dict[str, Names] = {"framework_support": ("software", "scope", "scope_value", "task")}
"""Columns that name a row in sentences, for tables whose key is longer."""

BEYOND_FOREIGN_KEYS = (
    ("billing_rule", "provider service", "instance_type", "provider service"),
    ("fee", "provider service", "service", "provider id"),
    ("gpu", "successor", "gpu", "id"),
    ("interruption_prior", "provider", "provider", "id"),
    ("interruption_prior", "gpu", "gpu", "id"),
    ("instance_type", "provider twin_of", "instance_type", "provider name"),
    ("lifecycle", "provider family", "instance_type", "provider family"),
    ("lifecycle", "provider family name", "instance_type", "provider family name"),
    ("measurement", "source", "source", "id"),
    ("region_cpu", "provider region", "region", "provider id"),
    ("service_lifecycle", "provider service", "service", "provider id"),
    ("storage_price", "provider region", "region", "provider id"),
    ("transfer_price", "provider from_region", "region", "provider id"),
)
"""References that the database cannot enforce, because the columns may be empty or are not a key of the other table."""


def check_tables(tables: Tables) -> Problems:
    """Yields a sentence for each record that breaks a constraint of its table."""
    for check in (_repeated_keys, _unknown_names, _unknown_words, _numbers_not_above_0, _missing_texts):
        for table in tables:
            yield from check(table, tables)


def row_key(table: str, record: Record) -> str:
    """Returns the key of a row as text, such as `aws/p4d.24xlarge` or `aws/trn1//preview`."""
    values = (record[column] for column in SPOKEN_KEYS.get(table) or key_columns(table))
    return "/".join(
        value.isoformat() if isinstance(value, date) else str(value) for value in values if value is not None
    )


def name_of(table: str, record: Record) -> str:
    """Returns the file and the key of a row, for the beginning of a sentence."""
    return f"{FILE_OF[table]}, {row_key(table, record)}"


def unknown_word(column: str, word: str, allowed: Names) -> str:
    """Returns a sentence that lists the words which a column may hold."""
    return f"no {column} is called {word!r}. Known: {', '.join(allowed)}."


def _repeated_keys(table: str, tables: Tables) -> Problems:
    times = Counter(_values(record, key_columns(table)) for record in tables[table])
    for record in tables[table]:
        # Popped, so that a repeated key is reported once.
        if times.pop(_values(record, key_columns(table)), 1) > 1:
            yield f"{name_of(table, record)} appears more than once."


def _unknown_names(table: str, tables: Tables) -> Problems:
    beyond = [
        NamesElsewhere(tuple(columns.split()), other, tuple(other_columns.split()))
        for referring, columns, other, other_columns in BEYOND_FOREIGN_KEYS
        if referring == table
    ]
    for reference in (*foreign_keys(table), *beyond):
        existing = {_values(row, reference.table_columns) for row in tables[reference.table]}
        for record in tables[table]:
            names = _values(record, reference.columns)
            # An empty last column stands for all rows of the group, such as every family.
            if names[-1] and names not in existing:
                listed = " ".join(map(str, names))
                yield f"{name_of(table, record)}: {FILE_OF[reference.table]} has no {listed}."


def _unknown_words(table: str, tables: Tables) -> Problems:
    for column, allowed in vocabulary(table).items():
        for record in tables[table]:
            if record[column] is not None and record[column] not in allowed:
                yield f"{name_of(table, record)}: {unknown_word(column, record[column], allowed)}"


def _numbers_not_above_0(table: str, tables: Tables) -> Problems:
    columns = positive_columns(table)
    for record in tables[table]:
        for column in columns:
            if record[column] is not None and record[column] <= 0:
                yield f"{name_of(table, record)}: {column} is {record[column]}; an unknown figure is an empty cell."


def _missing_texts(table: str, tables: Tables) -> Problems:
    """Yields required texts that are empty. In a key, columns after the first may be empty, which means all values."""
    may_be_empty = key_columns(table)[1:]
    needed = [name for name, field in fields_of(table).items() if field.type is str and not field.nullable]
    for record in tables[table]:
        for column in needed:
            if not record[column] and column not in may_be_empty:
                yield f"{name_of(table, record)} has no {column}."


def _values(record: Record, columns: Names) -> tuple[object, ...]:
    return tuple(record[column] for column in columns)
