"""The selection again, as a plain loop over every type and offer: slow, and obviously right."""

from typing import Any

from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.precision import ENOUGH
from service.domain.selection.constraints import Constraints
from tests.strategies.catalogs import COUNTRIES, DAY, Offer, World


def type_misses(asked: Constraints, instance_type: InstanceType) -> list[str]:
    """The codes of the constraints on hardware and lifecycle that a type misses."""
    return [
        *word_misses(asked, instance_type),
        *number_misses(asked, instance_type),
        *other_misses(asked, instance_type),
    ]


def word_misses(asked: Constraints, instance_type: InstanceType) -> list[str]:
    words = {
        "provider": instance_type.provider,
        "family": instance_type.family,
        "gpu_vendor": instance_type.gpu.vendor if instance_type.gpu else None,
        "interconnect": instance_type.interconnect,
        "lifecycle": instance_type.state_on(DAY),
    }
    missed = []
    for name, wanted in asked.words.items():
        also = ("nvswitch",) if name == "interconnect" and "nvlink" in wanted else ()
        if words[name] not in (*wanted, *also):
            missed.append(name)
    return missed


def number_misses(asked: Constraints, instance_type: InstanceType) -> list[str]:
    numbers = {
        "gpu_count": instance_type.gpu_count * instance_type.gpu.fraction if instance_type.gpu else 0.0,
        "gpu_memory_gb": instance_type.gpu.memory_gb if instance_type.gpu else None,
        "vcpus": instance_type.vcpus,
        "memory_gib": instance_type.memory_gib,
    }
    missed = []
    for name in {*asked.at_least, *asked.at_most}:
        value = numbers[name]
        if value is None:
            missed.append(f"{name}_unknown")
        elif name in asked.at_least and value < asked.at_least[name]:
            missed.append(f"min_{name}")
        elif name in asked.at_most and value > asked.at_most[name]:
            missed.append(f"max_{name}")
    return missed


def other_misses(asked: Constraints, instance_type: InstanceType) -> list[str]:
    missed = []
    if "rdma" in asked.flags and instance_type.rdma != asked.flags["rdma"]:
        missed.append("rdma_unknown" if instance_type.rdma is None else "rdma")
    if asked.precision_any and not any(runs(instance_type, each, asked) for each in asked.precision_any):
        missed.append("precision")
    names = {instance_type.provider, instance_type.family, instance_type.name, instance_type.id}
    if instance_type.gpu:
        names.add(instance_type.gpu.id)
    if names & set(asked.exclude):
        missed.append("exclude")
    return missed


def runs(instance_type: InstanceType, precision: str, asked: Constraints) -> bool:
    rate = instance_type.gpu.rates.get(precision) if instance_type.gpu else None
    return rate is not None and rate.support in ENOUGH[asked.precision_support]


def offer_misses(asked: Constraints, offer: Offer) -> list[str]:
    """The codes of the constraints that an offer misses, the price limit last."""
    _, region, market, usd, age = offer
    missed = []
    places = (("region", asked.region, region), ("country", asked.country, COUNTRIES.get(region)))
    for name, wanted, place in places:
        if wanted and place is not None and place not in wanted:
            missed.append(name)
    if not asked.allow_unknown_region and any(wanted and place is None for _, wanted, place in places):
        missed.append("region_unknown")
    if asked.market and market not in asked.market:
        missed.append("market")
    if asked.max_price_age_days is not None and (age is None or age > asked.max_price_age_days):
        missed.append("max_price_age_days")
    if asked.needs_price and usd is None:
        missed.append("price_unknown")
    if asked.max_usd_per_hour is not None and (usd is None or usd > asked.max_usd_per_hour):
        missed.append("usd_per_hour_unknown" if usd is None else "max_usd_per_hour")
    return missed


def lowest_prices(asked: Constraints, world: World) -> dict[tuple[int, str], float | None]:
    """The lowest price (None: unknown) of each admitted type in each market in which one of its offers passes."""
    lowest: dict[tuple[int, str], float | None] = {}
    for index, instance_type in enumerate(world.catalog.instance_types):
        if type_misses(asked, instance_type):
            continue
        for offer in world.offers:
            if offer[0] != index or offer_misses(asked, offer):
                continue
            key, usd = (index, offer[2]), offer[3]
            known = [price for price in (lowest.get(key), usd) if price is not None]
            lowest[key] = min(known, default=None)
    return lowest


def relaxed_constraints(asked: Constraints, to: dict[str, object]) -> Constraints:
    """The constraints after a caller has followed a relaxation."""
    words, low, high, flags = dict(asked.words), dict(asked.at_least), dict(asked.at_most), dict(asked.flags)
    simple: dict[str, Any] = {}
    for name, value in to.items():
        if name == "workload.precision":
            simple["precision_any"] = tuple(value)  # type: ignore[arg-type]
        elif name in words:
            words[name] = tuple(value)  # type: ignore[arg-type]
            words = {key: wanted for key, wanted in words.items() if wanted}
        elif name.startswith("min_"):
            _put(low, name[4:], value)
        elif name.startswith("max_") and name[4:] in high:
            _put(high, name[4:], value)
        elif name in flags:
            _put(flags, name, value)
        else:
            simple[name] = tuple(value) if isinstance(value, list) else value if value is not None else ()
            if value is None and name.startswith("max_"):
                simple[name] = None
    return asked._replace(words=words, at_least=low, at_most=high, flags=flags, **simple)


def _put(fields: dict[str, Any], name: str, value: object) -> None:
    if value is None:
        del fields[name]
    else:
        fields[name] = value
