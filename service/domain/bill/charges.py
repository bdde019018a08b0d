"""The bill of a run as columns: the dollars that `bill_of` charges, for every candidate of a ranking at once.

Figures are floats, so they differ from a settled bill by less than a millionth of a dollar per million dollars.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Floats, Indices, Mask
from service.domain.bill.interruption import Expected
from service.domain.bill.run import Run, StoredData, TransferredData
from service.domain.bill.seller_terms import commitment_of, data_prices, rounding_rule
from service.domain.catalog.catalog import Catalog, premiums_of
from service.domain.catalog.offer import MARKETS, UNKNOWN
from service.domain.catalog.tariffs import BLOCK_DAYS, Commitment, transfer_cost
from service.domain.money import MICRO, Exact, Unknown
from service.domain.units import SECONDS_A_DAY, SECONDS_AN_HOUR


class DataCost(NamedTuple):
    """Dollars for the data of a run."""

    per_hour: float
    """For each hour of the calendar."""
    once: float
    per_machine_hour: float
    """For each hour of the calendar and each machine."""
    once_per_machine: float
    unknown: float
    """1 where a price is unknown, else 0."""


COST_OF_STORED_DATA = {
    (False, False): "per_hour",
    (False, True): "once",
    (True, False): "per_machine_hour",
    (True, True): "once_per_machine",
}
"""The field of `DataCost` by whether each machine has its own storage, and whether the data has hours of its own."""


@dataclass(frozen=True, slots=True)
class Charges:
    """The terms of sellers for a run, one entry per candidate. An unknown charge is 0, so sums are lower bounds."""

    setup_hours: float
    busy_share: float
    """Share of the paid time that is not idle. A managed service stops its machines when they are idle."""
    increment_seconds: Floats
    """Increment to which time is rounded up; 0 where time is not rounded."""
    minimum_seconds: Floats
    """Shortest time that is paid for; a commitment has its whole term."""
    long_increment_seconds: Floats
    """Increment of runs that last longer than `BLOCK_DAYS`."""
    data: tuple[Floats, ...]
    """The columns of `DataCost`."""
    unknown: Mask
    """Whether the price of data or of the managed service is unknown."""

    def in_use(self, run: Expected) -> Expected:
        """Returns the hours of a run with set-up and idle time; waiting for capacity is not paid."""
        paid, paid_high = ((hours + self.setup_hours) / self.busy_share for hours in (run.paid, run.paid_high))
        return Expected(
            paid,
            paid_high,
            paid + _difference(run.elapsed, run.paid),
            paid_high + _difference(run.elapsed_high, run.paid_high),
        )

    def of_machines(self, paid_hours: Floats) -> Floats:
        """Returns the hours to pay at the price of a machine, rounded by the seller's rule."""
        # Rounded to whole microseconds first, as in `BillingRule.billed_hours`.
        microseconds = np.floor(paid_hours * (SECONDS_AN_HOUR * MICRO) + 0.5)
        long = microseconds > BLOCK_DAYS * SECONDS_A_DAY * MICRO
        increment = np.where(long, self.long_increment_seconds, self.increment_seconds)
        seconds = np.ceil(microseconds / (increment * MICRO)) * increment
        seconds = np.where(microseconds > 0, np.maximum(seconds, self.minimum_seconds), 0.0)
        return np.where(self.increment_seconds > 0, seconds / SECONDS_AN_HOUR, paid_hours)

    def of_data(self, elapsed_hours: Floats, machines: Floats) -> Floats:
        """Returns the dollars for storage and transfer."""
        per_hour, once, per_machine_hour, once_per_machine, _ = self.data
        return elapsed_hours * (per_hour + per_machine_hour * machines) + once + once_per_machine * machines


def charges_of(run: Run, service: str | None, types: Indices, offers: Indices, catalog: Catalog) -> Charges:
    """Returns the terms of a run on some offers; `types` has the instance type of each offer."""
    premiums = catalog.derive(premiums_of, service)
    data = _data_costs(run, types, offers, catalog)
    increment, minimum = catalog.derive(_rounding)[:, catalog.offers.market[offers], types]
    long_increment, term = increment, catalog.offers.term[offers]
    *committed, unclear = catalog.derive(_committed, run.commitments_held)[:, term]
    if (pays_for_term := committed[0] > 0).any():
        increment, minimum, long_increment = (
            np.where(pays_for_term, seconds, by_seller)
            for seconds, by_seller in zip(committed, (increment, minimum, long_increment), strict=True)
        )
    return Charges(
        setup_hours=run.setup_minutes / 60,
        busy_share=1.0 if service else 1.0 - run.idle_fraction,
        increment_seconds=increment,
        minimum_seconds=minimum,
        long_increment_seconds=long_increment,
        data=data,
        unknown=premiums.unknown[types] | (data[-1] > 0) | (unclear > 0),
    )


