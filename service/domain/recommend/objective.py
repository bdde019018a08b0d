"""What "best" means: a few terms, and one scale-free way to weigh them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from service.domain.arrays import Floats

NAMED: dict[str, dict[str, float]] = {
    "cheapest": {"usd": 1.0},
    "fastest": {"hours": 1.0},
    "best_value": {"samples_per_usd": 1.0},
    "most_efficient": {"joules": 1.0},
}
"""The objectives that have a name, each as weights of terms."""

MORE_IS_BETTER = frozenset({"samples_per_second", "samples_per_usd"})
NEEDS_PRICE = frozenset({"usd", "samples_per_usd"})
NEEDS_SPEED = frozenset({"hours", "samples_per_second", "samples_per_usd", "joules"})
NEEDS_POWER = frozenset({"joules"})
TERMS = ("usd", "hours", "samples_per_second", "samples_per_usd", "joules", "risk")


@dataclass(frozen=True, slots=True)
class Objective:
    """Weights of terms; a heavier term counts for more.

    Only their ratios count: the heaviest is taken as 1, so that what is even does not depend on how they were told.
    """

    weights: Mapping[str, float]
    key: tuple[tuple[str, float], ...] = field(init=False, repr=False, compare=False)
    """The same weights, for what is remembered of an objective."""

    def __post_init__(self) -> None:
        heaviest = max(self.weights.values(), default=0.0) or 1.0
        object.__setattr__(self, "weights", {term: weight / heaviest for term, weight in self.weights.items()})
        object.__setattr__(self, "key", tuple(self.weights.items()))

    def needs(self, terms: frozenset[str]) -> bool:
        return any(weight and term in terms for term, weight in self.weights.items())


@dataclass(frozen=True, slots=True)
class Figures:
    """What the terms are made of, one entry per candidate; NaN is unknown.

    `usd` is what an hour or the whole job costs, `usd_per_hour` the price of all nodes. `hours` are those of the job,
    or of a unit of work where no amount is told. `speed` is work per hour in any unit, as long as it is one for all
    candidates, and `paid_speed` work per hour that is paid for. `risk` is how probable an interruption is.
    """

    usd: Floats
    usd_per_hour: Floats
    hours: Floats
    speed: Floats
    paid_speed: Floats
    watts: Floats
    risk: Floats


def term(name: str, figures: Figures) -> Floats:
    match name:
        case "usd":
            return figures.usd
        case "hours":
            return figures.hours
        case "samples_per_second":
            return figures.speed
        case "samples_per_usd":
            return figures.paid_speed / figures.usd_per_hour
        case "joules":
            return figures.watts / figures.paid_speed
        case _:
            return figures.risk


DECIMALS = 9
EVEN = 10.0**-DECIMALS
"""Scores that are no farther apart, a part in a billion of a figure, are even: so far off, sums may round."""


def compared(score: Floats) -> Floats:
    """Scores as they decide: even ones are the same, whatever was rounded on the way to them."""
    return score.round(DECIMALS)


@np.errstate(divide="ignore", over="ignore", invalid="ignore")  # infinitely far from the best is a score as well
def scores(objective: Objective, figures: Figures) -> Floats:
    """How far each candidate is from the best on every term, weighted; 0 is best at everything, and lower is better.

    sum over terms of weight x |ln(value / best value)|: a term counts by its ratio, so its unit does not matter, and
    doubling the price weighs as much as halving the speed. Risk is a probability already and enters as it is.
    """
    total = np.zeros(len(figures.usd))
    for name, weight in objective.weights.items():
        values = term(name, figures)
        if name == "risk":
            total = total + weight * values
        elif weight and len(values):
            best = (np.fmax if name in MORE_IS_BETTER else np.fmin).reduce(values)
            if 0 < best < np.inf:  # what nobody tells of any candidate, or is as good as nothing, sets none apart
                total = total + weight * np.abs(np.log(values / best))
    return total
