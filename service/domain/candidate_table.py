"""The layouts of `layout_candidates`, for machines of many shapes at once, as one table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from service.domain.layout_candidates import (
    LONG_SEQUENCE,
    MOST_PADDING,
    Way,
    assumed_batch,
    divisors,
    every_way,
    is_never_cut,
    most_samples_per_micro_batch,
)
from service.domain.layouts import FREE, FixedLayout
from service.domain.parallelism import Floats, LayoutTable, Truths
from service.domain.workload import Training

Columns = dict[str, Floats]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Layouts of several shapes of machines in one table: those of shape i are the rows starts[i] to starts[i+1]."""

    layouts: LayoutTable
    linked_gpus: Floats
    starts: NDArray[np.int64]


def training_candidates(
    work: Training,
    shapes: Sequence[tuple[int, int]],
    fixed: FixedLayout = FREE,
    *,
    across: bool = False,
    ways: Callable[[int], Sequence[Way]] | None = None,
) -> Candidates:
    """The layouts of `every_training_layout`, for every (GPUs, linked GPUs).

    `ways` tells which pairs of ZeRO stage and checkpointing are worth trying up to a stage; else all are.
    """
    rows = _cuts(work, shapes, fixed, across=across)
    rows = _with_experts(work, rows, fixed)
    rows = _with_micro_batches(work, rows, fixed)
    rows = _with_ways(rows, fixed, ways or (lambda highest: every_way(work, fixed, highest)))
    layouts = LayoutTable(
        tensor=rows["tensor"],
        pipeline=rows["pipeline"],
        data=rows["data"],
        context=rows["context"],
        expert=rows["expert"],
        zero_stage=rows["zero_stage"],
        micro_batch=rows["micro_batch"],
        accumulation=rows["accumulation"],
        checkpointing=rows["checkpointing"].astype(np.int64),
        empty_samples=rows["empty_samples"],
        virtual_stages=np.full(len(rows["tensor"]), float(fixed.virtual_stages or 1)),
    )
    return Candidates(layouts, rows["linked_gpus"], np.searchsorted(rows["shape"], np.arange(len(shapes) + 1)))


@cache
def factorisations(gpus: int, factors: int) -> NDArray[np.int64]:
    """Every way to write a number as a product of so many, in order: one way per row."""
    if factors == 1:
        return np.array([[gpus]], dtype=np.int64)
    parts = []
    for first in divisors(gpus):
        rest = factorisations(gpus // first, factors - 1)
        parts.append(np.column_stack([np.full(len(rest), first), rest]))
    return np.concatenate(parts)


def _where(rows: Columns, kept: Truths) -> Columns:
    return {name: column[kept] for name, column in rows.items()}


def _each_with(rows: Columns, name: str, values: Sequence[int], allowed: Truths) -> Columns:
    """Every row with every value that is allowed for it."""
    row, value = np.nonzero(allowed)
    return {key: column[row] for key, column in rows.items()} | {name: np.array(values, dtype=np.float64)[value]}


def _cuts(work: Training, shapes: Sequence[tuple[int, int]], fixed: FixedLayout, *, across: bool) -> Columns:
    t = work.model.transformer
    long = fixed.context is not None or work.sequence_length >= 2 * LONG_SEQUENCE
    found = [factorisations(gpus, 4 if long else 3) for gpus, _ in shapes]
    sizes = [len(each) for each in found]
    degrees = np.concatenate(found).astype(np.float64).T
    rows: Columns = {
        "shape": np.repeat(np.arange(len(shapes), dtype=np.float64), sizes),
        "linked_gpus": np.repeat([float(linked) for _, linked in shapes], sizes),
        "batch": np.repeat([float(assumed_batch(work, gpus)) for gpus, _ in shapes], sizes),
        "tensor": degrees[0],
        "pipeline": degrees[1],
        "data": degrees[2],
        "context": degrees[3] if long else np.ones(sum(sizes)),
    }
    kept = rows["data"] <= rows["batch"]
    for name in ("tensor", "pipeline", "data", "context"):
        if getattr(fixed, name) is not None:
            kept &= rows[name] == getattr(fixed, name)
    whole, tensor, pipeline = is_never_cut(work), rows["tensor"], rows["pipeline"]
    if fixed.tensor is None:
        crossing = (tensor > rows["linked_gpus"]) | (rows["linked_gpus"] % tensor != 0)
        kept &= (crossing == across) & ((tensor == 1) if whole or t is None else (t.heads % tensor == 0))
    if fixed.pipeline is None:
        layers = 1 if whole or t is None else t.layers
        kept &= (pipeline <= layers) & (-layers % pipeline <= MOST_PADDING * layers)
    if fixed.context is None:
        least = rows["context"] * LONG_SEQUENCE
        kept &= (rows["context"] == 1) | ((work.sequence_length >= least) & (t is not None))
    return _where(rows, kept)


def _with_experts(work: Training, rows: Columns, fixed: FixedLayout) -> Columns:
    t = work.model.transformer
    if fixed.expert is not None or t is None or not t.experts:
        return rows | {"expert": np.full(len(rows["shape"]), float(fixed.expert or 1))}
    ranks = rows["tensor"] * rows["data"] * rows["context"]
    experts = divisors(t.experts)
    return _each_with(rows, "expert", experts, ranks[:, None] % np.array(experts) == 0)


def _with_micro_batches(work: Training, rows: Columns, fixed: FixedLayout) -> Columns:
    share = np.ceil(rows["batch"] / rows["data"])
    if fixed.micro_batch is not None:
        rows = rows | {"micro_batch": np.full(len(share), float(fixed.micro_batch))}
    elif fixed.accumulation is not None:
        rows = rows | {"micro_batch": np.ceil(share / fixed.accumulation)}
    else:
        most = most_samples_per_micro_batch(work)
        sizes = sorted({size for each in np.unique(share) for size in divisors(int(each)) if size <= most})
        rows = _each_with(rows, "micro_batch", sizes, share[:, None] % np.array(sizes) == 0)
    micro, data = rows["micro_batch"], rows["data"]
    rounds = np.maximum(1, np.ceil(np.ceil(rows["batch"] / data) / micro))
    accumulation = np.full(len(micro), float(fixed.accumulation)) if fixed.accumulation else rounds
    empty = data * micro * accumulation - rows["batch"]
    empty = np.where((empty >= 0) & (empty < data * micro), empty, 0.0)
    return {**rows, "accumulation": accumulation, "empty_samples": empty}


def _with_ways(rows: Columns, fixed: FixedLayout, ways: Callable[[int], Sequence[Way]]) -> Columns:
    if fixed.zero_stage is not None:
        highest = np.full(len(rows["shape"]), float(fixed.zero_stage))
    else:
        sharded = rows["data"] * rows["context"] > 1
        highest = np.where(sharded, np.where(rows["pipeline"] > 1, 1.0, 3.0), 0.0)
    of_each = {most: set(ways(int(most))) for most in np.unique(highest)}
    every = sorted(set().union(*of_each.values()))
    allowed = np.array([[way in of_each[most] for way in every] for most in of_each]).reshape(len(of_each), len(every))
    place = np.searchsorted(list(of_each), highest)
    rows = _each_with(rows, "way", range(len(every)), allowed[place] if of_each else np.zeros((0, 0), dtype=bool))
    stage_and_how = np.array(every, dtype=np.float64).reshape(-1, 2)[rows.pop("way").astype(np.int64)]
    return rows | {"zero_stage": stage_and_how[:, 0], "checkpointing": stage_and_how[:, 1]}
