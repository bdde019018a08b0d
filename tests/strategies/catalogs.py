"""Small catalogs and constraints drawn at random, for comparing the selection and ranking with slow and plain code."""

from collections.abc import Sequence
from datetime import date, timedelta
from functools import cache
from typing import Any, cast

from hypothesis import strategies as st

from service.domain.calibration.calibration import Calibration, calibration_of
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu, InstanceType, LifecycleState
from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.offer import MARKETS, Market
from service.domain.catalog.precision import SupportAsked
from service.domain.catalog.reference import Region, SoftwareRule
from service.domain.catalog.tariffs import InterruptionPrior
from service.domain.selection.constraints import Constraints
from tests.builders.catalogs import provider, reference
from tests.builders.gpus import precision, rate, unknown_gpu
from tests.builders.instance_types import event, unknown_instance_type
from tests.builders.offers import Priced, columns
from tests.builders.sources import SOURCE
from tests.strategies.made_once import maybe, one_of, whole

DAY = date(2026, 1, 31)
PRECISIONS = ("bf16", "fp16", "fp32", "fp64", "tf32")
SUPPORTS: list[SupportAsked] = ["accelerated", "native", "any"]
REGIONS = ("east", "north", "west")
COUNTRIES: dict[str | None, str] = {"east": "JP", "north": "NO"}
"""The country of the region `west` is unknown."""

PROVIDERS = ("acme", "bolt")
PRIOR = InterruptionPrior("spot", "", "", date(2020, 1, 1), 0.02, 0.1, 0.3, 0.9, 0.7, SOURCE, None)


Offer = tuple[int, str | None, str, float | None, int | None]
"""Index of the type, region, market, price in USD per hour, age of the price in days."""


class World:
    """A catalog, and its offers as plain tuples."""

    def __init__(self, catalog: Catalog, offers: Sequence[Offer]) -> None:
        self.catalog, self.offers = catalog, offers

    def __repr__(self) -> str:
        """Leaves out the calibration, which fills pages."""
        return f"World({self.catalog.instance_types}, {self.offers})"


flags_or_none = st.one_of(st.none(), st.booleans())
some_precisions = st.lists(one_of(*PRECISIONS), unique=True)


@st.composite
def gpus(draw: st.DrawFn, number: int) -> Gpu:
    rates = [
        rate(
            name,
            support=draw(one_of(None, "none", "reduced", "native", "accelerated")),
            dense_tflops=draw(maybe(1.0, 10.0, 100.0, 312.0)),
        )
        for name in draw(some_precisions)
    ]
    return unknown_gpu(
        id=f"gpu-{number}",
        kind=draw(one_of("gpu", "npu")),
        vendor=draw(one_of("nvidia", "amd")),
        architecture=draw(one_of("ampere", "hopper")),
        memory_gb=draw(maybe(8.0, 16.0, 24.0, 80.0)),
        memory_bandwidth_gb_per_second=draw(maybe(300.0, 900.0)),
        tdp_watts=draw(maybe(70.0, 400.0)),
        fraction=draw(one_of(1.0, 1.0, 0.5)),
        rates=rates,
    )


@st.composite
def instance_types(draw: st.DrawFn, number: int, known_gpus: list[Gpu]) -> InstanceType:
    index = draw(maybe(*range(len(known_gpus))))
    gpu = None if index is None else known_gpus[index]
    count = draw(one_of(1, 2, 8)) if gpu else 0
    state: LifecycleState = draw(one_of("available", "available", "preview", "closed_to_new", "retired"))
    return unknown_instance_type(
        f"m{number}",
        provider=draw(one_of(*PROVIDERS)),
        family=draw(one_of("alpha", "beta")),
        gpu=gpu,
        gpu_count=count,
        interconnect=draw(maybe("pcie", "nvlink", "nvswitch")) if count > 1 else "none",
        vcpus=draw(maybe(4.0, 8.0, 96.0)),
        cpu_architecture=draw(maybe("x86_64", "arm64")),
        memory_gib=draw(maybe(16.0, 64.0, 1152.0)),
        network_gbps=draw(maybe(10.0, 400.0)),
        rdma=draw(flags_or_none),
        lifecycle=(event(state, date(2020, 1, 1)),),
    )


