"""The seed: files that come with the code → one batch, checked like any other feed's."""

import csv
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Column, Date, Float, Integer, Table

from service.db.tables import (
    ExchangeRateRow,
    FeeRow,
    GpuAliasRow,
    GpuPrecisionRow,
    GpuRow,
    InstanceTypeRow,
    LifecycleRow,
    MeasurementRow,
    PrecisionRow,
    ProviderRow,
    RegionCpuRow,
    RegionRow,
    Row,
    ServiceLifecycleRow,
    ServiceRow,
    SoftwareSupportRow,
    SourceRow,
)
from service.db.write_catalog import Batch
from service.importers.prices import Known, Observation, Record, offers_from

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
}


class SeedBroken(Exception):
    """A seed file cannot be read as what it claims to be; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a seed file, and where it stands."""

    file: str
    number: int
    cells: dict[str, str]

    def __str__(self) -> str:
        return f"{self.file} line {self.number}"


def read_seed(folder: Path) -> Batch:
    """All seed files as one batch. Raises `SeedBroken` where a cell cannot be read."""
    tables = {row: [record_of(line, row) for line in lines(folder / f"{name}.csv")] for name, row in TABLE_OF.items()}
    observations = [observation_of(line) for line in lines(folder / "prices.csv")]
    offers, quarantined = offers_from(observations, known_in(tables))
    seen = sum(len(records) for records in tables.values()) + len(observations)
    return Batch(FEED, content_hash(folder), tables, offers, seen, quarantined)


def lines(path: Path) -> list[Line]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        return [Line(path.name, reader.line_num, cells) for cells in reader]


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


def record_of(line: Line, row: type[Row]) -> Record:
    """A line as a record of its table: the table's columns say how each cell is read."""
    derived = DERIVED.get(row)
    cells = derived(dict(line.cells)) if derived else line.cells
    table = row.__table__
    assert isinstance(table, Table)
    unknown = set(cells) - {column.key for column in table.columns}
    if unknown:
        raise SeedBroken(f"{line}: the table {table.name} has no column {', '.join(sorted(unknown))}.")
    return {name: value_of(line, table.columns[name], text) for name, text in cells.items()}


def value_of(line: Line, column: Column[Any], text: str) -> Any:
    if text == "" and column.nullable:
        return None
    try:
        return parse(column, text)
    except (ValueError, InvalidOperation):
        raise SeedBroken(f"{line}: {text!r} cannot be read as {column.name}.") from None


def parse(column: Column[Any], text: str) -> Any:
    match column.type:
        case Boolean():
            return ["false", "true"].index(text) == 1
        case Integer():
            return int(text)
        case Float():
            return float(text)
        case Date():
            return date.fromisoformat(text)
        case _:
            return text


def with_key(cells: dict[str, str]) -> dict[str, str]:
    return {**cells, "key": "\n".join(cells.values())}


def rate_in_nanos(cells: dict[str, str]) -> dict[str, str]:
    nanos = Decimal(cells.pop("usd_per_unit")).scaleb(9)
    return {**cells, "usd_per_unit_nanos": str(int(nanos))}


def measurement_cells(cells: dict[str, str]) -> dict[str, str]:
    machine = f"{cells.pop('provider')}/{cells.pop('name')}"
    usd = cells.pop("usd_per_hour")
    micros = str(int(Decimal(usd).scaleb(6))) if usd else ""
    return {**cells, "machine": machine, "usd_per_hour_micros": micros}


DERIVED = {
    SoftwareSupportRow: with_key,
    ExchangeRateRow: rate_in_nanos,
    MeasurementRow: measurement_cells,
}
"""Where a file says a thing in people's units and the table keeps it in its own."""


def observation_of(line: Line) -> Observation:
    cells = {name: text or None for name, text in line.cells.items()}
    try:
        return Observation(
            **{
                **cells,
                "operating_system": cells["operating_system"] or "linux",
                "per_hour": Decimal(cells["per_hour"]) if cells["per_hour"] else None,
                "observed_on": date.fromisoformat(cells["observed_on"]) if cells["observed_on"] else None,
            }  # type: ignore[arg-type]
        )
    except (ValueError, InvalidOperation, TypeError, KeyError) as error:
        raise SeedBroken(f"{line} is not an observation of a price: {error}.") from None
