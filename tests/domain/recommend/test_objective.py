"""Objectives compare ratios to the best figure, in any unit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.recommend.objective import CRITERIA, OBJECTIVES, Figures, Objective, scores

WEIGHED = [name for name, criterion in CRITERIA.items() if criterion.description]
POSITIVE = st.floats(0.01, 1e6)
ROWS = st.lists(st.tuples(POSITIVE, POSITIVE, POSITIVE, st.sampled_from([0.0, 1.0])), min_size=1, max_size=8)


def figures(*rows: tuple[float, float, float, float]) -> Figures:
    usd, speed, watts, risk = (np.array(column) for column in zip(*rows, strict=True))
    return Figures(
        usd, usd, 1 / speed, speed, speed, watts, risk,
        machines=usd, gpu_count=watts, gpu_memory_gb=speed, samples=speed, data_usd=0 * usd,
    )  # fmt: skip


CHEAP_SLOW = (1.0, 10.0, 100.0, 0.0)
DEAR_FAST = (4.0, 100.0, 400.0, 0.0)


@pytest.mark.parametrize(("name", "best"), [("cheapest", 0), ("fastest", 1), ("best_value", 1), ("most_efficient", 1)])
def test_each_named_objective_has_its_own_winner(name: str, best: int) -> None:
    found = scores(OBJECTIVES[name], figures(CHEAP_SLOW, DEAR_FAST))
    assert int(found.argmin()) == best


def test_of_machines_taken_as_cheaper_with_fewer_gpus_one_without_gpus_counts_as_one_with_a_gpu() -> None:
    # Two machines without GPUs, and machines with two GPUs and with one.
    some = figures((2, 1, np.nan, 0), (1, 1, 2, 0), (1, 1, 1, 0))
    assert scores(Objective({"fewer_gpus": 1.0}), some).tolist() == pytest.approx([np.log(2), np.log(2), 0.0])


def test_the_best_at_every_term_scores_zero() -> None:
    found = scores(Objective({"usd": 1, "hours": 5}), figures((1, 100, 1, 0), (2, 50, 1, 0)))
    assert found[0] == 0
    assert found[1] == pytest.approx(1.2 * np.log(2))


def test_doubling_the_price_weighs_as_much_as_halving_the_speed() -> None:
    found = scores(Objective({"usd": 1, "hours": 1}), figures((1, 100, 1, 0), (2, 100, 1, 0), (1, 50, 1, 0)))
    assert found[1] == pytest.approx(found[2])


def test_a_best_figure_that_is_as_good_as_nothing_sets_none_apart() -> None:
    found = scores(Objective({"usd": 1, "hours": 1}), figures((0, 100, 1, 0), (2, 50, 1, 0)))
    np.testing.assert_allclose(found, [0, np.log(2)])


def test_fewer_gpus_count_from_the_usual_number_in_both_directions() -> None:
    machines = figures(*((1, 1, gpus, 0) for gpus in (0, 1, 2, 4, 8)))  # the builder takes the watts as GPUs
    usual = scores(Objective({"fewer_gpus": 1}, usual_gpus=4), machines)
    np.testing.assert_allclose(usual, np.log([4, 4, 2, 1, 2]))
    np.testing.assert_allclose(
        scores(Objective({"fewer_gpus": 1}), machines.each(lambda row: row[1:])), np.log([1, 2, 4, 8])
    )


def test_risk_enters_as_it_is() -> None:
    found = scores(Objective({"usd": 1, "risk": 1}), figures((1, 1, 1, 1), (2, 1, 1, 0)))
    assert found.tolist() == pytest.approx([1.0, np.log(2)])


@given(ROWS, st.dictionaries(st.sampled_from(WEIGHED), st.floats(0.1, 10), min_size=1), st.floats(0.01, 100))
def test_the_unit_of_money_and_of_speed_does_not_matter(
    rows: list[tuple[float, float, float, float]], weights: dict[str, float], factor: float
) -> None:
    asked = figures(*rows)
    usd, speed = asked.usd * factor, asked.speed * factor
    rates = dict.fromkeys(("speed", "paid_speed", "samples"), speed)
    scaled = replace(asked, usd=usd, usd_per_hour=usd, hours=asked.hours / factor, **rates)
    np.testing.assert_allclose(scores(Objective(weights), asked), scores(Objective(weights), scaled), atol=1e-6)


@given(ROWS, st.dictionaries(st.sampled_from(WEIGHED), st.floats(0.1, 10), min_size=1), st.floats(1e-12, 1e12))
def test_only_the_ratios_of_the_weights_count(
    rows: list[tuple[float, float, float, float]], weights: dict[str, float], factor: float
) -> None:
    scaled = {term: weight * factor for term, weight in weights.items()}
    np.testing.assert_allclose(scores(Objective(weights), figures(*rows)), scores(Objective(scaled), figures(*rows)))


@given(ROWS, st.integers(0, 7), st.floats(1, 100))
def test_raising_a_price_never_improves_its_score_under_cheapest(
    rows: list[tuple[float, float, float, float]], which: int, factor: float
) -> None:
    which %= len(rows)
    raised = [(usd * factor if place == which else usd, *rest) for place, (usd, *rest) in enumerate(rows)]
    before = scores(OBJECTIVES["cheapest"], figures(*rows))
    after = scores(OBJECTIVES["cheapest"], figures(*raised))  # type: ignore[arg-type]
    worse_before = int((before > before[which] + 1e-9).sum())
    worse_after = int((after > after[which] + 1e-9).sum())
    assert worse_after <= worse_before
