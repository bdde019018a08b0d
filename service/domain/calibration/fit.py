"""Fit of the coefficients to published runs: penalised least squares on the logarithm of a sum of terms.

The ideal terms t_k of a run predict sum_k t_k exp(theta . z_k). The logarithm of that sum is linearised (Gauss-Newton),
outliers weigh less (Huber), and each coefficient is drawn to zero by the prior of its pattern, so that a narrow scope
says what many runs say and broad scopes carry the rest. docs/decisions/007 has why no library does this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.calibration.coefficients import Coefficient, Features, StepKind, scope_of

Floats = NDArray[np.float64]

MOST_ROUNDS = 25
MOST_TRIES = 6
"""Dampings that a round tries before the fit ends."""
LEAST_GAIN = 1e-4
"""Share of the loss below which a round ends the fit."""


@dataclass(frozen=True, slots=True)
class CalibrationRun:
    """A published run: its ideal terms, its features, and the seconds it took for the same units."""

    ideal: Mapping[str, float]
    features: Features
    seconds: float
    weight: float = 1.0
    bound: int = 0
    """-1: it took at most these seconds (it fitted); 1: at least these (it ran out of memory); 0: exactly these."""


def fit(kind: StepKind, runs: Sequence[CalibrationRun], start: Sequence[Coefficient] = ()) -> list[Coefficient]:
    """The coefficients of a kind of step, sought from those of an earlier fit if there are some."""
    problem = _problem_of(kind, runs)
    known = {(coefficient.name, coefficient.scope): coefficient.value for coefficient in start}
    theta = np.array([known.get((f"{kind.name}.{term}", scope), 0.0) for term, scope in problem.names])
    # Levenberg-Marquardt: damping grows until a step lowers the loss, and shrinks after it did.
    loss, damping = problem.loss(theta), 1e-3
    for _ in range(MOST_ROUNDS):
        hessian, gradient = problem.normal_equations(theta)
        for _ in range(MOST_TRIES):
            step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
            # A logarithm that moves by more than 1 in a round leaves the region where the linearisation holds.
            candidate = problem.allowed(theta - np.clip(step, -1.0, 1.0))
            gain = loss - problem.loss(candidate)
            if gain > 0:
                break
            damping *= 6
        else:
            break
        theta, damping = candidate, damping / 4
        if gain <= LEAST_GAIN * loss:
            break
        loss -= gain
    return [
        Coefficient(f"{kind.name}.{term}", scope, round(float(value), 5), "calibrate", kind.name, int(n))
        for (term, scope), value, n in zip(problem.names, theta, problem.counts, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Scopes:
    """The coefficients of a term, or of the whole step, and the numbers that each multiplies them by in each run."""

    columns: NDArray[np.int64]
    """Indices among all coefficients; most of them belong to other terms."""
    numbers: Floats

    def log_factor(self, theta: Floats) -> Floats:
        """Logarithm of the factor of the term in each run."""
        result: Floats = self.numbers @ theta[self.columns]
        return result


@dataclass(frozen=True, slots=True)
class _Problem:
    """Runs as arrays: a row per run, a column per term or per coefficient."""

    kind: StepKind
    terms: list[str]
    names: list[tuple[str, str]]
    """Term and scope of each coefficient."""
    counts: Floats
    """Runs that each coefficient applies to."""
    penalty: Floats
    sign: Floats
    """1 for a coefficient that must not be below 0, -1 for one that must not be above 0, else 0."""
    ideal: Floats
    """Seconds of each term of each run before the coefficients."""
    least: Floats
    """Seconds of each term of each run that no coefficient moves."""
    whole: "_Scopes"
    by_term: list["_Scopes"]
    target: Floats
    weight: Floats
    bound: Floats

    def allowed(self, theta: Floats) -> Floats:
        """The nearest coefficients with the required signs."""
        return np.where(self.sign * theta < 0, 0.0, theta)

    def parts(self, theta: Floats) -> Floats:
        """Seconds of each term of each run."""
        # Clipped, because a trial step may go so far that the exponential overflows.
        factors = np.exp(np.clip(np.stack([scopes.log_factor(theta) for scopes in self.by_term], axis=1), -12, 12))
        alone = self.ideal * factors * np.exp(self.whole.log_factor(theta))[:, None] + self.least
        overlapped = self.kind.overlapped(dict(zip(self.terms, alone.T, strict=True)))
        return np.stack([overlapped[term] for term in self.terms], axis=1)

    def residuals(self, parts: Floats) -> Floats:
        """Logarithm of predicted ÷ published; 0 where a bound holds."""
        residuals: Floats = np.log(parts.sum(axis=1)) - self.target
        return np.where(self.bound * residuals > 0, 0.0, residuals)

    def loss(self, theta: Floats) -> float:
        size = np.abs(self.residuals(self.parts(theta)))
        huber = self.kind.huber
        robust = np.where(size < huber, size**2 / 2, huber * (size - huber / 2))
        return float((self.weight * robust).sum() + 0.5 * (self.penalty * theta**2).sum())

    def normal_equations(self, theta: Floats) -> tuple[Floats, Floats]:
        """Hessian (Gauss-Newton) and gradient of the loss."""
        parts = self.parts(theta)
        share = (parts - self.least) / parts.sum(axis=1, keepdims=True)
        jacobian = np.zeros((len(parts), len(theta)))
        jacobian[:, self.whole.columns] = self.whole.numbers * share.sum(axis=1, keepdims=True)
        for index, scopes in enumerate(self.by_term):
            jacobian[:, scopes.columns] = share[:, [index]] * scopes.numbers
        residuals = self.residuals(parts)
        # A bound that holds has no residual, and must not pull on the coefficients either.
        held = np.where((self.bound != 0) & (residuals == 0), 0.0, 1.0)
        robust = held * self.weight * np.minimum(1.0, self.kind.huber / np.maximum(np.abs(residuals), 1e-9))
        # The product of an array with itself takes half of the work of a product of two.
        weighted = jacobian * np.sqrt(robust)[:, None]
        hessian = weighted.T @ weighted + np.diag(self.penalty)
        gradient = jacobian.T @ (robust * residuals) + self.penalty * theta
        # A coefficient at 0 that is pulled beyond its sign stays there, and the others are solved without it.
        stays = (self.sign != 0) & (theta == 0) & (self.sign * gradient > 0)
        hessian = np.where(stays[:, None] | stays, np.diag(np.diag(hessian)), hessian)
        return hessian, np.where(stays, 0.0, gradient)


def _problem_of(kind: StepKind, runs: Sequence[CalibrationRun]) -> _Problem:
    index: dict[tuple[str, str], int] = {}
    spreads: list[float] = []
    signs: list[int] = []
    terms = [term for term in kind.start if any(run.ideal.get(term, 0.0) > 0 for run in runs)]
    # The scopes of "*" multiply the whole step, those of a term only that term.
    cells: dict[str, list[tuple[int, int, float]]] = {term: [] for term in ("*", *terms)}
    for term, entries in cells.items():
        rows = [row for row, run in enumerate(runs) if term == "*" or run.ideal.get(term, 0.0) > 0]
        for pattern, spread in kind.patterns.get(term, ()):
            for row in rows:
                if (scope := scope_of(pattern, runs[row].features)) is not None:
                    column = index.setdefault((term, scope[0]), len(index))
                    if column == len(spreads):
                        spreads.append(spread)
                        signs.append(kind.sign_of(pattern))
                    entries.append((row, column, scope[1]))
    scopes = {term: _scopes(entries, len(runs)) for term, entries in cells.items()}
    ideal = np.array([[run.ideal.get(term, 0.0) for term in terms] for run in runs])
    return _Problem(
        kind=kind,
        terms=terms,
        names=list(index),
        counts=np.bincount([column for entries in cells.values() for _, column, _ in entries]).astype(np.float64),
        penalty=kind.noise**2 / np.array(spreads) ** 2,
        sign=np.array(signs, np.float64),
        ideal=ideal * [kind.start[term] for term in terms],
        least=ideal * [term in kind.bounded for term in terms],
        whole=scopes["*"],
        by_term=[scopes[term] for term in terms],
        target=np.log([run.seconds for run in runs]),
        weight=np.array([run.weight for run in runs]),
        bound=np.array([run.bound for run in runs], np.float64),
    )


def _scopes(entries: Sequence[tuple[int, int, float]], runs: int) -> _Scopes:
    columns, place = np.unique(np.array([column for _, column, _ in entries], dtype=np.int64), return_inverse=True)
    numbers = np.zeros((runs, len(columns)))
    for (row, _, number), column in zip(entries, place.tolist(), strict=True):
        numbers[row, column] = number
    return _Scopes(columns, numbers)
