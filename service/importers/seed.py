"""The seed: files that come with the code → one batch, checked like any other feed's."""

import csv
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Column, Date, Float, Integer, Table

from service.db.tables import (
    BillingRuleRow,
    CoefficientRow,
    ExchangeRateRow,
    FeeRow,
    GpuAliasRow,
    GpuPrecisionRow,
    GpuRow,
    InstanceTypeRow,
    InterruptionPriorRow,
    LifecycleRow,
    MeasurementRow,
    ModelRow,
    PrecisionRow,
    ProviderRow,
    PublishedRunRow,
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
from service.db.write_catalog import Batch
from service.importers.prices import MOST_TRUSTED_FIRST, Known, Observation, Record, offers_from
from service.importers.published_runs import run_cells

Parser = Callable[[str], Any]

FEED = "seed"
TABLE_OF: dict[str, type[Row]] = {
    "sources": SourceRow,
    "precisions": PrecisionRow,
    "gpus": GpuRow,
    "gpu_aliases": GpuAliasRow,
    "gpu_precisions": GpuPrecisionRow,
    "providers": ProviderRow,
    "regions": RegionRow,
    "region_cpus": RegionCpuRow,
    "instance_types": InstanceTypeRow,
    "lifecycle": LifecycleRow,
    "exchange_rates": ExchangeRateRow,
    "services": ServiceRow,
    "service_lifecycle": ServiceLifecycleRow,
    "fees": FeeRow,
    "software_support": SoftwareSupportRow,
    "measurements": MeasurementRow,
    "models": ModelRow,
    "coefficients": CoefficientRow,
    "published_runs": PublishedRunRow,
    "billing_rules": BillingRuleRow,
    "storage_prices": StoragePriceRow,
    "transfer_prices": TransferPriceRow,
    "interruption_priors": InterruptionPriorRow,
}


class SeedBroken(Exception):
    """A seed file cannot be read as what it claims to be; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class SeedLine:
    """One line of a seed file, and where it stands."""

    file: str
    number: int
    cells: dict[str, str]

    def __str__(self) -> str:
        return f"{self.file} line {self.number}"


def read_seed(folder: Path) -> Batch:
    """All seed files as one batch. Raises `SeedBroken` where a cell cannot be read."""
    tables = {row: records(folder / f"{name}.csv", row) for name, row in TABLE_OF.items()}
    return batch_of(tables, observations_in(folder / "prices.csv"), content_hash(folder))


def batch_of(tables: Mapping[type[Row], list[Record]], observations: Sequence[Observation], content_hash: str) -> Batch:
    offers, quarantined = offers_from(observations, known_in(tables))
    seen = sum(len(records) for records in tables.values()) + len(observations)
    return Batch(FEED, content_hash, tables, offers, seen, quarantined)


def lines(path: Path) -> list[SeedLine]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            return [line_of(path.name, reader.line_num, header, cells) for cells in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SeedBroken(f"{path} cannot be read: {error}.") from None


def line_of(file: str, number: int, header: list[str], cells: list[str]) -> SeedLine:
    if len(cells) != len(header):
        raise SeedBroken(f"{file} line {number} has {len(cells)} cells, and its header {len(header)}.")
    return SeedLine(file, number, dict(zip(header, cells, strict=True)))


def content_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.csv")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def known_in(tables: Mapping[type[Row], list[Record]]) -> Known:
    return Known(
        instance_types={(kind["provider"], kind["name"]) for kind in tables[InstanceTypeRow]},
        priced_by_region={seller["id"] for seller in tables[ProviderRow] if seller["priced_by_region"]},
        retrieved_on={source["id"]: source["retrieved_on"] for source in tables[SourceRow]},
    )


def records(path: Path, row: type[Row]) -> list[Record]:
    """A file as records of a table, whose columns say how each cell is read."""
    table = row.__table__
    assert isinstance(table, Table)
    columns = {column.key: column for column in table.columns if column is not table.autoincrement_column}
    parsers = {name: parser(column) for name, column in columns.items()}
    derived = DERIVED.get(row, dict)
    found = []
    for line in lines(path):
        cells = derived(line.cells)
        if cells.keys() != columns.keys():
            wrong = ", ".join(sorted(cells.keys() ^ columns.keys()))
            raise SeedBroken(f"{line.file} and the table {table.name} do not have the same columns: {wrong}.")
        found.append({name: value_of(line, columns[name], parsers[name], text) for name, text in cells.items()})
    return found


def value_of(line: SeedLine, column: Column[Any], parse: Parser, text: str) -> Any:
    if text == "" and column.nullable:
        return None
    try:
        return parse(text)
    except ValueError:
        raise SeedBroken(f"{line}: {text!r} cannot be read as {column.name}.") from None


def parser(column: Column[Any]) -> Parser:
    """How a cell of this column is read; it raises `ValueError` where it cannot be."""
    match column.type:
        case Boolean():
            return boolean
        case Integer():
            return int
        case Float():
            return finite
        case Date():
            return date.fromisoformat
        case _:
            return str


def boolean(text: str) -> bool:
    return ["false", "true"].index(text) == 1


def finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def with_key(cells: Mapping[str, str]) -> dict[str, str]:
    return {**cells, "key": "\n".join(cells.values())}


def rate_in_nanos(cells: Mapping[str, str]) -> dict[str, str]:
    rest = dict(cells)
    return {"usd_per_unit_nanos": scaled(rest.pop("usd_per_unit", ""), 9), **rest}


def measurement_cells(cells: Mapping[str, str]) -> dict[str, str]:
    rest = dict(cells)
    machine = f"{rest.pop('provider', '')}/{rest.pop('name', '')}"
    micros = scaled(rest.pop("usd_per_hour", ""), 6)
    return {"machine": machine, "usd_per_hour_micros": micros, "nodes": "1", "software": "", "sent_at": "", **rest}


def storage_cells(cells: Mapping[str, str]) -> dict[str, str]:
    rest = dict(cells)
    return {"micros_per_gib_month": scaled(rest.pop("usd_per_gib_month", ""), 6), **rest}


def transfer_cells(cells: Mapping[str, str]) -> dict[str, str]:
    rest = dict(cells)
    return {"micros_per_gb": scaled(rest.pop("usd_per_gb", ""), 6), **rest}


def scaled(text: str, digits: int) -> str:
    """A number in units of 10^-digits; what is no number is left to whoever reads the cell."""
    try:
        return str(int(Decimal(text).scaleb(digits).to_integral_value()))
    except (InvalidOperation, ValueError, OverflowError):
        return text


DERIVED = {
    SoftwareSupportRow: with_key,
    ExchangeRateRow: rate_in_nanos,
    MeasurementRow: measurement_cells,
    PublishedRunRow: run_cells,
    StoragePriceRow: storage_cells,
    TransferPriceRow: transfer_cells,
}
"""Where a file says a thing in people's units and the table keeps it in its own."""


def observations_in(path: Path) -> list[Observation]:
    return [observation_of(line) for line in lines(path)]


def observation_of(line: SeedLine) -> Observation:
    cells = {name: text or None for name, text in line.cells.items()}
    if cells.get("kind") not in MOST_TRUSTED_FIRST:
        raise SeedBroken(f"{line}: {cells.get('kind')!r} cannot be read as kind.")
    try:
        return Observation(
            **{
                **cells,
                "operating_system": cells["operating_system"] or "linux",
                "per_hour": finite_decimal(cells["per_hour"]) if cells["per_hour"] else None,
                "observed_on": date.fromisoformat(cells["observed_on"]) if cells["observed_on"] else None,
            }  # type: ignore[arg-type]
        )
    except (ValueError, InvalidOperation, TypeError, KeyError) as error:
        raise SeedBroken(f"{line} is not an observation of a price: {error}.") from None


def finite_decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(f"{text} is not a price")
    return number
