"""Fitting of the coefficients from published runs: penalised least squares on the logarithm of a sum of terms.

A run's ideal terms t_k make a prediction sum_k t_k exp(theta . z_k). Its logarithm is linearised (Gauss-Newton),
residuals are weighted against outliers, and each coefficient is drawn to zero with the strength of its pattern, so that
narrow scopes only say what many runs say and broad ones carry the rest. Standard library and numpy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.calibration.coefficients import Calibration, Coefficient, Features, StepKind, scope_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CalibrationRun:
    """A published run: its ideal terms, its facts, and the seconds it really took (for the same units)."""

    ideal: Mapping[str, float]
    facts: Features
    seconds: float
    weight: float = 1.0
    group: str = ""
    bound: int = 0
    """-1: it is known to be at most this (it fitted), 1: at least this (it ran out of memory), 0: it is this."""


@dataclass(frozen=True, slots=True)
class Design:
    """Runs as arrays: the terms' logarithms, and for each term the scopes it meets."""

    names: list[tuple[str, str]]
    prior: Floats
    terms: list[str]
    ideal: Floats
    scopes: dict[str, Floats]
    counts: Floats


def design_of(kind: StepKind, runs: Sequence[CalibrationRun]) -> Design:
    """Dense arrays; scopes with a single level everywhere still carry the intercept of their term."""
    index: dict[tuple[str, str], int] = {}
    prior: list[float] = []
    cells: dict[str, list[tuple[int, int, float]]] = {}
    terms = [term for term in kind.start if any(run.ideal.get(term, 0.0) > 0 for run in runs)]
    for term in ["*", *terms]:
        cells[term] = []
        for pattern, spread in kind.patterns.get(term, ()):
            for row, run in enumerate(runs):
                if term != "*" and run.ideal.get(term, 0.0) <= 0:
                    continue
                found = scope_of(pattern, run.facts)
                if found is None:
                    continue
                key = (term, found[0])
                if key not in index:
                    index[key] = len(index)
                    prior.append(spread)
                cells[term].append((row, index[key], found[1]))
    scopes = {}
    counts = np.zeros(len(index))
    for term, entries in cells.items():
        matrix = np.zeros((len(runs), len(index)))
        for row, column, number in entries:
            matrix[row, column] = number
            counts[column] += 1
        scopes[term] = matrix
    ideal = np.array([[run.ideal.get(term, 0.0) * kind.start[term] for term in terms] for run in runs])
    return Design(list(index), np.array(prior), terms, ideal, scopes, counts)


def parts_of(design: Design, theta: Floats) -> Floats:
    """Seconds of each term of each run."""
    columns = [design.scopes[term] @ theta for term in design.terms]
    factors = np.exp(np.clip(np.stack(columns, axis=1), -12, 12))
    whole = np.exp(design.scopes["*"] @ theta)
    result: Floats = design.ideal * factors * whole[:, None]
    return result


def fit(
    kind: StepKind, runs: Sequence[CalibrationRun], rounds: int = 25, noise: float | None = None
) -> tuple[Calibration, list[Coefficient]]:
    """Coefficients of a kind of work; `noise` overrides the spread that its figures have by themselves."""
    design = design_of(kind, runs)
    target = np.log([run.seconds for run in runs])
    weight = np.array([run.weight for run in runs])
    theta = np.zeros(len(design.names))
    penalty = (noise or kind.noise) ** 2 / design.prior**2
    bound = np.array([run.bound for run in runs])

    def residuals(at: Floats) -> Floats:
        result: Floats = np.log(parts_of(design, at).sum(axis=1)) - target
        return np.where(bound * result > 0, 0.0, result)

    def loss(at: Floats) -> float:
        r = np.abs(residuals(at))
        robust = np.where(r < HUBER, r**2 / 2, HUBER * (r - HUBER / 2))
        return float((weight * robust).sum() + 0.5 * (penalty * at**2).sum())

    current, damping = loss(theta), 1e-3
    for _ in range(rounds):
        parts = parts_of(design, theta)
        share = parts / parts.sum(axis=1, keepdims=True)
        jacobian = design.scopes["*"].copy()
        for column, term in enumerate(design.terms):
            jacobian += share[:, column : column + 1] * design.scopes[term]
        r = np.log(parts.sum(axis=1)) - target
        r = np.where(bound * r > 0, 0.0, r)
        held = np.where((bound != 0) & (r == 0), 0.0, 1.0)
        robust = held * weight * np.minimum(1.0, HUBER / np.maximum(np.abs(r), 1e-9))
        hessian = (jacobian * robust[:, None]).T @ jacobian + np.diag(penalty)
        gradient = jacobian.T @ (robust * r) + penalty * theta
        improved = False
        for _ in range(6):
            step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
            candidate = theta - np.clip(step, -1.0, 1.0)
            new = loss(candidate)
            if new < current:
                improved = current - new > 1e-6 * current
                theta, current, damping = candidate, new, damping / 4
                break
            damping *= 6
        if not improved:
            break
    values: dict[str, dict[str, float]] = {}
    coefficients = []
    for (term, scope), value, n in zip(design.names, theta, design.counts, strict=True):
        name = f"{kind.name}.{term}"
        values.setdefault(name, {})[scope] = float(value)
        coefficients.append(Coefficient(name, scope, round(float(value), 5), "calibrate", kind.name, int(n)))
    return Calibration(values), coefficients


HUBER = 0.10
"""Residuals beyond 10 % count by their size and no longer by its square, so that a few odd runs do not bend the fit."""
