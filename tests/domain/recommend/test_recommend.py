"""Question in, answer out."""

from typing import Any

import pytest

from service.domain.catalog.catalog import Catalog
from service.domain.recommend.answer import Answer, Question
from service.domain.recommend.objective import OBJECTIVES, Objective
from service.domain.recommend.recommend import recommend
from service.domain.selection.constraints import Constraints
from tests.builders.catalogs import catalog
from tests.builders.gpus import gpu, precision, rate
from tests.builders.instance_types import instance_type
from tests.builders.offers import Priced, priced
from tests.builders.selection import question_of, rejects_by_code

T4 = gpu("t4", rates=(rate("fp16", "accelerated", 65.0), rate("fp32", "native", 8.1)), tdp_watts=70.0)
H100 = gpu("h100", rates=(rate("bf16", "accelerated", 989.0),), tdp_watts=700.0)
UNTOLD = gpu("untold", rates=(rate("bf16", "accelerated", None),), tdp_watts=None)
SLOW = instance_type("slow", gpu=T4, gpu_count=1)
FAST = instance_type("fast", gpu=H100, gpu_count=8)
SILENT = instance_type("silent", gpu=UNTOLD, gpu_count=1)
CPU_ONLY = instance_type("cpu", gpu=None, gpu_count=0, vcpus=16.0, interconnect=None)


PRECISIONS = {name: precision(name) for name in ("bf16", "fp16", "fp32")}


def world_of(*prices: Priced, **given: Any) -> Catalog:
    return catalog(*prices, precisions=PRECISIONS, **given)


def question(objective: str = "cheapest", *, task: str = "training", **given: Any) -> Question:
    weights = OBJECTIVES[objective]
    precisions = given.get("precisions", ())
    asked = {
        "precision_any": precisions or (("bf16", "fp16", "fp32") if task == "training" else ()),
        "needs_price": weights.needs("price"),
        "needs_peak": weights.needs("speed"),
        **given.pop("constraints", {}),
    }
    plain = {
        "task": task,
        "precisions": (),
        "objective": weights,
        "current_instance": None,
        "limit": 5,
        "per_offer": False,
    }
    return question_of(**{**plain, **given, "constraints": Constraints(**asked)})


def names(answer: Answer) -> list[str]:
    return [choice.instance_type.name for choice in answer.choices]


@pytest.mark.parametrize(
    ("objective", "order"),
    [
        ("cheapest", ["slow", "fast"]),
        ("fastest", ["fast", "slow"]),
        ("best_value", ["fast", "slow"]),
        ("most_efficient", ["fast", "slow"]),
    ],
)
def test_each_objective_ranks_by_its_own_figure(objective: str, order: list[str]) -> None:
    world = world_of(priced(SLOW, 1.0), priced(FAST, 50.0))
    assert names(recommend(question(objective), world)) == order


@pytest.mark.parametrize("weight", [1e-15, 1e-9, 1.0, 1e12])
def test_only_the_ratios_of_weights_count(weight: float) -> None:
    world = world_of(priced(SLOW, 1.0), priced(FAST, 50.0))
    asked = question("fastest")._replace(objective=Objective({"hours": weight}))
    answer = recommend(asked, world)
    assert names(answer) == ["fast", "slow"]
    assert [choice.tied.ranks for choice in answer.choices] == [(), ()]


def test_of_tied_choices_the_cheaper_comes_first_however_their_sums_round() -> None:
    several = [instance_type(f"x{count}", gpu=T4, gpu_count=count) for count in (1, 3, 5, 7)]
    world = world_of(*(priced(kind, 0.526 * kind.gpu_count) for kind in several))
    assert names(recommend(question("best_value"), world)) == ["x1", "x3", "x5", "x7"]


def test_the_first_precision_that_runs_is_the_one_assumed() -> None:
    world = world_of(priced(SLOW, 1.0), priced(FAST, 50.0))
    answer = recommend(question("fastest", precisions=("fp16", "bf16")), world)
    assert [(choice.precision, choice.speed) for choice in answer.choices] == [("bf16", 8 * 989.0), ("fp16", 65.0)]


