"""Ways to pay for a machine: markets, terms and managed services, region by region."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.names import resolve
from service.domain.catalog.offer import MARKETS, Offer
from service.domain.catalog.regions import nearest_first
from service.domain.errors import QuestionError

WORDS = {"on_demand": "on demand", "spot": "at spot", "reserved": "reserved"}


@dataclass(frozen=True, slots=True)
class PaymentOption:
    """An offer, rented plainly or through a managed service of its seller."""

    offer: Offer
    service: str | None = None

    @property
    def way(self) -> str:
        """The market, or of a reserved offer its term."""
        return self.offer.term or self.offer.market


def options(
    catalog: Catalog,
    kind: InstanceType,
    regions: Sequence[str] = (),
    ways: Sequence[str] = (),
    service: str | None = None,
    *,
    training: bool = True,
) -> tuple[PaymentOption, ...]:
    """The cheapest offer of each market and term: in each region asked, or in the cheapest region where none is.

    `ways` are markets or terms; none means all, and beside them the seller's managed services, which train.
    Raises `QuestionError` for a region that lacks the type, and for a market that all these regions lack.
    """
    offers = [catalog.offer(place) for place in catalog.offer_places(catalog.place_of[kind.id])]
    places = [region_sold(catalog, kind, offers, region) for region in regions] or [None]
    found = [
        PaymentOption(offer, service)
        for place in places
        for offer in cheapest_of_each(offers, everywhere=not regions, region=place)
        if not ways or {offer.market, offer.term} & set(ways)
    ]
    for way in ways:
        if not any(way in (each.offer.market, each.offer.term) for each in found):
            raise not_sold(catalog, kind, offers, way, regions)
    if ways or service or not training:
        return tuple(found)
    beside = [
        PaymentOption(each.offer, managed)
        for managed in services_for(catalog, kind)
        for each in found
        if each.offer.market == "on_demand"
    ]
    return (*found, *beside)


def cheapest_of_each(offers: Sequence[Offer], *, everywhere: bool, region: str | None) -> list[Offer]:
    """By market and term, in the catalog's order, which has what is known and cheap first."""
    found: dict[tuple[int, str | None], Offer] = {}
    for offer in offers:
        if everywhere or offer.region == region:
            found.setdefault((MARKETS.index(offer.market), offer.term), offer)
    return [found[key] for key in sorted(found, key=lambda key: (key[0], key[1] or ""))]


def services_for(catalog: Catalog, kind: InstanceType) -> tuple[str, ...]:
    """Managed services whose premium on the type is known; a managed twin holds it in its price already."""
    if kind.twin_of is not None:
        return ()
    return tuple(
        sorted(
            {
                fee.service
                for fee in catalog.reference.fees
                if fee.provider == kind.provider and fee.family in ("", kind.family) and fee.valid_from <= catalog.day
            }
        )
    )


def ways_known(catalog: Catalog) -> tuple[str, ...]:
    """What a market may be called: a market, or the term of a reserved offer."""
    return (*MARKETS, *catalog.offers.terms)


def service_known(catalog: Catalog, name: str, field: str) -> str:
    return resolve("managed service", [name], {fee.service for fee in catalog.reference.fees}, field)[0]


# What is not sold


def region_sold(catalog: Catalog, kind: InstanceType, offers: Sequence[Offer], region: str) -> str | None:
    """The region as the offers have it: a seller with one price everywhere has none. Raises `QuestionError`."""
    sold = {offer.region for offer in offers}
    if region in sold:
        return region
    own = {each.id for each in catalog.reference.regions if each.provider == kind.provider}
    if not catalog.reference.providers[kind.provider].priced_by_region and sold == {None} and region in own:
        return None
    near = nearest_first(region, {place for place in sold if place}, catalog.reference.regions)
    if not near:
        told = f"{kind.provider} has one price for {kind.id} everywhere: leave the region out."
    else:
        told = f"The nearest region that has it is {near[0]}; of {len(near)} in all."
    raise QuestionError(f"{kind.id} is not offered in {region}. {told}", field="region", near=near[:3])


def not_sold(
    catalog: Catalog, kind: InstanceType, offers: Sequence[Offer], way: str, regions: Sequence[str]
) -> QuestionError:
    here = {None} if not regions else set(regions)
    ways = sorted({offer.term or offer.market for offer in offers if not regions or offer.region in here})
    elsewhere = {offer.region for offer in offers if way in (offer.market, offer.term) and offer.region}
    where = f" in {' or '.join(regions)}" if regions else ""
    told = f"{kind.id} is not sold as {way}{where}; it is sold there as {', '.join(ways)}." if ways else (
        f"No offer of {kind.id} is known."
    )  # fmt: skip
    if regions and elsewhere:
        near = nearest_first(regions[0], elsewhere, catalog.reference.regions)
        told += f" The nearest region that has it as {way} is {near[0]}."
    return QuestionError(told.replace(" there", "") if not regions else told, field="market", near=tuple(ways[:3]))


# The same GPU elsewhere


@dataclass(frozen=True, slots=True)
class GpuHour:
    """What an hour of one GPU costs on demand on some machine."""

    instance: str
    offer: Offer
    gpus: float
    usd_per_gpu_hour: float


def cheapest_gpu_hours(catalog: Catalog, gpu: str, besides: str | None, most: int = 3) -> tuple[GpuHour, ...]:
    """The machines with the cheapest hour of a GPU on demand, one of each seller, cheapest first."""

    def ranked() -> tuple[GpuHour, ...]:
        offers, found = catalog.offers, []
        for place, kind in enumerate(catalog.instance_types):
            if kind.gpu is None or kind.gpu.id != gpu or not kind.gpu_count:
                continue
            if kind.state_on(catalog.day) != "available":
                continue
            first = catalog.offer_places(place)
            if not len(first) or offers.market[first[0]] != MARKETS.index("on_demand"):
                continue
            usd = float(offers.usd_per_hour[first[0]])
            if np.isfinite(usd):
                found.append(GpuHour(kind.id, catalog.offer(first[0]), kind.gpu_count, usd / kind.gpu_count))
        return tuple(sorted(found, key=lambda each: (each.usd_per_gpu_hour, each.instance)))

    told: dict[str, GpuHour] = {}
    for each in catalog.memory.get_or_compute(("gpu_hours", gpu), ranked):
        if each.instance != besides:
            told.setdefault(each.instance.partition("/")[0], each)
    return tuple(told.values())[:most]
