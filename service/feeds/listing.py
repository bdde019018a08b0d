"""The values that parsers return for the documents of a feed: priced rows, specifications and exchange rates."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from service.domain.catalog.offer import Dated, Market, offer_key

CENT = Decimal("0.01")
MILLIONTH = Decimal("0.000001")
MIB_A_GIB = 1024

SHAPE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions that a parser raises on a document with another structure than it expects."""


class DocumentRefused(Exception):
    """A document is not one of its feed; the message is a sentence."""


def wrong_shape(error: Exception) -> str:
    """Returns the sentence about a document on which a parser raised one of `SHAPE_ERRORS`."""
    return f"The document does not have the structure of its feed ({type(error).__name__})."


class Reason(NamedTuple):
    """Why a row of a feed does not become a price. Rows with an error count against the feed, other rows do not."""

    sentence: str
    is_error: bool = True


REASONS: Mapping[str, Reason] = {
    "absent_price": Reason("The row has no price: the offer is not sold.", is_error=False),
    "another_product": Reason("The row is about another product than a Linux machine by the hour.", is_error=False),
    "flexible_shape": Reason("The row is one size of a shape without fixed sizes.", is_error=False),
    "zero_for_none": Reason("The feed writes 0 where it has no price.", is_error=False),
    "placeholder": Reason("The price is a placeholder that the feed writes for an unknown price.", is_error=False),
    "combination_not_catalogued": Reason("The catalog has no such combination of a host and GPUs.", is_error=False),
    "least_bid": Reason("The figure is the lowest bid of an auction, not a price.", is_error=False),
    "not_offered": Reason("The seller lists the machine, and no region offers it now.", is_error=False),
    "zone_without_id": Reason("The letter of the zone, which has no id, differs between accounts.", is_error=False),
    "without_gpu": Reason("The machine has no GPU, and the feed does not say which CPUs it has.", is_error=False),
    "repeated": Reason("The row repeats another one.", is_error=False),
    "no_region_for_customers": Reason("The region is not open to customers.", is_error=False),
    "host_alone": Reason("The price may lack the GPUs: no source confirms that they are sold there.", is_error=False),
    "gpu_without_host": Reason("The price is of the GPU alone, and the host is priced apart.", is_error=False),
    "spot_not_sold": Reason("The spot price equals the on-demand price: not sold as spot.", is_error=False),
    "price_not_positive": Reason("The price is not above 0."),
    "price_unreadable": Reason("The price is not a number."),
    "price_outside_of_bounds": Reason("The price of a GPU and hour is below 0.01 or above 120 dollars."),
    "far_from_median": Reason("The price is far from the median of the same type in other regions."),
    "spot_outside_of_bounds": Reason("The ratio of the spot price to the on-demand price is impossible."),
    "reserved_outside_of_bounds": Reason("The ratio of the reserved price to the on-demand price is impossible."),
    "two_prices_in_force": Reason("The document has two prices of the same offer at the same time."),
    "window_ends_before_it_begins": Reason("The price ends before it begins."),
    "row_unreadable": Reason("The row lacks cells or values that rows of its feed have."),
    "unit_unknown": Reason("The price is not per hour."),
    "currency_unknown": Reason("The row does not say its currency."),
    "region_missing": Reason("The provider's prices differ by region, and the row names no region."),
    "region_contradicts_zone": Reason("The zone is in another country than the row says."),
    "gpu_unknown": Reason("No GPU of the catalog has that name, or more than one has."),
    "gpu_count_contradicts": Reason("The instance type has another number of GPUs."),
    "gpu_memory_contradicts": Reason("The memory of the GPU differs by more than 7 % from that of the instance type."),
}
"""Every reason why a row is set aside, or left out because it is about another product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """Hardware as a feed states it; `memory_gib` is that of the host, and `gpu_memory_gb` that of each GPU."""

    vcpus: float | None = None
    memory_gib: float | None = None
    gpu_name: str | None = None
    gpu_count: float | None = None
    gpu_memory_gb: float | None = None
    cpu_architecture: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One price of a document, with the hardware that it states. With a `reason` it does not become a price."""

    provider: str
    name: str
    market: Market
    per_hour: Decimal | None = None
    region: str | None = None
    zone: str | None = None
    term: str | None = None
    currency: str = "USD"
    operating_system: str = "linux"
    effective_from: datetime | None = None
    ends_at: datetime | None = None
    dated: Dated = "day"
    note: str | None = None
    hardware: Specification | None = None
    reason: str | None = None

    def because(self, reason: str) -> "Listing":
        """Returns the listing with a reason, unless it has one already."""
        return self if self.reason else replace(self, reason=reason)

    def at(self, region: str | None, zone: str | None = None) -> "Listing":
        """Returns the same listing in another region and zone."""
        return replace(self, region=region, zone=zone)

    def priced(self, value: Any, times: Decimal = Decimal(1)) -> "Listing":
        """Returns the listing with `times` the price in a cell or a JSON value, or with the reason why there is none.

        Sellers write 0 for a machine that they do not sell.
        """
        price, reason = price_in(value)
        if reason == "price_not_positive" and not Decimal(str(value)):
            reason = "zero_for_none"
        return replace(self, per_hour=None if price is None else price * times, reason=self.reason or reason)

    def named(self, name: str) -> "Listing":
        """Returns the listing under the name of an instance type."""
        return replace(self, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EuroRate:
    """A day's exchange rate of the ECB: units of a currency for one euro."""

    currency: str
    on: date
    per_euro: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Everything in one part of a feed."""

    listings: Sequence[Listing] = ()
    rates: Sequence[EuroRate] = ()
    version: str | None = None
    published_at: datetime | None = None


Parser = Callable[[Sequence[bytes], str], Content]
"""Returns the content of a part, given its documents and its name. Raises `DocumentRefused`."""


def unreadable(provider: str) -> Listing:
    """Returns the listing for a row that cannot be read."""
    return Listing(provider=provider, name="", market="on_demand", reason="row_unreadable")


def to_millionths(price: Decimal | None) -> Decimal | None:
    """Returns a price rounded to a millionth; None for None."""
    return None if price is None else price.quantize(MILLIONTH)


def price_in(value: Any) -> tuple[Decimal | None, str | None]:
    """Returns the price in a cell or a JSON value, and the reason why it is no price; one of the two is None."""
    if value is None or value == "":
        return None, "absent_price"
    try:
        price = Decimal(str(value))
    except InvalidOperation:
        return None, "price_unreadable"
    if not price.is_finite():
        return None, "price_unreadable"
    return (price, None) if price > 0 else (None, "price_not_positive")


def number_in(value: Any) -> float | None:
    """Returns the number in a cell or a JSON value; None if it is not a number."""
    try:
        return float(str(value).replace(",", ""))
    except ValueError:
        return None


def instant_in(text: str | None) -> datetime | None:
    """Returns the instant in an ISO text, in UTC unless it names a zone. Raises `DocumentRefused`."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise DocumentRefused(f"{text!r} is not an instant.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def one_per_offer(listings: Iterable[Listing]) -> Iterator[Listing]:
    """Yields listings; of several for one offer, marks equal prices as `repeated`, others as `two_prices_in_force`."""
    by_offer: dict[tuple[str, datetime | None], list[Listing]] = {}
    for listing in listings:
        if listing.reason:
            yield listing
        else:
            by_offer.setdefault((offer_key(listing), listing.effective_from), []).append(listing)
    for same in by_offer.values():
        clash = len({(listing.per_hour, listing.ends_at) for listing in same}) > 1
        first, *others = same
        yield first.because("two_prices_in_force") if clash else first
        yield from (listing.because("two_prices_in_force" if clash else "repeated") for listing in others)
