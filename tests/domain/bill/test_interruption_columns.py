"""A column of runs has the hours that each run has alone."""

from math import inf, isfinite

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.band import Band
from service.domain.bill.interruption import Checkpoints, Rates, expect, expected, gang_rate
from service.domain.money import Unknown

checkpoints = st.builds(
    Checkpoints,
    save_seconds=st.sampled_from([0.0, 30.0, 600.0]),
    restart_seconds=st.sampled_from([0.0, 300.0]),
    interval_seconds=st.sampled_from([None, 600.0, 1e5, inf]),
)


@given(
    st.lists(st.tuples(st.floats(0.01, 500), st.floats(1, 3), st.integers(1, 8)), min_size=1, max_size=5),
    st.floats(0.001, 2.0),
    st.floats(1.0, 5.0),
    st.floats(0, 1),
    st.floats(0.1, 1),
    checkpoints,
)
def test_it_equals_the_formulas_of_one_run(
    runs: list[tuple[float, float, int]],
    rate: float,
    times: float,
    together: float,
    available: float,
    saves: Checkpoints,
) -> None:
    hours, spread, nodes = (np.array(column, np.float64) for column in zip(*runs, strict=True))
    same = np.ones(len(runs))
    rates = Rates(same * rate / times, same * rate, same * rate * times, same * together, same * available)
    found = expected(hours, hours * spread, nodes, rates, saves)
    for place, (work, wider, count) in enumerate(runs):
        per_hour = Band(rate / times, rate, rate * times).times(gang_rate(1.0, count, together))
        alone = expect(Band(work, work, work * wider), per_hour, saves, available)
        paid = found.paid[place], found.paid_high[place]
        if isinstance(alone, Unknown):
            assert not all(map(isfinite, paid))
            continue
        assert paid == pytest.approx((alone.hours.likely, alone.hours.high), rel=1e-9)
        assert alone.elapsed is not None
        elapsed = found.elapsed[place], found.elapsed_high[place]
        assert elapsed == pytest.approx((alone.elapsed.likely, alone.elapsed.high), rel=1e-9)


def test_where_nothing_is_believed_the_hours_stay() -> None:
    unknown = np.array([np.nan])
    rates = Rates(unknown, unknown, unknown, unknown, np.ones(1))
    found = expected(np.array([5.0]), np.array([7.0]), np.ones(1), rates, Checkpoints(30, 300))
    assert (found.paid[0], found.paid_high[0], found.elapsed[0]) == (5.0, 7.0, 5.0)
