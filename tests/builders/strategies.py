"""Small made-up catalogs and questions, for comparing the engine with slow and plain code."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
from hypothesis import strategies as st

from service.domain.calibration.error_bands import Physics, physics_of
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu, InstanceType, LifecycleEvent, LifecycleState
from service.domain.catalog.history import FOREVER, CatalogHistory, OfferColumns, PriceColumns
from service.domain.catalog.offer import MARKETS
from service.domain.catalog.precision import Precision, Rate, SupportAsked
from service.domain.catalog.reference import Provider, Reference, Region, SoftwareRule
from service.domain.catalog.tariffs import InterruptionPrior
from service.domain.selection.constraints import Constraints

DAY = date(2026, 1, 31)
PRECISIONS = ("bf16", "fp16", "fp32", "fp64", "tf32")
SUPPORTS: list[SupportAsked] = ["accelerated", "native", "any"]
REGIONS = ("east", "north", "west")
PROVIDERS = ("acme", "bolt")


Offer = tuple[int, str | None, str, float | None, int | None]
"""Place of the type, region, market, price, age of the price in days."""


class World:
    """A catalog, and its offers as plain tuples."""

    def __init__(self, catalog: Catalog, offers: Sequence[Offer]) -> None:
        self.catalog, self.offers = catalog, offers

    def __repr__(self) -> str:
        """Without the physics, which fills pages."""
        return f"World({self.catalog.instance_types}, {self.offers})"


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
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
        cores=None,
        base_clock_mhz=None,
        boost_clock_mhz=None,
        gpus_per_board=None,
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
    states: list[LifecycleState] = ["available", "available", "preview", "closed_to_new", "retired"]
    state = draw(st.sampled_from(states))
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
    offers: Sequence[Offer],
    software: tuple[SoftwareRule, ...] = (),
    physics: Physics | None = None,
) -> Catalog:
    count = len(offers)
    columns = OfferColumns(
        instance_type=np.array([offer[0] for offer in offers], np.int32),
        region=np.array([-1 if offer[1] is None else REGIONS.index(offer[1]) for offer in offers], np.int32),
        zone=np.full(count, -1, np.int32),
        market=np.array([[*MARKETS].index(offer[2]) for offer in offers], np.int8),  # type: ignore[arg-type]
        places=REGIONS,
        term=np.full(count, -1, np.int16),
        terms=(),
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
        providers={name: provider(name) for name in PROVIDERS},
        regions=tuple(Region("acme", name, None, None, "s", ()) for name in REGIONS),
        services=(),
        fees=(),
        software=software,
        measurements=(),
        published_runs=(),
        models={},
        physics=physics or physics_of([]),
        imports=(),
        interruption_priors=(InterruptionPrior("spot", "", "", date(2020, 1, 1), 0.02, 0.1, 0.3, 0.9, 0.7, "s", None),),
    )
    return CatalogHistory(1, tuple(kinds), columns, prices, reference).on(DAY)


def provider(name: str) -> Provider:
    return Provider(
        name, name, None, None, None, None, priced_by_region=False, gpus_exclusive=None, source="s", note=None
    )


def some(*known: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True).map(tuple)


WORDS = {
    "provider": some(*PROVIDERS),
    "family": some("alpha", "beta"),
    "gpu_vendor": some("nvidia", "amd"),
    "interconnect": some("pcie", "nvlink", "nvswitch", "none"),
    "lifecycle": some("available", "preview"),
}
AT_LEAST = {
    "gpu_count": st.sampled_from([0.5, 1.0, 2.0, 8.0]),
    "gpu_memory_gb": st.sampled_from([16.0, 24.0, 100.0]),
    "vcpus": st.sampled_from([8.0, 96.0]),
}
AT_MOST = {"memory_gib": st.sampled_from([16.0, 64.0]), "vcpus": st.just(96.0)}
FLAGS = {"rdma": st.booleans()}
SIMPLE = {
    "precision_any": some("bf16", "fp32", "fp64"),
    "exclude": some("alpha", "acme", "m1", "gpu-0"),
    "region": some(*REGIONS),
    "market": some("on_demand", "spot"),
    "max_usd_per_hour": st.sampled_from([0.4, 0.5, 1.0, 2.0]),
    "max_price_age_days": st.sampled_from([0.0, 30.0, 90.0]),
    "needs_price": st.just(True),  # noqa: FBT003
}
GROUPS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "words": WORDS,
    "at_least": AT_LEAST,
    "at_most": AT_MOST,
    "flags": FLAGS,
    "simple": SIMPLE,
}
EVERY = [(group, name) for group, fields in GROUPS.items() for name in fields]
OFTEN = [("simple", "region"), ("simple", "market"), ("simple", "max_usd_per_hour"), ("flags", "rdma")]


@st.composite
def constraints(draw: st.DrawFn) -> Constraints:
    """One to four constraints: few enough that single ones decide."""
    asked: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    chosen = st.one_of(st.sampled_from(EVERY), st.sampled_from(OFTEN))
    for group, name in draw(st.lists(chosen, min_size=1, max_size=4, unique=True)):
        asked[group][name] = draw(GROUPS[group][name])
    given: dict[str, Any] = asked.pop("simple") | asked
    return Constraints(**given, precision_support=draw(st.sampled_from(SUPPORTS)))