def _difference(elapsed: Floats, paid: Floats) -> Floats:
    """Returns the hours of waiting; 0 for a run without end, whose hours are infinite."""
    return np.where(np.isfinite(paid), elapsed - paid, 0.0)


def _rounding(catalog: Catalog) -> Floats:
    """Returns the seconds of the increment and of the minimum, by market and instance type; 0 without a rule."""
    kinds = [(each.provider, each.service, each.bare_metal) for each in catalog.instance_types]
    seconds = {}
    # Hundreds of instance types share a few dozen rules.
    for kind, example in dict(zip(kinds, catalog.instance_types, strict=True)).items():
        for code, market in enumerate(MARKETS):
            rule = rounding_rule(catalog.reference, example, market, catalog.day)
            if isinstance(rule, Unknown):
                seconds[kind, code] = (0, 0)
            else:
                seconds[kind, code] = (rule.increment_seconds, rule.minimum_seconds)
    rows = [[seconds[kind, code] for kind in kinds] for code in range(len(MARKETS))]
    return np.moveaxis(np.array(rows, np.float64).reshape(len(MARKETS), len(kinds), 2), -1, 0)


def _committed(catalog: Catalog, held: tuple[str, ...]) -> Floats:
    """Returns by term the seconds of the increment, of the minimum and of the long increment, and 1 if they are
    unknown.

    The last column is for offers without a term, whose code is -1. A term that the caller holds already obliges to
    nothing more.
    """
    rows = []
    for term in (*catalog.offers.terms, None):
        commitment = None if term is None else commitment_of("reserved", term, held)
        if isinstance(commitment, Commitment):
            shortest = commitment.term_seconds
            rows.append((shortest, shortest, commitment.long_term_seconds, 0))
        else:
            rows.append((0, 0, 0, int(commitment is not None)))
    return np.array(rows, np.float64).T


def _data_costs(run: Run, types: Indices, offers: Indices, catalog: Catalog) -> tuple[Floats, ...]:
    if not run.has_data:
        return (np.zeros(len(types)),) * len(DataCost._fields)
    places, sellers = catalog.offers.places, catalog.columns.words["provider"]
    pairs, inverse = np.unique(
        np.stack((sellers.codes[types], catalog.offers.region[offers])), axis=1, return_inverse=True
    )
    costs = [
        catalog.derive(
            _data_cost,
            sellers.words[seller], None if place == UNKNOWN else places[place], run.stored, run.sent,
            cache=catalog.outlooks,
        )
        for seller, place in pairs.T.tolist()
    ]  # fmt: skip
    return tuple(np.array(costs).reshape(-1, len(DataCost._fields))[inverse.ravel()].T)


def _data_cost(
    catalog: Catalog, provider: str, region: str | None, stored: tuple[StoredData, ...],
    sent: tuple[TransferredData, ...],
) -> DataCost:  # fmt: skip
    storage, transfer = data_prices(catalog.reference, provider, region, stored, sent, catalog.day)
    cost = dict.fromkeys(DataCost._fields, 0.0)
    for data, price in zip(stored, storage, strict=True):
        if isinstance(price, Unknown):
            cost["unknown"] = 1.0
            continue
        hours = Exact.same(1 if data.hours is None else data.hours)
        field = COST_OF_STORED_DATA[price.kind == "block", data.hours is not None]
        cost[field] += price.cost(data.gib, hours, machines=1).likely
    for sending, tiers in zip(sent, transfer, strict=True):
        usd = tiers if isinstance(tiers, Unknown) else transfer_cost(tiers, sending.gb, sending.already_gb)
        if isinstance(usd, Unknown):
            cost["unknown"] = 1.0
        else:
            cost["once"] += usd.likely
    return DataCost(**cost)
