"""Ways to pay for a machine: markets, terms and managed services, region by region."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from service.domain.catalog.catalog import Catalog, without_cluster
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.names import either, resolve
from service.domain.catalog.offer import MARKETS, ON_DEMAND, UNKNOWN, Offer
from service.domain.catalog.reference import Fee, Region, fee_of
from service.domain.catalog.regions import nearest, nearest_first, zones_with_prices
from service.domain.errors import QuestionError

OfferIndices: TypeAlias = NDArray[Any]
"""Indices of offers in the columns of the catalog."""

MOST_ELSEWHERE = 3
"""Most machines with the same GPU that an estimate names."""

MOST_NAMED = 3
"""Most regions, markets or terms that an error names."""

MARKETS_OF_SERVICES: dict[str | None, tuple[str, ...]] = {
    "managed_spot": ("spot",),
    "managed_training": ("on_demand", "spot"),
}
"""Markets in which a managed service of a kind rents machines: commitments to plain machines do not cover it (SageMaker
has savings plans of its own). Services of other kinds rent in all markets."""


@dataclass(frozen=True, slots=True)
class PaymentOption:
    """An offer, rented plainly or through a managed service of its seller."""

    offer: Offer
    service: str | None = None


def payment_options(
    catalog: Catalog,
    instance_type: InstanceType,
    regions: Sequence[str] = (),
    markets: Sequence[str] = (),
    service: str | None = None,
    *,
    zone: str | None = None,
    training: bool = True,
) -> tuple[PaymentOption, ...]:
    """Returns the cheapest offer of each market and term, in each of the requested regions, or else in any region.

    With a `zone`, these are its own offers, and those of its region in markets and terms of which it has none.
    `markets` are markets or terms. Without any, all markets and terms are options, and for training also the seller's
    managed services. Raises `QuestionError` for a place without the type, for a market that none of them has, for one
    in which the service does not rent, and for a service of another seller or without the type.
    """
    if service is not None and instance_type.provider not in catalog.reference.providers_of(service):
        raise QuestionError(f"{service} rents no machines of {instance_type.provider}.", field="managed_service")
    if service is not None and not catalog.reference.rents(service, instance_type):
        raise QuestionError(f"{service} does not rent out {instance_type.id}.", field="managed_service")
    rented = markets_of_service(catalog, service)
    markets = markets_rented(service, rented, markets)
    wanted = set(markets or rented)
    offers = _TypeOffers(catalog, instance_type)
    if zone is not None:
        offers, regions = offers.in_zone(zone), ()
    asked = [_region_sold(offers, region) for region in regions]
    options = [
        PaymentOption(offer, service)
        for among in ([offers.in_region(region) for region in asked] if regions else [offers.indices])
        for offer in offers.cheapest_of_each(among)
        if not wanted or {offer.market, offer.term} & wanted
    ]
    for market in markets or rented[:1]:
        if not any(market in (option.offer.market, option.offer.term) for option in options):
            raise _not_sold(offers, market, regions, asked, zone)
    # A caller who names a market does not ask for a managed service in that market.
    if not markets and not service and training:
        options += [
            PaymentOption(option.offer, managed)
            for managed in _services_for(catalog, instance_type)
            for option in options
            if option.offer.market == "on_demand"
        ]
    return tuple(options)


def on_demand_offer(catalog: Catalog, instance_type: InstanceType, region: str | None) -> Offer | None:
    """Returns the on-demand offer of a type in a region, the first where it has several; None where it has none."""
    # Cached, because every market of a region is compared with this offer.
    return catalog.derive(_on_demand_offer, catalog.index_of[instance_type.id], region, cache=catalog.outlooks)


def _on_demand_offer(catalog: Catalog, index: int, region: str | None) -> Offer | None:
    among = _TypeOffers(catalog, catalog.instance_types[index]).in_region(region)
    on_demand = among[catalog.offers.market[among] == ON_DEMAND]
    return catalog.offers.offer(int(on_demand[0])) if len(on_demand) else None


def markets_known(catalog: Catalog) -> tuple[str, ...]:
    """Returns the names that a request may give as a market: the markets, and the terms of reserved offers."""
    return (*MARKETS, *catalog.offers.terms)


def service_known(catalog: Catalog, name: str, task: str | None) -> str:
    """Returns the managed service with a name. Raises `QuestionError` if it is unknown or runs no such task."""
    managed = {service.id for service in catalog.reference.services if service.kind in MARKETS_OF_SERVICES}
    known = managed | {fee.service for fee in catalog.reference.fees}
    short = "".join(filter(str.isalnum, name)).lower()
    meant = tuple(service for service in sorted(known) if _short_name(service) == short)
    (service,) = resolve("managed service", [name], known, "managed_service", meant_by=lambda _: meant)
    if service in managed and task == "inference":
        raise QuestionError(f"{service} runs training jobs, and no inference.", field="managed_service")
    return service


def _short_name(service: str) -> str:
    """Returns the first word of a service and the initials of the others: `azureml` for `azure-machine-learning`."""
    first, *others = service.split("-")
    return first + "".join(word[0] for word in others)


def markets_of_service(catalog: Catalog, service: str | None) -> tuple[str, ...]:
    """Returns the markets in which a managed service rents; empty for all markets, and without a service."""
    kind = next((each.kind for each in catalog.reference.services if each.id == service), None)
    return MARKETS_OF_SERVICES.get(kind, ())


def markets_rented(
    service: str | None, rented: Sequence[str], markets: Sequence[str], field: str = "market"
) -> tuple[str, ...]:
    """Returns those of some markets and terms in which a managed service rents, given its markets (none: in all).

    Raises `QuestionError` if it rents in none of them.
    """
    kept = tuple(market for market in markets if not rented or market in rented)
    if markets and not kept:
        sentence = f"{service} rents machines as {either(rented)}, and not as {either(markets)}."
        raise QuestionError(sentence, field=field, near=tuple(rented))
    return kept


def regions_with(catalog: Catalog, instance_type: InstanceType, place: str, regions: Sequence[str]) -> tuple[str, ...]:
    """Returns those regions of a place in which the type is sold. Raises `QuestionError` if there are none."""
    offers = _TypeOffers(catalog, instance_type)
    sold = offers.regions(offers.indices) | offers.at_one_price()
    there = tuple(region for region in regions if region in sold)
    if not there:
        raise _not_offered(offers, place, regions[0])
    return there


def _services_for(catalog: Catalog, instance_type: InstanceType) -> list[str]:
    """Returns managed services with a known premium on the type; none for a type whose price contains the premium."""
    if instance_type.twin_of is not None:
        return []
    fees = catalog.reference.fees
    services = sorted({fee.service for fee in fees if fee.provider == instance_type.provider})
    return [
        name
        for name in services
        if isinstance(fee_of(fees, instance_type, name, catalog.day), Fee)
        and catalog.reference.rents(name, instance_type)
    ]


class _TypeOffers:
    """The offers of one instance type by their indices: a type may have hundreds, of which few become an `Offer`."""

    def __init__(self, catalog: Catalog, instance_type: InstanceType) -> None:
        self.catalog, self.instance_type = catalog, instance_type
        span = catalog.offers_of(catalog.index_of[instance_type.id])
        self.indices = np.arange(span.start, span.stop)

    @property
    def none_known(self) -> str:
        """The sentence for a type without any offer."""
        return f"The catalog of {self.catalog.day} has no offer of {self.instance_type.id}."

    def in_region(self, region: str | None) -> OfferIndices:
        offers = self.catalog.offers
        code = -1 if region is None else offers.places.index(region) if region in offers.places else None
        return self.indices[:0] if code is None else self.indices[offers.region[self.indices] == code]

    def in_zone(self, zone: str) -> "_TypeOffers":
        """Returns the offers that hold in a zone: its own, and those of its whole region where it has none of a kind.

        Raises `QuestionError` if there are none.
        """
        offers, indices = self.catalog.offers, self.indices
        of_zone = indices[offers.zone[indices] == offers.places.index(zone)]
        region = zones_with_prices(offers)[zone]
        of_region = self.in_region(region)
        of_region = of_region[offers.zone[of_region] == UNKNOWN]
        of_region = of_region[~np.isin(self._kinds(of_region), self._kinds(of_zone))]
        if not len(of_zone) + len(of_region):
            raise QuestionError(_not_offered(self, zone, region or "").sentence, field="zone")
        in_zone = _TypeOffers(self.catalog, self.instance_type)
        in_zone.indices = np.sort(np.concatenate((of_zone, of_region)))
        return in_zone

    def _kinds(self, among: OfferIndices) -> OfferIndices:
        """Returns a number for the market and term of each offer."""
        offers = self.catalog.offers
        kinds: OfferIndices = offers.market[among].astype(np.int64) * (len(offers.terms) + 1) + offers.term[among] + 1
        return kinds

    def cheapest_of_each(self, among: OfferIndices) -> list[Offer]:
        """Returns the cheapest offer of each market and term, old prices at their high end as in a ranking."""
        offers = self.catalog.offers
        among = among[np.argsort(offers.usd_per_hour[among] * offers.ranking_factor(among), kind="stable")]
        _, first = np.unique(self._kinds(among), return_index=True)
        cheapest = [self.catalog.offers.offer(index) for index in among[first].tolist()]
        return sorted(cheapest, key=lambda offer: (MARKETS.index(offer.market), offer.term or ""))

    def sold_as(self, market: str) -> OfferIndices:
        """Returns the indices of the offers in a market or under a term."""
        offers = self.catalog.offers
        named, names = (offers.market, MARKETS) if market in MARKETS else (offers.term, offers.terms)
        of_name: OfferIndices = self.indices[named[self.indices] == names.index(market)]
        return of_name

    def regions(self, among: OfferIndices) -> set[str | None]:
        offers = self.catalog.offers
        codes = np.unique(offers.region[among]).tolist()
        return {None if code < 0 else offers.places[code] for code in codes}

    def at_one_price(self) -> set[str | None]:
        """Returns all regions of a seller whose price holds in all regions; none if prices differ by region.

        On a marketplace, an offer without a region is in an unknown one: each machine is where its owner has it.
        """
        reference, provider = self.catalog.reference, self.instance_type.provider
        by_owner = reference.owner_class_of(self.instance_type) == "marketplace"
        if by_owner or reference.providers[provider].priced_by_region or None not in self.regions(self.indices):
            return set()
        return {region.id for region in reference.regions if region.provider == provider}


def _region_sold(offers: _TypeOffers, region: str) -> str | None:
    """Returns the region of the offers that hold in a region; None: one price for all. Raises `QuestionError`."""
    if region in offers.regions(offers.indices):
        return region
    if region in offers.at_one_price():
        return None
    raise _not_offered(offers, region, region)


def _not_offered(offers: _TypeOffers, place: str, region: str) -> QuestionError:
    """Returns the error that a type is not sold in a place, with the regions that are nearest to one of its regions."""
    reference, instance_type = offers.catalog.reference, offers.instance_type
    if not len(offers.indices):
        return QuestionError(offers.none_known, field="region")
    near = nearest_first(region, filter(None, offers.regions(offers.indices)), reference.regions)
    if near:
        advice = _sold_where(region, near, reference.regions)
    elif reference.owner_class_of(instance_type) == "marketplace":
        advice = f"The regions of {instance_type.id} are not known: leave the region out."
    else:
        advice = f"{instance_type.provider} has one price for {instance_type.id} everywhere: leave the region out."
    return QuestionError(
        f"The catalog has no offer of {instance_type.id} in {place}. {advice}", field="region", near=near[:MOST_NAMED]
    )


def _sold_where(region: str, near: Sequence[str], regions: Sequence[Region], market: str = "") -> str:
    """Returns the nearest of the regions that have a type, or some of them if all are on other continents."""
    first = nearest(region, near, regions)
    if first is not None:
        return f"The nearest region that has it{market} is {first}."
    more = len(near) - MOST_NAMED
    return f"It has prices{market} in {', '.join(near[:MOST_NAMED])}{f' and {more} more regions' if more > 0 else ''}."


def _not_sold(
    offers: _TypeOffers, market: str, regions: Sequence[str], asked: Sequence[str | None], zone: str | None
) -> QuestionError:
    """Returns the error that a type is not sold in a market; `asked` has the regions of the offers in `regions`."""
    here = [offers.in_region(region) for region in asked] if regions else [offers.indices]
    sold = sorted({offer.term or offer.market for among in here for offer in offers.cheapest_of_each(among)})
    where = f" in {zone or either(regions)}" if zone or regions else ""
    if sold:
        there = "there as " if where else "as "
        text = f"{offers.instance_type.id} is not sold as {market}{where}; it is sold {there}{', '.join(sold)}."
    else:
        text = offers.none_known
    known, elsewhere = offers.catalog.reference.regions, filter(None, offers.regions(offers.sold_as(market)))
    if regions and (near := nearest_first(regions[0], elsewhere, known)):
        text += f" {_sold_where(regions[0], near, known, f' as {market}')}"
    return QuestionError(text, field="market", near=tuple(sold[:MOST_NAMED]))


# The same GPU on other machines


@dataclass(frozen=True, slots=True)
class GpuHour:
    """The price of one GPU for an hour on demand, on some machine."""

    instance: str
    offer: Offer
    gpus: float
    usd_per_gpu_hour: float


def cheapest_gpu_hours(
    catalog: Catalog, gpu: str, besides: str | None, *, in_cluster: bool = False
) -> tuple[GpuHour, ...]:
    """Returns each seller's machine with the cheapest on-demand hour of a GPU; the machine `besides` is left out, and
    for work `in_cluster` those that form no cluster.
    """
    by_provider: dict[str, GpuHour] = {}
    apart = catalog.derive(without_cluster) if in_cluster else None
    for hour in catalog.derive(_gpu_hours, gpu):
        # Hours are in order of price, so the first one of a seller is its cheapest.
        if hour.instance != besides and (apart is None or not apart[catalog.index_of[hour.instance]]):
            by_provider.setdefault(hour.instance.partition("/")[0], hour)
    return tuple(by_provider.values())[:MOST_ELSEWHERE]


def _gpu_hours(catalog: Catalog, gpu: str) -> list[GpuHour]:
    """Returns every available machine with the GPU and a known on-demand price, the cheapest hour first."""
    hours = []
    for index in np.flatnonzero(np.isfinite(catalog.on_demand_prices)).tolist():
        type_, usd = catalog.instance_types[index], catalog.on_demand_prices.item(index)
        carries = type_.gpu is not None and type_.gpu.id == gpu and type_.gpu_count > 0
        if carries and type_.state_on(catalog.day) == "available":
            offer = catalog.offers.offer(catalog.default_offers.item(index))
            hours.append(GpuHour(type_.id, offer, type_.gpu_count, usd / type_.gpu_count))
    return sorted(hours, key=lambda hour: (hour.usd_per_gpu_hour, hour.instance))
