"""An order to try: the best first, and then what cannot fail together with it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.domain.recommend.ranking import NO_WORSE_THAN, fallbacks

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
