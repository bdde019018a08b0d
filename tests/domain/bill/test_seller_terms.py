"""The terms of an offer, from the facts of the catalog."""

from datetime import date
from typing import Any

import pytest

from service.domain.bill.bill import HourlyPrice, SellerTerms, bill_of
from service.domain.bill.interruption import Checkpoints, Expectation
from service.domain.bill.run import BilledRun, StoredData, TransferredData
from service.domain.bill.seller_terms import terms_of
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.tariffs import InterruptionPrior
from service.domain.errors import UnknownName
from service.domain.money import Unknown
from tests.builders.bills import AWS_OUT, fee, rate, rule, run, stored_at
from tests.builders.catalogs import catalog
from tests.builders.instance_types import instance_type
from tests.builders.offers import Priced, priced
from tests.builders.sources import DAY

PRIOR = InterruptionPrior("spot", "", "", date(2023, 8, 31), 0.1, 0.2, 0.5, 0.9, 0.7, "a-test", None)
CHECKPOINTS = Checkpoints(30, 420)


def world(*prices: Priced) -> Catalog:
    return catalog(
        *prices,
        exchange_rates=(rate("EUR", 1.07, date(2024, 4, 1)), rate("EUR", 1.09, date(2024, 6, 1))),
        billing_rules=(rule(), rule(1, 3600, machine="bare_metal")),
        storage_prices=(stored_at(0.08),),
        transfer_prices=AWS_OUT,
        fees=(
            fee(15.0),
            fee(25.0, family=""),
            fee(40.0, family="p4d.small"),
            fee(50.0, family="p4d.small", valid_from=date(2099, 1, 1)),
            fee(60.0, family="p4d.large", service="vertex-ai-training"),
        ),
        interruption_priors=(PRIOR,),
    )


def found(price: Priced, asked: BilledRun | None = None, **given: Any) -> SellerTerms:
    known = world(price)
    offer = known.offers.offer(0)
    kind = known.instance_types[offer.instance_type]
    return terms_of(known.reference, kind, offer, asked or run(), DAY, CHECKPOINTS, **given)


def test_an_on_demand_offer_has_its_price_rule_and_no_interruptions() -> None:
    terms = found(priced(usd_per_hour=32.7726))
    assert terms.price == HourlyPrice(32_772_600, "USD", "api", "a-test")
    assert terms.rule == rule()
    assert terms.interruptions is None
    assert terms.fee is None
    assert bill_of(run(1.0), terms).usd is not None


def test_money_is_converted_at_the_rate_of_the_day_of_the_price() -> None:
    terms = found(priced(usd_per_hour=2.675, currency="EUR", native_per_hour=2.5, valid_from=date(2024, 5, 1)))
    assert terms.rate is not None
    assert terms.rate.on == date(2024, 4, 1)
    bill = bill_of(run(2.0), terms)
    assert bill.usd is not None
    assert (bill.currency, bill.usd.likely) == ("EUR", 5_350_000)


def test_a_price_that_is_not_known_keeps_its_reason() -> None:
    terms = found(priced(usd_per_hour=None, note="on request"))
    reason = "The price of an hour of aws/p4d.24xlarge in us-east-1 is not known: on request."
    assert terms.price == Unknown(reason)


def test_spot_is_interrupted_as_often_as_is_believed() -> None:
    terms = found(priced(market="spot"), run(24.0, nodes=4))
    assert isinstance(terms.interruptions, Expectation)
    assert terms.interruptions.per_hour.likely == pytest.approx(0.2 * 1.3)


def test_bare_metal_has_the_rule_of_bare_metal() -> None:
    terms = found(priced(instance_type("m7i.metal", bare_metal=True)))
    assert terms.rule == rule(1, 3600, machine="bare_metal")


def test_a_managed_service_has_the_premium_of_the_family_or_of_all() -> None:
    assert found(priced(), service="sagemaker-training").fee == fee(15.0)
    assert found(priced(instance_type("p4d.small")), service="sagemaker-training").fee == fee(40.0, family="p4d.small")
    # A surcharge of another service on one machine says nothing of this service.
    assert found(priced(instance_type("p4d.large")), service="sagemaker-training").fee == fee(15.0)
    other = priced(instance_type("g5.xlarge"))
    assert found(other, service="sagemaker-training").fee == fee(25.0, family="")
    assert isinstance(found(other, service="vertex-ai-training").fee, Unknown)


def test_a_twin_contains_the_premium_whatever_is_asked() -> None:
    twin = priced(instance_type("ml.p4d.24xlarge", twin_of="p4d.24xlarge"))
    assert found(twin, service="sagemaker-training").fee == "contained"
    assert found(twin).fee == "contained"


def test_storage_and_transfer_are_entries_next_to_those_of_the_run() -> None:
    asked = run(stored=(StoredData("volume", 10, "gp3"),), sent=(TransferredData(10), TransferredData(10, "region")))
    terms = found(priced(), asked)
    assert terms.storage == (stored_at(0.08),)
    assert terms.transfer[0] == AWS_OUT
    assert isinstance(terms.transfer[1], Unknown)


def test_an_unknown_storage_class_is_reported_with_near_names() -> None:
    with pytest.raises(UnknownName, match=r"No storage class is called 'gp33'\. Did you mean gp3\?") as answer:
        found(priced(), run(stored=(StoredData("volume", 10, "gp33"),)))
    assert answer.value.field == "storage.class"
