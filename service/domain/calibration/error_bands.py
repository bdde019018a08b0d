"""Error bands of estimates: quantiles of the errors on published runs that were left out of the fit.

Errors are grouped by kind of step, class of stacks, family of the model, and by which features of a question (its GPU,
model or stack) no fitted run has, so that an extrapolation is marked as such and has a wider band.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import exp
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from service.domain.band import Band
from service.domain.calibration.coefficients import (
    Coefficient,
    Coefficients,
    Features,
    StepKind,
    scope_of,
)

NOVELTIES = ("stack", "architecture", "gpu", "model")
"""Features that widen a band if no fitted run has the value of the question."""

HARDER = ("burst", "small")
"""Features of work that is harder to estimate and has groups of errors of its own: requests that are sent all at once,
and small batches of networks that answer in one pass, whose milliseconds vary more than the rates of full GPUs."""

FEWEST_ERRORS = 10
"""Errors that a quantile needs; a group with fewer takes the quantiles of the next wider group."""

UNKNOWN_STACK = "unseen=any stack"
"""Scope of the errors of questions that name no stack, or one of no known class."""

STACK_WITHOUT_RUNS = "unseen=stack of a class"
"""Scope of the errors of questions that name a stack without runs, whose class has some."""

UNKNOWN_BAND = (0.45, 2.0)
"""Low and high factors where no group has errors: about the error of rules of thumb (assumed)."""


def unseen(coefficients: Coefficients, kind: StepKind, features: Features) -> tuple[str, ...]:
    """Returns which of the `NOVELTIES` no fitted run shares with a question. A missing stack counts as new."""
    return tuple(name for name in _fitted_features(kind) if not coefficients.knows(kind, name, features))


@cache
def _fitted_features(kind: StepKind) -> tuple[str, ...]:
    """Returns the `NOVELTIES` with coefficients in a kind of step; the memory of a job has none of the GPU."""
    patterns = {pattern for pattern, _ in kind.patterns["*"]}
    return tuple(name for name in NOVELTIES if (name,) in patterns)


def _has_methods(kind: StepKind) -> bool:
    """Returns whether the methods of training have coefficients in a kind of step."""
    return ("method",) in {pattern for pattern, _ in kind.patterns.get("*", ())}


@dataclass(frozen=True, slots=True)
class ErrorBands:
    """Logarithms of the ends of bands, by name (`band.kind.low`, `high` or `middle`) and scope of a group of errors."""

    values: Mapping[str, Mapping[str, float]]

    def factors(self, kind: StepKind, features: Features, new: Sequence[str]) -> tuple[float, float]:
        """Returns truth ÷ estimate of rates at the 10th and 90th percentile, given the features that are new."""
        low, high = self._narrowest(kind, features, ())
        if not new:
            return low, high
        new_low, new_high = self._narrowest(kind, features, new)
        # A group of few errors may be narrower by chance, but a band must not be narrower because more is new.
        return min(low, new_low), max(high, new_high)

    def _narrowest(self, kind: StepKind, features: Features, new: Sequence[str]) -> tuple[float, float]:
        low, high = (self.values.get(f"band.{kind.name}.{end}", {}) for end in ("low", "high"))
        for scope in _groups(kind, features, new):
            if scope in low and scope in high:
                return exp(low[scope]), exp(high[scope])
        return UNKNOWN_BAND

    def caution(self, kind: StepKind, features: Features, new: Sequence[str]) -> float:
        """Returns the factor on the likely rate where the stack is new: the median of truth ÷ estimate, at most 1.

        The errors are those of the family of the model, and in training of its method. Published stacks are tuned and
        most others are not, so a stack without runs is never expected to be faster than estimated.
        """
        if "stack" not in new:
            return 1.0
        middles = self.values.get(f"band.{kind.name}.middle", {})
        return exp(
            min(0.0, next((middles[scope] for scope in _middle_groups(kind, features) if scope in middles), 0.0))
        )

    def of_feed(self, part: str, rate: float) -> Band:
        """Returns the band of the samples per second that a part of the host, such as its CPUs, loads for the GPUs."""
        low, high = (exp(self.values.get(f"band.{part}.{end}", {}).get("", 0.0)) for end in ("low", "high"))
        return Band(rate * low, rate, rate * high)

    def error_factors(self, kind: StepKind, features: Features, new: Sequence[str]) -> "ErrorFactors":
        """Returns the factors of low, likely and high rates of a question.

        A rate with caution is at least as uncertain as it would be if nothing of the question were new. Without a known
        stack, it is then one of the class whose coefficients count in its place.
        """
        low, high = self.factors(kind, features, new)
        known = {**features, "class": features.get("usual_class", features.get("class", ""))}
        known_low, known_high = self.factors(kind, known, ())
        caution = self.caution(kind, features, new)
        return ErrorFactors(min(low, caution * known_low), max(high, caution * known_high), caution)

    def around(
        self, likely: float, kind: StepKind, features: Features, new: Sequence[str], *, of_rate: bool = True
    ) -> Band:
        """Returns the band around an estimated rate, or around estimated seconds if `of_rate` is false."""
        return self.error_factors(kind, features, new).around(likely, of_rate=of_rate)


@dataclass(frozen=True, slots=True)
class ErrorFactors:
    """Truth ÷ estimate of rates at the 10th and 90th percentile, and the factor on the likely rate."""

    low: float
    high: float
    caution: float

    def around(self, likely: float, *, of_rate: bool = True) -> Band:
        """Returns the band around an estimated rate, or around estimated seconds if `of_rate` is false."""
        low, high, caution = self.low, self.high, self.caution
        if not of_rate:
            # Errors are those of rates, and a time is the inverse of a rate.
            low, high, caution = 1.0 / high, 1.0 / low, 1.0 / caution
        return Band(likely * low, likely, likely * high).with_likely(likely * caution)


def bands_by_gpu(
    coefficients: Coefficients, bands: ErrorBands, kind: StepKind, features: Features, gpus: Sequence[Features]
) -> NDArray[np.float64]:
    """Returns low, likely and high factors of the rate, a row for the features of each GPU; those of an architecture
    without fitted runs are wider.
    """
    new = [unseen(coefficients, kind, {**features, **of_gpu}) for of_gpu in gpus]
    rows: dict[tuple[str, ...], tuple[float, float, float]] = {}
    for novelty, of_gpu in dict(zip(new, gpus, strict=True)).items():
        band = bands.around(1.0, kind, {**features, **of_gpu}, novelty)
        rows[novelty] = (band.low, band.likely, band.high)
    return np.array([rows[novelty] for novelty in new], dtype=np.float64).reshape(-1, 3)


def _groups(kind: StepKind, features: Features, new: Sequence[str]) -> Iterator[str]:
    """Yields the groups of errors of a question, the narrowest first; the last has all errors of its kind."""
    novelty = "+".join(new) or "nothing"
    widest = "stack" if "stack" in new else novelty
    harder = "".join(f"{name}=yes|" for name in HARDER if features.get(name))
    family = f"family={features.get('family', '')}|unseen={novelty}"
    for pattern in kind.banded_by:
        if scope := scope_of(pattern, features):
            yield f"{harder}{scope[0]}|{family}"
    yield harder + family
    yield f"{harder}unseen={novelty}"
    if widest != novelty:
        yield f"{harder}unseen={widest}"
    yield ""


def _middle_groups(kind: StepKind, features: Features) -> tuple[str, ...]:
    """Returns the groups of errors of questions that name no stack with runs, the narrowest first."""
    widest = UNKNOWN_STACK if features.get("class", "") in ("", "unknown") else STACK_WITHOUT_RUNS
    of_family = f"family={features.get('family', '')}|{widest}"
    of_method = f"method={features.get('method', '')}|{of_family}"
    return (*((of_method,) if _has_methods(kind) else ()), of_family, widest)


# The fit

OWN_ERRORS = 15.0
"""Number of errors at which the quantile of a group weighs as much as that of the next wider group."""


SHORTER_SIDE = 0.25
"""Least share of a band on each side of the estimate. The errors of a group may all have one sign, as those of a single
source or model often do; the next question may err to the other side."""


@dataclass(frozen=True, slots=True)
class Miss:
    """The error of an estimate for a published run that was left out of the fit: log(true rate ÷ estimated rate)."""

    kind: StepKind
    features: Features
    new: tuple[str, ...]
    log_error: float
    weight: float = 1.0
    """Weight of the run among others; see `CalibrationRun.weight`."""


Group = tuple[str, str]
"""A kind of step, and a scope of its errors."""


def fitted_bands(misses: Sequence[Miss], without_stack: Sequence[Miss] = (), inside: float = 0.8) -> list[Coefficient]:
    """Returns the ends of bands that contain at least a share (`inside`) of the misses of each group.

    `without_stack` are the misses of the same runs when the question names no stack; their medians are the factors of
    `ErrorBands.caution`. The quantile of a group of n errors weighs n ÷ (n + 15), and that of the next wider group the
    rest. Within a group, each error counts with the weight of its run.
    """
    by_group = _GroupedErrors.of(misses, lambda miss: _groups(miss.kind, miss.features, miss.new))
    fitted = []
    for group in by_group.with_enough:
        low, high = (by_group.quantile(group, at) for at in ((1 - inside) / 2, (1 + inside) / 2))
        side = SHORTER_SIDE * (high - low)
        for end, value in (("low", min(low, -side)), ("high", max(high, side))):
            fitted.append(_coefficient(group, end, value, len(by_group.misses[group])))
    unknown = _GroupedErrors.of(without_stack, lambda miss: _middle_groups(miss.kind, miss.features))
    return fitted + [
        _coefficient(group, "middle", unknown.quantile(group, 0.5), len(unknown.misses[group]))
        for group in unknown.with_enough
    ]


@dataclass(frozen=True, slots=True)
class _GroupedErrors:
    """Errors by group, and for each group the next wider one."""

    misses: Mapping[Group, Sequence[Miss]]
    wider: Mapping[Group, Group]

    @classmethod
    def of(cls, misses: Sequence[Miss], scopes_of: Callable[[Miss], Iterable[str]]) -> "_GroupedErrors":
        by_group: dict[Group, list[Miss]] = {}
        wider: dict[Group, Group] = {}
        for miss in misses:
            groups = [(miss.kind.name, scope) for scope in scopes_of(miss)]
            wider |= pairwise(groups)
            for group in groups:
                by_group.setdefault(group, []).append(miss)
        return cls(by_group, wider)

    @property
    def with_enough(self) -> list[Group]:
        """The groups with enough errors for a quantile, and the groups of all errors of a kind."""
        return [group for group in sorted(self.misses) if len(self.misses[group]) >= FEWEST_ERRORS or not group[1]]

    def quantile(self, group: Group, at: float) -> float:
        """Returns the quantile of a group, averaged with those of wider groups; see `fitted_bands`."""
        own, count = _quantile(self.misses[group], at), len(self.misses[group])
        if group not in self.wider:
            return own
        share = count / (count + OWN_ERRORS)
        return share * own + (1.0 - share) * self.quantile(self.wider[group], at)


def _quantile(misses: Sequence[Miss], at: float) -> float:
    """Returns the quantile of weighted errors, interpolated between them; with equal weights, that of `np.quantile`."""
    ordered = sorted(misses, key=attrgetter("log_error"))
    errors, weights = np.array([(miss.log_error, miss.weight) for miss in ordered]).T
    # The middles of the weights lie at equal distances if the weights are equal, the first at 0 and the last at 1.
    middles = weights.cumsum() - weights / 2.0
    places = (middles - middles[0]) / max(middles[-1] - middles[0], 1e-9)
    return float(np.interp(at, places, errors))


def _coefficient(group: Group, name: str, value: float, errors: int) -> Coefficient:
    kind, scope = group
    return Coefficient(f"band.{kind}.{name}", scope, round(value, 4), "calibrate", kind, errors)
