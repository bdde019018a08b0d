"""Price changes between two days: offers that became more expensive or cheaper, appeared or disappeared."""

from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from service.domain.catalog.history import UNKNOWN, CatalogHistory, end_of_day

NONE = -1


@dataclass(frozen=True, slots=True)
class Changes:
    """Offers whose price differs, with the row of the price on the earlier and on the later day (-1: none)."""

    offer: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offer)


def changes_between(history: CatalogHistory, wanted: NDArray[np.bool_], first: date, last: date) -> Changes:
    """Returns the wanted offers whose dollars per hour differ, ordered by instance type, then by offer.

    A price that became known or unknown is a change; so is an offer that appeared or disappeared.
    """
    before, after = (_rows_on(history, day) for day in (first, last))
    known = np.append(history.prices.usd_micros, UNKNOWN)
    moved = ((before == NONE) != (after == NONE)) | (known[before] != known[after])
    offers = np.flatnonzero(moved & wanted)
    offers = offers[np.lexsort((offers, history.offers.instance_type[offers]))]
    return Changes(offers, before[offers], after[offers])


def _rows_on(history: CatalogHistory, day: date) -> NDArray[np.int64]:
    """The row of each offer's price at the end of a day; -1 if it had none."""
    moment, prices = end_of_day(day), history.prices
    rows = np.full(len(history.offers.instance_type), NONE, np.int64)
    held = np.flatnonzero((prices.valid_from <= moment) & (moment < prices.valid_to))
    rows[prices.offer[held]] = held
    return rows
