"""Coefficients: the factors between the ideal and the real time of each term of a step, looked up by scope.

The logarithm of a term's factor is the sum of the coefficients whose scopes match the features of a question, from
broad scopes (all work of this kind) to narrow ones (this stack on this GPU). A value of a feature that no published run
has adds nothing, so a new GPU takes the factors of its architecture, and a new release those of its stack.
Features are names and counts of the workload, and not rates of the hardware, so that a faster machine is never
estimated to be slower.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import exp
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Number

Features = Mapping[str, str | float]
"""Feature → its value for a question, a name or a number. They select coefficients."""


@dataclass(frozen=True, slots=True)
class Levels:
    """A feature whose name differs between the rows of a table: `codes` has the index into `names` of each row."""

    names: tuple[str, ...]
    codes: NDArray[np.int64]


Column: TypeAlias = Levels | NDArray[np.float64]
"""A feature of many questions: a name or a number for each row of a table."""

Pattern = tuple[str, ...]
"""Features that form a scope. A feature that begins with `#` is a number, and multiplies the coefficient."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A row of the calibration: the logarithm of a factor in a scope, fitted to `n` runs or errors."""

    name: str
    scope: str
    value: float
    source: str
    fitted_on: str
    n: int


@dataclass(frozen=True, slots=True, eq=False)
class StepKind:
    """Work that is calibrated together, with the patterns of its terms and how they combine to a step."""

    name: str
    patterns: Mapping[str, Sequence[tuple[Pattern, float]]]
    """Term → (pattern, prior standard deviation of its coefficients); the term `*` is the whole step."""
    start: Mapping[str, float]
    """Term → its factor before the fit."""
    noise: float = 0.15
    """Standard deviation of the logarithm of published figures around the fit; priors are weighed against it."""
    huber: float = 0.1
    """Residuals above this enter the loss linearly, not squared (Huber loss), so outliers bend the fit less."""
    bounded: frozenset[str] = frozenset()
    """Terms of work at the sustained peak, which no machine exceeds. Their time is ideal x (1 + factor), while that of
    all other terms is ideal x factor."""
    signs: Mapping[str, int] = field(default_factory=dict)
    """Feature → 1 if it can only add time, -1 if it can only save time: the sign of all its coefficients."""

    banded_by: Sequence[Pattern] = ()
    """Patterns whose scopes have error bands of their own, the narrowest first."""
    on_host: frozenset[str] = frozenset()
    """Terms of the host, which prepares the next kernels while the GPU works."""
    overlap: float = 1.0
    """Exponent p that combines the seconds of host and GPU: (host^p + gpu^p)^(1/p). With p = 1 they add up; with a
    large p they overlap, and the longer time decides."""

    def overlapped(self, parts: Mapping[str, Number]) -> dict[str, Number]:
        """Returns the seconds that each term adds to a step, given the seconds that it takes alone.

        Seconds are numbers or columns. With overlap the results are shares of the step and add up to it.
        """
        if self.overlap == 1.0:
            return dict(parts)
        host, gpu = (
            sum(seconds for term, seconds in parts.items() if (term in self.on_host) is on_host)
            for on_host in (True, False)
        )
        step = (host**self.overlap + gpu**self.overlap) ** (1.0 / self.overlap)
        # The results add up to the step, and each is its derivative by the logarithm of the term, as the fit needs.
        host_share, gpu_share = ((side / step) ** (self.overlap - 1.0) for side in (host, gpu))
        return {term: seconds * (host_share if term in self.on_host else gpu_share) for term, seconds in parts.items()}

    def sign_of(self, pattern: Pattern) -> int:
        """Returns the sign that coefficients of a pattern must have; 0 where both are possible."""
        return next((self.signs[name] for feature in pattern if (name := feature.lstrip("#")) in self.signs), 0)


def scope_of(pattern: Pattern, features: Features) -> tuple[str, float] | None:
    """Returns the scope of a pattern for these features, such as `architecture=hopper|precision=fp8`, and its number.

    The coefficient of the scope is multiplied by this number, the product of the features with `#` (1 without any).
    Returns None if a feature of the pattern is missing.
    """
    parts, number = [], 1.0
    for name in pattern:
        value = features.get(name.lstrip("#"))
        if value is None or value == "":
            return None
        if name.startswith("#"):
            number *= float(value)
            parts.append(name)
        else:
            parts.append(f"{name}={value}")
    return "|".join(parts), number


class FittedPattern(NamedTuple):
    """All fitted coefficients of one pattern."""

    features: frozenset[str]
    """All features of the pattern."""
    names: tuple[str, ...]
    """Features whose values select a coefficient."""
    numbers: tuple[str, ...]
    """Features that multiply the coefficient."""
    coefficients: Mapping[tuple[str, ...], float]
    """Coefficient by the values of the features in `names`."""


