"""A price in a currency, with its day and its source, and the offer that it belongs to."""

from datetime import date

from service.domain.catalog.offer import Offer, Price
from tests.builders.catalogs import catalog
from tests.builders.offers import Priced, priced
from tests.builders.sources import SOURCE


def price_of(given: Priced) -> Price:
    return offer_of(given).price


def offer_of(given: Priced) -> Offer:
    return catalog(given).offers.offer(0)


def test_dollars_per_hour_are_millionths_divided() -> None:
    assert price_of(priced(usd_per_hour=32.7726)).usd_per_hour == 32.7726


def test_an_unknown_price_is_none_and_not_zero() -> None:
    price = price_of(priced(usd_per_hour=None))
    assert price.usd_per_hour is None
    assert price.native_micros_per_hour is None


def test_a_price_keeps_its_amount_in_its_own_currency() -> None:
    price = price_of(priced(usd_per_hour=1.4, currency="CNY", native_per_hour=10.0))
    assert (price.usd_micros_per_hour, price.native_micros_per_hour, price.currency) == (1_400_000, 10_000_000, "CNY")


def test_a_price_names_its_observation_and_its_source() -> None:
    price = price_of(priced(observed_on=date(2024, 4, 2), dated="month", kind="published", note="list price"))
    assert price.observed_on == date(2024, 4, 2)
    assert (price.dated, price.kind, price.source, price.note) == ("month", "published", SOURCE, "list price")
    assert price_of(priced(observed_on=None, dated="unknown")).observed_on is None


def test_an_offer_names_its_place_market_and_term() -> None:
    offer = offer_of(priced(region="eu-west-1", zone="eu-west-1a", market="reserved", term="1yr_all"))
    assert (offer.region, offer.zone, offer.market, offer.term) == ("eu-west-1", "eu-west-1a", "reserved", "1yr_all")
    anywhere = offer_of(priced(region=None))
    assert (anywhere.region, anywhere.zone, anywhere.term) == (None, None, None)
