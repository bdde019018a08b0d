"""Catalogs without a database, and the facts in them that are not hardware."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from service.domain.calibration.calibration import calibration_of
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.measurement_log import MeasurementLog
from service.domain.catalog.reference import Measurement, Provider, PublishedRun, Reference, Region, SoftwareRule
from tests.builders.gpus import precision
from tests.builders.offers import Priced, columns
from tests.builders.sources import DAY, SOURCE, source


def provider(id: str = "aws", **given: Any) -> Provider:  # noqa: A002 - the field is called id
    plain = Provider(
        id=id,
        name=id.upper(),
        instance_type_term=None,
        on_demand_term=None,
        spot_term=None,
        spot_notice_seconds=None,
        priced_by_region=True,
        seller_class=None,
        gpus_exclusive=None,
        rdma_fabric=None,
        third_party_suffix=None,
        source=SOURCE,
        note=None,
    )
    return replace(plain, **given)


def software_rule(name: str = "pytorch", supported: str = "yes", **given: Any) -> SoftwareRule:
    """A rule for every NVIDIA GPU by default."""
    plain = SoftwareRule(
        software=name,
        kind="framework",
        versions=None,
        scope="vendor",
        scope_value="nvidia",
        task=None,
        families=None,
        formats=None,
        cuda=None,
        supported=supported,
        valid_from=None,
        valid_to=None,
        code_change=None,
        source=SOURCE,
        note=None,
    )
    return replace(plain, **given)


def published_run(id: str = "r", **given: Any) -> PublishedRun:  # noqa: A002
    """A training of the llama on eight A100s by default."""
    plain = PublishedRun(
        id=id,
        kind="train_throughput",
        task="train",
        model="llama",
        gpu="a100",
        gpu_count=8,
        nodes=1,
        machine=None,
        precision="bf16",
        format="bf16",
        weight_bits=None,
        framework="torchtitan",
        software=None,
        sequence_length=None,
        input_length=None,
        output_length=None,
        micro_batch=None,
        global_batch=None,
        concurrency=None,
        tokens=None,
        samples=None,
        value=1000.0,
        unit="tokens_per_second",
        year=2024,
        quality="A",
        source=SOURCE,
        detail="a table",
        note=None,
        known_on=date(2024, 12, 31),
    )
    return replace(plain, **given)


def reference(instance_types: Sequence[InstanceType], prices: Sequence[Priced], **given: Any) -> Reference:
    """The GPUs, precisions, providers and regions that the instance types and prices name, and no other facts."""
    gpus = {each.gpu.id: each.gpu for each in instance_types if each.gpu}
    aliases: dict[str, tuple[str, ...]] = {}
    for gpu in gpus.values():
        for alias in gpu.aliases:
            aliases[alias] = (*aliases.get(alias, ()), gpu.id)
    regions = sorted({(price.instance_type.provider, price.region) for price in prices if price.region})
    plain = Reference(
        sources={SOURCE: source()},
        precisions={name: precision(name) for name in sorted({name for gpu in gpus.values() for name in gpu.rates})},
        gpus=dict(sorted(gpus.items())),
        gpu_aliases=aliases,
        providers={name: provider(name) for name in sorted({each.provider for each in instance_types})},
        regions=tuple(Region(seller, name, name, None, None, SOURCE, ()) for seller, name in regions),
        services=(),
        fees=(),
        software=(),
        published_runs=(),
        models={},
        calibration=calibration_of([]),
        imports=(),
    )
    return replace(plain, **given)


def history(
    *prices: Priced, instance_types: Sequence[InstanceType] = (), version: int = 1, **given: Any
) -> CatalogHistory:
    """The prices with their instance types, and further types without prices; `given` are fields of the reference."""
    types = {each.id: each for each in (*instance_types, *(price.instance_type for price in prices))}
    ordered = tuple(sorted(types.values(), key=lambda each: (each.provider, each.name)))
    log = MeasurementLog(given.pop("measurements", ()), version)
    facts = reference(ordered, prices, **given)
    return CatalogHistory(version, ordered, *columns(ordered, prices), facts, measurements=log)


def catalog(
    *prices: Priced, instance_types: Sequence[InstanceType] = (), day: date = DAY, version: int = 1, **given: Any
) -> Catalog:
    """The catalog of a day."""
    return history(*prices, instance_types=instance_types, version=version, **given).on(day)


def measurement(
    machine: str = "aws/a", samples: float = 100.0, on: date = date(2025, 5, 1), **given: Any
) -> Measurement:
    """A measurement of the workload `nightly`."""
    plain = Measurement(
        id=f"{machine} {on} {samples}",
        workload="nightly",
        framework=None,
        machine=machine,
        gpu_count=None,
        precision=None,
        batch_size=None,
        seconds_per_batch=None,
        samples_per_second=samples,
        usd_per_hour=None,
        measured_on=on,
        source=SOURCE,
        note=None,
    )
    return replace(plain, **given)