@cache
def offers_of(types: int) -> st.SearchStrategy[list[Offer]]:
    offer = st.tuples(
        whole(0, types - 1), maybe(*REGIONS), one_of(*MARKETS[:2]), maybe(0.5, 1.0, 2.0, 2.0, 32.77), maybe(0, 30, 400)
    )
    return st.lists(offer, max_size=14)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    known_gpus = [draw(gpus(number)) for number in range(draw(whole(1, 3)))]
    types = [draw(instance_types(number, known_gpus)) for number in range(draw(whole(1, 6)))]
    types.sort(key=lambda each: (each.provider, each.name))
    offers = draw(offers_of(len(types)))
    return World(catalog_of(types, offers), offers)


def catalog_of(
    types: Sequence[InstanceType],
    offers: Sequence[Offer],
    software: tuple[SoftwareRule, ...] = (),
    calibration: Calibration | None = None,
) -> Catalog:
    """The catalog with these types, in their order, and these offers, in theirs."""
    prices = [
        Priced(
            types[index],
            usd_per_hour,
            region=region,
            market=cast(Market, market),
            valid_from=date(1970, 1, 1),
            observed_on=None if age_days is None else DAY - timedelta(age_days),
            number=number,
        )
        for number, (index, region, market, usd_per_hour, age_days) in enumerate(offers)
    ]
    facts = reference(
        types,
        prices,
        precisions={name: precision(name) for name in PRECISIONS},
        providers={name: provider(name, priced_by_region=False) for name in PROVIDERS},
        regions=tuple(
            Region(seller, name, None, COUNTRIES.get(name), None, SOURCE, ())
            for seller in PROVIDERS
            for name in REGIONS
        ),
        software=software,
        calibration=calibration or calibration_of([]),
        interruption_priors=(PRIOR,),
    )
    return CatalogHistory(1, tuple(types), *columns(types, prices), facts).on(DAY)


def one_or_two_of(*known: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(one_of(*known), min_size=1, max_size=2, unique=True).map(tuple)


WORDS = {
    "provider": one_or_two_of(*PROVIDERS),
    "family": one_or_two_of("alpha", "beta"),
    "gpu_vendor": one_or_two_of("nvidia", "amd"),
    "interconnect": one_or_two_of("pcie", "nvlink", "nvswitch", "none"),
    "lifecycle": one_or_two_of("available", "preview"),
}
AT_LEAST = {
    "gpu_count": st.sampled_from([0.5, 1.0, 2.0, 8.0]),
    "gpu_memory_gb": st.sampled_from([16.0, 24.0, 100.0]),
    "vcpus": st.sampled_from([8.0, 96.0]),
}
AT_MOST = {"memory_gib": st.sampled_from([16.0, 64.0]), "vcpus": st.just(96.0)}
FLAGS = {"rdma": st.booleans()}
SIMPLE = {
    "precision_any": one_or_two_of("bf16", "fp32", "fp64"),
    "exclude": one_or_two_of("alpha", "acme", "m1", "gpu-0"),
    "region": one_or_two_of(*REGIONS),
    "country": one_or_two_of("JP", "NO"),
    "market": one_or_two_of("on_demand", "spot"),
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
OFTEN = [*(("simple", name) for name in ("region", "country", "market", "max_usd_per_hour")), ("flags", "rdma")]
ONE_TO_FOUR = st.lists(st.one_of(one_of(*EVERY), one_of(*OFTEN)), min_size=1, max_size=4, unique=True)


@st.composite
def constraints(draw: st.DrawFn) -> Constraints:
    """One to four constraints: few enough that single ones decide."""
    asked: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for group, name in draw(ONE_TO_FOUR):
        asked[group][name] = draw(GROUPS[group][name])
    given: dict[str, Any] = asked.pop("simple") | asked
    return Constraints(**given, precision_support=draw(one_of(*SUPPORTS)))
