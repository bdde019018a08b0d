"""Sets of types against the plain look at every type."""

from math import isnan, nan

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.domain.typeset import (
    ThresholdIndex,
    TypeSet,
    first_of,
    in_any_and_in_one,
    mask_of,
    types_by_code,
    types_where,
    union,
)

NUMBERS = st.lists(st.sampled_from([nan, 0.0, 1.5, 2.0, 8.0, 96.0]), max_size=40)
CODES = st.lists(st.integers(-1, 5), max_size=40)
LIMITS = st.sampled_from([-1.0, 0.0, 1.0, 1.5, 8.0, 100.0])


def members(types: TypeSet, count: int) -> set[int]:
    return set(np.flatnonzero(mask_of(types, count)).tolist())


@given(NUMBERS, LIMITS)
def test_a_limit_finds_the_types_that_a_comparison_finds(numbers: list[float], limit: float) -> None:
    column, count = np.array(numbers, np.float64), len(numbers)
    steps = ThresholdIndex.of(column)
    assert steps.below(limit) == types_where(column < limit)
    assert steps.at_most(limit) == types_where(column <= limit)
    assert steps.above(limit) == types_where(column > limit)
    assert members(steps.first[-1], count) == {place for place, number in enumerate(numbers) if not isnan(number)}


@given(NUMBERS, st.integers(0, 2**40 - 1))
def test_the_least_and_the_most_of_some_types(numbers: list[float], drawn: int) -> None:
    some = drawn & ((1 << len(numbers)) - 1)
    known = [numbers[place] for place in members(some, len(numbers)) if not isnan(numbers[place])]
    steps = ThresholdIndex.of(np.array(numbers, np.float64))
    if known:
        assert steps.least(some) == min(known)
        assert steps.greatest(some) == max(known)


@given(CODES)
def test_types_are_found_by_their_code(codes: list[int]) -> None:
    by_code = types_by_code(np.array(codes, np.int32))
    assert list(by_code) == sorted({code for code in codes if code >= 0})
    for code, types in by_code.items():
        assert members(types, len(codes)) == {index for index, other in enumerate(codes) if other == code}


@given(st.lists(st.integers(0, 2**10 - 1), max_size=5))
def test_the_types_in_any_set_and_in_just_one_are_what_counting_finds(sets: list[TypeSet]) -> None:
    counts = [sum(types >> index & 1 for types in sets) for index in range(10)]
    in_any, in_one = in_any_and_in_one(sets)
    assert union(sets) == in_any == types_where(np.array(counts) > 0)
    assert in_one == types_where(np.array(counts) == 1)


@given(st.integers(0, 2**40 - 1))
def test_the_first_of_a_set_are_those_of_its_mask_in_order(types: TypeSet) -> None:
    assert first_of(types, 40) == sorted(members(types, 40))
    assert first_of(types, 3) == sorted(members(types, 40))[:3]
