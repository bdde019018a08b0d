"""Azure Retail Prices: pages of meters, each with the window in which its price holds, back to 2018.

A reservation states the total of its term although its unit says one hour. Only Linux machines by the hour are kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from service.domain.catalog.tariffs import HOURS_A_YEAR
from service.feeds.fetching import Get, pages_from, path_of
from service.feeds.listing import Content, DocumentRefused, Listing, instant_in, price_in, to_millionths
from service.feeds.reading import items_of, object_of

FILTER = "serviceName eq 'Virtual Machines' and startswith(armSkuName,'Standard_N')"
FIRST_PAGE = f"/api/retail/prices?api-version=2023-01-01-preview&currencyCode='USD'&$filter={quote(FILTER)}"

CLOSED_REGIONS = ("eastus2euap", "centraluseuap", "brazilus", "usgov", "usdod", "china")
YEARS = {"1 Year": 1, "3 Years": 3, "5 Years": 5}


def fetch(get: Get, _part: str) -> Iterator[bytes]:
    """Yields the pages of all GPU machines."""
    return pages_from(get, FIRST_PAGE, _next)


def _next(page: bytes) -> str | None:
    return path_of(str(object_of(page, "Items").get("NextPageLink") or ""))


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices of some pages."""
    pages = [object_of(body, "Items", "NextPageLink") for body in bodies]
    links = [str(page["NextPageLink"]) for page in pages if page["NextPageLink"]]
    if len(set(links)) < len(links) or any(link.endswith("$skip=0") for link in links):
        raise DocumentRefused("A link to the next page leads back to a page before it.")
    listings = [listing for page in pages for item in items_of(page["Items"], "Items") for listing in _listings(item)]
    return Content(listings=list(_without_equal_spot(listings)))


def _listings(item: dict[str, Any]) -> Iterator[Listing]:
    per_hour, reason = price_in(item.get("retailPrice"))
    name = str(item.get("armSkuName") or "")
    start, end = _window(item)
    meter = f"{item.get('skuName')} {item.get('meterName')}"
    listing = Listing(
        provider="azure",
        name=name,
        market="spot" if meter.endswith(" Spot") else "on_demand",
        region=str(item.get("armRegionName") or "").lower() or None,
        currency=str(item.get("currencyCode") or ""),
        per_hour=per_hour,
        effective_from=start,
        ends_at=end,
        reason=_other_product(item, name, meter) or reason,
    )
    if item.get("type") == "Reservation":
        yield _reserved(listing, item)
        return
    if not listing.currency:
        listing = listing.because("currency_unknown")
    if item.get("unitOfMeasure") != "1 Hour":
        listing = listing.because("unit_unknown")
    if end is not None and start is not None and end <= start:
        listing = replace(listing, reason="window_ends_before_it_begins", ends_at=None)
    if listing.region and listing.region.startswith(CLOSED_REGIONS):
        listing = listing.because("no_region_for_customers")
    yield listing
    yield from _savings(listing, item)


def _other_product(item: dict[str, Any], name: str, meter: str) -> str | None:
    product = str(item.get("productName") or "").strip()
    is_windows = " Windows" in product or product.endswith(" Win")
    is_machine = product.startswith("Virtual Machines") and item.get("type") in ("Consumption", "Reservation")
    is_usual = is_machine and not is_windows and "Low Priority" not in meter
    return None if is_usual and name else "another_product"


def _window(item: dict[str, Any]) -> tuple[datetime | None, datetime | None]:
    start, end = instant_in(item.get("effectiveStartDate")), instant_in(item.get("effectiveEndDate"))
    # The last second of a day is the end of that day.
    return start, None if end is None else (end + timedelta(seconds=1)).astimezone(UTC).replace(microsecond=0)


def _reserved(listing: Listing, item: dict[str, Any]) -> Listing:
    years = YEARS.get(str(item.get("reservationTerm")))
    if years is None:
        return listing.because("unit_unknown")
    total = listing.per_hour
    per_hour = None if total is None else to_millionths(total / (HOURS_A_YEAR * years))
    return replace(listing, market="reserved", term=f"{years}y_reserved", per_hour=per_hour)


def _savings(listing: Listing, item: dict[str, Any]) -> Iterator[Listing]:
    """Yields the prices of savings plans, which are stated per hour."""
    for plan in item.get("savingsPlan") or ():
        years = YEARS.get(str(plan.get("term")))
        if years and listing.reason is None:
            per_hour, reason = price_in(plan.get("retailPrice"))
            term = f"{years}y_savings_plan"
            yield replace(listing, market="reserved", term=term, per_hour=per_hour, reason=reason)


def _without_equal_spot(listings: Sequence[Listing]) -> Iterator[Listing]:
    """Marks spot rows at the on-demand price: the type is then not sold as spot."""
    on_demand = {
        (listing.name, listing.region, listing.per_hour)
        for listing in listings
        if listing.market == "on_demand" and listing.reason is None
    }
    for listing in listings:
        is_equal = listing.market == "spot" and (listing.name, listing.region, listing.per_hour) in on_demand
        yield listing.because("spot_not_sold") if is_equal else listing
