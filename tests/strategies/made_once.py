"""Strategies that are made once for all draws: Hypothesis checks each new one, which takes longer than to draw."""

from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

made_once = lru_cache(maxsize=None, typed=True)  # 1 and 1.0 are equal, and another strategy


@made_once
def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


@made_once
def maybe(*values: Any) -> st.SearchStrategy[Any]:
    """None half of the time."""
    return st.one_of(st.none(), one_of(*values))


@made_once
def whole(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most)


@made_once
def between(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high)
