"""Which choices are tied, and an order to try: the best first, and then what cannot fail together with it."""

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.recommend.objective import OBJECTIVES, Objective
from service.domain.recommend.ranking import (
    NO_WORSE_THAN,
    Uncertain,
    fallbacks,
    tie,
    tie_distance_of_peaks,
    ties,
    weight_of_speed,
)

wide = st.builds(
    Uncertain,
    score=st.floats(0, 2),
    better=st.floats(0, 1),
    worse=st.floats(0, 1),
    hardware=st.sampled_from(["a", "b", "c"]),
    price_better=st.floats(0, 1),
    price_worse=st.floats(0, 1),
)


def test_a_lead_within_both_bands_is_a_tie() -> None:
    first, second = Uncertain(0.0, 0.3, 0.3, "a"), Uncertain(0.2, 0.3, 0.3, "b")
    assert ties([first, second], 2)[0] == (2,)
    assert ties([first, second], 2)[1] == (1,)


@pytest.mark.parametrize(("worse", "better"), [(0.1, 0.3), (0.3, 0.1)])
def test_a_lead_beyond_either_band_is_none(worse: float, better: float) -> None:
    assert ties([Uncertain(0.0, 0.3, worse, "a"), Uncertain(0.2, better, 0.3, "b")], 2)[0] == ()


def test_of_the_same_hardware_the_cheaper_offer_wins() -> None:
    assert ties([Uncertain(0.0, 0.3, 0.3, "a"), Uncertain(0.02, 0.3, 0.3, "a")], 2)[0] == ()
    assert ties([Uncertain(0.02, 0.3, 0.3, "a"), Uncertain(0.02, 0.3, 0.3, "a")], 2)[0] == (2,)


def test_of_the_same_hardware_uncertain_prices_can_change_the_order() -> None:
    first, second = Uncertain(0.0, 0, 0, "a", 0.1, 0.0), Uncertain(0.2, 0, 0, "a", 0.1, 0.3)
    assert ties([first, second], 2)[0] == ()
    assert ties([first._replace(price_worse=0.11), second], 2)[0] == (2,)
    assert ties([first, second._replace(price_better=0.21)], 2)[0] == (2,)


@given(st.lists(wide, min_size=1, max_size=8))
def test_the_search_for_ties_finds_every_pair_that_is_tied(ranked: list[Uncertain]) -> None:
    for place, one in enumerate(ranked):
        expected = []
        for other, rival in enumerate(ranked):
            first, second = (one, rival) if (one.score, place) < (rival.score, other) else (rival, one)
            if other != place and tie(first, second):
                expected.append(other + 1)
        assert ties(ranked, len(ranked))[place] == tuple(expected)


@given(st.lists(wide, min_size=1, max_size=6))
def test_ties_are_mutual(ranked: list[Uncertain]) -> None:
    pairs = {(place, other - 1) for place, others in enumerate(ties(ranked, len(ranked))) for other in others}
    assert pairs == {(other, place) for place, other in pairs}
    assert all(place != other for place, other in pairs)


@given(st.lists(wide, min_size=1, max_size=8), st.integers(1, 8))
def test_choices_that_are_not_shown_change_no_tie(ranked: list[Uncertain], shown: int) -> None:
    assert ties(ranked, shown) == ties(ranked, len(ranked))[:shown]


def test_dollars_of_a_whole_job_are_as_uncertain_as_its_hours() -> None:
    cheapest = OBJECTIVES["cheapest"]
    assert weight_of_speed(cheapest, has_amount=True) == 1
    assert weight_of_speed(cheapest, has_amount=False) == 0
    assert weight_of_speed(Objective({"hours": 2.0, "joules": 1.0, "risk": 5.0}), has_amount=True) == pytest.approx(0.6)


def test_peaks_within_a_tenth_are_tied_and_prices_are_not() -> None:
    assert tie_distance_of_peaks(OBJECTIVES["fastest"]) == pytest.approx(log(1.1))
    assert tie_distance_of_peaks(OBJECTIVES["cheapest"]) < 1e-6
    assert tie_distance_of_peaks(Objective({"hours": 1.0, "usd": 1.0})) < 1e-6


# Fallbacks

rows = st.lists(
    st.tuples(st.floats(0, 2), st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=12
).map(sorted)


def columns(found: list[tuple[float, int, int, int]]) -> list[np.ndarray]:
    return [np.array(column) for column in zip(*found, strict=True)]


def test_the_next_one_differs_in_family_and_region() -> None:
    score = np.array([0.0, 0.1, 0.2, 0.3])
    family, region = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    assert fallbacks(score, (family, region), 2).tolist() == [0, 3]
    assert fallbacks(score, (family, region), 4).tolist() == [0, 3, 1, 2]


def test_what_is_more_than_twice_as_bad_comes_after_what_is_not() -> None:
    score = np.array([0.0, 0.1, NO_WORSE_THAN + 0.1])
    family = np.array([0, 0, 1])
    assert fallbacks(score, (family,), 3).tolist() == [0, 1, 2]


def test_what_is_just_twice_as_bad_is_not_worse() -> None:
    score = np.array([0.0, 0.1, abs(np.log(0.1 / 0.2)), abs(np.log(0.3 / 0.6))])
    assert fallbacks(score, (np.array([0, 0, 1, 2]),), 3).tolist() == [0, 2, 3]


@given(rows, st.integers(1, 5))
def test_it_takes_each_at_most_once_the_best_first(found: list[tuple[float, int, int, int]], limit: int) -> None:
    score, *domains = columns(found)
    taken = fallbacks(score, domains, limit).tolist()
    assert taken[0] == 0
    assert len(taken) == len(set(taken)) == min(limit, len(found))


@given(rows, st.integers(1, 5))
def test_no_type_is_taken_twice_where_one_of_each_is_asked(
    found: list[tuple[float, int, int, int]], limit: int
) -> None:
    score, family, region, kind = columns(found)
    taken = fallbacks(score, (family, region), limit, kind)
    assert len(taken) == min(limit, len(set(kind.tolist()))) == len(set(kind[taken].tolist()))
