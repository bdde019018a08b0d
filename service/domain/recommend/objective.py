"""Objectives of a ranking: a few criteria, and one way to weigh them that does not depend on units."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import numpy as np

from service.domain.arrays import Floats, Mask

Need = Literal["price", "speed", "power"]
"""A fact about a machine that a criterion needs. Without a job, its peak is its speed."""

DECIMALS = 9
EVEN = 10.0**-DECIMALS
"""Scores that differ by no more are equal, as rounding alone can cause such a difference."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Weights of criteria; a higher weight counts for more.

    Only ratios of weights matter: the highest is scaled to 1, so that ties do not depend on the scale of the weights.
    """

    weights: Mapping[str, float]
    usual_gpus: int = 1
    """Number of GPUs that is best for `fewer_gpus`; both fewer and more GPUs score worse."""
    criteria: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Criteria with a weight."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        highest = max(self.weights.values(), default=0.0) or 1.0
        object.__setattr__(self, "weights", {name: weight / highest for name, weight in self.weights.items()})
        object.__setattr__(self, "criteria", tuple([name for name, weight in self.weights.items() if weight]))
        object.__setattr__(self, "_hash", hash((frozenset(self.weights.items()), self.usual_gpus)))

    def __hash__(self) -> int:
        return self._hash

    def needs(self, need: Need) -> bool:
        """Returns whether a criterion with a weight needs this."""
        return self.weight_of(need) > 0

    def weight_of(self, *needs: Need) -> float:
        """Returns the sum of the weights of the criteria that need one of these facts.

        A score changes by this sum where the logarithm of the fact changes by 1.
        """
        return sum(weight for name, weight in self.weights.items() if not CRITERIA[name].needs.isdisjoint(needs))


OBJECTIVES = {
    "cheapest": Objective({"usd": 1.0}),
    "fastest": Objective({"hours": 1.0}),
    "best_value": Objective({"samples_per_usd": 1.0}),
    "most_efficient": Objective({"joules": 1.0}),
}
"""The named objectives."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures behind the criteria, one entry per candidate; NaN is unknown."""

    usd: Floats
    """Cost of the whole job, or of an hour."""
    usd_per_hour: Floats
    """Price of all machines."""
    hours: Floats
    """Hours of the job, or of a unit of work without an amount; of a load whose rate is given, those of a request."""
    speed: Floats
    """Work per hour, in some unit that all candidates share."""
    paid_speed: Floats
    """Work per paid hour, in the same unit."""
    watts: Floats
    risk: Floats
    """Probability of an interruption."""
    machines: Floats
    """Nodes of all instances."""
    gpu_count: Floats
    """GPUs of all machines; NaN for machines without GPUs."""
    gpu_memory_gb: Floats
    """Memory of one GPU."""
    samples: Floats
    """Samples that `usd` pays for; without a job, the peak."""
    data_usd: Floats
    """Part of `usd` for storage and transfer, which does not depend on the price of a machine."""

    def each(self, change: Callable[[Floats], Floats]) -> "Figures":
        """Returns the figures with every column changed."""
        return Figures(*(change(getattr(self, column.name)) for column in fields(self)))

    def at_prices(self, factor: Floats) -> "Figures":
        """Returns the figures with the prices of the machines multiplied by factors."""
        usd = self.data_usd + (self.usd - self.data_usd) * factor
        return replace(self, usd=usd, usd_per_hour=self.usd_per_hour * factor)

    def of_runs_that_end(self, ends: Mask) -> "Figures":
        """Returns the figures with cost, hours and speed unknown where a run does not end."""
        names = ("usd", "hours", "speed", "paid_speed")
        return replace(self, **{name: np.where(ends, getattr(self, name), np.nan) for name in names})


@dataclass(frozen=True, slots=True)
class Criterion:
    """A figure of candidates that an objective weighs."""

    values: Callable[[Figures], Floats]
    needs: frozenset[Need] = frozenset()
    """Facts about a machine without which the figure is unknown."""
    description: str = ""
    """Description of the field of the request that weighs it; empty for a criterion that no caller can weigh."""
    more_is_better: bool = False
    is_speed: bool = False
    """Whether it is a speed alone, which more instances and better peaks improve."""


PRICE, SPEED, POWER = frozenset[Need]({"price"}), frozenset[Need]({"speed"}), frozenset[Need]({"power"})

CRITERIA: Mapping[str, Criterion] = {
    "usd": Criterion(lambda figures: figures.usd, PRICE, "Dollars of the job, else of an hour"),
    "hours": Criterion(lambda figures: figures.hours, SPEED, "Hours of the job", is_speed=True),
    "samples_per_second": Criterion(lambda figures: figures.speed, SPEED, "Speed", more_is_better=True, is_speed=True),
    "samples_per_usd": Criterion(
        lambda figures: figures.samples / figures.usd, PRICE | SPEED, "Samples per dollar", more_is_better=True
    ),
    "joules": Criterion(lambda figures: figures.watts / figures.paid_speed, POWER | SPEED, "Energy per sample"),
    "risk": Criterion(lambda figures: figures.risk, description="Probability of an interruption"),
    "gpu_count": Criterion(lambda figures: figures.gpu_count, description="GPUs of all machines", more_is_better=True),
    "gpu_memory_gb": Criterion(
        lambda figures: figures.gpu_memory_gb, description="Memory of one GPU", more_is_better=True
    ),
    # A machine without GPUs costs at most as much as one with a GPU.
    "fewer_gpus": Criterion(lambda figures: np.where(np.isnan(figures.gpu_count), figures.machines, figures.gpu_count)),
    "lower_peak": Criterion(lambda figures: figures.speed, SPEED),
}
"""Every criterion by its name. Those with a description are fields of `POST /recommend`."""


def compared(score: Floats) -> Floats:
    """Returns scores rounded, so that scores which differ by rounding errors alone are equal."""
    return score.round(DECIMALS)


@np.errstate(divide="ignore", over="ignore", invalid="ignore")  # a score may be infinite
def scores(objective: Objective, figures: Figures) -> Floats:
    """Returns how far each candidate is from the best on every criterion, weighted; 0 is best at everything.

    sum over criteria of weight x |ln(value / best value)|: a criterion counts by its ratio, so its unit does not
    matter, and doubling the price weighs as much as halving the speed. Risk is a probability and is added as it is.
    """
    total = np.zeros(len(figures.usd))
    for name, weight in objective.weights.items():
        criterion = CRITERIA[name]
        values = criterion.values(figures)
        if name == "fewer_gpus" and objective.usual_gpus > 1:
            # Half as many GPUs as usual score like twice as many.
            values = np.maximum(values / objective.usual_gpus, objective.usual_gpus / np.maximum(values, 1.0))
        if name == "risk":
            total = total + weight * values
        elif weight and len(values):
            best = (np.fmax if criterion.more_is_better else np.fmin).reduce(values)
            if 0 < best < np.inf:  # a figure that is unknown or 0 for all candidates does not rank them
                total = total + weight * np.abs(np.log(values / best))
    return total
