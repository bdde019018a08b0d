"""Recorded prices: those in force on a day or over a span of days, and the changes between two days."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Mask
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.history import CatalogHistory, end_of_day, start_of_day
from service.domain.catalog.offer import MARKETS, UNKNOWN, Offer

_NO_PRICE = -1
"""Marks an offer without a price on a day. As an index, it reads the UNKNOWN that is appended to the prices."""


def offers_among(history: CatalogHistory, names: Mapping[str, Collection[str]]) -> Mask:
    """Returns a mask of the offers that match `names`, which maps a kind of name to the names that it admits.

    Kinds are provider, instance, gpu, region, zone and market; the names of markets may include terms. An empty
    collection admits every offer.
    """
    offers, types = history.offers, history.instance_types
    columns: dict[str, list[tuple[NDArray[Any], Sequence[str]]]] = {
        "provider": [(offers.instance_type, [type_.provider for type_ in types])],
        "instance": [(offers.instance_type, [type_.id for type_ in types])],
        "gpu": [(offers.instance_type, ["" if type_.gpu is None else type_.gpu.id for type_ in types])],
        "region": [(offers.region, offers.places)],
        "zone": [(offers.zone, offers.places)],
        "market": [(offers.market, MARKETS), (offers.term, offers.terms)],
    }
    among = np.ones(len(offers.instance_type), np.bool_)
    for name, admitted in names.items():
        if admitted:
            among &= np.logical_or.reduce([
                np.isin(codes, [code for code, word in enumerate(words) if word in admitted])
                for codes, words in columns[name]
            ])  # fmt: skip
    return among


def prices_in_force(history: CatalogHistory, offers: Mask, first: date | None, last: date) -> NDArray[np.int64]:
    """Returns the rows of the prices of some offers that were in force on any day from `first` to `last`.

    If `first` is None, all prices up to `last` count. Rows are ordered by instance type, then offer, then time.
    """
    prices = history.prices
    in_force = prices.valid_from <= end_of_day(last)
    if first is not None:
        in_force &= prices.valid_to > start_of_day(first)
    return _in_order(history, in_force & offers[prices.offer])


def prices_on(history: CatalogHistory, offers: Mask, day: date) -> NDArray[np.int64]:
    """Returns the rows of the prices of some offers at the end of a day, ordered by instance type, then offer."""
    return _in_order(history, history.prices.in_force_at(end_of_day(day)) & offers[history.prices.offer])


def _in_order(history: CatalogHistory, mask: Mask) -> NDArray[np.int64]:
    rows = np.flatnonzero(mask)
    offer = history.prices.offer[rows]
    return rows[np.lexsort((history.prices.valid_from[rows], offer, history.offers.instance_type[offer]))]


def offer_of(history: CatalogHistory, row: int) -> tuple[InstanceType, Offer]:
    """Returns the instance type and the offer of a row of prices, with this price."""
    offer = history.offers.offer_at(int(history.prices.offer[row]), history.prices.price(row))
    return history.instance_types[offer.instance_type], offer


def offer_key(history: CatalogHistory, row: int) -> str:
    """Returns a key for the offer of a row of prices; the key stays the same when the catalog changes."""
    instance_type, offer = offer_of(history, row)
    return "|".join((instance_type.id, offer.region or "", offer.zone or "", offer.market, offer.term or ""))


def changes_between(history: CatalogHistory, offers: Mask, first: date, last: date) -> NDArray[np.int64]:
    """Returns the offers whose price in dollars differs between two days: the rows of both prices (-1: no price).

    The result has a row per changed offer and two columns, ordered by instance type, then offer. A price that is
    missing or unknown on only one of the days counts as a change.
    """
    before, after = (_rows_on(history, day) for day in (first, last))
    usd_micros = np.append(history.prices.usd_micros, UNKNOWN)
    differs = ((before == _NO_PRICE) != (after == _NO_PRICE)) | (usd_micros[before] != usd_micros[after])
    changed = np.flatnonzero(differs & offers)
    # By instance type first, so that a page shows the offers of one machine together.
    changed = changed[np.lexsort((changed, history.offers.instance_type[changed]))]
    return np.column_stack((before[changed], after[changed]))


def _rows_on(history: CatalogHistory, day: date) -> NDArray[np.int64]:
    rows = np.full(len(history.offers.instance_type), _NO_PRICE, np.int64)
    in_force = np.flatnonzero(history.prices.in_force_at(end_of_day(day)))
    rows[history.prices.offer[in_force]] = in_force
    return rows
