"""Fit of the coefficients to published runs: penalised least squares on the logarithm of a sum of terms.

A run with the ideal seconds t_k of its terms k is predicted to take sum_k t_k exp(theta . z_k), where theta are the
coefficients and z_k the numbers by which the run multiplies them in term k. The logarithm of this sum is linearised
(Gauss-Newton), outliers weigh less (Huber), and the prior of its pattern draws each coefficient to zero: a narrow scope
deviates only as far as its runs prove. docs/decisions/007 explains why no library does this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain.calibration.coefficients import Coefficient, Features, StepKind, scope_of

Floats = NDArray[np.float64]

MAX_ROUNDS = 25
MAX_DAMPINGS = 6
"""Dampings that a round tries. If none lowers the loss, the fit ends."""

LEAST_GAIN = 1e-4
"""The fit ends when a round lowers the loss by less than this share of it."""


@dataclass(frozen=True, slots=True)
class CalibrationRun:
    """A published run: the ideal seconds of its terms, its features, and the seconds that it took for the same work."""

    ideal: Mapping[str, float]
    features: Features
    seconds: float
    weight: float = 1.0
    bound: int = 0
    """0: the run took `seconds`; -1: at most (a run that fitted in memory); 1: at least (a run that ran out of memory).

    For runs about memory, seconds are bytes.
    """


def fit(kind: StepKind, runs: Sequence[CalibrationRun], start: Sequence[Coefficient] = ()) -> list[Coefficient]:
    """Returns the fitted coefficients of a kind of step; those of an earlier fit, if given, are the starting point."""
    problem = _problem_of(kind, runs)
    known = {(coefficient.name, coefficient.scope): coefficient.value for coefficient in start}
    theta = np.array([known.get((f"{kind.name}.{term}", scope), 0.0) for term, scope in problem.names])
    # Levenberg-Marquardt: damping grows until a step lowers the loss, and shrinks afterwards.
    loss, damping = problem.loss(theta), 1e-3
    for _ in range(MAX_ROUNDS):
        hessian, gradient = problem.normal_equations(theta)
        for _ in range(MAX_DAMPINGS):
            step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
            # Beyond a change of 1 in a logarithm, the linearisation is not valid.
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
    """The coefficients of a term, or of the whole step, and the numbers that multiply them: a row per run."""

    columns: NDArray[np.int64]
    """Indices of these coefficients among those of all terms."""
    numbers: Floats

    def log_factor(self, theta: Floats) -> Floats:
        """Returns the logarithm of the factor of the term in each run."""
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
    """Number of runs that each coefficient applies to."""
    penalty: Floats
    sign: Floats
    """1 for a coefficient that must not be below 0, -1 for one that must not be above 0, else 0."""
    ideal: Floats
    """Seconds of each term of each run before the coefficients."""
    least: Floats
    """Seconds of each term of each run that no coefficient changes: the ideal time of bounded terms."""
    whole: _Scopes
    by_term: list[_Scopes]
    target: Floats
    """Logarithm of the published seconds of each run."""
    weight: Floats
    bound: Floats

    def allowed(self, theta: Floats) -> Floats:
        """Returns the nearest coefficients with the required signs."""
        return np.where(self.sign * theta < 0, 0.0, theta)

    def parts(self, theta: Floats) -> Floats:
        """Returns the predicted seconds of each term (columns) of each run (rows)."""
        # Clipped, because a trial step may go so far that the exponential overflows.
        factors = np.exp(np.clip(np.stack([scopes.log_factor(theta) for scopes in self.by_term], axis=1), -12, 12))
        alone = self.ideal * factors * np.exp(self.whole.log_factor(theta))[:, None] + self.least
        overlapped = self.kind.overlapped(dict(zip(self.terms, alone.T, strict=True)))
        return np.stack([overlapped[term] for term in self.terms], axis=1)

    def residuals(self, parts: Floats) -> Floats:
        """Returns the logarithm of predicted ÷ published seconds of each run; 0 where a bound is satisfied."""
        residuals: Floats = np.log(parts.sum(axis=1)) - self.target
        return np.where(self.bound * residuals > 0, 0.0, residuals)

    def loss(self, theta: Floats) -> float:
        """Returns the Huber loss of the residuals plus the penalty of the priors."""
        size = np.abs(self.residuals(self.parts(theta)))
        huber = self.kind.huber
        robust = np.where(size < huber, size**2 / 2, huber * (size - huber / 2))
        return float((self.weight * robust).sum() + 0.5 * (self.penalty * theta**2).sum())

    def normal_equations(self, theta: Floats) -> tuple[Floats, Floats]:
        """Returns the Hessian (Gauss-Newton) and the gradient of the loss."""
        parts = self.parts(theta)
        share = (parts - self.least) / parts.sum(axis=1, keepdims=True)
        jacobian = np.zeros((len(parts), len(theta)))
        jacobian[:, self.whole.columns] = self.whole.numbers * share.sum(axis=1, keepdims=True)
        for index, scopes in enumerate(self.by_term):
            jacobian[:, scopes.columns] = share[:, [index]] * scopes.numbers
        residuals = self.residuals(parts)
        # A satisfied bound has no residual, and must not pull on the coefficients either.
        counts = np.where((self.bound != 0) & (residuals == 0), 0.0, 1.0)
        robust = counts * self.weight * np.minimum(1.0, self.kind.huber / np.maximum(np.abs(residuals), 1e-9))
        # BLAS computes the product of a matrix with its own transpose in half of the operations.
        weighted = jacobian * np.sqrt(robust)[:, None]
        hessian = weighted.T @ weighted + np.diag(self.penalty)
        gradient = jacobian.T @ (robust * residuals) + self.penalty * theta
        # A coefficient at 0 whose gradient points to the wrong sign stays at 0, and the others are solved without it.
        stays = (self.sign != 0) & (theta == 0) & (self.sign * gradient > 0)
        hessian = np.where(stays[:, None] | stays, np.diag(np.diag(hessian)), hessian)
        return hessian, np.where(stays, 0.0, gradient)


def _problem_of(kind: StepKind, runs: Sequence[CalibrationRun]) -> _Problem:
    index: dict[tuple[str, str], int] = {}
    spreads: list[float] = []
    signs: list[int] = []
    terms = [term for term in kind.start if any(run.ideal.get(term, 0.0) > 0 for run in runs)]
    # Row, column and number of each entry. Scopes of "*" multiply the whole step, those of a term only this term.
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
