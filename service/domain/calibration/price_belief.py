"""The price of an offer today, as it is believed from the price that was last listed and from the same GPU elsewhere.

The logarithm of a price changes like a random walk, so its variance grows with age. The prices that sellers ask for the
same GPU lie around their median, at a level and with a spread that are those of the market and the class of the
seller. Both are estimates of today's price, and their mean by inverse variance is believed. docs/prices.md has the
figures of the fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices, Mask
from service.domain.band import DEVIATIONS_TO_AN_END
from service.domain.calibration.coefficients import Coefficient, values_by_name
from service.domain.units import DAYS_A_YEAR

CONFIRMED_DAYS = 45
"""Age in days up to which a price is believed as it is listed."""

OLD_DAYS = 180
"""Age in days beyond which a price ranks at the high end of its band."""

UNDATED_DAYS = 720
"""Assumed age of a price without a date, which is old."""

SUSPECT_BELOW = 0.6
"""A price below this share of the median of its kind is suspect while a single source states it."""

SOURCES_AGREE = 0.05
"""Two sources confirm each other if their prices differ by at most this share."""

LEAST_PULL = 0.01
"""Logarithm of the smallest change of a listed price. Less is far below its uncertainty, and an answer that shows the
list price of a hyperscaler to the cent is easier to check."""

FEWEST_SELLERS = 3
"""Other sellers that the median of a GPU needs."""


def scopes_of(market: str, seller_class: str) -> tuple[str, ...]:
    """Returns the groups of similar prices, the narrowest first."""
    return f"market={market}|seller_class={seller_class}", f"market={market}", ""


@dataclass(frozen=True, slots=True)
class PriceMovement:
    """Coefficients of prices by name and scope, all of logarithms; without any, prices are believed as listed.

    `price.change` is the standard deviation of a year's change, `price.level` the median distance of a seller from the
    median of the others, and `price.spread` the standard deviation around it.
    """

    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, coefficients: Sequence[Coefficient]) -> "PriceMovement":
        """Takes the coefficients whose names begin with `price.`."""
        return cls(values_by_name(coefficient for coefficient in coefficients if coefficient.name.startswith("price.")))

    def table(self, name: str, markets: Sequence[str], seller_classes: Sequence[str]) -> Floats:
        """Returns a coefficient by market (rows) and class of seller (columns); 0 where no scope has it."""
        known = self.values.get(name, {})
        return np.array(
            [[next((known[s] for s in scopes_of(m, c) if s in known), 0.0) for c in seller_classes] for m in markets]
        ).reshape(len(markets), len(seller_classes))


@dataclass(frozen=True, slots=True)
class ListedPrices:
    """Prices as their sellers listed them, one per row."""

    usd_per_gpu: Floats
    """Per hour of one GPU, or of a machine without GPUs; NaN if unknown."""
    age_days: Floats
    """NaN if unknown."""
    kind: Indices
    """Code of the GPU, market and term; -1 without a GPU."""
    seller: Indices
    market: Indices
    seller_class: Indices
    source: Indices
    recaptured: Mask
    """Whether a later capture showed the same price."""
    list_price_left: Floats
    """For the price of a term, the on-demand price today / that on the day of the observation, 1 unless it was cut;
    NaN where either is unknown, and for all other prices."""


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Believed prices as factors of the listed ones."""

    low: Floats
    likely: Floats
    high: Floats
    suspect: Mask
    """Far below the same GPU elsewhere, and stated by one source."""
    old: Mask
    """Observed too long ago, on an unknown day, or before a cut of the list price, or suspect."""


