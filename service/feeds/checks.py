"""Checks the listings of a document against each other and the catalog, and marks those that fail with a reason.

All prices of the seed are within the bounds, except for known errors.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from statistics import median

from service.db.feeds.read_facts import CatalogFacts
from service.domain.catalog.hardware import InstanceType
from service.feeds.listing import REASONS, DocumentRefused, Listing, one_per_offer

DOLLARS_PER_GPU_HOUR = (Decimal("0.01"), Decimal(120))
AGAINST_MEDIAN = (Decimal("0.4"), Decimal("2.5"))
REGIONS_FOR_A_MEDIAN = 4
SPOT_SHARE = {
    "aws": (Decimal("0.05"), Decimal("1.3")),
    "azure": (Decimal("0.05"), Decimal("0.95")),
    "gcp": (Decimal("0.14"), Decimal("0.95")),
}
SPOT_SHARE_ELSEWHERE = (Decimal("0.05"), Decimal("0.99"))
RESERVED_SHARE = (Decimal("0.15"), Decimal(1))
MEMORY_TOLERANCE = 0.07
"""Allowed relative difference: a B300 with 268 instead of 288 GB and a GB200 with 192 instead of 186 GB pass."""

FRACTION_TOLERANCE = 0.01
MAX_SHARE_FAILED = 0.2
MIN_ROWS_FOR_A_SHARE = 20
MIN_SHARE_OF_LAST_ROWS = 0.75

Check = Callable[[Listing, CatalogFacts], str | None]
"""Returns the reason why a single listing fails, or None."""


def checked(feed: str, listings: Sequence[Listing], facts: CatalogFacts) -> list[Listing]:
    """Returns the listings under the names of the catalog, with a reason for each that fails a check."""
    named = [_named(listing, facts) for listing in listings]
    single = [
        next((listing.because(reason) for check in CHECKS if (reason := check(listing, facts))), listing)
        for listing in named
    ]
    if feed == "cyclenerd":
        single = [_confirmed_by_a_zone(listing, facts) for listing in single]
    compared = one_per_offer(_against_others(single))
    order = {id(listing): index for index, listing in enumerate(single)}
    return sorted(compared, key=lambda listing: order.get(id(listing), len(order)))


def require_plausible(listings: Sequence[Listing], rows_before: int | None) -> None:
    """Raises `DocumentRefused` if too many rows fail, or if there are far fewer rows than in the last good document."""
    failed = Counter(listing.reason for listing in listings if listing.reason and REASONS[listing.reason].is_error)
    seen = len(listings)
    if seen >= MIN_ROWS_FOR_A_SHARE and failed.total() > MAX_SHARE_FAILED * seen:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(failed.items()))
        raise DocumentRefused(f"{failed.total():,} of {seen:,} rows fail a check ({reasons}).")
    if rows_before is not None and seen < MIN_SHARE_OF_LAST_ROWS * rows_before:
        raise DocumentRefused(f"The document has {seen:,} rows, and the last good one had {rows_before:,}.")


def _named(listing: Listing, facts: CatalogFacts) -> Listing:
    name = facts.aliases.get((listing.provider, listing.name), listing.name)
    region = facts.region_ids.get(listing.provider, {}).get(listing.region or "", listing.region)
    return replace(listing, name=name, region=region)


def _region_is_given(listing: Listing, facts: CatalogFacts) -> str | None:
    provider = facts.providers.get(listing.provider)
    needs_one = provider is not None and provider.priced_by_region
    return "region_missing" if needs_one and listing.region is None else None


def _is_known_if_composed(listing: Listing, facts: CatalogFacts) -> str | None:
    """Returns a reason for an unknown name with `+`: the service composes such names, so it is no new machine."""
    is_known = (listing.provider, listing.name) in facts.instance_types
    return None if is_known or "+" not in listing.name else "combination_not_catalogued"


def _gpus_are_those_of_the_type(listing: Listing, facts: CatalogFacts) -> str | None:
    instance_type = facts.instance_types.get((listing.provider, listing.name))
    stated = listing.hardware
    if instance_type is None or stated is None:
        return None
    count = stated.gpu_count
    if count is not None and not _is_count_of(instance_type, count):
        return "gpu_count_contradicts"
    memory = instance_type.gpu.memory_gb if instance_type.gpu else None
    if stated.gpu_memory_gb and memory and abs(stated.gpu_memory_gb / memory - 1) > MEMORY_TOLERANCE:
        return "gpu_memory_contradicts"
    return None


def _is_count_of(instance_type: InstanceType, count: float) -> bool:
    """Returns whether a type has this number of GPUs; feeds count a part of a card as one or as a fraction."""
    possible = (float(instance_type.gpu_count), instance_type.whole_gpus)
    return any(abs(count - known) <= FRACTION_TOLERANCE for known in possible)


def _price_is_possible(listing: Listing, facts: CatalogFacts) -> str | None:
    instance_type = facts.instance_types.get((listing.provider, listing.name))
    stated = listing.hardware.gpu_count if listing.hardware else None
    gpus = instance_type.whole_gpus if instance_type else stated
    if not gpus or listing.per_hour is None or listing.currency != "USD":
        return None
    low, high = DOLLARS_PER_GPU_HOUR
    return None if low <= listing.per_hour / Decimal(str(gpus)) <= high else "price_outside_of_bounds"


CHECKS: tuple[Check, ...] = (
    _is_known_if_composed,
    _region_is_given,
    _gpus_are_those_of_the_type,
    _price_is_possible,
)


def _confirmed_by_a_zone(listing: Listing, facts: CatalogFacts) -> Listing:
    """Marks a GPU machine that no other source sells in the region, because its price may lack the GPUs."""
    instance_type = facts.instance_types.get((listing.provider, listing.name))
    if instance_type is None or instance_type.gpu is None:
        return listing
    is_sold = (listing.provider, listing.name, listing.region or "") in facts.sold
    return listing if is_sold else listing.because("host_alone")


def _against_others(listings: Sequence[Listing]) -> Iterator[Listing]:
    """Compares each price with prices of the same type in the document: in other regions, or on demand."""
    on_demand: dict[tuple[str, str], dict[str | None, Decimal]] = defaultdict(dict)
    for listing in listings:
        if listing.market == "on_demand" and listing.reason is None and listing.per_hour is not None:
            on_demand[listing.provider, listing.name][listing.region] = listing.per_hour
    for listing in listings:
        prices = on_demand[listing.provider, listing.name]
        yield listing if listing.per_hour is None else _against(listing, listing.per_hour, prices)


def _against(listing: Listing, price: Decimal, on_demand: dict[str | None, Decimal]) -> Listing:
    if listing.market == "on_demand":
        low, high = AGAINST_MEDIAN
        enough = len(on_demand) >= REGIONS_FOR_A_MEDIAN
        share = price / median(on_demand.values()) if enough else Decimal(1)
        return listing if low <= share <= high else listing.because("far_from_median")
    listed = on_demand.get(listing.region)
    if listed is None:
        return listing
    if listing.market == "spot":
        low, high = SPOT_SHARE.get(listing.provider, SPOT_SHARE_ELSEWHERE)
        return listing if low <= price / listed <= high else listing.because("spot_outside_of_bounds")
    low, high = RESERVED_SHARE
    return listing if low <= price / listed <= high else listing.because("reserved_outside_of_bounds")
