"""Reads the seed, the data files that come with the code, into one batch."""

import csv
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from service.db.schema import Field, fields_of
from service.db.write_catalog import Batch, Record
from service.domain.errors import Unusable
from service.importers.prices import MOST_TRUSTED_FIRST, Catalogued, Observation, usable
from service.importers.published_runs import run_cells

FEED = "seed"

TABLES = (
    "source", "precision", "gpu", "gpu_alias", "gpu_precision", "provider", "region", "region_cpu", "instance_type",
    "lifecycle", "exchange_rate", "service", "service_lifecycle", "fee", "framework_support", "measurement", "model",
    "coefficient", "feed", "instance_type_alias", "published_run", "billing_rule", "storage_price", "transfer_price",
    "interruption_prior", "prior",
)  # fmt: skip
NAME_OF = {
    "gpu_alias": "gpu_aliases",
    "instance_type_alias": "instance_type_aliases",
    "lifecycle": "lifecycle",
    "service_lifecycle": "service_lifecycle",
    "framework_support": "software_support",
}
"""Names of files that are not the plain plural of their table."""

TABLE_OF = {NAME_OF.get(table, f"{table}s"): table for table in TABLES}
"""The table of each file; prices.csv becomes observations."""

FILE_OF = {table: f"{name}.csv" for name, table in TABLE_OF.items()}

Cells = Mapping[str, str]


class SeedBroken(Unusable):
    """A seed file cannot be read; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class SeedLine:
    """One line of a seed file, with its position."""

    file: str
    number: int
    cells: dict[str, str]

    def __str__(self) -> str:
        return f"{self.file} line {self.number}"


def read_seed(folder: Path) -> Batch:
    """Returns all seed files as one batch. Raises `SeedBroken` if a cell cannot be read."""
    tables = {table: records(folder / FILE_OF[table], table) for table in TABLE_OF.values()}
    return batch_of(tables, observations_in(folder / "prices.csv"), _content_hash(folder))


def batch_of(tables: Mapping[str, list[Record]], observations: Sequence[Observation], content_hash: str) -> Batch:
    """Returns a batch of these tables, and of the observations that are usable."""
    catalogued = Catalogued(
        instance_types={(row["provider"], row["name"]) for row in tables["instance_type"]},
        priced_by_region={provider["id"] for provider in tables["provider"] if provider["priced_by_region"]},
        retrieved_on={source["id"]: source["retrieved_on"] for source in tables["source"]},
    )
    kept, quarantined = usable(observations, catalogued)
    rows = sum(len(records) for records in tables.values()) + len(observations)
    return Batch(FEED, content_hash, tables, kept, rows, quarantined)


def lines(path: Path) -> list[SeedLine]:
    """Returns the lines of a CSV file below its header. Raises `SeedBroken`."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)  # without it, a stray quote would join lines without an error
            header = next(reader, [])
            return [_line_of(path.name, reader.line_num, header, cells) for cells in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SeedBroken(f"{path} cannot be read: {error}.") from None


def _line_of(file: str, number: int, header: list[str], cells: list[str]) -> SeedLine:
    if len(cells) != len(header):
        raise SeedBroken(f"{file} line {number} has {len(cells)} cells, and its header {len(header)}.")
    return SeedLine(file, number, dict(zip(header, cells, strict=True)))


def _content_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    # The order of a directory differs between file systems, and the hash must not.
    for path in sorted(folder.glob("*.csv")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def records(path: Path, table: str) -> list[Record]:
    """Returns a file's lines as records of a table, whose columns say how each cell is parsed. Raises `SeedBroken`."""
    fields = fields_of(table)
    rows = []
    for line in lines(path):
        cells = _cells_of_table(table, line)
        if cells.keys() != fields.keys():
            different = ", ".join(sorted(cells.keys() ^ fields.keys()))
            raise SeedBroken(f"{line.file} and the table {table} do not have the same columns: {different}.")
        rows.append({name: _value_of(line, name, fields[name], text) for name, text in cells.items()})
    return rows


def _value_of(line: SeedLine, name: str, field: Field, text: str) -> Any:
    if text == "" and field.nullable:
        return None
    try:
        return PARSERS[field.type](text)
    except ValueError:
        raise SeedBroken(f"{line}: {text!r} cannot be read as {name}.") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


PARSERS: dict[type, Callable[[str], Any]] = {
    str: str,
    int: int,
    bool: lambda text: ["false", "true"].index(text) == 1,
    float: _finite,
    date: date.fromisoformat,
}
"""How a cell is parsed, by the Python type of its column; each raises `ValueError` for a cell that it cannot parse."""


def _measurement_cells(cells: Cells) -> dict[str, str]:
    rest = {name: text for name, text in cells.items() if name not in ("provider", "name")}
    machine = f"{cells.get('provider', '')}/{cells.get('name', '')}"
    of_callers = dict.fromkeys(("software", "watts", "sent_at", "owner", "key"), "")
    return {"machine": machine, "nodes": "1", "since": "0", **of_callers, **rest}


DERIVED: dict[str, Callable[[Cells], dict[str, str]]] = {
    "framework_support": lambda cells: {**cells, "key": "\n".join(cells.values())},
    "measurement": _measurement_cells,
    "published_run": run_cells,
}
"""Files whose columns differ from those of their table."""

SCALED = {
    "exchange_rate": ("usd_per_unit", "usd_per_unit_nanos", 9),
    "measurement": ("usd_per_hour", "usd_per_hour_micros", 6),
    "storage_price": ("usd_per_gib_month", "micros_per_gib_month", 6),
    "transfer_price": ("usd_per_gb", "micros_per_gb", 6),
}
"""For tables that store decimals as whole numbers: column in the file, column in the table, and decimal digits."""


def _cells_of_table(table: str, line: SeedLine) -> dict[str, str]:
    """Returns the cells of a line by table column.

    Text that is not a number is left for the column's parser to refuse.
    """
    cells = DERIVED.get(table, dict)(line.cells)
    if table in SCALED:
        column, table_column, digits = SCALED[table]
        text = cells.pop(column, "")
        with suppress(InvalidOperation, ValueError, OverflowError):
            text = str(int(Decimal(text).scaleb(digits).to_integral_value()))
        cells[table_column] = text
    return cells


def observations_in(path: Path) -> list[Observation]:
    """Returns the observations of prices in a file. Raises `SeedBroken`."""
    return [_observation_of(line) for line in lines(path)]


def _observation_of(line: SeedLine) -> Observation:
    cells = {name: text or None for name, text in line.cells.items()}
    if cells.get("kind") not in MOST_TRUSTED_FIRST:
        raise SeedBroken(f"{line}: {cells.get('kind')!r} cannot be read as kind.")
    try:
        return Observation(
            **{
                **cells,
                "operating_system": cells["operating_system"] or "linux",
                "per_hour": _finite_decimal(cells["per_hour"]) if cells["per_hour"] else None,
                "observed_on": date.fromisoformat(cells["observed_on"]) if cells["observed_on"] else None,
            }  # type: ignore[arg-type]
        )
    except (ValueError, InvalidOperation, TypeError, KeyError) as error:
        raise SeedBroken(f"{line} is not an observation of a price: {error}.") from None


def _finite_decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(f"{text} is not a price")
    return number
