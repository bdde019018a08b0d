"""Turns observed prices into observations of the database, and counts the unusable ones by reason."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from service.domain.catalog.offer import OFFER_FIELDS, offer_key
from service.domain.money import MICRO

MOST_TRUSTED_FIRST = ("api", "published", "entered", "assumed")

QUARANTINE_REASONS = {
    "unknown_instance_type": "The catalog has no instance type of that name.",
    "unknown_source": "The source of the price is unknown.",
    "region_missing": "The provider's prices differ by region, and the observation names no region.",
    "price_not_positive": "The price is not above 0.",
    "undated_beside_dated": "The price has no day, and other prices of the offer have one.",
    "another_source_for_the_same_day": "A more trusted source has a price for the same day.",
}
"""Reasons for which an observation does not enter the catalog."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Observation:
    """The price of an offer as a source showed it on a day. `per_hour` is None if the source shows no price."""

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
        """Returns the key of the offer."""
        return offer_key(self)


@dataclass(frozen=True, slots=True)
class Catalogued:
    """The part of the catalog against which observations are checked."""

    instance_types: Collection[tuple[str, str]]
    priced_by_region: Collection[str]
    """Providers whose prices differ by region, so that a price without a region belongs to no machine."""
    retrieved_on: Mapping[str, date]
    """The day on which each source was retrieved."""


def usable(observations: Sequence[Observation], catalogued: Catalogued) -> tuple[list[Record], Counter[str]]:
    """Returns the observations that enter the catalog as rows of their table, and the number of others by reason.

    A price is valid from its day until the next one of the same offer. One without a day is valid from the day on which
    its source was retrieved, and counts only if the offer has no dated one.
    """
    quarantined: Counter[str] = Counter()
    by_offer: dict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        reason = _refusal(observation, catalogued)
        if reason:
            quarantined[reason] += 1
        else:
            by_offer[observation.key].append(observation)
    rows = []
    for chain in by_offer.values():
        kept = _one_per_day(chain, catalogued.retrieved_on)
        dated = sum(observation.observed_on is not None for observation in chain)
        quarantined["undated_beside_dated"] += len(chain) - dated if dated else 0
        quarantined["another_source_for_the_same_day"] += (dated or len(chain)) - len(kept)
        rows += [_row(observation, day) for day, observation in kept.items()]
    return rows, +quarantined  # without the reasons that were counted 0 times


def _refusal(observation: Observation, catalogued: Catalogued) -> str | None:
    if (observation.provider, observation.name) not in catalogued.instance_types:
        return "unknown_instance_type"
    if observation.source not in catalogued.retrieved_on:
        return "unknown_source"
    if observation.per_hour is None:
        return None
    if observation.region is None and observation.provider in catalogued.priced_by_region:
        return "region_missing"
    return "price_not_positive" if observation.per_hour <= 0 else None


def _one_per_day(chain: list[Observation], retrieved: Mapping[str, date]) -> dict[date, Observation]:
    """Returns the most trusted observation of each day, by day; observations without a day only if none has one."""
    dated = [observation for observation in chain if observation.observed_on]
    chosen: dict[date, Observation] = {}
    # setdefault keeps the first one, so the most trusted source of a day has to come first.
    for observation in sorted(dated or chain, key=lambda observation: MOST_TRUSTED_FIRST.index(observation.kind)):
        chosen.setdefault(observation.observed_on or retrieved[observation.source], observation)
    return dict(sorted(chosen.items()))


def _row(observation: Observation, day: date) -> Record:
    """Returns an observation as a row without its document; it is valid from a day."""
    per_hour, start = observation.per_hour, datetime(day.year, day.month, day.day, tzinfo=UTC)
    copied = ("key", "provider", "name", *OFFER_FIELDS, "dated", "kind", "source", "note")
    return {
        **{name: getattr(observation, name) for name in copied},
        "per_hour_micros": None if per_hour is None else int((per_hour * MICRO).to_integral_value()),
        "effective_from": start,
        "observed_at": start,
    }
