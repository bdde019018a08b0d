"""One price counts in every part of an answer: the one that is believed on the day."""

from datetime import date, timedelta

import pytest

from service.domain.calibration.coefficients import Coefficient
from service.domain.calibration.price_belief import PriceMovement
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.offer import Offer
from service.domain.catalog.reference import Provider
from service.domain.codes import WarningCode
from service.domain.recommend.answer import Answer
from service.domain.recommend.objective import OBJECTIVES
from service.domain.recommend.recommend import recommend
from service.domain.selection.constraints import Constraints
from tests.builders.catalogs import catalog, provider
from tests.builders.gpus import gpu, precision, rate
from tests.builders.instance_types import instance_type
from tests.builders.offers import Priced, priced
from tests.builders.selection import question_of

DAY = date(2026, 11, 22)
H100 = gpu("h100", rates=(rate("bf16", "accelerated", 989.0),))
MOVEMENT = PriceMovement.of(
    [Coefficient(f"price.{name}", "", value, "", "", 1) for name, value in (("change", 0.4), ("spread", 0.5))]
)
SELLERS = ("one", "two", "three", "four")


def offered(seller: str, usd: float, age_days: int | None, **given: object) -> Priced:
    machine = instance_type("h100", provider=seller, gpu=H100, gpu_count=1)
    day = None if age_days is None else DAY - timedelta(days=age_days)
    return priced(machine, usd, region=None, valid_from=day or date(2025, 1, 1), observed_on=day, **given)


def world(*prices: Priced, day: date = DAY) -> Catalog:
    sellers: dict[str, Provider] = {name: provider(name) for name in SELLERS}
    known = {"bf16": precision("bf16")}
    return catalog(*prices, day=day, price_movement=MOVEMENT, providers=sellers, precisions=known)


FRESH = (offered("two", 2.0, 10), offered("three", 2.2, 10), offered("four", 2.4, 10))


def asked(known: Catalog, **constraints: float) -> Answer:
    cheapest = OBJECTIVES["cheapest"]
    limits = Constraints(precision_any=("bf16",), needs_price=True, **constraints)  # type: ignore[arg-type]
    question = question_of(
        task="training", precisions=("bf16",), constraints=limits, objective=cheapest, limit=10, per_offer=False
    )
    return recommend(question, known)


def sellers(answer: Answer) -> list[str]:
    return [choice.instance_type.provider for choice in answer.choices]


def offer_of(known: Catalog, seller: str) -> Offer:
    return known.offers.offer(known.offers_of(known.index_of[f"{seller}/h100"]).start)


@pytest.mark.parametrize("age", [600, None])
def test_a_fresh_price_within_the_belief_of_an_old_one_ranks_first(age: int | None) -> None:
    known = world(offered("one", 1.7, age), *FRESH)
    old = offer_of(known, "one").price
    assert old.usd_per_hour is not None
    assert old.usd_per_hour < 2.0 < old.usd_per_hour * old.factors[2]
    assert sellers(asked(known))[0] == "two"


def test_a_fresh_price_ranks_as_it_is_listed() -> None:
    known = world(offered("one", 1.7, 20), *FRESH)
    assert sellers(asked(known))[0] == "one"
    assert offer_of(known, "one").price.usd_per_hour == 1.7


def test_a_suspect_price_is_marked_and_does_not_lead() -> None:
    answer = asked(world(offered("one", 0.69, 20), *FRESH))
    assert sellers(answer)[0] == "two"
    (suspect,) = (choice for choice in answer.choices if choice.instance_type.provider == "one")
    assert WarningCode.PRICE_SUSPECT in {warning.code for warning in suspect.warnings}


def test_limits_and_their_relaxation_use_the_believed_price() -> None:
    known = world(offered("one", 1.0, 600), *FRESH)
    believed = offer_of(known, "one").price.usd_per_hour
    assert believed is not None
    assert 1.0 < believed < 2.0
    answer = asked(known, max_usd_per_hour=1.0)
    (rejected,) = (each for each in answer.rejections if each.code == "max_usd_per_hour")
    assert rejected.relaxation is not None
    assert rejected.relaxation.to == {"max_usd_per_hour": believed}
    assert sellers(asked(known, max_usd_per_hour=believed)) == ["one"]


def test_a_fresh_offer_of_a_type_is_not_hidden_by_its_cheaper_old_one() -> None:
    here = offered("one", 1.95, 10, market="on_demand", number=1)
    answer = asked(world(offered("one", 1.7, 600), here, *FRESH))
    assert sellers(answer)[0] == "one"
    assert answer.choices[0].offer.price.listed[0] == 1_950_000


def test_age_is_counted_from_the_day_that_is_asked_about() -> None:
    prices = (offered("one", 1.7, 600), *(offered(name, 2.0, 600) for name in SELLERS[1:]))
    assert sellers(asked(world(*prices, day=DAY - timedelta(days=590))))[0] == "one"
    assert not offer_of(world(*prices, day=DAY - timedelta(days=590)), "one").price.belief.old  # type: ignore[union-attr]
    assert offer_of(world(*prices), "one").price.belief.old  # type: ignore[union-attr]


def test_the_age_of_a_price_is_a_warning_only_where_it_could_change_the_order() -> None:
    def warned(*prices: Priced) -> set[str]:
        answer = asked(world(*prices))
        return {
            choice.instance_type.provider
            for choice in answer.choices
            if WarningCode.PRICE_OLD in {warning.code for warning in choice.warnings}
        }

    assert warned(offered("one", 1.7, 600), *FRESH) == {"one"}
    assert warned(offered("one", 90.0, 600), *FRESH) == set()


def test_the_price_of_a_type_is_that_of_the_offer_that_ranks_first() -> None:
    old = offered("two", 1.9, None, number=1)
    known = world(old, *FRESH)
    assert known.on_demand_prices[known.index_of["two/h100"]] == 2.0
    assert asked(known).choices[0].usd_per_hour == 2.0
