"""Small made-up catalogs and questions, for comparing the engine with slow and plain code."""

from dataclasses import dataclass
from datetime import date

import numpy as np
from hypothesis import strategies as st

from service.domain.catalog import Catalog
from service.domain.constraints import Constraints
from service.domain.hardware import Gpu, InstanceType, LifecycleEvent
from service.domain.history import FOREVER, CatalogHistory, OfferColumns, PriceColumns
from service.domain.offer import MARKETS
from service.domain.precision import Precision, Rate
from service.domain.reference import Provider, Reference, Region, SoftwareRule

DAY = date(2026, 1, 31)
PRECISIONS = ("bf16", "fp16", "fp32", "fp64", "tf32")
REGIONS = ("east", "north", "west")
PROVIDERS = ("acme", "bolt")


@dataclass(frozen=True)
class World:
    """A catalog, and its offers as plain tuples: type, region, market, price, age of the price in days."""

    catalog: Catalog
    offers: list[tuple[int, str | None, str, float | None, int | None]]


def maybe(values: st.SearchStrategy) -> st.SearchStrategy:  # type: ignore[type-arg]
    return st.one_of(st.none(), values)


@st.composite
def gpus(draw: st.DrawFn, number: int) -> Gpu:
    rates = {
        name: Rate(
            precision=name,
            support=draw(st.sampled_from([None, "none", "reduced", "native", "accelerated"])),
            dense_tflops=draw(maybe(st.sampled_from([1.0, 10.0, 100.0, 312.0]))),
            sparse_tflops=None,
            source="s",
            note=None,
        )
        for name in draw(st.lists(st.sampled_from(PRECISIONS), unique=True))
    }
    memory = draw(maybe(st.sampled_from([8.0, 16.0, 24.0, 80.0])))
    return Gpu(
        id=f"gpu-{number}",
        name=f"GPU {number}",
        kind=draw(st.sampled_from(["gpu", "npu"])),
        vendor=draw(st.sampled_from(["nvidia", "amd"])),
        architecture=draw(st.sampled_from(["ampere", "hopper"])),
        released_on=None,
        memory_gb=memory,
        usable_memory_gib=None,
        memory_type=None,
        memory_bandwidth_gb_per_second=draw(maybe(st.sampled_from([300.0, 900.0]))),
        tdp_watts=draw(maybe(st.sampled_from([70.0, 400.0]))),
        compute_capability=None,
        tensor_core_generation=None,
        interconnect=None,
        interconnect_gb_per_second=None,
        form_factor=None,
        positioned_for=None,
        fraction=draw(st.sampled_from([1.0, 1.0, 0.5])),
        partition_of=None,
        source="s",
        note=None,
        aliases=(),
        rates=rates,
    )


