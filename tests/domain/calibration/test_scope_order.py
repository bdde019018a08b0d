"""GPUs that are better in every figure, and less recomputation, never have the larger coefficient."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.calibration.coefficients import Coefficient
from service.domain.calibration.scope_order import CHECKPOINTING, LESS_RECOMPUTATION, LIKE, in_order
from service.domain.catalog.hardware import better_gpus
from tests.builders.gpus import gpu

CHAIN = "abcdef"
"""GPUs of which each is better than those before it."""

BETTER = {name: frozenset(CHAIN[index + 1 :]) for index, name in enumerate(CHAIN)}


def fitted(name: str, value: float, runs: int, rest: str = "") -> Coefficient:
    return Coefficient("training.*", f"{rest}gpu={name}", value, "calibrate", "training", runs)


def values(coefficients: list[Coefficient]) -> dict[str, float]:
    return {each.scope.split("=")[-1]: each.value for each in coefficients}


tables = st.dictionaries(st.sampled_from(CHAIN), st.tuples(st.floats(-0.5, 0.5), st.integers(1, 200)), min_size=1)


@given(tables)
def test_a_better_gpu_never_has_the_larger_coefficient(table: dict[str, tuple[float, int]]) -> None:
    ordered = in_order([fitted(name, *entry) for name, entry in table.items()], BETTER)
    found = values(ordered)
    assert all(found.get(better, 0.0) <= found.get(worse, 0.0) for worse, better in pairwise(CHAIN))
    weighted = sum(each.n * each.value for each in ordered)
    assert weighted == pytest.approx(sum(value * runs for value, runs in table.values()), abs=0.01)
    assert {name for name in table if f"gpu={name}" in {each.scope for each in ordered}} == set(table)


def test_gpus_in_the_wrong_order_share_the_mean_of_their_runs() -> None:
    ordered = in_order([fitted("a", 0.0, 30, "stack=x|"), fitted("b", 0.2, 10, "stack=x|")], BETTER)
    assert {each.scope: each.value for each in ordered if each.n} == {"stack=x|gpu=a": 0.05, "stack=x|gpu=b": 0.05}


def test_a_gpu_without_runs_takes_what_keeps_the_order_and_stays_new() -> None:
    ordered = in_order([fitted("b", -0.2, 10)], BETTER)
    assert values(ordered) == {"b": -0.2, "c": -0.2, "d": -0.2, "e": -0.2, "f": -0.2}
    assert {each.scope for each in ordered} == {"gpu=b", *(f"{LIKE}={name}" for name in "cdef")}


def test_gpus_of_which_neither_is_better_keep_their_coefficients() -> None:
    known = [
        fitted("a", 0.0, 30),
        fitted("b", 0.2, 10),
        Coefficient("training.*", "stack=x", 0.1, "calibrate", "training", 3),
        Coefficient("training.*", "several", 0.1, "calibrate", "training", 3),
    ]
    assert set(in_order(known, {"a": frozenset(), "b": frozenset()})) == set(known)


def test_a_better_gpu_sustains_no_less() -> None:
    """A card with a slightly higher peak and a far lower base clock sustains less."""
    steady = gpu("steady", base_clock_mhz=1400.0, boost_clock_mhz=1500.0)
    rates = [replace(rate, dense_tflops=(rate.dense_tflops or 0) * 1.1) for rate in steady.rates.values()]
    peaked = gpu("peaked", rates=rates, base_clock_mhz=600.0, boost_clock_mhz=1650.0)
    assert better_gpus([steady, peaked]) == {"steady": frozenset(), "peaked": {"steady"}}
    assert better_gpus([steady, replace(peaked, base_clock_mhz=1400.0)]) == {
        "steady": {"peaked"},
        "peaked": frozenset(),
    }


def test_a_better_gpu_is_no_worse_in_bandwidth_power_and_peaks() -> None:
    """The size of the memory is no speed: the V100 with 16 GB and that with 32 GB are one card to the fit."""
    small, large = gpu("small"), gpu("large", memory_gb=80.0)
    weak, other = gpu("weak", memory_gb=80.0, tdp_watts=300.0), gpu("other", memory_gb=80.0, architecture="hopper")
    unknown = gpu("unknown", memory_gb=80.0, tdp_watts=None)
    assert better_gpus([small, large, weak, other, unknown]) == {
        "small": {"large"}, "large": {"small"}, "weak": {"small", "large"}, "other": set(),
    }  # fmt: skip


def test_cards_that_differ_by_the_size_of_their_memory_alone_share_a_coefficient() -> None:
    better = {"small": frozenset({"large"}), "large": frozenset({"small"}), "like": frozenset({"small", "large"})}
    for small, large in ((0.0, 0.2), (0.2, 0.0)):
        ordered = in_order([fitted("small", small, 30), fitted("large", large, 10)], better)
        values = {each.scope.rpartition("=")[2]: each.value for each in ordered}
        assert values["small"] == values["large"] == pytest.approx((30 * small + 10 * large) / 40)


def test_more_recomputation_never_has_the_smaller_coefficient() -> None:
    def of(checkpointing: str, stack: str, value: float, runs: int) -> Coefficient:
        scope = f"checkpointing={checkpointing}|stack={stack}"
        return Coefficient("training.*", scope, value, "calibrate", "training", runs)

    fitted = [of("full", "a", -0.04, 6), of("none", "a", 0.02, 4), of("selective", "b", -0.06, 5)]
    ordered = in_order(fitted, LESS_RECOMPUTATION, CHECKPOINTING, CHECKPOINTING)
    values = {each.scope: (each.value, each.n) for each in ordered}
    assert values == {
        "checkpointing=full|stack=a": (-0.016, 6),
        "checkpointing=none|stack=a": (-0.016, 4),
        "checkpointing=selective|stack=a": (-0.016, 0),
        "checkpointing=selective|stack=b": (-0.06, 5),
        "checkpointing=none|stack=b": (-0.06, 0),
    }
