"""Fitting finds the coefficients that made the data, borrows from similar groups, and keeps to bounds."""

from dataclasses import replace
from math import exp, hypot, log

import pytest

from service.domain.calibration.calibration import calibration_of
from service.domain.calibration.coefficients import Coefficients, StepKind, scope_of
from service.domain.calibration.error_bands import Miss, fitted_bands, unseen
from service.domain.calibration.fit import CalibrationRun, fit

KIND = StepKind(
    "work",
    {
        "*": ((("stack",), 0.5), (("stack", "gpu"), 0.2), (("gpu",), 0.3)),
        "matrix": (((), 1.0),),
        "launch": (((), 1.0),),
    },
    {"matrix": 1.0, "launch": 1.0},
    noise=0.02,
)


def run(matrix: float, launch: float, stack: str, gpu: str, seconds: float, bound: int = 0) -> CalibrationRun:
    return CalibrationRun({"matrix": matrix, "launch": launch}, {"stack": stack, "gpu": gpu}, seconds, bound=bound)


def made(stacks: dict[str, float]) -> list[CalibrationRun]:
    """Runs of a law: twice the matrix work and half the launches, times what a stack costs."""
    return [
        run(matrix, launch, stack, gpu, factor * (2.0 * matrix + 0.5 * launch))
        for stack, factor in stacks.items()
        for gpu in ("a", "b", "c")
        for matrix, launch in ((1.0, 0.1), (0.1, 1.0), (1.0, 1.0), (3.0, 0.5))
    ]


def calibrated(runs: list[CalibrationRun]) -> Coefficients:
    return calibration_of(fit(KIND, runs)).coefficients


def test_the_law_is_found_again() -> None:
    fitted = fit(KIND, made({"fast": 1.0, "slow": 1.5}))
    coefficients = calibration_of(fitted).coefficients
    for one in made({"fast": 1.0, "slow": 1.5}):
        assert sum(coefficients.seconds(KIND, one.ideal, one.features).values()) == pytest.approx(one.seconds, rel=0.02)
    assert {c.name for c in fitted} == {"work.*", "work.matrix", "work.launch"}


OVERLAPPING = replace(KIND, on_host=frozenset({"launch"}), overlap=2.0)


def test_a_host_that_runs_ahead_costs_less_than_its_time_alone() -> None:
    """3 s of matrix work and 4 s of launches: 5 s at p = 2, of which the longer part takes most."""
    parts = OVERLAPPING.overlapped({"matrix": 3.0, "launch": 4.0})
    assert parts == pytest.approx({"matrix": 9 / 5, "launch": 16 / 5})
    assert KIND.overlapped({"matrix": 3.0, "launch": 4.0}) == {"matrix": 3.0, "launch": 4.0}
    one_hides = replace(OVERLAPPING, overlap=60.0).overlapped({"matrix": 3.0, "launch": 4.0})
    assert one_hides == pytest.approx({"matrix": 0.0, "launch": 4.0}, abs=1e-3)


def test_the_law_is_found_again_where_the_host_runs_ahead() -> None:
    runs = [
        replace(one, seconds=factor * hypot(2.0 * one.ideal["matrix"], 0.5 * one.ideal["launch"]))
        for stack, factor in (("fast", 1.0), ("slow", 1.5))
        for one in made({stack: 1.0})
    ]
    coefficients = calibration_of(fit(OVERLAPPING, runs)).coefficients
    for one in runs:
        parts = coefficients.seconds(OVERLAPPING, one.ideal, one.features)
        assert sum(parts.values()) == pytest.approx(one.seconds, rel=0.02)


def test_an_unknown_stack_takes_what_is_common() -> None:
    coefficients = calibrated(made({"fast": 1.0, "slow": 1.5}))
    parts = coefficients.seconds(KIND, {"matrix": 1.0, "launch": 0.1}, {"stack": "new", "gpu": "a"})
    assert 2.05 <= sum(parts.values()) <= 1.5 * 2.05
    assert unseen(coefficients, KIND, {"stack": "new", "gpu": "a", "model": "x"}) == (
        "stack",
    )  # nothing depends on the model


def test_the_many_runs_of_one_source_do_not_decide_what_sources_share() -> None:
    """Twenty runs of a slow source and four of two others: with an effect per source, each of the three counts."""
    runs = [
        replace(run(1.0, 0.1, "fast", "a", seconds), features={"stack": "fast", "source": source})
        for source, seconds, count in (("slow", 4.0, 20), ("one", 2.0, 2), ("other", 2.0, 2))
        for _ in range(count)
    ]
    with_effects = replace(KIND, patterns={**KIND.patterns, "*": (*KIND.patterns["*"], (("source",), 0.5))})
    without, shared = (
        sum(calibration_of(fit(kind, runs)).coefficients.seconds(KIND, runs[0].ideal, {"stack": "fast"}).values())
        for kind in (KIND, with_effects)
    )
    assert without == pytest.approx(4.0, rel=0.02)
    assert shared < 3.2


