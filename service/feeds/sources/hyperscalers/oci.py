"""Oracle Cloud: a price list by part number, and the shapes of its cost estimator. All regions have the same prices.

The price of a GPU shape is that of its part, per GPU and hour with the host; preemptible capacity costs half of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from service.feeds.fetching import Get
from service.feeds.listing import Content, DocumentRefused, Listing, Specification, instant_in, number_in, price_in
from service.feeds.reading import items_of, object_of

ESTIMATOR = "https://www.oracle.com"
PREEMPTIBLE_SHARE = Decimal("0.5")
VCPUS_PER_OCPU = 2
PER_HOUR = ("GPU Per Hour", "OCPU Per Hour", "Gigabyte Per Hour")

Prices = dict[str, tuple[Decimal | None, str | None]]


def fetch(get: Get, _part: str) -> Iterator[bytes]:
    """Yields the price list, and the shapes from the server of the cost estimator."""
    yield get("/pls/apex/cetools/api/v1/products/?currencyCode=USD")
    yield get("/a/ocom/docs/cloudestimator2/data/shapes.json", server=ESTIMATOR)


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices of shapes, from a price list and a list of shapes."""
    prices: Prices = {}
    shapes: list[dict[str, Any]] = []
    unpriced: list[Listing] = []
    published = None
    for body in bodies:
        content = object_of(body, "items")
        items = items_of(content["items"], "items")
        published = instant_in(content.get("lastUpdated")) or published
        if items and "partNumber" in items[0]:
            unpriced += _read_prices(items, prices)
        else:
            shapes += items
    if not prices:
        raise DocumentRefused("There is no price list among the documents.")
    listings = [listing for shape in shapes if not shape.get("hidden") for listing in _listings(shape, prices)]
    return Content(listings=[*unpriced, *listings], published_at=published)


def _read_prices(items: Sequence[dict[str, Any]], prices: Prices) -> Iterator[Listing]:
    """Adds the prices by part number; yields a listing for each product that has none."""
    numbers = [item.get("partNumber") for item in items]
    for item in items:
        number = str(item.get("partNumber"))
        localized = item.get("currencyCodeLocalizations") or item.get("prices") or ()
        values = [
            price.get("value")
            for localization in localized
            if localization.get("currencyCode") == "USD"
            for price in localization.get("prices", ())
            if price.get("model") == "PAY_AS_YOU_GO"
        ]
        price, reason = price_in(values[0]) if len(values) == 1 else (None, "two_prices_in_force")
        if numbers.count(number) > 1:
            price, reason = None, "two_prices_in_force"
        if item.get("metricName", PER_HOUR[0]) not in PER_HOUR or item.get("pricetype", "HOUR") != "HOUR":
            price, reason = None, "unit_unknown"
        prices[number] = price, reason
        if reason:
            yield Listing(provider="oci", name=number, market="on_demand", reason=reason)


def _listings(shape: dict[str, Any], prices: Prices) -> Iterator[Listing]:
    name = str(shape.get("name", "")).partition(" (")[0]
    products = {product["type"]["value"]: product for product in shape.get("products") or ()}
    gpus = number_in(shape.get("gpuQty")) or 0.0
    compute = products.get("ocpu") or {}
    price, reason = prices.get(str(compute.get("partNumber")), (None, "absent_price"))
    if not gpus:  # a flexible shape is sold in any size
        reason = "flexible_shape"
    total = None if price is None or reason else price * Decimal(str(gpus))
    cores = number_in(compute.get("qty"))
    memory = number_in(shape.get("gpuMemoryQty"))
    listing = Listing(
        provider="oci",
        name=name,
        market="on_demand",
        per_hour=total,
        hardware=Specification(
            vcpus=None if cores is None else cores * VCPUS_PER_OCPU,
            memory_gib=number_in(shape.get("bundleMemoryQty")),
            gpu_count=gpus,
            gpu_memory_gb=memory / gpus if memory and gpus else None,
        ),
        reason=reason,
    )
    yield listing
    if shape.get("allowPreemptible") and total is not None:
        note = "derived: half of the on-demand price, by Oracle's rule"
        yield replace(listing, market="spot", per_hour=total * PREEMPTIBLE_SHARE, note=note)
