"""The best layout of answering on each machine: how many GPUs hold one replica, and how."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Mask, either, still, taken
from service.domain.calibration.coefficients import Features, StepKind
from service.domain.calibration.error_bands import Physics, bands_by_gpu
from service.domain.calibration.step_kinds import FORWARD, MEMORY
from service.domain.errors import QuestionError
from service.domain.jobs.config import InferenceConfig
from service.domain.layouts.candidate_table import factorisations
from service.domain.layouts.candidates import crosses_slow_links
from service.domain.layouts.checks import check_fixed
from service.domain.layouts.cluster_table import ClusterTable, machine_table
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, estimate_inference, forward_batch, language_demands, language_kind
from service.domain.physics.features import answering_work_facts, cut_columns
from service.domain.physics.inference_roofline import forward_demands
from service.domain.physics.kv_cache import in_flight, replicas_in_use
from service.domain.physics.memory import inference_parts
from service.domain.physics.parallelism import Floats, LayoutTable
from service.domain.physics.resources import Demands


@dataclass(frozen=True, slots=True)
class FastestInference:
    """The chosen layout of each machine of a table, and what it comes to."""

    layouts: LayoutTable
    exists: Mask
    fits: Mask
    """In the GPUs' memory and, where that is known, in the host's."""
    needed_bytes: Floats
    """Per GPU; infinite where there is no layout."""
    concurrency: Floats
    """Conversations (or samples) at once on the whole machine."""
    units_per_second: Floats
    """Output tokens (or samples of what does not generate) of the whole machine, as the calibration says, before the
    caution of bands; 0 where it does not fit."""
    seconds_per_step: Floats
    """Seconds from one token of a conversation to the next (or of a forward pass)."""


def best_inference_layout(
    physics: Physics, work: InferenceConfig, machine: Cluster, fixed: FixedLayout = FREE
) -> Estimate:
    """The layout that fits and answers the most tokens (or samples) per second; of equals, the least cut.

    With a concurrency given, all layouts that hold it at once share it among their replicas, so the most tokens per
    second is also the least time per token; a layout that could not hold it would look quick for few and keep others
    waiting, which tokens per second counts and time per token does not.
    """
    check_fixed(fixed, work, machine)
    found = fastest_inference_layouts(physics, work, machine_table([machine]), fixed)
    if not found.exists[0]:
        raise QuestionError(
            f"No layout divides {work.model.name} over {machine.gpus} GPUs as asked: the GPUs of a replica must divide "
            "its attention heads and layers.",
            field="layout",
        )
    layout = found.layouts.row(0)
    across = crosses_slow_links(layout.tensor, machine.linked_gpus)
    return replace(estimate_inference(physics, work, machine, layout), tensor_across_slow_links=across)


def inference_bands(physics: Physics, work: InferenceConfig, machines: ClusterTable) -> Floats:
    """Low, likely and high rates of each machine, over units_per_second."""
    gpus = [gpu.id for gpu in machines.kinds]
    kind = language_kind(work) if work.model.generates else FORWARD
    return bands_by_gpu(physics.calibration, physics.bands, kind, answering_work_facts(work), gpus)[machines.kind]


def fastest_inference_layouts(
    physics: Physics,
    work: InferenceConfig,
    machines: ClusterTable,
    fixed: FixedLayout = FREE,
    *,
    wanted: Mask | None = None,
) -> FastestInference:
    """The same of many machines at once, or of those that are wanted, without their estimates."""
    every = np.zeros(len(machines), dtype=bool)
    every[machines.same_but_host if wanted is None else machines.same_but_host[wanted]] = True
    pairs = _pairs(work, machines, fixed, every, across=False)
    found = _estimated(physics, work, machines, pairs)
    missing = every & ~found.fits
    if missing.any() and fixed.tensor is None and work.model.generates:
        more = _estimated(physics, work, machines, _pairs(work, machines, fixed, missing, across=True))
        found = either(found, more, more.exists & ~found.fits & (more.fits | ~found.exists))
    found = taken(found, machines.same_but_host)
    fits = found.fits & machines.hosts_fit(work, 1)
    return replace(found, fits=fits, units_per_second=np.where(fits, found.units_per_second, 0.0))


def where_inference_fits(
    physics: Physics, work: InferenceConfig, machines: ClusterTable, wanted: Mask | None = None
) -> Mask:
    """Where the fastest layout fits, without looking for it: where any does."""
    facts = answering_work_facts(work)
    fits, left = np.zeros(len(machines), dtype=bool), np.zeros(len(machines), dtype=bool)
    left[machines.same_but_host if wanted is None else machines.same_but_host[wanted]] = True
    for across in (False, True) if work.model.generates else (False,):
        pairs = _pairs(work, machines, FREE, left & ~fits, across=across)
        usable = machines.usable_bytes[pairs.machine]
        _, needed = _at_once(physics, work, pairs.layouts, usable, facts)
        fits[pairs.machine[needed <= usable]] = True
    return fits[machines.same_but_host] & machines.hosts_fit(work, 1)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Layouts on machines, one pair per row; of each machine the least cut first."""

    machine: NDArray[np.int64]
    layouts: LayoutTable