def test_a_bound_that_holds_does_not_pull() -> None:
    free = calibrated(made({"fast": 1.0}))
    held = calibrated([*made({"fast": 1.0}), run(1.0, 0.1, "fast", "a", 50.0, bound=-1)])
    known = {"stack": "fast", "gpu": "a"}
    assert held.seconds(KIND, {"matrix": 1.0}, known)["matrix"] == pytest.approx(
        free.seconds(KIND, {"matrix": 1.0}, known)["matrix"], rel=1e-3
    )


def test_a_bound_that_is_broken_pulls() -> None:
    runs = [run(1.0, 0.0, "fast", "a", 1.0, bound=1)] * 5 + [run(1.0, 0.0, "slow", "a", 5.0)]
    coefficients = calibrated([*runs, run(1.0, 0.0, "fast", "b", 0.5, bound=-1)])
    assert sum(coefficients.seconds(KIND, {"matrix": 1.0}, {"stack": "fast", "gpu": "b"}).values()) <= 0.55


def test_scopes_name_facts_in_the_order_of_the_pattern() -> None:
    assert scope_of(("stack", "#log"), {"stack": "x", "log": 2.0}) == ("stack=x|#log", 2.0)
    assert scope_of(("stack",), {"stack": ""}) is None
    assert scope_of((), {}) == ("", 1.0)


def test_bands_hold_eight_of_ten_and_never_narrow_for_the_unknown() -> None:
    known = [Miss(KIND, {"family": "llm"}, (), (i - 50) / 100) for i in range(101)]
    new = [Miss(KIND, {"family": "llm"}, ("gpu",), (i - 50) / 1000) for i in range(101)]
    bands = calibration_of(fitted_bands([*known, *new])).bands
    low, high = bands.factors(KIND, {"family": "llm"}, ())
    assert (low, high) == pytest.approx((exp(-0.4), exp(0.4)), rel=0.01)
    wide = bands.factors(KIND, {"family": "llm"}, ("gpu",))
    assert wide[0] <= low
    assert wide[1] >= high
    band = bands.around(10.0, KIND, {"family": "other"}, ("stack", "model"))
    assert band.low <= 10.0 <= band.high


def test_a_group_of_few_errors_takes_part_of_the_band_of_the_next_wider_one() -> None:
    many = [Miss(KIND, {"family": "llm"}, (), (i - 50) / 100) for i in range(101)]
    few = [Miss(KIND, {"family": "moe"}, (), 0.0)] * 15
    bands = calibration_of(fitted_bands([*many, *few])).bands
    low, high = bands.factors(KIND, {"family": "moe"}, ())
    of_many = bands.factors(KIND, {"family": "llm"}, ())
    assert of_many[0] < low < 0.9 < 1.1 < high < of_many[1]


def test_errors_count_with_the_weight_of_their_run() -> None:
    """Errors of up to 0.5 and of up to 5: nine tenths of both are below 3, and nine tenths below 0.45 if the small ones
    weigh 15 times as much.
    """
    for weights, high in (((1.0, 1.0), 3.0), ((3.0, 0.2), 0.43)):
        exact = [Miss(KIND, {"family": "llm"}, (), i / 100, weights[0]) for i in range(-50, 51)]
        rough = [Miss(KIND, {"family": "llm"}, (), i / 10, weights[1]) for i in range(-50, 51)]
        bands = calibration_of(fitted_bands([*exact, *rough])).bands
        assert log(bands.factors(KIND, {"family": "llm"}, ())[1]) == pytest.approx(high, rel=0.03)


@pytest.mark.parametrize("harder", ["burst", "small"])
def test_harder_work_has_bands_of_its_own(harder: str) -> None:
    steady = [Miss(KIND, {"family": "llm"}, (), (i - 50) / 1000) for i in range(101)]
    hard = [Miss(KIND, {"family": "llm", harder: "yes"}, (), (i - 50) / 100) for i in range(101)]
    bands = calibration_of(fitted_bands([*steady, *hard])).bands
    assert bands.factors(KIND, {"family": "llm"}, ())[1] < 1.1
    assert bands.factors(KIND, {"family": "llm", harder: "yes"}, ())[1] > 1.4


