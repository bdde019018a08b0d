"""Describes the tables for code that makes or checks rows without SQL, such as the importers."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.db.tables import METADATA

Names = tuple[str, ...]

NATURAL_KEYS: dict[str, Names] = {"instance_type": ("provider", "name"), "framework_support": ("key",)}
"""Keys of the tables whose primary key is a number that the database assigns."""

_KEY_COLUMNS: dict[str, Names] = {
    name: NATURAL_KEYS.get(name) or tuple(column.key for column in table.primary_key)
    for name, table in METADATA.tables.items()
}


@dataclass(frozen=True, slots=True)
class Field:
    """A column that a row supplies, with its Python type."""

    type: type
    nullable: bool


@dataclass(frozen=True, slots=True)
class NamesElsewhere:
    """Columns whose values must exist in columns of another table, unless the last of the columns is empty."""

    columns: Names
    table: str
    table_columns: Names


def key_columns(table: str) -> Names:
    """Returns the columns that identify a row of the table."""
    return _KEY_COLUMNS[table]


def fields_of(table: str) -> dict[str, Field]:
    """Returns the columns of a table by name, except for a primary key that the database numbers."""
    described = METADATA.tables[table]
    return {
        column.key: Field(column.type.python_type, bool(column.nullable))
        for column in described.columns
        if column is not described.autoincrement_column
    }


def foreign_keys(table: str) -> Iterator[NamesElsewhere]:
    """Yields the references that the database enforces, sorted by column so that faults have a fixed order."""
    for key in sorted(METADATA.tables[table].foreign_keys, key=lambda key: key.parent.key):
        yield NamesElsewhere((key.parent.key,), key.column.table.name, (key.column.key,))


def vocabulary(table: str) -> dict[str, Names]:
    """Returns the closed list of values of each column that has one."""
    infos = (constraint.info for constraint in METADATA.tables[table].constraints)
    return {info["column"]: info["one_of"] for info in infos if "one_of" in info}


def positive_columns(table: str) -> list[str]:
    """Returns the columns whose numbers must be above 0."""
    infos = (constraint.info for constraint in METADATA.tables[table].constraints)
    return [info["column"] for info in infos if "above" in info]