def _pairs(work: InferenceConfig, machines: ClusterTable, fixed: FixedLayout, wanted: Mask, *, across: bool) -> _Pairs:
    t = work.model.transformer
    heads, layers = (t.heads, t.layers) if t else (1, 1)
    places, cuts = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 3))]
    for shape in machines.shapes:
        here = shape.places[wanted[shape.places]]
        if len(here):
            cut = _cuts(heads, layers, shape.gpus, shape.linked_gpus, fixed, across=across)
            places.append(np.repeat(here, len(cut)))
            cuts.append(np.tile(cut, (len(here), 1)))
    tensor, pipeline, data = np.concatenate(cuts).T
    plain = LayoutTable.plain(len(tensor))
    return _Pairs(np.concatenate(places), replace(plain, tensor=tensor, pipeline=pipeline, data=data))


@lru_cache(maxsize=4096)
def _cuts(
    heads: int, layers: int, gpus: int, linked_gpus: int, fixed: FixedLayout, *, across: bool
) -> NDArray[np.float64]:
    """Tensor, pipeline and data degrees that multiply out, the fewest GPUs per replica first."""
    found = factorisations(gpus, 3)
    tensor, pipeline, data = found.T
    kept = np.ones(len(found), dtype=bool)
    for name, column in (("tensor", tensor), ("pipeline", pipeline), ("data", data)):
        if getattr(fixed, name) is not None:
            kept &= column == getattr(fixed, name)
    if fixed.tensor is None:
        crossing = (tensor > linked_gpus) | (linked_gpus % tensor != 0)
        kept &= (crossing == across) & (heads % tensor == 0)
    if fixed.pipeline is None:
        kept &= pipeline <= layers
    found = found[kept]
    ordered = found[np.lexsort((found[:, 1], found[:, 0] * found[:, 1]))]
    return still(ordered.astype(np.float64))


def _at_once(
    physics: Physics, work: InferenceConfig, layouts: LayoutTable, usable: Floats, facts: Features
) -> tuple[Floats, Floats]:
    """Conversations (or samples) at once on one replica, and the bytes per GPU that they need, calibrated."""
    if work.model.generates:
        at = np.broadcast_to(in_flight(work, usable, layouts), len(usable))
        crowded = _bytes_needed(physics, work, layouts, at, facts) > usable
        at = np.where(crowded & (at > 1), 1.0, at)
    else:
        at = np.full(len(usable), forward_batch(work))
    return at, _bytes_needed(physics, work, layouts, at, facts)


def _estimated(physics: Physics, work: InferenceConfig, machines: ClusterTable, pairs: _Pairs) -> FastestInference:
    """Every pair estimated, and the best of each machine."""
    layouts, usable = pairs.layouts, machines.usable_bytes[pairs.machine]
    facts: Features = answering_work_facts(work)
    rows = len(usable)
    at, needed = _at_once(physics, work, layouts, usable, facts)
    if work.model.generates:
        replicas = np.broadcast_to(replicas_in_use(work, layouts), rows)
        kind, demands, what = language_demands(work, layouts, machines.linked_gpus[pairs.machine], at)
        facts = {**facts, **what}
    else:
        replicas = machines.gpus[pairs.machine]
        kind, demands = FORWARD, forward_demands(work, forward_batch(work))
        facts = {**facts, "offline": "no" if work.concurrency else "yes"}
    seconds = _seconds(physics, kind, facts, machines, pairs, demands, work)
    fits = needed <= usable
    rate = np.where(fits, at * replicas / seconds, 0.0)
    best = np.lexsort((np.where(fits, -rate, needed), ~fits, pairs.machine))
    machine, first = np.unique(pairs.machine[best], return_index=True)
    best = best[first]
    place, exists = np.zeros(len(machines), dtype=np.int64), np.zeros(len(machines), dtype=bool)
    place[machine], exists[machine] = best, True
    if not rows:
        nothing = np.zeros(len(machines))
        return FastestInference(
            LayoutTable.plain(len(machines)), exists, exists, nothing + np.inf, nothing, nothing, nothing
        )
    return FastestInference(
        taken(layouts, place),
        exists,
        fits[place] & exists,
        np.where(exists, needed[place], np.inf),
        (at * replicas)[place],
        np.where(exists, rate[place], 0.0),
        seconds[place],
    )


def _bytes_needed(physics: Physics, work: InferenceConfig, layouts: LayoutTable, at: Floats, facts: Features) -> Floats:
    """Per GPU, calibrated."""
    calibration, needed = physics.calibration, np.zeros(len(at))
    length = work.input_length + work.output_length
    parts = inference_parts(work, layouts, at if work.model.generates else 0.0, length)
    for part, amount in parts.items():
        needed += amount * MEMORY.start[part] * np.exp(calibration.log_factor(MEMORY, part, facts))
    return needed * float(np.exp(calibration.log_factor(MEMORY, "*", facts)))


def _seconds(
    physics: Physics,
    kind: StepKind,
    facts: Features,
    machines: ClusterTable,
    pairs: _Pairs,
    demands: Demands,
    work: InferenceConfig,
) -> Floats:
    """Likely seconds of a step of each pair."""
    calibration = physics.calibration
    keys = [key for key, amount in demands.items() if key[0] in kind.start and np.any(amount)]
    costs = machines.costs(calibration, kind, work, facts, keys)[pairs.machine]
    total = np.zeros(len(pairs.machine))
    for place, key in enumerate(keys):
        factor = kind.start[key[0]] * np.exp(calibration.log_factor(kind, key[0], facts))
        total += demands[key] * factor * costs[:, place]
    whole = calibration.log_factor(kind, "*", facts) + calibration.log_factors(
        kind, "*", facts, cut_columns(pairs.layouts)
    )
    result: Floats = total * np.exp(whole)
    return result
