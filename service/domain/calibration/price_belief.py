"""Believed prices: the likely price of an offer today, from its last listed price and from prices of the same GPU
elsewhere.

The logarithm of a price changes like a random walk, so the variance of the last listed price grows with its age. Prices
of the same GPU at different sellers scatter around their median, with a level and a spread by market and class of
seller. Both are estimates of today's price, and the believed price is their mean, weighted by inverse variance.
docs/prices.md has the fitted figures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import median

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices, Mask
from service.domain.band import DEVIATIONS_TO_AN_END
from service.domain.calibration.coefficients import Coefficient, values_by_name
from service.domain.units import DAYS_A_YEAR

CONFIRMED_DAYS = 45
"""Age in days up to which the listed price is believed."""

OLD_DAYS = 180
"""Age in days beyond which a price ranks at the high end of its band."""

UNDATED_DAYS = 720
"""Assumed age of a price without a date, which is old."""

SUSPECT_BELOW = 0.6
"""A price below this share of the median of its kind is suspect while a single source states it."""

SOURCES_AGREE = 0.05
"""Two sources confirm each other if their prices differ by at most this share."""

LEAST_PULL = 0.01
"""Smallest difference (of logarithms) between believed and listed price. Smaller ones are far below the uncertainty,
and list prices that are shown to the cent are easier to check."""

FEWEST_SELLERS = 3
"""Number of other sellers that the median price of a GPU needs."""


def scopes_of(market: str, seller_class: str) -> tuple[str, ...]:
    """Returns the scopes of the coefficients of a market and class of seller, the narrowest first."""
    return f"market={market}|seller_class={seller_class}", f"market={market}", ""


@dataclass(frozen=True, slots=True)
class PriceMovement:
    """Coefficients of logarithms of prices, by name and scope; without any, prices are believed as listed.

    `price.change` is the standard deviation of the change in a year, `price.level` the median difference between a
    seller and the median of the other sellers, and `price.spread` the standard deviation of this difference.
    """

    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, coefficients: Sequence[Coefficient]) -> "PriceMovement":
        """Builds it from the coefficients whose names begin with `price.`."""
        return cls(values_by_name(coefficient for coefficient in coefficients if coefficient.name.startswith("price.")))

    def table(self, name: str, markets: Sequence[str], seller_classes: Sequence[str]) -> Floats:
        """Returns a coefficient by market (rows) and class of seller (columns); 0 where no scope has it."""
        known = self.values.get(name, {})
        return np.array(
            [[next((known[s] for s in scopes_of(m, c) if s in known), 0.0) for c in seller_classes] for m in markets]
        ).reshape(len(markets), len(seller_classes))


@dataclass(frozen=True, slots=True)
class ListedPrices:
    """Prices as listed by their sellers, one per row."""

    usd_per_gpu: Floats
    """Per hour of one GPU, or of a machine without GPUs; NaN if unknown."""
    age_days: Floats
    """NaN if unknown."""
    kind: Indices
    """Code of the combination of GPU, market and term; -1 without a GPU."""
    seller: Indices
    market: Indices
    seller_class: Indices
    source: Indices
    recaptured: Mask
    """Whether a later capture showed the same price again."""
    list_price_ratio: Floats
    """On-demand price of the same machine and place today / on the day of observation, for prices of a term; at most 1,
    since only cuts count. NaN where either price is unknown, and for all other prices."""


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Believed prices: low, likely and high as factors of the listed prices, one per row."""

    low: Floats
    likely: Floats
    high: Floats
    suspect: Mask
    """Whether the price is far below that of the same GPU elsewhere, and only one source states it."""
    old: Mask
    """Whether the price is suspect, or was observed long ago, on an unknown day or before a cut of the list price."""