def _fitted_patterns(coefficients: Mapping[str, float]) -> tuple[FittedPattern, ...]:
    """Groups the coefficients of a term by pattern, since building the text of a scope for each question is slow."""
    by_pattern: dict[Pattern, dict[tuple[str, ...], float]] = {}
    for scope, value in coefficients.items():
        parts = [part.split("=", 1) for part in scope.split("|") if part]
        pattern, values = tuple(part[0] for part in parts), tuple(part[1] for part in parts if len(part) > 1)
        by_pattern.setdefault(pattern, {})[values] = value
    return tuple(
        FittedPattern(
            frozenset(name.lstrip("#") for name in pattern),
            tuple(name for name in pattern if not name.startswith("#")),
            tuple(name[1:] for name in pattern if name.startswith("#")),
            table,
        )
        for pattern, table in by_pattern.items()
    )


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """All coefficients of steps, by name (`kind.term`) and scope."""

    values: Mapping[str, Mapping[str, float]] = field(repr=False)
    fitted: Mapping[str, tuple[FittedPattern, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fitted", {name: _fitted_patterns(table) for name, table in self.values.items()})

    def patterns_with(self, kind: StepKind, term: str, features: Iterable[str]) -> tuple[FittedPattern, ...]:
        """Returns the fitted patterns of a term that have one of these features."""
        fitted = self.fitted.get(f"{kind.name}.{term}", ())
        return tuple(entry for entry in fitted if not entry.features.isdisjoint(features))

    def log_factor(self, kind: StepKind, term: str, features: Features, of: Sequence[str] | None = None) -> float:
        """Returns the logarithm of the factor of a term: the sum of its coefficients times their numbers.

        A pattern adds 0 if a feature is missing, or if no run with its values was fitted. With `of`, only patterns that
        have one of these features count.
        """
        fitted = self.fitted.get(f"{kind.name}.{term}", ()) if of is None else self.patterns_with(kind, term, of)
        total = 0.0
        for _, names, numbers, coefficients in fitted:
            value = coefficients.get(tuple(map(features.get, names)))  # type: ignore[arg-type]  # None selects nothing
            # A coefficient of 0 and a missing one both leave the factor as it is.
            if value:
                for number in numbers:
                    value *= float(features.get(number) or 0.0)
                total += value
        return total

    def log_factors(
        self, kind: StepKind, term: str, features: Features, columns: Mapping[str, Column],
        of: Sequence[str] | None = None,
    ) -> Number:  # fmt: skip
        """Returns what the patterns with one of the columns add to the logarithm of a term's factor, in each row.

        With `of`, patterns count that have one of these features instead.
        """
        total: Number = 0.0
        for fitted in self.patterns_with(kind, term, columns if of is None else of):
            total = total + _coefficients_by_row(fitted, features, columns)
        return total

    def models(self) -> frozenset[str]:
        """Returns the ids of the models with a coefficient of their own."""
        scopes = (scope for table in self.values.values() for scope in table)
        parts = (part for scope in scopes for part in scope.split("|"))
        return frozenset(part.removeprefix("model=") for part in parts if part.startswith("model="))

    def knows(self, kind: StepKind, feature: str, features: Features) -> bool:
        """Returns whether runs with the value of a feature in `features` were fitted for a kind of step."""
        return f"{feature}={features.get(feature)}" in self.values.get(f"{kind.name}.*", {})

    def factors(self, kind: StepKind, terms: Iterable[str], features: Features) -> "StepFactors":
        """Returns the factors of some terms, each with that of the whole step in it."""
        whole = exp(self.log_factor(kind, "*", features))
        of_terms = {term: kind.start[term] * exp(self.log_factor(kind, term, features)) * whole for term in terms}
        return StepFactors(kind, of_terms)

    def seconds(self, kind: StepKind, ideal: Mapping[str, float], features: Features) -> dict[str, float]:
        """Returns the expected seconds of each term of a step, from its ideal seconds."""
        terms = [term for term, value in ideal.items() if value > 0 and term in kind.start]
        return self.factors(kind, terms, features).seconds(ideal)


@dataclass(frozen=True, slots=True)
class StepFactors:
    """Factors between the ideal and the expected amounts of the terms of a step, for one question."""

    kind: StepKind
    of_terms: Mapping[str, float]

    def whole(self, term: str) -> float:
        """Returns the factor of a term with the part that no coefficient changes: the 1 of a bounded term."""
        return self.of_terms[term] + (term in self.kind.bounded)

    def seconds(self, ideal: Mapping[str, float]) -> dict[str, float]:
        """Returns the expected seconds of each term from its ideal seconds; terms without a factor are left out."""
        alone = {term: value * self.whole(term) for term, value in ideal.items() if value > 0 and term in self.of_terms}
        return {term: float(seconds) for term, seconds in self.kind.overlapped(alone).items()}


def _coefficients_by_row(fitted: FittedPattern, features: Features, columns: Mapping[str, Column]) -> Number:
    """Returns the coefficient of a pattern times its number, in each row of a table.

    Coefficients are looked up once for each combination of names, and then spread over the rows.
    """
    levels: list[tuple[str, ...]] = []
    codes: list[NDArray[np.int64] | int] = []
    for name in fitted.names:
        value = columns.get(name, features.get(name, ""))
        if isinstance(value, str) and not value:
            return 0.0
        levels.append(value.names if isinstance(value, Levels) else (str(value),))
        codes.append(value.codes if isinstance(value, Levels) else 0)
    by_level = [fitted.coefficients.get(names, 0.0) for names in product(*levels)]
    if not any(by_level):
        return 0.0
    number: Number = 1.0
    for name in fitted.numbers:
        factor = columns.get(name, features.get(name, 0.0))
        assert not isinstance(factor, str | Levels)
        number = number * factor
    result: NDArray[np.float64] = number * np.reshape(by_level, [len(names) for names in levels])[tuple(codes)]
    return result


def values_by_name(coefficients: Iterable[Coefficient]) -> dict[str, dict[str, float]]:
    """Returns the values of coefficients by name and scope."""
    values: dict[str, dict[str, float]] = {}
    for coefficient in coefficients:
        values.setdefault(coefficient.name, {})[coefficient.scope] = coefficient.value
    return values
