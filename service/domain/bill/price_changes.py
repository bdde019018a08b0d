"""Changes of prices between two days, and the change of a run's likely cost that follows from each."""

from dataclasses import dataclass
from datetime import date
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Mask
from service.domain.bill.seller_terms import likely_usd_micros
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.offer import Offer, Price
from service.domain.catalog.price_history import changes_between, offer_key, offer_of

ChangeKind = Literal["more_expensive", "cheaper", "new", "gone", "known", "unknown"]


@dataclass(frozen=True, slots=True)
class Difference:
    """An amount on both days in millionths of a dollar; None where it is unknown."""

    before: int | None
    after: int | None

    @property
    def micros(self) -> int | None:
        """The later amount less the earlier one."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def percent(self) -> float | None:
        """The difference in percent of the earlier amount."""
        return None if self.micros is None or not self.before else 100 * self.micros / self.before


@dataclass(frozen=True, slots=True)
class PriceChange:
    """An offer whose price changed; a price is None on a day without one. `run` is None if no run was asked for."""

    instance_type: InstanceType
    offer: Offer
    before: Price | None
    after: Price | None
    run: Difference | None

    @property
    def usd_per_hour(self) -> Difference:
        """Returns the prices on both days and their difference; each is None if unknown."""
        micros = [None if price is None else price.usd_micros_per_hour for price in (self.before, self.after)]
        return Difference(*micros)

    @property
    def kind(self) -> ChangeKind:
        """The kind of change; `known` and `unknown`: the price in dollars became or ceased to be known."""
        if self.before is None or self.after is None:
            return "new" if self.before is None else "gone"
        change = self.usd_per_hour
        if change.micros is None:
            return "known" if change.before is None else "unknown"
        return "more_expensive" if change.micros > 0 else "cheaper"


@dataclass(frozen=True, slots=True)
class PriceChanges:
    """The changes as rows of two indices of prices, the earlier and the later one; -1 is no price."""

    history: CatalogHistory
    days: tuple[date, date]
    hours: float | None
    nodes: int
    rows: NDArray[np.int64]

    def key(self, rows: tuple[int, int]) -> str:
        """Returns a name of the row's offer that stays the same when the catalog changes."""
        # Both prices belong to one offer, and one of them may be -1.
        return offer_key(self.history, max(rows))

    def at(self, rows: tuple[int, int]) -> PriceChange:
        """Returns the change in a row, with the likely cost of the run under the terms of each day."""
        before, after = (None if row < 0 else self.history.prices.price(row) for row in rows)
        run = None if self.hours is None else Difference(*map(self._run_usd_micros, rows, self.days))
        return PriceChange(*offer_of(self.history, max(rows)), before, after, run)

    def _run_usd_micros(self, row: int, day: date) -> int | None:
        if row < 0 or self.hours is None:
            return None
        return likely_usd_micros(self.history.reference, *offer_of(self.history, row), day, self.hours, self.nodes)


def price_changes(
    history: CatalogHistory, offers: Mask, days: tuple[date, date], hours: float | None, nodes: int
) -> PriceChanges:
    """Returns the changes of these offers from the first day to the last. A run of `hours` on `nodes` is priced."""
    return PriceChanges(history, days, hours, nodes, changes_between(history, offers, *days))