@st.composite
def instance_types(draw: st.DrawFn, number: int, cards: list[Gpu]) -> InstanceType:
    gpu = draw(maybe(st.sampled_from(cards)))
    count = draw(st.sampled_from([1, 2, 8])) if gpu else 0
    state = draw(st.sampled_from(["available", "available", "preview", "closed_to_new", "retired"]))
    return InstanceType(
        provider=draw(st.sampled_from(PROVIDERS)),
        name=f"m{number}",
        service="compute",
        family=draw(st.sampled_from(["alpha", "beta"])),
        gpu=gpu,
        gpu_count=count,
        interconnect=draw(st.sampled_from([None, "pcie", "nvlink", "nvswitch"])) if count > 1 else "none",
        interconnect_gb_per_second=None,
        vcpus=draw(maybe(st.sampled_from([4.0, 8.0, 96.0]))),
        cpu_architecture=draw(st.sampled_from([None, "x86_64", "arm64"])),
        cpu_vendor=None,
        cpu_model=None,
        memory_gib=draw(maybe(st.sampled_from([16.0, 64.0, 1152.0]))),
        network_gbps=draw(maybe(st.sampled_from([10.0, 400.0]))),
        network_baseline_gbps=None,
        rdma=draw(st.sampled_from([None, True, False])),
        gpudirect_rdma=None,
        local_storage_gb=None,
        bare_metal=None,
        twin_of=None,
        source="s",
        note=None,
        lifecycle=(LifecycleEvent(state, date(2020, 1, 1), "published", "s", None),),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    cards = [draw(gpus(number)) for number in range(draw(st.integers(1, 3)))]
    kinds = [draw(instance_types(number, cards)) for number in range(draw(st.integers(1, 6)))]
    kinds.sort(key=lambda kind: (kind.provider, kind.name))
    offers = draw(
        st.lists(
            st.tuples(
                st.integers(0, len(kinds) - 1),
                maybe(st.sampled_from(REGIONS)),
                st.sampled_from(MARKETS[:2]),
                maybe(st.sampled_from([0.5, 1.0, 2.0, 2.0, 32.77])),
                maybe(st.sampled_from([0, 30, 400])),
            ),
            max_size=14,
        )
    )
    return World(catalog_of(kinds, offers), offers)


def catalog_of(
    kinds: list[InstanceType],
    offers: list[tuple[int, str | None, str, float | None, int | None]],
    software: tuple[SoftwareRule, ...] = (),
) -> Catalog:
    count = len(offers)
    columns = OfferColumns(
        instance_type=np.array([offer[0] for offer in offers], np.int32),
        region=np.array([-1 if offer[1] is None else REGIONS.index(offer[1]) for offer in offers], np.int32),
        zone=np.full(count, -1, np.int32),
        market=np.array([[*MARKETS].index(offer[2]) for offer in offers], np.int8),  # type: ignore[arg-type]
        places=REGIONS,
    )
    micros = np.array([-1 if offer[3] is None else round(offer[3] * 1_000_000) for offer in offers], np.int64)
    prices = PriceColumns(
        offer=np.arange(count, dtype=np.int32),
        valid_from=np.zeros(count, np.int64),
        valid_to=np.full(count, FOREVER, np.int64),
        usd_micros=micros,
        native_micros=micros,
        observed_day=np.array([-1 if offer[4] is None else DAY.toordinal() - offer[4] for offer in offers], np.int32),
        currency=np.zeros(count, np.int16),
        dated=np.zeros(count, np.int8),
        kind=np.zeros(count, np.int8),
        source=np.zeros(count, np.int32),
        note=np.full(count, -1, np.int32),
        words=("USD",),
    )
    reference = Reference(
        sources={},
        precisions={name: Precision(name, name, "float", 16, None, None, "", "s") for name in PRECISIONS},
        gpus={kind.gpu.id: kind.gpu for kind in kinds if kind.gpu},
        gpu_aliases={},
        providers={name: Provider(name, name, None, None, None, None, False, "s", None) for name in PROVIDERS},
        regions=tuple(Region("acme", name, None, None, "s", ()) for name in REGIONS),
        services=(),
        fees=(),
        software=software,
        measurements=(),
        imports=(),
    )
    return CatalogHistory(1, tuple(kinds), columns, prices, reference).on(DAY)


@st.composite
def constraints(draw: st.DrawFn) -> Constraints:
    """Any mix of constraints; most of them narrow, so that some questions have no answer."""

    def sometimes(strategy: st.SearchStrategy, otherwise: object) -> object:  # type: ignore[type-arg]
        return draw(st.one_of(st.just(otherwise), st.just(otherwise), strategy))

    def words(*known: str) -> st.SearchStrategy:  # type: ignore[type-arg]
        return st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True).map(tuple)

    asked = {
        "provider": sometimes(words(*PROVIDERS), ()),
        "family": sometimes(words("alpha", "beta"), ()),
        "gpu_vendor": sometimes(words("nvidia", "amd"), ()),
        "interconnect": sometimes(words("pcie", "nvlink", "nvswitch", "none"), ()),
        "lifecycle": sometimes(words("available", "preview"), ()),
    }
    limits = {
        "gpu_count": sometimes(st.sampled_from([0.5, 1.0, 2.0, 8.0]), None),
        "gpu_memory_gb": sometimes(st.sampled_from([16.0, 24.0, 100.0]), None),
        "vcpus": sometimes(st.sampled_from([8.0, 96.0]), None),
    }
    tops = {"memory_gib": sometimes(st.sampled_from([16.0, 64.0]), None), "vcpus": sometimes(st.just(96.0), None)}
    rdma = sometimes(st.booleans(), None)
    return Constraints(
        words={name: value for name, value in asked.items() if value},  # type: ignore[misc]
        at_least={name: value for name, value in limits.items() if value is not None},  # type: ignore[misc]
        at_most={name: value for name, value in tops.items() if value is not None},  # type: ignore[misc]
        flags={} if rdma is None else {"rdma": rdma},  # type: ignore[dict-item]
        precision_any=sometimes(words("bf16", "fp32", "fp64"), ()),  # type: ignore[arg-type]
        precision_support=draw(st.sampled_from(["accelerated", "native", "any"])),
        exclude=sometimes(words("alpha", "acme", "m1", "gpu-0"), ()),  # type: ignore[arg-type]
        region=sometimes(words(*REGIONS), ()),  # type: ignore[arg-type]
        market=sometimes(words("on_demand", "spot"), ()),  # type: ignore[arg-type]
        max_usd_per_hour=sometimes(st.sampled_from([0.4, 0.5, 1.0, 2.0]), None),  # type: ignore[arg-type]
        max_price_age_days=sometimes(st.sampled_from([0.0, 30.0, 90.0]), None),  # type: ignore[arg-type]
        needs_price=draw(st.booleans()),
    )