def test_a_class_of_stacks_has_bands_of_its_own_where_the_kind_says_so() -> None:
    tuned = [Miss(KIND, {"family": "llm", "class": "megatron"}, (), (i - 50) / 1000) for i in range(101)]
    plain = [Miss(KIND, {"family": "llm", "class": "eager"}, (), (i - 50) / 100) for i in range(101)]
    by_class = replace(KIND, banded_by=(("class",),))
    for kind, narrow in ((KIND, False), (by_class, True)):
        bands = calibration_of(fitted_bands([replace(miss, kind=kind) for miss in [*tuned, *plain]])).bands
        assert (bands.factors(kind, {"family": "llm", "class": "megatron"}, ())[1] < 1.1) == narrow
        assert bands.factors(kind, {"family": "llm", "class": "new"}, ())[1] > 1.1


def test_a_stack_with_runs_has_bands_of_its_own_and_others_those_of_their_class() -> None:
    known = [Miss(KIND, {"family": "llm", "class": "eager", "stack": "ours"}, (), (i - 50) / 1000) for i in range(101)]
    others = [Miss(KIND, {"family": "llm", "class": "eager", "stack": "many"}, (), (i - 50) / 100) for i in range(101)]
    kind = replace(KIND, banded_by=(("stack",), ("class",)))
    bands = calibration_of(fitted_bands([replace(miss, kind=kind) for miss in [*known, *others]])).bands
    high = {
        stack: bands.factors(kind, {**others[0].features, "stack": stack}, ())[1] for stack in ("ours", "many", "new")
    }
    assert high["ours"] < 1.15 < high["new"] < high["many"]


def test_an_unknown_stack_is_estimated_with_caution() -> None:
    """Where runs took 1.25 times the estimate of a question without a stack, such a question is expected to."""
    bands = calibration_of(fitted_bands([], [Miss(KIND, {"family": "llm"}, ("stack",), -0.2)] * 20)).bands
    rate = bands.around(10.0, KIND, {"family": "llm"}, ("stack",))
    seconds = bands.around(0.1, KIND, {"family": "llm"}, ("stack",), of_rate=False)
    assert rate.likely == pytest.approx(10 * exp(-0.2))
    assert seconds.likely == pytest.approx(1 / rate.likely)
    assert bands.around(10.0, KIND, {"family": "llm"}, ("model",)).likely == 10.0


def test_a_rate_with_caution_has_a_band_on_both_sides() -> None:
    """The errors of the group of the band are within 5 %, and its caution of a half is below all of them."""
    errors = [Miss(KIND, {"family": "llm"}, (), (i - 50) / 1000) for i in range(101)]
    unnamed = [Miss(KIND, {"family": "llm"}, ("stack",), log(0.5))] * 20
    bands = calibration_of(fitted_bands(errors, unnamed)).bands
    rate = bands.around(10.0, KIND, {"family": "llm"}, ("stack",))
    known = bands.around(10.0, KIND, {"family": "llm"}, ())
    assert rate.likely == pytest.approx(5.0, rel=1e-3)
    assert rate.low == pytest.approx(5.0 * known.low / known.likely, rel=1e-3)
    assert rate.high == known.high


def test_a_question_without_a_stack_is_as_uncertain_as_one_with_the_usual_class() -> None:
    """The errors of eager stacks are within 50 %, and those of all runs, asked without their stack, within 10 %."""
    kind = replace(KIND, banded_by=(("class",),))
    eager = {"class": "eager", "usual_class": "eager", "family": "cnn"}
    unnamed = {"class": "unknown", "usual_class": "eager", "family": "cnn"}
    errors = [Miss(kind, eager, (), (i - 50) / 100) for i in range(101)]
    errors += [Miss(kind, unnamed, ("stack",), (i - 500) / 5000) for i in range(1001)]
    bands = calibration_of(fitted_bands(errors)).bands
    named, without = bands.around(10.0, kind, eager, ()), bands.around(10.0, kind, unnamed, ("stack",))
    assert without.low <= named.low
    assert without.high >= named.high


def test_errors_to_one_side_leave_room_on_the_other() -> None:
    """A mixture in llama.cpp was said to be never slower than estimated, as all runs were faster."""
    for sign in (1, -1):
        errors = [Miss(KIND, {"family": "moe"}, (), sign * (0.1 + i / 250)) for i in range(101)]
        band = calibration_of(fitted_bands(errors)).bands.around(10.0, KIND, {"family": "moe"}, ())
        sides = sorted((log(band.likely / band.low), log(band.high / band.likely)))
        assert sides[0] == pytest.approx(0.32 / 4, rel=0.02)
        assert sides[1] == pytest.approx(0.46, rel=0.02)


