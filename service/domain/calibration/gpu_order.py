"""Coefficients of GPUs in the order of their figures: one that is better in every figure never takes longer.

A few runs of each GPU differ by their software and their sources as well, so that the fit may find the A100 with 80 GB
slower than the one with 40. GPUs that come out in the wrong order share the mean of their coefficients (isotonic
regression by pooling violators), and a GPU without runs takes the nearest coefficient that keeps the order.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from service.domain.calibration.coefficients import Coefficient

Better = Mapping[str, frozenset[str]]
"""By GPU, the GPUs of the same architecture that are no worse in any figure."""

LIKE = "like_gpu"
"""The feature that selects coefficients of GPUs without runs, so that such a GPU still counts as new."""


def in_order(coefficients: Iterable[Coefficient], better: Better) -> list[Coefficient]:
    """Returns the coefficients, with those that name a GPU in order."""
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
    """Returns the fitted values, GPUs in the wrong order at the mean of theirs, weighted by their runs."""
    blocks = [frozenset({gpu}) for gpu in table]
    while True:
        mean = {
            block: sum(table[gpu].n * table[gpu].value for gpu in block) / sum(table[gpu].n for gpu in block)
            for block in blocks
        }
        wrong = [
            (mean[good] - mean[bad], good, bad)
            for bad in blocks
            for good in blocks
            if mean[good] > mean[bad] and any(better.get(gpu, frozenset()) & good for gpu in bad)
        ]
        if not wrong:
            return {gpu: mean[block] for block in blocks for gpu in block}
        _, good, bad = max(wrong, key=lambda each: each[0])
        blocks = [block for block in blocks if block not in (good, bad)] + [good | bad]


def _without_runs(values: Mapping[str, float], better: Better) -> dict[str, float]:
    """Returns the values of GPUs without runs that 0 would put in the wrong order."""
    in_between = {}
    for gpu in better.keys() - values.keys():
        least = max((value for other, value in values.items() if other in better[gpu]), default=float("-inf"))
        most = min((value for other, value in values.items() if gpu in better.get(other, ())), default=float("inf"))
        if not least <= 0 <= most:
            in_between[gpu] = min(max(0.0, least), most)
    return in_between
