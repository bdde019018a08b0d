"""The layouts of `layout_candidates`, for machines of many shapes at once, as one table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Mask
from service.domain.jobs.config import TrainingConfig
from service.domain.layouts.candidates import (
    LONG_SEQUENCE,
    MOST_PADDING,
    Way,
    assumed_batch,
    divisors,
    every_way,
    is_never_cut,
    most_samples_per_micro_batch,
)
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.physics.parallelism import Floats, LayoutTable

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class LayoutCandidates:
    """Layouts of several shapes of machines in one table: those of shape i are the rows starts[i] to starts[i+1]."""

    layouts: LayoutTable
    linked_gpus: Floats
    starts: NDArray[np.int64]


def training_candidates(
    config: TrainingConfig,
    shapes: Sequence[tuple[int, int]],
    fixed: FixedLayout = FREE,
    *,
    across: bool = False,
    ways: Callable[[int], Sequence[Way]] | None = None,
) -> LayoutCandidates:
    """The layouts of `every_training_layout`, for every (GPUs, linked GPUs).

    `ways` tells which pairs of ZeRO stage and checkpointing are worth trying up to a stage; else all are.
    """
    t = config.model.transformer
    limits = _Limits(
        heads=0 if t is None else t.heads,
        layers=0 if t is None else t.layers,
        experts=0 if t is None else t.experts,
        whole=is_never_cut(config),
        most_contexts=1 if t is None else max(1, config.sequence_length // LONG_SEQUENCE),
        fixed=tuple(getattr(fixed, name) for name in CUTS),
        across=across,
    )
    cuts = _cuts(limits, tuple(shapes))
    batch = np.array([float(assumed_batch(config, gpus)) for gpus, _ in shapes])[cuts["shape"]]
    some, micro = _micro_batches(config, batch, cuts["data"], fixed)
    cut, way, stages_and_hows = _ways(cuts, some, fixed, ways or (lambda highest: every_way(config, fixed, highest)))
    columns = {name: cuts[name][some][cut] for name in (*CUTS, "linked_gpus")}
    batch, micro, data = batch[some], micro, cuts["data"][some]
    rounds = np.maximum(1, np.ceil(np.ceil(batch / data) / micro))
    accumulation = np.full(len(micro), float(fixed.accumulation)) if fixed.accumulation else rounds
    empty = data * micro * accumulation - batch
    empty = np.where((empty >= 0) & (empty < data * micro), empty, 0.0)
    linked_gpus = columns.pop("linked_gpus")
    layouts = LayoutTable(
        **columns,
        zero_stage=stages_and_hows[way, 0].astype(np.float64),
        micro_batch=micro[cut],
        accumulation=accumulation[cut],
        checkpointing=stages_and_hows[way, 1],
        empty_samples=empty[cut],
        virtual_stages=np.full(len(cut), float(fixed.virtual_stages or 1)),
    )
    starts = np.searchsorted(cuts["shape"][some][cut], np.arange(len(shapes) + 1))
    return LayoutCandidates(layouts, linked_gpus, starts)


CUTS = ("tensor", "pipeline", "data", "context", "expert")


class _Limits(NamedTuple):
    """What a model, its stack and the caller allow of cuts; many jobs share it."""

    heads: int
    """0 of what is no transformer."""
    layers: int
    experts: int
    whole: bool
    most_contexts: int
    fixed: tuple[int | None, ...]
    across: bool


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


def _where(rows: Columns, kept: Mask) -> Columns:
    return {name: column[kept] for name, column in rows.items()}


@lru_cache(maxsize=64)
def _cuts(limits: _Limits, shapes: tuple[tuple[int, int], ...]) -> Columns:
    """Degrees that multiply out to the GPUs of each shape, whatever the batch."""
    fixed = dict(zip(CUTS, limits.fixed, strict=True))
    long = fixed["context"] is not None or limits.most_contexts > 1
    found = [factorisations(gpus, 4 if long else 3) for gpus, _ in shapes]
    sizes = [len(each) for each in found]
    degrees = np.concatenate([np.zeros((0, 4 if long else 3)), *found]).T
    rows: Columns = {
        "shape": np.repeat(np.arange(len(shapes)), sizes),
        "linked_gpus": np.repeat([float(linked) for _, linked in shapes], sizes),
        "tensor": degrees[0],
        "pipeline": degrees[1],
        "data": degrees[2],
        "context": degrees[3] if long else np.ones(sum(sizes)),
    }
    tensor, pipeline, context = rows["tensor"], rows["pipeline"], rows["context"]
    kept = np.ones(sum(sizes), dtype=bool)
    for name, degree in fixed.items():
        if degree is not None and name != "expert":
            kept &= rows[name] == degree
    uncut = limits.whole or not limits.heads
    if fixed["tensor"] is None:
        crossing = (tensor > rows["linked_gpus"]) | (rows["linked_gpus"] % tensor != 0)
        kept &= (crossing == limits.across) & ((tensor == 1) if uncut else (limits.heads % tensor == 0))
    if fixed["pipeline"] is None:
        layers = 1 if uncut else limits.layers
        kept &= (pipeline <= layers) & (-layers % pipeline <= MOST_PADDING * layers)
    if fixed["context"] is None:
        kept &= context <= limits.most_contexts
    return _with_experts(limits, _where(rows, kept), fixed["expert"])


def _with_experts(limits: _Limits, rows: Columns, told: int | None) -> Columns:
    if told is not None or not limits.experts:
        return rows | {"expert": np.full(len(rows["shape"]), float(told or 1))}
    ranks, experts = rows["tensor"] * rows["data"] * rows["context"], np.array(divisors(limits.experts))
    row, value = np.nonzero(ranks[:, None] % experts == 0)
    return {name: column[row] for name, column in rows.items()} | {"expert": experts[value].astype(np.float64)}


Places = NDArray[np.int64]


def _micro_batches(config: TrainingConfig, batch: Floats, data: Floats, fixed: FixedLayout) -> tuple[Places, Floats]:
    """Places of the cuts that give each data-parallel rank a sample, once for each micro-batch, and its size."""
    some = np.flatnonzero(data <= batch)
    share = np.ceil(batch[some] / data[some])
    if fixed.micro_batch is not None:
        return some, np.full(len(some), float(fixed.micro_batch))
    if fixed.accumulation is not None:
        return some, np.ceil(share / fixed.accumulation)
    most = most_samples_per_micro_batch(config)
    sizes = np.array(sorted({size for each in set(share.tolist()) for size in divisors(int(each)) if size <= most}))
    row, size = np.nonzero(share[:, None] % sizes == 0) if len(sizes) else (some, some)
    return some[row], sizes[size].astype(np.float64)


def _ways(
    cuts: Columns, some: Places, fixed: FixedLayout, ways: Callable[[int], Sequence[Way]]
) -> tuple[Places, Places, Places]:
    """Each of some cuts with each way that is allowed for it: the cut's place, the way's, and all ways."""
    if fixed.zero_stage is not None:
        highest = np.full(len(some), fixed.zero_stage)
    else:
        sharded = (cuts["data"] * cuts["context"] > 1)[some]
        highest = np.where(sharded, np.where(cuts["pipeline"][some] > 1, 1, 3), 0)
    of_each = {most: set(ways(most)) for most in sorted(set(highest.tolist()))}
    every = sorted(set().union(*of_each.values()))
    allowed = np.zeros((max(of_each, default=0) + 1, len(every)), dtype=bool)
    for most, known in of_each.items():
        allowed[most] = [way in known for way in every]
    cut, way = np.nonzero(allowed[highest])
    return cut, way, np.array(every, dtype=np.int64).reshape(-1, 2)