def test_the_caution_is_of_a_family_and_a_new_family_takes_that_of_all() -> None:
    """The family with few runs takes 20 / (20 + 15) of its own median, and the rest of the median of all."""
    llms, detectors = (
        [Miss(KIND, {"family": name}, (), error)] * n
        for name, error, n in (("llm", -0.1, 100), ("detection", -0.4, 20))
    )
    bands = calibration_of(fitted_bands([], [*llms, *detectors])).bands
    caution = {name: bands.caution(KIND, {"family": name}, ("stack",)) for name in ("llm", "detection", "new")}
    assert caution == pytest.approx(
        {"llm": exp(-0.1), "detection": exp(-(20 * 0.4 + 15 * 0.1) / 35), "new": exp(-0.1)}, rel=1e-4
    )


def test_the_caution_is_of_a_method_where_the_kind_has_methods() -> None:
    """Adapters on narrow weights ran at 0.6 of the rate of the formulas, and full training at all of it."""
    full, narrow = (
        [Miss(KIND, {"family": "llm", "method": method}, (), error)] * n
        for method, error, n in (("full", 0.0, 100), ("qlora", -0.5, 20))
    )
    of_methods = replace(KIND, patterns={**KIND.patterns, "*": (*KIND.patterns["*"], (("method",), 0.2))})
    for kind, expected in ((KIND, 1.0), (of_methods, exp(-20 * 0.5 / 35))):
        misses = [replace(miss, kind=kind) for miss in (*full, *narrow)]
        bands = calibration_of(fitted_bands([], misses)).bands
        caution = bands.caution(kind, {"family": "llm", "method": "qlora"}, ("stack",))
        assert caution == pytest.approx(expected, rel=1e-4)
        assert bands.caution(kind, {"family": "llm", "method": "full"}, ("stack",)) == 1.0


def test_a_stack_without_runs_has_a_caution_apart_from_that_of_no_stack() -> None:
    """The coefficients of its class apply to the former only, so that the two miss the published rates differently."""
    named, unnamed = ({"family": "llm", "class": name, "stack": stack} for name, stack in (("tuned", "new"), ("", "")))
    misses = [Miss(KIND, features, ("stack",), error) for features, error in ((named, -0.3), (unnamed, -0.1))]
    bands = calibration_of(fitted_bands([], [miss for miss in misses for _ in range(20)])).bands
    assert bands.caution(KIND, named, ("stack",)) == pytest.approx(exp(-0.3))
    for features in (unnamed, {**unnamed, "class": "unknown", "stack": "of no known class"}):
        assert bands.caution(KIND, features, ("stack",)) == pytest.approx(exp(-0.1))


def test_no_new_stack_is_expected_to_be_faster_than_the_physics_says() -> None:
    """Where new stacks ran at 1.2 times the estimate, the next one is expected at the estimate, with a wider band."""
    faster = [Miss(KIND, {"family": "llm"}, ("stack",), 0.2)] * 20
    bands = calibration_of(fitted_bands(faster, faster)).bands
    for stack in ("new", ""):
        band = bands.around(10.0, KIND, {"family": "llm", "stack": stack}, ("stack",))
        assert band.likely == 10.0
        assert band.high == pytest.approx(10 * exp(0.2))


def test_a_bounded_term_takes_its_ideal_time_and_what_the_fit_adds() -> None:
    kind = replace(KIND, bounded=frozenset({"matrix"}))
    runs = [run(1.0, launch, "fast", "a", 1.2 + 0.5 * launch) for launch in (0.1, 1.0, 3.0)]
    too_fast = [run(1.0, launch, "fast", "b", 0.5) for launch in (0.1, 0.2, 0.3)]
    coefficients = calibration_of(fit(kind, [*runs, *too_fast])).coefficients
    for gpu, seconds in (("a", 1.2), ("b", 1.0)):
        found = coefficients.seconds(kind, {"matrix": 1.0}, {"stack": "fast", "gpu": gpu})["matrix"]
        assert found == pytest.approx(seconds, rel=0.1)
        assert found > 1.0


def test_a_coefficient_keeps_the_sign_of_its_feature() -> None:
    kind = replace(KIND, patterns={"*": ((("gpu",), 1.0), (("stack",), 1.0))}, signs={"gpu": 1, "stack": -1})
    slow, fast = (
        [run(1.0, 0.0, stack, gpu, seconds)] * 5 for stack, gpu, seconds in (("x", "a", 2.0), ("y", "b", 0.5))
    )
    found = {c.scope: c.value for c in fit(kind, [*slow, *fast])}
    assert found == {
        "gpu=a": pytest.approx(0.69, abs=0.02),
        "gpu=b": 0.0,
        "stack=x": 0.0,
        "stack=y": pytest.approx(-0.69, abs=0.02),
    }
