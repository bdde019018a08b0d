"""Recorded prices of chosen offers on a day and over a span of days, and their changes between two days."""

from datetime import date

import numpy as np

from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.price_history import (
    changes_between,
    offer_of,
    offers_among,
    prices_in_force,
    prices_on,
)
from service.domain.catalog.regions import zones_with_prices
from tests.builders.catalogs import history
from tests.builders.instance_types import instance_type
from tests.builders.offers import Priced, priced

MARCH, APRIL, MAY = date(2024, 3, 1), date(2024, 4, 1), date(2024, 5, 1)
P4D, P5 = instance_type("p4d.24xlarge"), instance_type("p5.48xlarge")
PRICES = (
    priced(P5, 98.0, region="us-east-1", zone="us-east-1a", valid_from=MARCH, market="spot"),
    priced(P4D, 32.0, region="us-east-1", valid_from=MARCH, valid_to=APRIL),
    priced(P4D, 22.0, region="us-east-1", valid_from=APRIL),
    priced(P4D, 40.0, region="eu-west-1", valid_from=MARCH, valid_to=MAY),
)
RECORDED = history(*PRICES)
EVERY_OFFER = np.ones(3, np.bool_)


def usd(recorded: CatalogHistory, rows: np.ndarray) -> list[float | None]:
    return [offer_of(recorded, int(row))[1].price.usd_per_hour for row in rows]


def changes(*prices: Priced) -> list[tuple[float | None, float | None]]:
    """The dollars per hour at the start of April and of May, of the offers that changed."""
    recorded = history(*prices, priced(P5, 98.0, valid_from=MARCH))
    every = np.ones(len(recorded.offers.instance_type), np.bool_)
    moved = changes_between(recorded, every, APRIL, MAY)

    def dollars(row: int) -> float | None:
        return None if row < 0 else offer_of(recorded, row)[1].price.usd_per_hour

    return [(dollars(before), dollars(after)) for before, after in moved.tolist()]


def test_offers_are_chosen_by_the_names_given() -> None:
    def chosen(**names: list[str]) -> list[float | None]:
        return usd(RECORDED, prices_on(RECORDED, offers_among(RECORDED, names), APRIL))

    assert chosen(region=["us-east-1"]) == [22.0, 98.0]
    assert chosen(region=["us-east-1"], market=["spot"]) == [98.0]
    assert chosen(zone=["us-east-1a"]) == [98.0]
    assert chosen(instance=[P4D.id]) == [40.0, 22.0]
    assert chosen(provider=["aws"], region=[]) == [40.0, 22.0, 98.0]
    assert chosen(provider=["gcp"]) == []
    assert P4D.gpu is not None
    assert chosen(gpu=[P4D.gpu.id]) == [40.0, 22.0, 98.0]
    assert chosen(gpu=["t4-16gb"]) == []


def test_prices_over_a_span_include_those_that_ended_within_it() -> None:
    assert usd(RECORDED, prices_in_force(RECORDED, EVERY_OFFER, None, MAY)) == [40.0, 32.0, 22.0, 98.0]
    assert usd(RECORDED, prices_in_force(RECORDED, EVERY_OFFER, APRIL, MAY)) == [40.0, 22.0, 98.0]
    assert usd(RECORDED, prices_in_force(RECORDED, EVERY_OFFER, MARCH, MARCH)) == [40.0, 32.0, 98.0]


def test_zones_are_those_of_the_offers_with_their_regions() -> None:
    assert zones_with_prices(RECORDED.offers) == {"us-east-1a": "us-east-1"}


def test_a_price_that_moved_is_a_change_and_one_that_stayed_is_none() -> None:
    moved = priced(P4D, 32.0, valid_from=MARCH, valid_to=MAY), priced(P4D, 22.0, valid_from=MAY)
    again = priced(P4D, 32.0, valid_from=MARCH, valid_to=MAY), priced(P4D, 32.0, valid_from=MAY)
    assert changes(*moved) == [(32.0, 22.0)]
    assert changes(*again) == []


def test_an_offer_that_appears_or_disappears_is_a_change_even_without_a_known_price() -> None:
    assert changes(priced(P4D, 32.0, valid_from=MAY)) == [(None, 32.0)]
    assert changes(priced(P4D, 32.0, valid_from=MARCH, valid_to=MAY)) == [(32.0, None)]
    assert changes(priced(P4D, None, valid_from=MAY)) == [(None, None)]


def test_changes_are_only_those_of_the_offers_asked_for() -> None:
    one_day_later = changes_between(RECORDED, offers_among(RECORDED, {"region": ["eu-west-1"]}), MARCH, MAY)
    assert len(one_day_later) == 1
    assert len(changes_between(RECORDED, EVERY_OFFER, MARCH, MAY)) == 2
