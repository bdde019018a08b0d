"""How far an estimate may be off: quantiles of the errors that were made on runs that were not fitted.

Errors are kept by kind of work and by what of the question the calibration had never seen (its chip, model or stack),
so that an extrapolation says so and has a wider band.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

from service.domain.band import Band
from service.domain.calibration.coefficients import Calibration, Coefficient, Features, StepKind, calibration_of

NOVELTIES = ("stack", "gpu", "model")
FEWEST = 10
"""Errors that make a quantile; with fewer, the next wider group speaks."""

UNKNOWN_STACK = "unseen=any stack"

UNKNOWN_BAND = (0.45, 2.0)
"""Where nothing at all is known: about the error of rules of thumb."""


def unseen(calibration: Calibration, kind: StepKind, facts: Features) -> tuple[str, ...]:
    """What of the question no fitted run had; a stack that nobody tells is one of them."""
    untold = {"stack"} if facts.get("stack") == "unknown" else set()
    return tuple(fact for fact in NOVELTIES if fact in untold or not calibration.knows(kind, fact, facts))


def band_scopes(family: str, new: Sequence[str]) -> tuple[str, ...]:
    """From the narrowest group of errors to the widest."""
    novelty = "+".join(new) or "nothing"
    widest = "stack" if "stack" in new else novelty
    return (f"family={family}|unseen={novelty}", f"unseen={novelty}", f"unseen={widest}", "")


@dataclass(frozen=True, slots=True)
class ErrorBands:
    """Low and high factors by kind and scope."""

    values: Mapping[str, Mapping[str, float]]

    def factors(self, kind: StepKind, facts: Features, new: Sequence[str]) -> tuple[float, float]:
        """What truth ÷ estimate was at the 10th and 90th percentile; never narrower for being less known."""
        low, high = self.values.get(f"band.{kind.name}.low", {}), self.values.get(f"band.{kind.name}.high", {})
        known = self._first(low, high, str(facts.get("family", "")), ())
        if not new:
            return known
        here = self._first(low, high, str(facts.get("family", "")), new)
        return min(known[0], here[0]), max(known[1], here[1])

    def _first(
        self, low: Mapping[str, float], high: Mapping[str, float], family: str, new: Sequence[str]
    ) -> tuple[float, float]:
        for scope in band_scopes(family, new):
            if scope in low and scope in high:
                return exp(low[scope]), exp(high[scope])
        return UNKNOWN_BAND

    def caution(self, kind: StepKind, new: Sequence[str]) -> float:
        """What rates in unknown stacks came to in the middle: most published stacks are tuned, others are not."""
        if "stack" not in new:
            return 1.0
        return exp(self.values.get(f"band.{kind.name}.middle", {}).get(UNKNOWN_STACK, 0.0))

    def around(
        self, likely: float, kind: StepKind, facts: Features, new: Sequence[str], *, of_rate: bool = True
    ) -> Band:
        """The band of a rate, or of the seconds of a step."""
        low, high = self.factors(kind, facts, new)
        middle = self.caution(kind, new)
        if not of_rate:
            low, high, middle = 1.0 / high, 1.0 / low, 1.0 / middle
        centre = likely * middle
        return Band(min(centre, likely * low), centre, max(centre, likely * high))


def bands_by_gpu(
    calibration: Calibration, bands: ErrorBands, kind: StepKind, facts: Features, gpus: Sequence[str]
) -> NDArray[np.float64]:
    """Low, likely and high of the rate on each GPU, over what the calibration says; they differ by what is known."""
    known: dict[tuple[str, ...], tuple[float, float, float]] = {}
    rows = []
    for gpu in gpus:
        here = {**facts, "gpu": gpu}
        new = unseen(calibration, kind, here)
        if new not in known:
            band = bands.around(1.0, kind, here, new)
            known[new] = (band.low, band.likely, band.high)
        rows.append(known[new])
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


@dataclass(frozen=True, slots=True)
class Miss:
    """The logarithm of truth ÷ estimate, as rates, of a run that was not fitted."""

    kind: str
    family: str
    new: tuple[str, ...]
    log_error: float


def fitted_bands(misses: Sequence[Miss], inside: float = 0.8) -> list[Coefficient]:
    """Quantiles of the misses by kind, family and what was new."""
    groups: dict[tuple[str, str], list[float]] = {}
    for miss in misses:
        for scope in dict.fromkeys(band_scopes(miss.family, miss.new)):
            groups.setdefault((miss.kind, scope), []).append(miss.log_error)
    result = []
    for kind in sorted({miss.kind for miss in misses}):
        errors = [miss.log_error for miss in misses if miss.kind == kind and "stack" in miss.new]
        if len(errors) >= FEWEST:
            middle = round(float(np.median(errors)), 4)
            result.append(Coefficient(f"band.{kind}.middle", UNKNOWN_STACK, middle, "calibrate", kind, len(errors)))
    for (kind, scope), errors in sorted(groups.items()):
        if len(errors) < FEWEST and scope:
            continue
        low, high = np.quantile(errors, [(1 - inside) / 2, (1 + inside) / 2])
        for name, value in (("low", low), ("high", high)):
            result.append(
                Coefficient(f"band.{kind}.{name}", scope, round(float(value), 4), "calibrate", kind, len(errors))
            )
    return result


def bands_of(coefficients: Sequence[Coefficient]) -> ErrorBands:
    values: dict[str, dict[str, float]] = {}
    for one in coefficients:
        if one.name.startswith("band."):
            values.setdefault(one.name, {})[one.scope] = one.value
    return ErrorBands(values)


@dataclass(frozen=True, slots=True)
class Physics:
    """The calibration in force: coefficients of every term, and bands."""

    calibration: Calibration
    bands: ErrorBands


def physics_of(coefficients: Sequence[Coefficient]) -> Physics:
    return Physics(calibration_of([c for c in coefficients if not c.name.startswith("band.")]), bands_of(coefficients))
