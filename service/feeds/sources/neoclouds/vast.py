"""Vast.ai: offers of single hosts, of which the median by GPU, number of GPUs and place becomes a price."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from statistics import median
from typing import Any

from service.domain.catalog.offer import Market
from service.feeds.fetching import Get
from service.feeds.listing import Content, Listing, Specification, number_in, price_in
from service.feeds.places import vast_place
from service.feeds.reading import items_of, object_of

MIB_A_GB = 1024
"""Labels of GPUs count binary gigabytes: 24,564 MiB are sold as 24 GB."""
REQUEST = {
    "rentable": {"eq": True},
    "rented": {"eq": False},
    "verified": {"eq": True},
    "type": "on-demand",
    "order": [["dph_total", "asc"]],
    "limit": 64,
}
COLUMNS: tuple[tuple[Market, str], ...] = (("on_demand", "dph_total"), ("spot", "min_bid"))


def fetch(get: Get, _part: str) -> Iterator[bytes]:
    """Yields the cheapest offers of verified hosts; without a key there are 64."""
    yield get("/api/v0/bundles/", body=REQUEST)


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns a listing with the median price for each market, hardware and place, and one for each unusable offer."""
    offers = items_of(object_of(bodies[0], "offers")["offers"], "offers")
    refused = [_refused(offer) for offer in offers]
    usable = [offer for offer, listing in zip(offers, refused, strict=True) if listing is None]
    return Content(listings=[*filter(None, refused), *_medians(usable)])


def _count(offer: dict[str, Any]) -> float:
    return number_in(offer.get("num_gpus")) or 0.0


def _name(offer: dict[str, Any]) -> str:
    return f"{_count(offer):g}x {offer.get('gpu_name')}"


def _refused(offer: dict[str, Any]) -> Listing | None:
    listing = Listing(provider="vast", name=_name(offer), market="on_demand", region=offer.get("geolocation"))
    price, reason = price_in(offer.get("dph_total"))
    if reason or not _count(offer):
        return listing.because(reason or "row_unreadable")
    if offer.get("verification") != "verified":
        return replace(listing, per_hour=price, reason="another_product")
    if not offer.get("geolocation") or number_in(offer.get("cpu_cores_effective")) is None:
        return replace(listing, per_hour=price, reason="row_unreadable")
    return None


def _medians(offers: Sequence[dict[str, Any]]) -> Iterator[Listing]:
    prices: dict[tuple[Market, str, str], list[Decimal]] = defaultdict(list)
    hardware = {}
    for offer in offers:
        for market, column in COLUMNS:
            price, reason = price_in(offer.get(column))
            if price is not None and reason is None:
                prices[market, _name(offer), vast_place(str(offer["geolocation"]))].append(price)
                memory = number_in(offer.get("gpu_ram"))
                hardware[_name(offer)] = Specification(
                    gpu_name=str(offer.get("gpu_name")),
                    gpu_count=_count(offer),
                    gpu_memory_gb=memory / MIB_A_GB if memory else None,
                )
    for (market, name, place), values in sorted(prices.items()):
        note = f"median of {len(values)} hosts"
        plain = Listing(provider="vast", name=name, market=market, region=place, hardware=hardware[name], note=note)
        yield replace(plain, per_hour=Decimal(median(values)))
