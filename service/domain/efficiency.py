"""How many times longer than ideal each part of a step takes: coefficients in data, looked up by scope.

The logarithm of a term's factor is the sum of the coefficients whose scope matches the facts of a question, from the
broad (every work of this kind) to the narrow (this stack on this chip). A fact that no run was published for adds
nothing, so what is unknown borrows from its kin: a chip from its architecture, a release from its stack.
Scopes hold names and counts of the workload, never rates of the hardware; so a faster machine is never slower.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

Facts = Mapping[str, str | float]

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


def calibration_of(coefficients: Sequence[Coefficient]) -> Calibration:
    values: dict[str, dict[str, float]] = {}
    for one in coefficients:
        values.setdefault(one.name, {})[one.scope] = one.value
    return Calibration(values)
