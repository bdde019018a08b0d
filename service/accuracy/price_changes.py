"""Fits the movement of prices to all recorded prices, and compares believed prices with later ones."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from service.accuracy.calibrate import write_coefficients
from service.domain.arrays import Floats, Indices
from service.domain.band import DEVIATIONS_TO_AN_END
from service.domain.calibration.coefficients import Coefficient
from service.domain.calibration.price_belief import PriceMovement, beliefs, level_elsewhere, scopes_of
from service.domain.catalog.history import PRICED_LIKE, CatalogHistory, end_of_day
from service.domain.catalog.offer import MARKETS, UNKNOWN
from service.domain.units import DAYS_A_YEAR

FEWEST_CHANGES = 10
"""Pairs of prices, or sellers of a GPU, that a group needs; one with fewer takes the figures of the next wider one."""

HORIZONS = ((30, 15, 60), (180, 90, 360), (720, 361, 1080))
"""Days between two prices of an offer: the name of the horizon in the report, the fewest and the most."""

SOURCE = "calibrate-prices"


class PricePair(NamedTuple):
    """Two prices of one offer: rows, and the days on which each was observed."""

    row: int
    later: int
    observed: int
    observed_later: int


def calibrate_prices(history: CatalogHistory, today: date, write: Path | None) -> str:
    """Fits the movement of prices, writes it if a path is given, and reports errors with the future left out."""
    if write:
        write_coefficients(write, fitted_movement(history, today))
    return "\n".join([*_fit_lines(fitted_movement(history, today)), *_error_lines(history)])


def fitted_movement(history: CatalogHistory, day: date) -> list[Coefficient]:
    """Returns the coefficients that follow from the prices observed by a day."""
    changes = _changes(
        history, [pair for pair in _pairs(history, consecutive=True) if pair.observed_later <= day.toordinal()]
    )
    distances = _distances(history, day)
    fitted = []
    for scope, by_seller in sorted(changes.items()):
        pairs = [pair for seller in by_seller.values() for pair in seller]
        if len(pairs) >= (FEWEST_CHANGES if scope else 1):
            # Each seller counts once: one with hundreds of equal list prices would hide that all others change.
            variances = [sum(change**2 for change, _ in seller) / sum(years for _, years in seller)
                         for seller in by_seller.values()]  # fmt: skip
            fitted.append(_coefficient("price.change", scope, float(np.sqrt(np.mean(variances))), len(pairs)))
    for scope, values in sorted(distances.items()):
        if len(values) >= (FEWEST_CHANGES if scope else 1):
            low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
            fitted.append(_coefficient("price.level", scope, float(middle), len(values)))
            spread = float(high - low) / (2 * DEVIATIONS_TO_AN_END)
            fitted.append(_coefficient("price.spread", scope, spread, len(values)))
    return fitted


def _coefficient(name: str, scope: str, value: float, count: int) -> Coefficient:
    return Coefficient(name, scope, round(value, 4), SOURCE, "prices", count)


def _pairs(history: CatalogHistory, *, consecutive: bool) -> Iterator[PricePair]:
    """Pairs of dated prices of one offer, the earlier one first."""
    prices, by_offer = history.prices, defaultdict[int, list[tuple[int, int]]](list)
    for row in np.flatnonzero((prices.observed_day != UNKNOWN) & (prices.usd_micros > 0)).tolist():
        by_offer[int(prices.offer[row])].append((int(prices.observed_day[row]), row))
    for observed in by_offer.values():
        ordered = sorted(observed)
        chosen = pairwise(ordered) if consecutive else combinations(ordered, 2)
        yield from (PricePair(row, later, day, next_day) for (day, row), (next_day, later) in chosen if next_day > day)


def _changes(history: CatalogHistory, pairs: Sequence[PricePair]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Logarithms of changes with their years, by scope and seller."""
    changes: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    micros, offers, types = history.prices.usd_micros, history.offers, history.instance_types
    for pair in pairs:
        offer = history.prices.offer[pair.row]
        seller = types[offers.instance_type[offer]].provider
        change = float(np.log(micros[pair.later] / micros[pair.row]))
        years = (pair.observed_later - pair.observed) / DAYS_A_YEAR
        for scope in _scopes(history, int(offers.market[offer]), seller):
            changes[scope][seller].append((change, years))
    return changes


