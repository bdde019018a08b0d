"""Order of the coefficients of GPUs: a GPU that is no worse in any figure never takes longer.

The runs of a GPU are few and differ in software and source, so the fit may find the A100 with 80 GB slower than the one
with 40. GPUs in the wrong order get the mean of their coefficients (isotonic regression by pooling of adjacent
violators), and a GPU without runs gets the coefficient nearest to 0 that keeps the order.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from service.domain.calibration.coefficients import Coefficient

Better = Mapping[str, frozenset[str]]
"""GPU → the GPUs of its architecture that are no worse in any figure."""

LIKE = "like_gpu"
"""The feature for coefficients of GPUs without runs. It is not `gpu`, so that such a GPU still counts as new."""


def in_order(coefficients: Iterable[Coefficient], better: Better) -> list[Coefficient]:
    """Returns the coefficients, with the values of those that name a GPU changed to be in order."""
    ordered: list[Coefficient] = []
    tables: dict[tuple[str, str], dict[str, Coefficient]] = defaultdict(dict)
    for coefficient in coefficients:
        gpu = next((part[4:] for part in coefficient.scope.split("|") if part.startswith("gpu=")), None)
        if gpu is None:
            ordered.append(coefficient)
        else:
            tables[coefficient.name, coefficient.scope.replace(f"gpu={gpu}", "{}")][gpu] = coefficient
    for (name, scope), table in tables.items():
        first, values = next(iter(table.values())), _pooled(table, better)
        values |= _without_runs(values, better)
        for gpu, value in values.items():
            runs = table[gpu].n if gpu in table else 0
            of_gpu = scope.format(f"{'gpu' if runs else LIKE}={gpu}")
            ordered.append(Coefficient(name, of_gpu, round(value, 5), first.source, first.fitted_on, runs))
    return ordered


def _pooled(table: Mapping[str, Coefficient], better: Better) -> dict[str, float]:
    """Returns the value of each GPU; GPUs in the wrong order get their mean, weighted by their runs."""
    blocks = [frozenset({gpu}) for gpu in table]
    while True:
        mean = {
            block: sum(table[gpu].n * table[gpu].value for gpu in block) / sum(table[gpu].n for gpu in block)
            for block in blocks
        }
        violations = [
            (mean[good] - mean[bad], good, bad)
            for bad in blocks
            for good in blocks
            if mean[good] > mean[bad] and any(better.get(gpu, frozenset()) & good for gpu in bad)
        ]
        if not violations:
            return {gpu: mean[block] for block in blocks for gpu in block}
        _, good, bad = max(violations, key=lambda violation: violation[0])
        blocks = [block for block in blocks if block not in (good, bad)] + [good | bad]


def _without_runs(values: Mapping[str, float], better: Better) -> dict[str, float]:
    """Returns values for the GPUs without runs for which 0, the value without coefficients, breaks the order."""
    nearest = {}
    for gpu in better.keys() - values.keys():
        lowest = max((value for other, value in values.items() if other in better[gpu]), default=float("-inf"))
        highest = min((value for other, value in values.items() if gpu in better.get(other, ())), default=float("inf"))
        if not lowest <= 0 <= highest:
            nearest[gpu] = min(max(0.0, lowest), highest)
    return nearest
