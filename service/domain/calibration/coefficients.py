"""How many times longer than ideal each part of a step takes: coefficients in data, looked up by scope.

The logarithm of a term's factor is the sum of the coefficients whose scope matches the facts of a question, from the
broad (every work of this kind) to the narrow (this stack on this chip). A fact that no run was published for adds
nothing, so what is unknown borrows from its kin: a chip from its architecture, a release from its stack.
Scopes hold names and counts of the workload, never rates of the hardware; so a faster machine is never slower.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import exp
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Features = Mapping[str, str | float]


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


def words_of(facts: Features) -> tuple[str, ...]:
    """The facts that are names: many questions share them, and what rests on them alone is worked out once."""
    return tuple(value for value in facts.values() if isinstance(value, str))


def scope_of(pattern: Pattern, facts: Features) -> tuple[str, float] | None:
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


@dataclass(frozen=True, slots=True, eq=False)
class StepKind:
    """A kind of work that is calibrated together: which patterns each term looks at, and how far each may reach.

    There is one of each; what was worked out for it is remembered under it.
    """

    name: str
    patterns: Mapping[str, Sequence[tuple[Pattern, float]]]
    """Term -> (pattern, prior standard deviation of its coefficients); `*` holds for the whole step."""
    start: Mapping[str, float]
    """Term -> the factor it starts from before anything is fitted."""
    noise: float = 0.15
    """Spread of published figures around any smooth law, against which the priors of coefficients are weighed."""


Index = Mapping[str, Mapping[Pattern, Mapping[tuple[str, ...], float]]]
"""Name -> pattern -> values of its facts without `#` -> coefficient."""


def _indexed(values: Mapping[str, Mapping[str, float]]) -> Index:
    """The same coefficients without the text of their scopes, which is slow to make for each question."""
    index: dict[str, dict[Pattern, dict[tuple[str, ...], float]]] = {}
    for name, table in values.items():
        patterns = index.setdefault(name, {})
        for scope, value in table.items():
            parts = [part.split("=", 1) for part in scope.split("|") if part]
            pattern, levels = tuple(part[0] for part in parts), tuple(part[1] for part in parts if len(part) > 1)
            patterns.setdefault(pattern, {})[levels] = value
    return index


class Reading(NamedTuple):
    """A pattern that runs were fitted for, taken apart: the facts that choose a coefficient, and those it is times."""

    pattern: Pattern
    levels: tuple[str, ...]
    numbers: tuple[str, ...]
    table: Mapping[tuple[str, ...], float]


MOST_ARRAYS = 10_000
"""Kept at a time; callers may name models and stacks of their own, so there is no end of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """All coefficients, by name (`kind.term`) and scope. What was worked out with it is remembered under it."""

    values: Mapping[str, Mapping[str, float]] = field(repr=False)
    index: Index = field(init=False, repr=False, compare=False)
    readings: dict[Hashable, tuple[Reading, ...]] = field(default_factory=dict, repr=False, compare=False)
    """What a term reads, of everything or of some columns."""
    arrays: dict[Hashable, NDArray[np.float64] | None] = field(default_factory=dict, repr=False, compare=False)
    """Coefficients of levels that were asked for before; nothing where they are all 0."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", _indexed(self.values))

    def array(self, name: str, pattern: Pattern, levels: Sequence[tuple[str, ...]]) -> NDArray[np.float64] | None:
        """The coefficient of every combination of levels. Machines come again and again, so it is remembered."""
        key = (name, pattern, *levels)
        if key not in self.arrays:
            if len(self.arrays) >= MOST_ARRAYS:
                self.arrays.clear()
            table = self.index[name][pattern]
            found = np.array([table.get(each, 0.0) for each in product(*levels)])
            self.arrays[key] = found.reshape([len(names) for names in levels]) if found.any() else None
        return self.arrays[key]

    def reads(self, kind: StepKind, term: str) -> tuple[Reading, ...]:
        """The patterns of a term that any run was fitted for."""
        key = (kind, term)
        if key not in self.readings:
            index = self.index.get(f"{kind.name}.{term}", {})
            patterns = (pattern for pattern, _ in kind.patterns.get(term, ()) if index.get(pattern))
            self.readings[key] = tuple(_reading(pattern, index[pattern]) for pattern in patterns)
        return self.readings[key]

    def reads_of(self, kind: StepKind, term: str, columns: Iterable[str]) -> tuple[Reading, ...]:
        """Those that name one of the columns."""
        names = tuple(columns)
        key = (kind, term, names)
        if key not in self.readings:
            among = set(names)
            self.readings[key] = tuple(each for each in self.reads(kind, term) if among & {*each.levels, *each.numbers})
        return self.readings[key]

    def log_factor(self, kind: StepKind, term: str, facts: Features, of: Sequence[str] | None = None) -> float:
        """Coefficients times numbers of its patterns; 0 of one where a fact is missing or no run was fitted.

        `of` asks for the patterns alone that name one of these facts.
        """
        total = 0.0
        for _, levels, numbers, table in self.reads(kind, term) if of is None else self.reads_of(kind, term, of):
            value = table.get(tuple(map(facts.get, levels)))  # type: ignore[arg-type]  # a missing fact is no level
            if value:
                for number in numbers:
                    value *= float(facts.get(number) or 0.0)
                total += value
        return total

    def log_factors(
        self, kind: StepKind, term: str, facts: Features, columns: Mapping[str, Column]
    ) -> NDArray[np.float64] | float:
        """What the columns of a table add to it in each row: patterns that name one of them."""
        total: NDArray[np.float64] | float = 0.0
        for reading in self.reads_of(kind, term, columns):
            total = total + self._coefficients(f"{kind.name}.{term}", reading.pattern, facts, columns)
        return total

    def models(self) -> frozenset[str]:
        """The models that runs were fitted of."""
        scopes = (scope for table in self.values.values() for scope in table)
        parts = (part for scope in scopes for part in scope.split("|"))
        return frozenset(part.removeprefix("model=") for part in parts if part.startswith("model="))

    def _coefficients(
        self, name: str, pattern: Pattern, facts: Features, columns: Mapping[str, Column]
    ) -> NDArray[np.float64] | float:
        """Coefficient times number of a pattern in each row: looked up once per level, and spread over the rows."""
        number: NDArray[np.float64] | float = 1.0
        levels: list[tuple[str, ...]] = []
        codes: list[NDArray[np.int64] | int] = []
        for fact in pattern:
            bare = fact.lstrip("#")
            value = columns.get(bare, facts.get(bare, ""))
            if fact.startswith("#"):
                assert not isinstance(value, Levels)
                number = number * (0.0 if isinstance(value, str) else value)
            elif isinstance(value, Levels):
                levels.append(value.names)
                codes.append(value.codes)
            else:
                levels.append((str(value),))
                codes.append(0)
        found = self.array(name, pattern, levels)
        if found is None:
            return 0.0
        result: NDArray[np.float64] = number * found[tuple(codes)]
        return result

    def knows(self, kind: StepKind, fact: str, facts: Features) -> bool:
        """Whether any run with this fact was fitted in this kind of work."""
        table = self.values.get(f"{kind.name}.*", {})
        return f"{fact}={facts.get(fact)}" in table

    def seconds(self, kind: StepKind, ideal: Mapping[str, float], facts: Features) -> dict[str, float]:
        """The parts of a step as they really take."""
        whole = exp(self.log_factor(kind, "*", facts))
        parts = {}
        for term, value in ideal.items():
            if value > 0 and term in kind.start:
                parts[term] = value * kind.start[term] * exp(self.log_factor(kind, term, facts)) * whole
        return parts


def _reading(pattern: Pattern, table: Mapping[tuple[str, ...], float]) -> Reading:
    levels = tuple(name for name in pattern if not name.startswith("#"))
    return Reading(pattern, levels, tuple(name[1:] for name in pattern if name.startswith("#")), table)


def calibration_of(coefficients: Sequence[Coefficient]) -> Calibration:
    values: dict[str, dict[str, float]] = {}
    for one in coefficients:
        values.setdefault(one.name, {})[one.scope] = one.value
    return Calibration(values)
