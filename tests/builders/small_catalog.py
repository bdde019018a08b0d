"""A batch so small that it is written in no time: three machines, a card and a part of it, prices in two currencies."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from service.db.tables import (
    ExchangeRateRow,
    GpuPrecisionRow,
    GpuRow,
    InstanceTypeRow,
    LifecycleRow,
    PrecisionRow,
    ProviderRow,
    Row,
    SourceRow,
)
from service.db.write_catalog import Batch, Record

SOURCE = "a-test"
Tables = Mapping[type[Row], Sequence[Record]]


def batch(hash_: str = "small", offers: Sequence[Record] | None = None, tables: Tables | None = None) -> Batch:
    """The small world; `tables` stand in for those it would have."""
    sold = [offer("p4d.24xlarge"), offer("g5.xlarge"), offer("g5.2xlarge")] if offers is None else offers
    return Batch("seed", hash_, {**world(), **(tables or {})}, sold, rows_seen=20, quarantined={})


def world() -> dict[type[Row], list[Record]]:
    return {
        SourceRow: [{"id": SOURCE, "title": "A test", "retrieved_on": date(2024, 6, 1)}],
        PrecisionRow: [
            {"id": "bf16", "name": "BF16", "kind": "float", "bits": 16, "description": "brain", "source": SOURCE}
        ],
        # A part whose id stands before its card's, as "1of2" may.
        GpuRow: [gpu("a10g-24gb-1of2", memory_gb=12.0, fraction=0.5, partition_of="z10g-24gb"), gpu("z10g-24gb")],
        GpuPrecisionRow: [rate("z10g-24gb", "accelerated", 70.0), rate("a10g-24gb-1of2", None, None)],
        ProviderRow: [{"id": "aws", "name": "AWS", "priced_by_region": True, "source": SOURCE}],
        InstanceTypeRow: [
            instance_type("p4d.24xlarge", vcpus=96.0, gpu_count=8, interconnect="nvswitch", rdma=True),
            instance_type("g5.xlarge", vcpus=4.0, rdma=False),
            instance_type("g5.2xlarge", vcpus=8.0),
        ],
        LifecycleRow: [event("p4d", date(2020, 11, 2)), event("g5", date(2021, 11, 11))],
        ExchangeRateRow: [exchange_rate(date(2022, 1, 1), 150_000_000), exchange_rate(date(2023, 1, 1), 140_000_000)],
    }


def gpu(id: str, **given: Any) -> Record:  # noqa: A002 - it is called that everywhere
    plain: Record = {
        "id": id,
        "name": id,
        "kind": "gpu",
        "vendor": "nvidia",
        "architecture": "ampere",
        "memory_gb": 24.0,
        "fraction": 1.0,
        "partition_of": None,
        "source": SOURCE,
    }
    return {**plain, **given}


def rate(gpu: str, support: str | None, dense_tflops: float | None) -> Record:
    return {"gpu": gpu, "precision": "bf16", "support": support, "dense_tflops": dense_tflops, "source": SOURCE}


def instance_type(name: str, **given: Any) -> Record:
    plain: Record = {
        "provider": "aws",
        "name": name,
        "service": "ec2",
        "family": name.partition(".")[0],
        "gpu": "z10g-24gb",
        "gpu_count": 1,
        "interconnect": "none",
        "vcpus": None,
        "rdma": None,
        "source": SOURCE,
    }
    return {**plain, **given}


def event(family: str, starts_on: date, state: str = "available", name: str = "") -> Record:
    return {
        "provider": "aws",
        "family": family,
        "name": name,
        "state": state,
        "starts_on": starts_on,
        "basis": "published",
        "source": SOURCE,
    }


def exchange_rate(on: date, nanos: int, currency: str = "CNY") -> Record:
    return {"currency": currency, "on": on, "usd_per_unit_nanos": nanos, "source": SOURCE}


def offer(name: str, *prices: Record, region: str = "us-east-1", currency: str = "USD") -> Record:
    return {
        "key": f"{name} {region} {currency}",
        "instance_type": ("aws", name),
        "region": region,
        "zone": None,
        "market": "on_demand",
        "term": None,
        "operating_system": "linux",
        "currency": currency,
        "prices": prices or (price(1_000_000),),
    }


def price(
    micros: int | None, start: datetime = datetime(2022, 1, 1, tzinfo=UTC), end: datetime | None = None, **given: Any
) -> Record:
    plain: Record = {
        "valid_from": start,
        "valid_to": end,
        "per_hour_micros": micros,
        "observed_on": start.date(),
        "dated": "day",
        "kind": "api",
        "source": SOURCE,
        "note": None,
    }
    return {**plain, **given}
