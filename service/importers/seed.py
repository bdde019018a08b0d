"""Reads the seed, the files that come with the code, into one batch, which is checked like that of any feed."""

import csv
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from service.db.schema import Field, fields_of
from service.db.write_catalog import Batch, Record
from service.importers.prices import MOST_TRUSTED_FIRST, Catalogued, Observation, offers_from
from service.importers.published_runs import run_cells

FEED = "seed"
MICRO_DIGITS, NANO_DIGITS = 6, 9

TABLE_OF = {
    "sources": "source",
    "precisions": "precision",
    "gpus": "gpu",
    "gpu_aliases": "gpu_alias",
    "gpu_precisions": "gpu_precision",
    "providers": "provider",
    "regions": "region",
    "region_cpus": "region_cpu",
    "instance_types": "instance_type",
    "lifecycle": "lifecycle",
    "exchange_rates": "exchange_rate",
    "services": "service",
    "service_lifecycle": "service_lifecycle",
    "fees": "fee",
    "software_support": "framework_support",
    "measurements": "measurement",
    "models": "model",
    "coefficients": "coefficient",
    "published_runs": "published_run",
    "billing_rules": "billing_rule",
    "storage_prices": "storage_price",
    "transfer_prices": "transfer_price",
    "interruption_priors": "interruption_prior",
}
"""The table of each file; prices.csv becomes offers and prices."""

FILE_OF = {table: f"{name}.csv" for name, table in TABLE_OF.items()}

Cells = Mapping[str, str]


class SeedBroken(Exception):
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
    """Returns all seed files as one batch. Raises `SeedBroken` where a cell cannot be read."""
    tables = {table: records(folder / FILE_OF[table], table) for table in TABLE_OF.values()}
    return batch_of(tables, observations_in(folder / "prices.csv"), _content_hash(folder))


def batch_of(tables: Mapping[str, list[Record]], observations: Sequence[Observation], content_hash: str) -> Batch:
    """Returns the batch of these tables, with offers made of the observations."""
    catalogued = Catalogued(
        instance_types={(row["provider"], row["name"]) for row in tables["instance_type"]},
        priced_by_region={provider["id"] for provider in tables["provider"] if provider["priced_by_region"]},
        retrieved_on={source["id"]: source["retrieved_on"] for source in tables["source"]},
    )
    offers, quarantined = offers_from(observations, catalogued)
    rows = sum(len(records) for records in tables.values()) + len(observations)
    return Batch(FEED, content_hash, tables, offers, rows, quarantined)


def lines(path: Path) -> list[SeedLine]:
    """Returns the lines of a CSV file below its header. Raises `SeedBroken`."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
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
    for path in sorted(folder.glob("*.csv")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def records(path: Path, table: str) -> list[Record]:
    """Returns a file's lines as records of a table, whose columns say how each cell is parsed. Raises `SeedBroken`."""
    fields = fields_of(table)
    derived = DERIVED.get(table, dict)
    found = []
    for line in lines(path):
        cells = derived(line.cells)
        if cells.keys() != fields.keys():
            different = ", ".join(sorted(cells.keys() ^ fields.keys()))
            raise SeedBroken(f"{line.file} and the table {table} do not have the same columns: {different}.")
        found.append({name: _value_of(line, name, fields[name], text) for name, text in cells.items()})
    return found


def _value_of(line: SeedLine, name: str, field: Field, text: str) -> Any:
    if text == "" and field.nullable:
        return None
    try:
        return PARSERS[field.type](text)
    except ValueError:
        raise SeedBroken(f"{line}: {text!r} cannot be read as {name}.") from None


def _boolean(text: str) -> bool:
    return ["false", "true"].index(text) == 1


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


PARSERS: dict[type, Callable[[str], Any]] = {
    str: str,
    int: int,
    bool: _boolean,
    float: _finite,
    date: date.fromisoformat,
}
"""How a cell is parsed, by the Python type of its column; each raises `ValueError` for a cell that it cannot parse."""


def _with_key(cells: Cells) -> dict[str, str]:
    return {**cells, "key": "\n".join(cells.values())}


def _measurement_cells(cells: Cells) -> dict[str, str]:
    rest = _in_units("usd_per_hour", "usd_per_hour_micros", MICRO_DIGITS)(cells)
    machine = f"{rest.pop('provider', '')}/{rest.pop('name', '')}"
    return {"machine": machine, "nodes": "1", "software": "", "sent_at": "", **rest}


def _in_units(column: str, table_column: str, digits: int) -> Callable[[Cells], dict[str, str]]:
    """Replaces a column by the table's, which holds whole units of 10^-digits."""

    def derived(cells: Cells) -> dict[str, str]:
        rest = dict(cells)
        return {table_column: _scaled(rest.pop(column, ""), digits), **rest}

    return derived


def _scaled(text: str, digits: int) -> str:
    """A number in units of 10^-digits; text that is not a number stays, and its parser refuses it."""
    try:
        return str(int(Decimal(text).scaleb(digits).to_integral_value()))
    except (InvalidOperation, ValueError, OverflowError):
        return text


DERIVED: dict[str, Callable[[Cells], dict[str, str]]] = {
    "framework_support": _with_key,
    "exchange_rate": _in_units("usd_per_unit", "usd_per_unit_nanos", NANO_DIGITS),
    "measurement": _measurement_cells,
    "published_run": run_cells,
    "storage_price": _in_units("usd_per_gib_month", "micros_per_gib_month", MICRO_DIGITS),
    "transfer_price": _in_units("usd_per_gb", "micros_per_gb", MICRO_DIGITS),
}
"""Files whose columns or units differ from those of their table."""


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