def test_an_unknown_peak_is_a_rejection_only_where_the_objective_needs_it() -> None:
    world = world_of(priced(SLOW, 1.0), priced(FAST, 50.0), priced(SILENT, 0.5))
    assert names(recommend(question("cheapest"), world))[0] == "silent"
    fastest = recommend(question("fastest"), world)
    assert "silent" not in names(fastest)
    assert rejects_by_code(fastest)["peak_unknown"] == 1
    assert rejects_by_code(recommend(question("most_efficient"), world))["power_unknown"] == 1


def test_a_machine_without_a_gpu_is_turned_away_for_its_precision_and_counted_once() -> None:
    world = world_of(priced(SLOW, 1.0), priced(FAST, 50.0), priced(CPU_ONLY, 0.1))
    answer = recommend(question("fastest"), world)
    assert rejects_by_code(answer) == {"precision": 1}
    assert (answer.considered, answer.admitted) == (3, 2)


def test_work_that_needs_no_gpu_may_run_on_a_machine_without_one() -> None:
    world = world_of(priced(SLOW, 1.0), priced(CPU_ONLY, 0.1))
    assert names(recommend(question("cheapest", task="sequential"), world)) == ["cpu", "slow"]


def test_of_equal_offers_on_demand_comes_before_spot_and_they_are_tied() -> None:
    twin = instance_type("twin", gpu=FAST.gpu, gpu_count=8)
    world = world_of(priced(FAST, 10.0, market="spot"), priced(twin, 10.0, market="on_demand"), priced(SLOW, 99.0))
    answer = recommend(question("cheapest"), world)
    assert names(answer) == ["twin", "fast", "slow"]
    assert [choice.tied.ranks for choice in answer.choices] == [(2,), (1,), ()]


def test_the_front_holds_what_nothing_beats_on_both_price_and_speed() -> None:
    worse = instance_type("worse", gpu=SLOW.gpu, gpu_count=1)
    world = world_of(priced(SLOW, 1.0), priced(worse, 2.0), priced(FAST, 50.0))
    answer = recommend(question("cheapest"), world)
    assert {choice.instance_type.name: choice.pareto for choice in answer.choices} == {
        "slow": True,
        "worse": False,
        "fast": True,
    }


@pytest.mark.parametrize(("objective", "order"), [("cheapest", ["slow", "fast"]), ("best_value", ["fast", "slow"])])
def test_without_any_price_fewer_gpus_are_cheaper_and_the_faster_gpu_has_more_value(
    objective: str, order: list[str]
) -> None:
    world = world_of(priced(SLOW, None), priced(FAST, None))
    answer = recommend(question(objective), world)
    assert names(answer) == order
    assert answer.price_ignored


def test_one_known_price_is_enough_to_rank_by_price() -> None:
    world = world_of(priced(SLOW, 3.0), priced(FAST, None))
    answer = recommend(question("cheapest"), world)
    assert names(answer) == ["slow"]
    assert rejects_by_code(answer) == {"price_unknown": 1}
    assert not answer.price_ignored


def test_the_current_machine_is_priced_at_its_cheapest_offer_where_the_caller_looks() -> None:
    world = world_of(priced(SLOW, 3.0, region="us-west-2"), priced(SLOW, 1.0, region="eu-west-1"), priced(FAST, 9.0))
    answer = recommend(question(current_instance="aws/slow", constraints={"region": ("us-west-2",)}), world)
    assert answer.current is not None
    assert answer.current.offer.price.usd_per_hour == 3.0


def test_every_offer_is_ranked_when_asked_per_offer() -> None:
    world = world_of(priced(SLOW, 3.0, region="us-west-2"), priced(SLOW, 1.0, region="eu-west-1"), priced(FAST, 9.0))
    answer = recommend(question(per_offer=True), world)
    assert [choice.offer.price.usd_per_hour for choice in answer.choices] == [1.0, 3.0, 9.0]
    assert answer.ranked == 3


def test_an_empty_catalog_answers_too() -> None:
    answer = recommend(question(), world_of(instance_types=[instance_type("lonely")]))
    assert answer.choices == ()
    assert rejects_by_code(answer) == {"no_offer": 1}