def beliefs(
    listed: ListedPrices, movement: PriceMovement, markets: Sequence[str], seller_classes: Sequence[str]
) -> Beliefs:
    """Returns believed prices. `market` and `seller_class` of `listed` are indices into the last two arguments."""
    rows = len(listed.usd_per_gpu)
    age = np.where(np.isnan(listed.age_days), UNDATED_DAYS, np.abs(listed.age_days))
    if not movement.values:
        return Beliefs(np.ones(rows), np.ones(rows), np.ones(rows), np.zeros(rows, np.bool_), np.zeros(rows, np.bool_))
    change, level, spread = (
        movement.table(f"price.{name}", markets, seller_classes)[listed.market, listed.seller_class]
        for name in ("change", "level", "spread")
    )
    # The discount of a term is fixed, so its price changes as the on-demand price does.
    of_term = ~np.isnan(listed.list_price_ratio)
    if of_term.any():
        on_demand = movement.table("price.change", ("on_demand",), seller_classes)[0, listed.seller_class]
        change = np.where(of_term, on_demand, change)
    usd = np.log(listed.usd_per_gpu)
    elsewhere = level_elsewhere(listed)
    distance = np.nan_to_num(elsewhere + level - usd)
    # Prices of a cheap class are compared with its own level, but those of an expensive class with the median, since a
    # price near the median is not suspect.
    suspect = _suspect(listed, elsewhere + np.minimum(level, 0.0) - usd)
    # The uncertainty of a suspect price is at least its distance from the other prices.
    variance = change**2 * np.maximum(age - CONFIRMED_DAYS, 0) / DAYS_A_YEAR + np.where(suspect, distance**2, 0)
    share = np.where(distance != 0, variance / np.maximum(variance + spread**2, 1e-12), 0.0)
    width = DEVIATIONS_TO_AN_END * np.sqrt(variance * (1 - share))
    pull = np.where(np.abs(share * distance) < LEAST_PULL, 0.0, share * distance)
    low, likely, high = (np.exp(pull + end * width) for end in (-1, 0, 1))
    # Until the price of a term is observed again, it may not have followed a cut, so the high end stays.
    ratio = np.nan_to_num(listed.list_price_ratio, nan=1.0)
    return Beliefs(low * ratio, likely * ratio, high, suspect, (age > OLD_DAYS) | suspect | (ratio < 1))


def _suspect(listed: ListedPrices, below_others: Floats) -> Mask:
    """Returns a mask of prices far below others of their kind that no fresh capture or second source confirms.

    `below_others` is the logarithm of the ratio of the other prices to a price.
    """
    below = (below_others > -log(SUSPECT_BELOW)) & ~(listed.recaptured & (listed.age_days <= CONFIRMED_DAYS))
    cell = _cells(listed)
    order = np.argsort(cell, kind="stable")
    ordered = cell[order]
    for suspected in set(cell[below].tolist()):
        rows = order[slice(*np.searchsorted(ordered, (suspected, suspected + 1)))]
        asked = rows[below[rows]]
        ratio = listed.usd_per_gpu[rows] / listed.usd_per_gpu[asked, np.newaxis]
        other_source = listed.source[rows] != listed.source[asked, np.newaxis]
        below[asked] = ~((np.abs(ratio - 1) <= SOURCES_AGREE) & other_source).any(axis=1)
    return below


def _cells(listed: ListedPrices) -> Indices:
    """Returns a code for the combination of kind and seller of each price."""
    return listed.kind * (int(listed.seller.max(initial=0)) + 1) + listed.seller


def level_elsewhere(listed: ListedPrices) -> Floats:
    """Returns the logarithm of the median price of the same kind at other sellers; NaN where too few are known.

    Each seller counts once, whatever the age of its prices: sellers with recent prices are mostly hyperscalers, whose
    median is above that of all sellers.
    """
    level = np.full(len(listed.usd_per_gpu), np.nan)
    usable = np.flatnonzero((listed.kind >= 0) & (listed.usd_per_gpu > 0))
    sellers = int(listed.seller.max(initial=0)) + 1
    used = _cells(listed)[usable]
    # `np.unique` would sort all prices, and load a part of numpy that nothing else needs at the start.
    cell = np.flatnonzero(np.bincount(used))
    at = np.searchsorted(cell, used)
    medians = _medians(np.log(listed.usd_per_gpu[usable]), at, len(cell))
    elsewhere = np.full(len(cell), np.nan)
    for cells in np.split(np.arange(len(cell)), np.flatnonzero(np.diff(cell // sellers)) + 1):
        for own in cells.tolist():
            if len(cells) > FEWEST_SELLERS:
                elsewhere[own] = median(medians[cells[cells != own]].tolist())
    level[usable] = elsewhere[at]
    return level


def _medians(values: Floats, group: NDArray[np.intp], groups: int) -> Floats:
    """Returns the median of the values in each group; NaN for an empty one."""
    ordered = values[np.lexsort((values, group))]
    counts = np.bincount(group, minlength=groups)
    first = np.cumsum(counts) - counts
    medians = np.full(groups, np.nan)
    filled = counts > 0
    below, above = (first + (counts - 1) // 2)[filled], (first + counts // 2)[filled]
    medians[filled] = (ordered[below] + ordered[above]) / 2
    return medians