def beliefs(
    listed: ListedPrices, movement: PriceMovement, markets: Sequence[str], seller_classes: Sequence[str]
) -> Beliefs:
    """Returns the believed prices, given the words that `market` and `seller_class` are indices into."""
    rows = len(listed.usd_per_gpu)
    age = np.where(np.isnan(listed.age_days), UNDATED_DAYS, np.abs(listed.age_days))
    if not movement.values:
        return Beliefs(np.ones(rows), np.ones(rows), np.ones(rows), np.zeros(rows, np.bool_), np.zeros(rows, np.bool_))
    change, level, spread = (
        movement.table(f"price.{name}", markets, seller_classes)[listed.market, listed.seller_class]
        for name in ("change", "level", "spread")
    )
    # A plan keeps its discount: its price moves as the list price does.
    of_plan = ~np.isnan(listed.list_price_left)
    if of_plan.any():
        of_list = movement.table("price.change", ("on_demand",), seller_classes)[0, listed.seller_class]
        change = np.where(of_plan, of_list, change)
    usd = np.log(listed.usd_per_gpu)
    elsewhere = level_elsewhere(listed)
    distance = np.nan_to_num(elsewhere + level - usd)
    # A class of sellers that asks more than others is not suspect because it asks as much.
    suspect = _suspect(listed, elsewhere + np.minimum(level, 0.0) - usd)
    # A suspect price says no more about today's than its distance from all others.
    variance = change**2 * np.maximum(age - CONFIRMED_DAYS, 0) / DAYS_A_YEAR + np.where(suspect, distance**2, 0)
    drawn = np.where(distance != 0, variance / np.maximum(variance + spread**2, 1e-12), 0.0)
    width = DEVIATIONS_TO_AN_END * np.sqrt(variance * (1 - drawn))
    middle = np.where(np.abs(drawn * distance) < LEAST_PULL, 0.0, drawn * distance)
    low, likely, high = (np.exp(middle + ends * width) for ends in (-1, 0, 1))
    # Until it is observed again, the price of a plan may not have followed a cut.
    left = np.nan_to_num(listed.list_price_left, nan=1.0)
    return Beliefs(low * left, likely * left, high, suspect, (age > OLD_DAYS) | suspect | (left < 1))


def _suspect(listed: ListedPrices, below_others: Floats) -> Mask:
    """Prices far below the others of their kind that neither a fresh capture nor a second source confirms."""
    below = (below_others > -log(SUSPECT_BELOW)) & ~(listed.recaptured & (listed.age_days <= CONFIRMED_DAYS))
    cell = _cells(listed)
    order = np.argsort(cell, kind="stable")
    ordered = cell[order]
    for suspected in np.unique(cell[below]).tolist():
        rows = order[slice(*np.searchsorted(ordered, (suspected, suspected + 1)))]
        asked = rows[below[rows]]
        ratio = listed.usd_per_gpu[rows] / listed.usd_per_gpu[asked, np.newaxis]
        other_source = listed.source[rows] != listed.source[asked, np.newaxis]
        below[asked] = ~((np.abs(ratio - 1) <= SOURCES_AGREE) & other_source).any(axis=1)
    return below


def _cells(listed: ListedPrices) -> Indices:
    """Returns a code for each kind of price at each seller."""
    return listed.kind * (int(listed.seller.max(initial=0)) + 1) + listed.seller


def level_elsewhere(listed: ListedPrices) -> Floats:
    """Returns the logarithm of the median price of the same kind at other sellers; NaN where too few are known.

    Each seller counts once, whatever the age of its price: those with recent prices are mostly hyperscalers, whose
    median is above that of all.
    """
    level = np.full(len(listed.usd_per_gpu), np.nan)
    usable = np.flatnonzero((listed.kind >= 0) & (listed.usd_per_gpu > 0))
    sellers = int(listed.seller.max(initial=0)) + 1
    cell, at = np.unique(_cells(listed)[usable], return_inverse=True)
    medians = _medians(np.log(listed.usd_per_gpu[usable]), at, len(cell))
    elsewhere = np.full(len(cell), np.nan)
    for cells in np.split(np.arange(len(cell)), np.flatnonzero(np.diff(cell // sellers)) + 1):
        for own in cells.tolist():
            if len(cells) > FEWEST_SELLERS:
                elsewhere[own] = np.median(medians[cells[cells != own]])
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
