"""The bill of runs on machines of the seed: that what sellers charge is known where people will ask."""

from datetime import date

import numpy as np
import pytest

from service.domain.band import Band
from service.domain.bill.bill import Bill, HourlyPrice, bill_of
from service.domain.bill.commitments import committed_cost
from service.domain.bill.interruption import Checkpoints
from service.domain.bill.run import BilledRun, StoredData, TransferredData
from service.domain.bill.seller_terms import hourly_price, terms_of
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.offer import Market
from service.domain.catalog.tariffs import commitment_in, storage_classes
from service.domain.money import Exact

TODAY = date(2026, 11, 21)


def bill(catalog: Catalog, instance: str, region: str | None, run: BilledRun, market: Market = "on_demand") -> Bill:
    places = [
        place
        for place in range(len(catalog.offers))
        if catalog.instance_types[catalog.offers.instance_type[place]].id == instance
    ]
    offers = (catalog.offers.offer(place) for place in places)
    offer = next(offer for offer in offers if (offer.region, offer.market) == (region, market))
    kind = catalog.instance_types[offer.instance_type]
    terms = terms_of(catalog.reference, kind, offer, run, catalog.day, Checkpoints(30, 300))
    return bill_of(run, terms)


def test_a_day_on_a_p4d_with_a_volume_and_a_terabyte_out(history: CatalogHistory) -> None:
    run = BilledRun(hours=Band(24, 24, 24), stored=(StoredData("volume", 500, "gp3"),), sent=(TransferredData(1000),))
    found = bill(history.on(date(2024, 6, 1)), "aws/p4d.24xlarge", "us-east-1", run)
    assert found.complete
    assert found.usd is not None
    storage = round(500 * 0.08 / 730 * 24 * 1e6)
    assert found.usd.likely == pytest.approx(24 * 32_772_600 + storage + 81_000_000, abs=2)


def test_hours_were_whole_before_october_2017(history: CatalogHistory) -> None:
    run = BilledRun(hours=Band(1.5, 1.5, 1.5))
    for day, cents in ((date(2017, 9, 30), 180), (date(2017, 10, 2), 135)):
        found = bill(history.on(day), "aws/p2.xlarge", "us-east-1", run)
        assert found.usd is not None
        assert found.usd.likely == cents * 10_000


def test_spot_costs_more_than_its_hours_and_says_what_it_rests_on(history: CatalogHistory) -> None:
    found = bill(history.on(TODAY), "gcp/a2-highgpu-8g", "us-central1", BilledRun(hours=Band(20, 24, 30)), "spot")
    part = found.part("interruption")
    assert part.usd is not None
    assert part.usd.low < part.usd.likely < part.usd.high
    assert part.basis == "prior"


def test_a_year_of_a_p3_pays_from_two_thirds_of_the_year_on(history: CatalogHistory) -> None:
    catalog = history.on(date(2025, 6, 1))
    every = [catalog.offers.offer(place) for place in range(len(catalog.offers))]
    of_p3 = [each for each in every if catalog.instance_types[each.instance_type].id == "aws/p3.2xlarge"]
    year = next(each for each in of_p3 if each.term == "1y_reserved_all_upfront")
    day = next(each for each in of_p3 if (each.market, each.region) == ("on_demand", "us-east-1"))
    kind = catalog.instance_types[year.instance_type]
    commitment = commitment_in(year.term)
    reserved, on_demand = (hourly_price(each.price, kind, each.region) for each in (year, day))
    assert commitment is not None
    assert isinstance(reserved, HourlyPrice)
    assert isinstance(on_demand, HourlyPrice)
    found = committed_cost(commitment, Exact.same(100), 1, reserved, on_demand, None)
    assert found.break_even_utilisation == pytest.approx(1.949201 / 3.06)
    assert found.usd_committed is not None
    assert found.usd_committed.likely == 1_949_201 * 8760


def test_nobodys_usual_price_is_that_of_a_commitment(history: CatalogHistory) -> None:
    catalog = history.on(TODAY)
    firsts = catalog.starts[:-1][np.diff(catalog.starts) > 0]
    assert all(catalog.offers.offer(int(place)).market != "reserved" for place in firsts)


def test_every_term_states_its_commitment(history: CatalogHistory) -> None:
    assert len(history.offers.terms) >= 6
    assert all(commitment_in(term) for term in history.offers.terms)


def test_a_bill_in_euros_adds_up_in_both_currencies(history: CatalogHistory) -> None:
    catalog = history.on(TODAY)
    place = next(
        place
        for place in range(len(catalog.offers))
        if catalog.offers.offer(place).price.currency == "EUR" and catalog.offers.usd_per_hour[place] > 0
    )
    offer = catalog.offers.offer(place)
    kind = catalog.instance_types[offer.instance_type]
    run = BilledRun(hours=Band(1 / 3, 1 / 3, 1 / 3))
    found = bill_of(run, terms_of(catalog.reference, kind, offer, run, catalog.day, Checkpoints(30, 300)))
    assert found.currency == "EUR"
    assert found.usd is not None
    assert found.native is not None
    assert sum(part.usd.likely for part in found.parts if part.usd) == found.usd.likely
    assert sum(part.native.likely for part in found.parts if part.native) == found.native.likely


def test_the_usual_classes_and_sellers_are_there(history: CatalogHistory) -> None:
    reference = history.reference
    assert {"gp3", "s3-standard", "efs-standard", "fsx-lustre-scratch"} <= set(
        storage_classes(price for price in reference.storage_prices if price.provider == "aws")
    )
    assert {rule.provider for rule in reference.billing_rules} >= {
        "aws",
        "azure",
        "gcp",
        "lambda",
        "oci",
        "runpod",
        "vast",
    }
    assert {tier.provider for tier in reference.transfer_prices} >= {"aws", "azure", "gcp", "lambda", "oci"}
