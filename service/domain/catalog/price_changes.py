"""What changed of the prices between two days: offers that are dearer or cheaper, new or gone."""

from dataclasses import dataclass
from datetime import date

import numpy as np
from numpy.typing import NDArray

from service.domain.catalog.history import UNKNOWN, CatalogHistory, end_of_day

NONE = -1


@dataclass(frozen=True, slots=True)
class Changes:
    """One entry per offer whose price differs: its row on the earlier and on the later day (-1: none)."""

    offer: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offer)


def changes_between(history: CatalogHistory, wanted: NDArray[np.bool_], first: date, last: date) -> Changes:
    """Offers among the wanted whose dollars per hour differ, by instance type, then offer.

    A price that was not known and is known is a change too; so is an offer that appeared or went.
    """
    before, after = (rows_on(history, day) for day in (first, last))
    known = np.append(history.prices.usd_micros, UNKNOWN)
    moved = ((before == NONE) != (after == NONE)) | (known[before] != known[after])
    offers = np.flatnonzero(moved & wanted)
    offers = offers[np.lexsort((offers, history.offers.instance_type[offers]))]
    return Changes(offers, before[offers], after[offers])


def rows_on(history: CatalogHistory, day: date) -> NDArray[np.int64]:
    """Per offer the row of its price at the end of a day; -1 where it had none."""
    moment, prices = end_of_day(day), history.prices
    rows = np.full(len(history.offers.instance_type), NONE, np.int64)
    held = np.flatnonzero((prices.valid_from <= moment) & (moment < prices.valid_to))
    rows[prices.offer[held]] = held
    return rows