def _scopes(history: CatalogHistory, market: int, seller: str) -> tuple[str, ...]:
    return scopes_of(MARKETS[market], history.reference.providers[seller].seller_class or "")


def _distances(history: CatalogHistory, day: date) -> dict[str, list[float]]:
    """Distances of sellers from the median of the others, one for each seller and kind, by scope."""
    listed = history.listed(_known_on(history, day), day)
    usd = np.log(listed.usd_per_gpu)
    distance = usd - level_elsewhere(listed)
    cells: dict[tuple[int, int, int, int], list[float]] = defaultdict(list)
    for row in np.flatnonzero(np.isfinite(distance)).tolist():
        key = (listed.kind[row], listed.seller[row], listed.market[row], listed.seller_class[row])
        cells[tuple(map(int, key))].append(float(distance[row]))  # type: ignore[index]
    distances: dict[str, list[float]] = defaultdict(list)
    for (_, _, market, seller_class), values in cells.items():
        for scope in scopes_of(MARKETS[market], PRICED_LIKE[seller_class]):
            distances[scope].append(float(np.median(values)))
    return distances


def _known_on(history: CatalogHistory, day: date) -> Indices:
    """Rows of the prices in force at the end of a day that were observed by then."""
    observed = history.prices.observed_day
    in_force = history.prices.in_force_at(end_of_day(day))
    return np.flatnonzero(in_force & (observed != UNKNOWN) & (observed <= day.toordinal()))


# The report


def _fit_lines(fitted: Sequence[Coefficient]) -> Iterator[str]:
    for coefficient in fitted:
        yield f"{coefficient.name:13} {coefficient.scope or 'all':42} {coefficient.value:8.4f} {coefficient.n:5d}"


def _error_lines(history: CatalogHistory) -> Iterator[str]:
    """Errors of the last price and of the believed one, with coefficients and prices of the earlier day alone."""
    errors: dict[tuple[int, str], list[tuple[float, float, bool]]] = defaultdict(list)
    by_day: dict[int, list[PricePair]] = defaultdict(list)
    for pair in _pairs(history, consecutive=False):
        by_day[pair.observed].append(pair)
    for observed, pairs in sorted(by_day.items()):
        day = date.fromordinal(observed)
        movement = PriceMovement.of(fitted_movement(history, day))
        rows = _known_on(history, day)
        row_of = {int(row): index for index, row in enumerate(rows)}
        for later in sorted({pair.observed_later for pair in pairs}):
            horizon = next((name for name, least, most in HORIZONS if least <= later - observed <= most), None)
            if horizon is None:
                continue
            listed = history.listed(rows, date.fromordinal(later))
            believed = beliefs(listed, movement, MARKETS, PRICED_LIKE)
            bands = np.log(np.stack([believed.low, believed.likely, believed.high]))
            for pair in pairs:
                if pair.observed_later == later and pair.row in row_of:
                    _add_error(errors, history, pair, horizon, bands[:, row_of[pair.row]])
    for (horizon, group), of_pairs in sorted(errors.items()):
        last, likely, inside = (np.mean(column) for column in zip(*of_pairs, strict=True))
        errors_of_both = f"last {last:.3f}, believed {likely:.3f}, in band {inside:.0%}"
        yield f"{horizon:4d} days {group:24} {len(of_pairs):5d} pairs: {errors_of_both}"


def _add_error(
    errors: dict[tuple[int, str], list[tuple[float, float, bool]]],
    history: CatalogHistory, pair: PricePair, horizon: int, band: Floats,
) -> None:  # fmt: skip
    micros, offer = history.prices.usd_micros, history.prices.offer[pair.row]
    provider = history.instance_types[history.offers.instance_type[offer]].provider
    seller_class = history.reference.providers[provider].seller_class or "unknown"
    change = float(np.log(micros[pair.later] / micros[pair.row]))
    low, likely, high = band.tolist()
    error = (abs(change), abs(change - likely), low - 1e-9 <= change <= high + 1e-9)
    errors[horizon, f"{MARKETS[history.offers.market[offer]]} {seller_class}"].append(error)
