"""Rows of the database for a small catalog: three instance types, a GPU and a part of it, prices in two currencies."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any

from service.db.tables import METADATA
from service.db.write_catalog import Batch, Record
from service.domain.catalog.hardware import LifecycleState
from service.domain.catalog.precision import Support
from tests.builders.bills import rate as exchange_rate
from tests.builders.catalogs import provider
from tests.builders.gpus import precision, rate, unknown_gpu
from tests.builders.instance_types import event, unknown_instance_type
from tests.builders.sources import SOURCE, source

Tables = Mapping[str, Sequence[Record]]


def batch(
    hash_: str = "small", offers: Sequence[Sequence[Record]] | None = None, tables: Tables | None = None
) -> Batch:
    """The small catalog as an importer hands it over; `tables` replace those it would have."""
    names = ("p4d.24xlarge", "g5.xlarge", "g5.2xlarge")
    sold = chain(*([offer_records(name) for name in names] if offers is None else offers))
    return Batch("seed", hash_, {**small_tables(), **(tables or {})}, list(sold), rows_seen=20, quarantined={})


def small_tables() -> dict[str, list[Record]]:
    """The tables of the small catalog."""
    return {
        "source": [record_of(source(), "source")],
        "precision": [record_of(precision("bf16"), "precision")],
        # The id of the part sorts before the id of its card, as ids such as "1of2" may.
        "gpu": [
            gpu_row("a10g-24gb-1of2", memory_gb=12.0, fraction=0.5, partition_of="z10g-24gb"),
            gpu_row("z10g-24gb"),
        ],
        "gpu_precision": [rate_row("z10g-24gb", "accelerated", 70.0), rate_row("a10g-24gb-1of2", None, None)],
        "provider": [record_of(provider("aws"), "provider")],
        "instance_type": [
            instance_type_row("p4d.24xlarge", vcpus=96.0, gpu_count=8, interconnect="nvswitch", rdma=True),
            instance_type_row("g5.xlarge", vcpus=4.0, rdma=False),
            instance_type_row("g5.2xlarge", vcpus=8.0),
        ],
        "lifecycle": [event_row("p4d", date(2020, 11, 2)), event_row("g5", date(2021, 11, 11))],
        "exchange_rate": [
            record_of(exchange_rate("CNY", 0.15, date(2022, 1, 1)), "exchange_rate"),
            record_of(exchange_rate("CNY", 0.14, date(2023, 1, 1)), "exchange_rate"),
        ],
    }


def record_of(value: Any, table: str) -> Record:
    """The fields of a value that are columns of a table."""
    columns = METADATA.tables[table].columns
    return {field.name: getattr(value, field.name) for field in fields(value) if field.name in columns}


def gpu_row(id: str, **given: Any) -> Record:  # noqa: A002 - the column is called id
    return record_of(unknown_gpu(id, **{"memory_gb": 24.0, **given}), "gpu")


def rate_row(gpu: str, support: Support | None, dense_tflops: float | None) -> Record:
    return {"gpu": gpu, **record_of(rate("bf16", support, dense_tflops), "gpu_precision")}


def instance_type_row(name: str, gpu: str | None = "z10g-24gb", gpu_count: int = 1, **given: Any) -> Record:
    """An instance type of AWS; no figure but the number of its GPUs is known by default."""
    return {**record_of(unknown_instance_type(name, gpu_count=gpu_count, **given), "instance_type"), "gpu": gpu}


def event_row(family: str, starts_on: date, state: LifecycleState = "available", name: str = "") -> Record:
    """An event of a family, or of one of its instance types."""
    return {"provider": "aws", "family": family, "name": name, **record_of(event(state, starts_on), "lifecycle")}


def offer_records(name: str, *prices: Record, region: str = "us-east-1", currency: str = "USD") -> list[Record]:
    """The prices of an offer over time, as observations."""
    offer = {
        "key": f"{name} {region} {currency}",
        "provider": "aws",
        "name": name,
        "region": region,
        "zone": None,
        "market": "on_demand",
        "term": None,
        "operating_system": "linux",
        "currency": currency,
    }
    return [{**offer, **price} for price in prices or (price_record(1_000_000),)]


def price_record(micros: int | None, start: datetime = datetime(2022, 1, 1, tzinfo=UTC), **given: Any) -> Record:
    plain: Record = {
        "effective_from": start,
        "observed_at": start,
        "per_hour_micros": micros,
        "dated": "day",
        "kind": "api",
        "source": SOURCE,
        "note": None,
    }
    return {**plain, **given}
