"""Order of the coefficients of GPUs and of checkpointings: a better GPU and less recomputation never take longer.

The runs of a GPU are few and differ in software and source, so the fit may find the A100 with 80 GB slower than the one
with 40. Values of a feature in the wrong order get the mean of their coefficients (isotonic regression by pooling of
adjacent violators), and a value without runs gets the coefficient nearest to 0 that keeps the order.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from service.domain.calibration.coefficients import Coefficient

Better = Mapping[str, frozenset[str]]
"""Value of a feature → the values that take no longer, as the GPUs of its architecture with no worse figure."""

GPU, LIKE = "gpu", "like_gpu"
"""The feature of GPUs, and that for coefficients of GPUs without runs, which therefore still count as new."""

CHECKPOINTING = "checkpointing"
"""The feature of activation checkpointing."""

LESS_RECOMPUTATION: Better = {
    "none": frozenset(),
    "selective": frozenset({"none"}),
    "full": frozenset({"selective", "none"}),
}
"""Checkpointing → those that compute less a second time."""


def in_order(
    coefficients: Iterable[Coefficient], better: Better, feature: str = GPU, without_runs: str = LIKE
) -> list[Coefficient]:
    """Returns the coefficients, with those that name a value of the feature changed to be in order.

    Values without runs are named by the feature `without_runs`.
    """
    ordered: list[Coefficient] = []
    tables: dict[tuple[str, str], dict[str, Coefficient]] = defaultdict(dict)
    for coefficient in coefficients:
        parts = (part.partition("=") for part in coefficient.scope.split("|"))
        name = next((value for key, _, value in parts if key == feature), None)
        if name is None:
            ordered.append(coefficient)
        else:
            tables[coefficient.name, coefficient.scope.replace(f"{feature}={name}", "{}")][name] = coefficient
    for (term, scope), table in tables.items():
        first, values = next(iter(table.values())), _pooled(table, better)
        values |= _without_runs(values, better)
        for name, value in values.items():
            runs = table[name].n if name in table else 0
            whole_scope = scope.format(f"{feature if runs else without_runs}={name}")
            ordered.append(Coefficient(term, whole_scope, round(value, 5), first.source, first.fitted_on, runs))
    return ordered


def _pooled(table: Mapping[str, Coefficient], better: Better) -> dict[str, float]:
    """Returns the coefficient of each name; names in the wrong order get their mean, weighted by their runs."""
    blocks = [frozenset({name}) for name in table]
    while True:
        mean = {
            block: sum(table[name].n * table[name].value for name in block) / sum(table[name].n for name in block)
            for block in blocks
        }
        violations = [
            (mean[good] - mean[bad], good, bad)
            for bad in blocks
            for good in blocks
            if mean[good] > mean[bad] and any(better.get(name, frozenset()) & good for name in bad)
        ]
        if not violations:
            return {name: mean[block] for block in blocks for name in block}
        _, good, bad = max(violations, key=lambda violation: violation[0])
        blocks = [block for block in blocks if block not in (good, bad)] + [good | bad]


def _without_runs(values: Mapping[str, float], better: Better) -> dict[str, float]:
    """Returns coefficients for the names without runs for which 0, as without coefficients, breaks the order."""
    nearest = {}
    for name in better.keys() - values.keys():
        lowest = max((value for other, value in values.items() if other in better[name]), default=float("-inf"))
        highest = min((value for other, value in values.items() if name in better.get(other, ())), default=float("inf"))
        if not lowest <= 0 <= highest:
            nearest[name] = min(max(0.0, lowest), highest)
    return nearest
