"""Observations of prices → offers, each with a chain of intervals; what cannot be used is counted with its reason."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

MICRO = Decimal(1_000_000)
MOST_TRUSTED_FIRST = ("api", "published", "entered", "assumed")

SET_ASIDE = {
    "unknown_instance_type": "The catalog has no instance type of that name.",
    "unknown_source": "Nobody knows where the price comes from.",
    "region_missing": "The provider's prices differ by region, and the observation names none.",
    "price_not_positive": "A price is more than nothing.",
    "undated_beside_dated": "The offer has prices whose day is known.",
    "another_source_for_the_same_day": "A source trusted more tells a price for the same day.",
}
"""Why an observation does not enter the catalog."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Observation:
    """Somebody saw this price (or that there is none to see) for this offer on this day."""

    provider: str
    name: str
    region: str | None
    zone: str | None
    market: str
    term: str | None
    operating_system: str
    currency: str
    per_hour: Decimal | None
    observed_on: date | None
    dated: str
    kind: str
    source: str
    note: str | None

    @property
    def key(self) -> str:
        """The offer it speaks of; a name may hold anything but a line break."""
        parts = (
            self.provider,
            self.name,
            self.region,
            self.zone,
            self.market,
            self.term,
            self.operating_system,
            self.currency,
        )
        return "\n".join(part or "" for part in parts)


@dataclass(frozen=True, slots=True)
class Known:
    """What observations are checked against."""

    instance_types: Collection[tuple[str, str]]
    priced_by_region: Collection[str]
    """Providers whose prices differ by region: a figure without one tells nothing of any machine to be had."""
    retrieved_on: Mapping[str, date]
    """The day each source was retrieved."""


def offers_from(observations: Sequence[Observation], known: Known) -> tuple[list[Record], Counter[str]]:
    """Offers with their prices, and how many observations were set aside for which reason.

    An observation holds from its day until the next one of the same offer. One without a day holds from the day its
    source was retrieved, and only where no dated one exists.
    """
    quarantined: Counter[str] = Counter()
    by_offer: dict[str, list[Observation]] = defaultdict(list)
    for seen in observations:
        reason = refusal(seen, known)
        if reason:
            quarantined[reason] += 1
        else:
            by_offer[seen.key].append(seen)
    offers = []
    for key, chain in by_offer.items():
        kept = one_per_day(chain, known.retrieved_on)
        dated = sum(seen.observed_on is not None for seen in chain)
        quarantined["undated_beside_dated"] += len(chain) - dated if dated else 0
        quarantined["another_source_for_the_same_day"] += (dated or len(chain)) - len(kept)
        offers.append(offer_record(key, kept))
    return offers, +quarantined


def refusal(seen: Observation, known: Known) -> str | None:
    if (seen.provider, seen.name) not in known.instance_types:
        return "unknown_instance_type"
    if seen.source not in known.retrieved_on:
        return "unknown_source"
    if seen.region is None and seen.provider in known.priced_by_region and seen.per_hour is not None:
        return "region_missing"
    if seen.per_hour is not None and seen.per_hour <= 0:
        return "price_not_positive"
    return None


def one_per_day(chain: list[Observation], retrieved: Mapping[str, date]) -> dict[date, Observation]:
    """The most trusted observation of each day, in order of days; undated ones only where nothing is dated."""
    dated = [seen for seen in chain if seen.observed_on]
    chosen: dict[date, Observation] = {}
    for seen in sorted(dated or chain, key=lambda seen: MOST_TRUSTED_FIRST.index(seen.kind)):
        chosen.setdefault(seen.observed_on or retrieved[seen.source], seen)
    return dict(sorted(chosen.items()))


def offer_record(key: str, chain: Mapping[date, Observation]) -> Record:
    first = next(iter(chain.values()))
    days = list(chain)
    return {
        "key": key,
        "instance_type": (first.provider, first.name),
        "region": first.region,
        "zone": first.zone,
        "market": first.market,
        "term": first.term,
        "operating_system": first.operating_system,
        "currency": first.currency,
        "prices": [
            price_record(seen, start, end) for (start, seen), end in zip(chain.items(), [*days[1:], None], strict=True)
        ],
    }


def price_record(seen: Observation, start: date, end: date | None) -> Record:
    return {
        "valid_from": midnight(start),
        "valid_to": midnight(end) if end else None,
        "per_hour_micros": None if seen.per_hour is None else int((seen.per_hour * MICRO).to_integral_value()),
        "observed_on": seen.observed_on,
        "dated": seen.dated,
        "kind": seen.kind,
        "source": seen.source,
        "note": seen.note,
    }


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
