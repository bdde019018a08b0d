"""How many times longer than ideal each part of a step takes: coefficients in data, looked up by scope.

The logarithm of a term's factor is the sum of the coefficients whose scope matches the facts of a question, from the
broad (every work of this kind) to the narrow (this stack on this chip). A fact that no run was published for adds
nothing, so what is unknown borrows from its kin: a chip from its architecture, a release from its stack.
Scopes hold names and counts of the workload, never rates of the hardware; so a faster machine is never slower.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Facts = Mapping[str, str | float]


@dataclass(frozen=True, slots=True)
class Levels:
    """A fact that differs by row of a table: the values it takes, and which of them each row has."""

    names: tuple[str, ...]
    codes: NDArray[np.int64]


Column: TypeAlias = Levels | NDArray[np.float64]
"""A fact of many questions: a name or a number in each row."""

Pattern = tuple[str, ...]
"""Names of facts that form a scope; a name with `#` in front is a number that multiplies the coefficient."""

EVERYTHING: Pattern = ()


def scope_of(pattern: Pattern, facts: Facts) -> tuple[str, float] | None:
    """The scope a pattern makes of the facts, such as `architecture=hopper|precision=fp8`, and its number."""
    parts, number = [], 1.0
    for name in pattern:
        value = facts.get(name.lstrip("#"))
        if value is None or value == "":
            return None
        if name.startswith("#"):
            number *= float(value)
            parts.append(name)
        else:
            parts.append(f"{name}={value}")
    return "|".join(parts), number


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One number of the calibration: the logarithm of a factor, in a scope."""

    name: str
    scope: str
    value: float
    source: str
    fitted_on: str
    n: int


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work that is calibrated together: which patterns each term looks at, and how far each may reach."""

    name: str
    patterns: Mapping[str, Sequence[tuple[Pattern, float]]]
    """Term -> (pattern, prior standard deviation of its coefficients); `*` holds for the whole step."""
    start: Mapping[str, float]
    """Term -> the factor it starts from before anything is fitted."""
    noise: float = 0.15
    """Spread of published figures around any smooth law, against which the priors of coefficients are weighed."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """All coefficients, by name (`kind.term`) and scope."""

    values: Mapping[str, Mapping[str, float]]

    def log_factor(self, kind: Kind, term: str, facts: Facts) -> float:
        table = self.values.get(f"{kind.name}.{term}")
        if not table:
            return 0.0
        total = 0.0
        for pattern, _ in kind.patterns.get(term, ()):
            found = scope_of(pattern, facts)
            if found is not None:
                total += table.get(found[0], 0.0) * found[1]
        return total

    def log_factors(
        self, kind: Kind, term: str, facts: Facts, columns: Mapping[str, Column]
    ) -> NDArray[np.float64] | float:
        """What the columns of a table add to it in each row: patterns that name one of them."""
        total: NDArray[np.float64] | float = 0.0
        table = self.values.get(f"{kind.name}.{term}")
        if table:
            for pattern, _ in kind.patterns.get(term, ()):
                if any(name.lstrip("#") in columns for name in pattern):
                    total = total + _coefficients(table, pattern, facts, columns)
        return total

    def knows(self, kind: Kind, fact: str, facts: Facts) -> bool:
        """Whether any run with this fact was fitted in this kind of work."""
        table = self.values.get(f"{kind.name}.*", {})
        return f"{fact}={facts.get(fact)}" in table

    def seconds(self, kind: Kind, ideal: Mapping[str, float], facts: Facts) -> dict[str, float]:
        """The parts of a step as they really take."""
        whole = exp(self.log_factor(kind, "*", facts))
        parts = {}
        for term, value in ideal.items():
            if value > 0 and term in kind.start:
                parts[term] = value * kind.start[term] * exp(self.log_factor(kind, term, facts)) * whole
        return parts


def _coefficients(
    table: Mapping[str, float], pattern: Pattern, facts: Facts, columns: Mapping[str, Column]
) -> NDArray[np.float64] | float:
    """Coefficient times number of a pattern in each row: looked up once per level, and spread over the rows."""
    named = {name: column for name in pattern if isinstance(column := columns.get(name), Levels)}
    numbers = [column for name in pattern if isinstance(column := columns.get(name.lstrip("#")), np.ndarray)]
    numbered = {name.lstrip("#"): 1.0 for name in pattern if name.startswith("#") and name.lstrip("#") in columns}
    found = []
    for levels in product(*(column.names for column in named.values())):
        scope = scope_of(pattern, {**facts, **numbered, **dict(zip(named, levels, strict=True))})
        found.append(table.get(scope[0], 0.0) * scope[1] if scope else 0.0)
    if not any(found):
        return 0.0
    result: NDArray[np.float64] | float = found[0]
    if named:
        shape = tuple(len(column.names) for column in named.values())
        result = np.reshape(found, shape)[tuple(column.codes for column in named.values())]
    for column in numbers:
        result = result * column
    return result


def calibration_of(coefficients: Sequence[Coefficient]) -> Calibration:
    values: dict[str, dict[str, float]] = {}
    for one in coefficients:
        values.setdefault(one.name, {})[one.scope] = one.value
    return Calibration(values)
