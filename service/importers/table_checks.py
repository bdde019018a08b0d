"""Checks records against the constraints of their tables before they are written; each breach is a sentence."""

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
"""Columns by which people name a row, where the key itself is longer."""

PROVIDER_AND_REGION = ("provider", "id")

BEYOND_FOREIGN_KEYS: dict[str, tuple[NamesElsewhere, ...]] = {
    "billing_rule": (NamesElsewhere(("provider", "service"), "instance_type", ("provider", "service")),),
    "fee": (
        NamesElsewhere(("provider", "service"), "service", ("provider", "id")),
        NamesElsewhere(("provider", "family"), "instance_type", ("provider", "family")),
    ),
    "interruption_prior": (
        NamesElsewhere(("provider",), "provider", ("id",)),
        NamesElsewhere(("gpu",), "gpu", ("id",)),
    ),
    "instance_type": (NamesElsewhere(("provider", "twin_of"), "instance_type", ("provider", "name")),),
    "lifecycle": (
        NamesElsewhere(("provider", "family"), "instance_type", ("provider", "family")),
        NamesElsewhere(("provider", "family", "name"), "instance_type", ("provider", "family", "name")),
    ),
    "measurement": (NamesElsewhere(("source",), "source", ("id",)),),
    "region_cpu": (NamesElsewhere(("provider", "region"), "region", PROVIDER_AND_REGION),),
    "service_lifecycle": (NamesElsewhere(("provider", "service"), "service", ("provider", "id")),),
    "storage_price": (NamesElsewhere(("provider", "region"), "region", PROVIDER_AND_REGION),),
    "transfer_price": (NamesElsewhere(("provider", "from_region"), "region", PROVIDER_AND_REGION),),
}
"""References that the database cannot enforce, because the columns may be empty or are no key of the other table."""


def check_tables(tables: Tables) -> Problems:
    """Yields a sentence for each record that breaks a constraint of its table."""
    for check in (_repeated_keys, _unknown_names, _unknown_words, _numbers_not_above_0, _missing_texts):
        yield from check(tables)


def row_key(table: str, record: Record) -> str:
    """Returns a row's key as people write it: `aws/p4d.24xlarge`, `aws/trn1//preview`."""
    values = (record[column] for column in SPOKEN_KEYS.get(table) or key_columns(table))
    return "/".join(
        value.isoformat() if isinstance(value, date) else str(value) for value in values if value is not None
    )


def name_of(table: str, record: Record) -> str:
    """Returns the file and the key of a row, with which a sentence about it begins."""
    return f"{FILE_OF[table]}, {row_key(table, record)}"


def unknown_word(column: str, word: str, known: Names) -> str:
    """Returns a sentence that lists the words which a column may hold."""
    return f"no {column} is called {word!r}. Known: {', '.join(known)}."


def _repeated_keys(tables: Tables) -> Problems:
    for table, records in tables.items():
        times = Counter(_values(record, key_columns(table)) for record in records)
        for record in records:
            if times.pop(_values(record, key_columns(table)), 1) > 1:
                yield f"{name_of(table, record)} stands there more than once."


def _unknown_names(tables: Tables) -> Problems:
    for table, records in tables.items():
        for reference in (*foreign_keys(table), *BEYOND_FOREIGN_KEYS.get(table, ())):
            known = {_values(row, reference.table_columns) for row in tables[reference.table]}
            for record in records:
                names = _values(record, reference.columns)
                if names[-1] and names not in known:
                    listed = " ".join(map(str, names))
                    yield f"{name_of(table, record)}: {FILE_OF[reference.table]} has no {listed}."


def _unknown_words(tables: Tables) -> Problems:
    for table, records in tables.items():
        for column, known in vocabulary(table).items():
            for record in records:
                if record[column] is not None and record[column] not in known:
                    yield f"{name_of(table, record)}: {unknown_word(column, record[column], known)}"


def _numbers_not_above_0(tables: Tables) -> Problems:
    for table, records in tables.items():
        for record in records:
            for column in positive_columns(table):
                if record[column] is not None and record[column] <= 0:
                    yield f"{name_of(table, record)}: {column} is {record[column]}, and unknown would be empty."


def _missing_texts(tables: Tables) -> Problems:
    """A required text must not be empty, except in a key after its first column, where empty stands for all."""
    for table, records in tables.items():
        needed = [name for name, field in fields_of(table).items() if field.type is str and not field.nullable]
        needed = [name for name in needed if name not in key_columns(table)[1:]]
        for record in records:
            for column in needed:
                if not record[column]:
                    yield f"{name_of(table, record)} has no {column}."


def _values(record: Record, columns: Names) -> tuple[object, ...]:
    return tuple(record[column] for column in columns)
