"""Which choices are tied: the bands of their estimates decide, and hardware is not uncertain against itself."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.recommend.objective import NAMED, Objective
from service.domain.recommend.ranking import Uncertain, tie, tie_distance_of_peaks, tied_with, weight_of_speed

wide = st.builds(
    Uncertain,
    score=st.floats(0, 2),
    better=st.floats(0, 1),
    worse=st.floats(0, 1),
    hardware=st.sampled_from(["a", "b", "c"]),
)


def test_a_lead_within_both_bands_is_a_tie() -> None:
    first, second = Uncertain(0.0, 0.3, 0.3, "a"), Uncertain(0.2, 0.3, 0.3, "b")
    assert tied_with(0, [first, second]) == (2,)
    assert tied_with(1, [first, second]) == (1,)


@pytest.mark.parametrize(("worse", "better"), [(0.1, 0.3), (0.3, 0.1)])
def test_a_lead_beyond_either_band_is_none(worse: float, better: float) -> None:
    assert tied_with(0, [Uncertain(0.0, 0.3, worse, "a"), Uncertain(0.2, better, 0.3, "b")]) == ()


def test_of_the_same_hardware_the_cheaper_offer_wins() -> None:
    assert tied_with(0, [Uncertain(0.0, 0.3, 0.3, "a"), Uncertain(0.02, 0.3, 0.3, "a")]) == ()
    assert tied_with(0, [Uncertain(0.02, 0.3, 0.3, "a"), Uncertain(0.02, 0.3, 0.3, "a")]) == (2,)


@given(st.lists(wide, min_size=1, max_size=8))
def test_the_search_for_ties_finds_every_pair_that_is_tied(every: list[Uncertain]) -> None:
    ranked = sorted(every, key=lambda one: one.score)
    for place, one in enumerate(ranked):
        before = [rank for rank, other in enumerate(ranked[:place], 1) if tie(other, one)]
        after = [rank for rank, other in enumerate(ranked[place + 1 :], place + 2) if tie(one, other)]
        assert tied_with(place, ranked) == (*before, *after)


@given(st.lists(wide, min_size=1, max_size=6))
def test_whoever_is_tied_with_one_has_that_one_tied(every: list[Uncertain]) -> None:
    ranked = sorted(every, key=lambda one: one.score)
    ties = {(place, other - 1) for place in range(len(ranked)) for other in tied_with(place, ranked)}
    assert ties == {(other, place) for place, other in ties}
    assert all(place != other for place, other in ties)


def test_dollars_of_a_whole_job_are_as_uncertain_as_its_hours() -> None:
    cheapest = Objective(NAMED["cheapest"])
    assert weight_of_speed(cheapest, has_amount=True) == 1
    assert weight_of_speed(cheapest, has_amount=False) == 0
    assert weight_of_speed(Objective({"hours": 2.0, "joules": 1.0, "risk": 5.0}), has_amount=True) == pytest.approx(0.6)


def test_peaks_within_a_tenth_are_tied_and_prices_are_not() -> None:
    assert tie_distance_of_peaks(Objective(NAMED["fastest"])) == pytest.approx(log(1.1))
    assert tie_distance_of_peaks(Objective(NAMED["cheapest"])) < 1e-6
    assert tie_distance_of_peaks(Objective({"hours": 1.0, "usd": 1.0})) < 1e-6
