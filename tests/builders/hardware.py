"""Things to test with: every default is sane, so that a test names only what matters to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np

from service.domain.calibration.error_bands import physics_of
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu, InstanceType, LifecycleEvent, LifecycleState
from service.domain.catalog.history import FOREVER, UNKNOWN, CatalogHistory, OfferColumns, PriceColumns, start_of_day
from service.domain.catalog.offer import DATED, MARKETS, PRICE_KINDS, Dated, Market, PriceKind
from service.domain.catalog.precision import Precision, Rate, Support
from service.domain.catalog.reference import Provider, Reference, Region, SoftwareRule, Source

DAY = date(2024, 6, 1)
SOURCE = "a-test"


def source(id: str = SOURCE, **given: Any) -> Source:  # noqa: A002 - it is called that everywhere
    plain = Source(id=id, title="A test", version=None, published_on=None, retrieved_on=DAY, licence=None, note=None)
    return replace(plain, **given)


def precision(id: str = "bf16", **given: Any) -> Precision:  # noqa: A002
    plain = Precision(
        id=id,
        name=id.upper(),
        kind="int" if id.startswith("int") else "float",
        bits=int("".join(filter(str.isdigit, id)) or 16),
        exponent_bits=None,
        mantissa_bits=None,
        description=f"{id} numbers",
        source=SOURCE,
    )
    return replace(plain, **given)


def rate(precision: str = "bf16", support: Support | None = "accelerated", dense_tflops: float | None = 100.0) -> Rate:
    return Rate(precision, support, dense_tflops, sparse_tflops=None, source=SOURCE, note=None)


def gpu(id: str = "a100-sxm4-40gb", *, rates: Sequence[Rate] | None = None, **given: Any) -> Gpu:  # noqa: A002
    """An A100 unless told otherwise."""
    known = rates if rates is not None else (rate("fp32", "native", 19.5), rate("bf16", "accelerated", 312.0))
    plain = Gpu(
        id=id,
        name=f"NVIDIA {id}",
        kind="gpu",
        vendor="nvidia",
        architecture="ampere",
        released_on="2020-05",
        memory_gb=40.0,
        usable_memory_gib=39.4,
        memory_type="HBM2",
        memory_bandwidth_gb_per_second=1555.0,
        tdp_watts=400.0,
        cores=None,
        base_clock_mhz=None,
        boost_clock_mhz=None,
        gpus_per_board=None,
        compute_capability="8.0",
        tensor_core_generation=3,
        interconnect="nvlink",
        interconnect_gb_per_second=600.0,
        form_factor="sxm4",
        positioned_for=None,
        fraction=1.0,
        partition_of=None,
        source=SOURCE,
        note=None,
        aliases=(),
        rates={each.precision: each for each in known},
    )
    return replace(plain, **given)


def event(state: LifecycleState = "available", starts_on: date = date(2020, 11, 2)) -> LifecycleEvent:
    return LifecycleEvent(state, starts_on, basis="published", source=SOURCE, note=None)


def instance_type(name: str = "p4d.24xlarge", **given: Any) -> InstanceType:
    """A machine of eight A100s, available since 2020. `gpu=None` makes it a machine without."""
    card = given.setdefault("gpu", gpu())
    count = given.setdefault("gpu_count", 8 if card else 0)
    plain = InstanceType(
        provider="aws",
        name=name,
        service="ec2",
        family=name.partition(".")[0],
        gpu=card,
        gpu_count=count,
        interconnect="nvswitch" if count > 1 else "none",
        interconnect_gb_per_second=600.0 if count > 1 else None,
        vcpus=96.0,
        cpu_architecture="x86_64",
        cpu_vendor="intel",
        cpu_model="Xeon Platinum 8275CL",
        memory_gib=1152.0,
        network_gbps=400.0,
        network_baseline_gbps=None,
        rdma=True,
        gpudirect_rdma=True,
        local_storage_gb=8000.0,
        bare_metal=False,
        twin_of=None,
        source=SOURCE,
        note=None,
        lifecycle=(event(),),
    )
    return replace(plain, **given)


@dataclass(frozen=True, slots=True)
class Priced:
    """What an offer of an instance type costs, from a day on."""

    instance_type: InstanceType
    usd_per_hour: float | None = 10.0
    region: str | None = "us-east-1"
    zone: str | None = None
    market: Market = "on_demand"
    valid_from: date = date(2024, 5, 1)
    valid_to: date | None = None
    observed_on: date | None = date(2024, 5, 1)
    dated: Dated = "day"
    kind: PriceKind = "api"
    currency: str = "USD"
    native_per_hour: float | None = None
    """In its currency, where that is not the dollar."""
    note: str | None = None
    term: str | None = None

    @property
    def offer(self) -> tuple[Any, ...]:
        return self.instance_type.id, self.region or "", self.zone or "", self.market, self.currency, self.term or ""


def priced(kind: InstanceType | None = None, usd_per_hour: float | None = 10.0, **given: Any) -> Priced:
    return Priced(kind or instance_type(), usd_per_hour, **given)


def history(
    *prices: Priced, instance_types: Sequence[InstanceType] = (), version: int = 1, **known: Any
) -> CatalogHistory:
    """Everything that the prices speak of, and types that nobody prices; `known` are fields of the reference."""
    kinds = {kind.id: kind for kind in (*instance_types, *(each.instance_type for each in prices))}
    ordered = tuple(sorted(kinds.values(), key=lambda kind: (kind.provider, kind.name)))
    return CatalogHistory(version, ordered, *columns(ordered, prices), reference(ordered, prices, **known))


def catalog(
    *prices: Priced, instance_types: Sequence[InstanceType] = (), day: date = DAY, version: int = 1, **known: Any
) -> Catalog:
    """The catalog of a day, without a database."""
    return history(*prices, instance_types=instance_types, version=version, **known).on(day)


def columns(kinds: Sequence[InstanceType], prices: Sequence[Priced]) -> tuple[OfferColumns, PriceColumns]:
    chains = sorted(prices, key=lambda price: (price.offer, price.valid_from))
    first = {price.offer: price for price in reversed(chains)}
    offers = sorted(first)
    place_of = {kind.id: place for place, kind in enumerate(kinds)}
    places = tuple(sorted({word for price in prices for word in (price.region, price.zone) if word}))
    terms = tuple(sorted({price.term for price in prices if price.term}))
    words = tuple(sorted({word for price in prices for word in (price.currency, price.note) if word} | {SOURCE}))

    def code(among: tuple[str, ...], word: str | None) -> int:
        return UNKNOWN if word is None else among.index(word)

    def micros(per_hour: float | None) -> int:
        return UNKNOWN if per_hour is None else round(per_hour * 1_000_000)

    def native(price: Priced) -> float | None:
        return price.usd_per_hour if price.currency == "USD" else price.native_per_hour

    return (
        OfferColumns(
            instance_type=np.array([place_of[first[each].instance_type.id] for each in offers], np.int32),
            region=np.array([code(places, first[each].region) for each in offers], np.int32),
            zone=np.array([code(places, first[each].zone) for each in offers], np.int32),
            market=np.array([MARKETS.index(first[each].market) for each in offers], np.int8),
            places=places,
            term=np.array([code(terms, first[each].term) for each in offers], np.int16),
            terms=terms,
        ),
        PriceColumns(
            offer=np.array([offers.index(price.offer) for price in chains], np.int32),
            valid_from=np.array([start_of_day(price.valid_from) for price in chains], np.int64),
            valid_to=np.array(
                [start_of_day(price.valid_to) if price.valid_to else FOREVER for price in chains], np.int64
            ),
            usd_micros=np.array([micros(price.usd_per_hour) for price in chains], np.int64),
            native_micros=np.array([micros(native(price)) for price in chains], np.int64),
            observed_day=np.array(
                [price.observed_on.toordinal() if price.observed_on else UNKNOWN for price in chains], np.int32
            ),
            currency=np.array([code(words, price.currency) for price in chains], np.int16),
            dated=np.array([DATED.index(price.dated) for price in chains], np.int8),
            kind=np.array([PRICE_KINDS.index(price.kind) for price in chains], np.int8),
            source=np.array([code(words, SOURCE) for _ in chains], np.int32),
            note=np.array([code(words, price.note) for price in chains], np.int32),
            words=words,
        ),
    )


def provider(id: str = "aws", **given: Any) -> Provider:  # noqa: A002
    plain = Provider(
        id=id,
        name=id.upper(),
        instance_type_term=None,
        on_demand_term=None,
        spot_term=None,
        spot_notice_seconds=None,
        priced_by_region=True,
        gpus_exclusive=None,
        source=SOURCE,
        note=None,
    )
    return replace(plain, **given)


def software(name: str = "pytorch", supported: str = "yes", **given: Any) -> SoftwareRule:
    """A rule for every NVIDIA card, unless told otherwise."""
    plain = SoftwareRule(
        software=name,
        kind="framework",
        versions=None,
        scope="vendor",
        scope_value="nvidia",
        task=None,
        supported=supported,
        valid_from=None,
        valid_to=None,
        source=SOURCE,
        note=None,
    )
    return replace(plain, **given)


def reference(kinds: Sequence[InstanceType], prices: Sequence[Priced], **known: Any) -> Reference:
    cards = {kind.gpu.id: kind.gpu for kind in kinds if kind.gpu}
    aliases: dict[str, tuple[str, ...]] = {}
    for card in cards.values():
        for alias in card.aliases:
            aliases[alias] = (*aliases.get(alias, ()), card.id)
    regions = sorted({(price.instance_type.provider, price.region) for price in prices if price.region})
    plain = Reference(
        sources={SOURCE: source()},
        precisions=precisions_of(cards),
        gpus=dict(sorted(cards.items())),
        gpu_aliases=aliases,
        providers={each: provider(each) for each in sorted({kind.provider for kind in kinds})},
        regions=tuple(Region(seller, each, each, None, SOURCE, ()) for seller, each in regions),
        services=(),
        fees=(),
        software=(),
        measurements=(),
        published_runs=(),
        models={},
        physics=physics_of([]),
        imports=(),
    )
    return replace(plain, **known)


def precisions_of(cards: Mapping[str, Gpu]) -> dict[str, Precision]:
    return {each: precision(each) for each in sorted({name for card in cards.values() for name in card.rates})}
