"""The best layout of a job on each machine: the fastest that fits, or else the one that needs the least memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from service.domain.bands import bands_by_gpu
from service.domain.candidate_table import training_candidates
from service.domain.columns import either, joined, taken
from service.domain.efficiency import Column, Kind, Levels
from service.domain.errors import QuestionError
from service.domain.estimate import Estimate, Physics, estimate_training
from service.domain.facts import layout_columns, training_work_facts
from service.domain.kinds import MEMORY, TRAINING
from service.domain.layout_candidates import Way, crosses_slow_links, every_way
from service.domain.layout_checks import check_fixed
from service.domain.layouts import FREE, FixedLayout
from service.domain.machine import Machine
from service.domain.machine_table import MachineTable, Shape, machine_table
from service.domain.memory import training_parts
from service.domain.parallelism import CHECKPOINTINGS, Floats, Layout, LayoutTable, Number, Truths
from service.domain.throughput import training_demands
from service.domain.workload import Training


@dataclass(frozen=True, slots=True)
class Fastest:
    """The chosen layout of each machine of a table, and what it comes to."""

    layouts: LayoutTable
    exists: Truths
    """False where the batch cannot be spread over the machine in any way that is allowed."""
    fits: Truths
    """In the GPUs' memory and, where that is known, in the host's."""
    needed_bytes: Floats
    """Per GPU; infinite where there is no layout."""
    seconds_per_sample: Floats
    """As the calibration says, before the caution of bands; infinite where it does not fit."""

    @staticmethod
    def nothing(rows: int) -> "Fastest":
        exists, fits = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
        return Fastest(LayoutTable.plain(rows), exists, fits, np.full(rows, np.inf), np.full(rows, np.inf))


def best_training_layout(physics: Physics, work: Training, machine: Machine, fixed: FixedLayout = FREE) -> Estimate:
    """The fastest layout that fits; where none does, the one that needs the least memory.

    A tensor cut leaves the GPUs on one fast link only when told so or when nothing else fits; the estimate says so.
    """
    check_fixed(fixed, work, machine)
    found = fastest_training_layouts(physics, work, machine_table([machine]), fixed)
    if not found.exists[0]:
        batch = f" and a global batch of {work.global_batch}" if work.global_batch else ""
        raise QuestionError(
            f"No layout divides {work.model.name}{batch} over {machine.gpus} GPUs as asked: each data-parallel rank "
            "needs a sample at least, and the GPUs of a replica must divide its attention heads and layers.",
            field="global_batch_size" if fixed == FREE else "layout",
        )
    layout = found.layouts.row(0)
    across = crosses_slow_links(layout.tensor, machine.linked_gpus)
    return replace(estimate_training(physics, work, machine, layout), tensor_across_slow_links=across)


def training_bands(physics: Physics, work: Training, machines: MachineTable) -> Floats:
    """Low, likely and high samples per second of each machine, over 1 / seconds_per_sample."""
    gpus = [gpu.id for gpu in machines.kinds]
    found = bands_by_gpu(physics.calibration, physics.bands, TRAINING, training_work_facts(work), gpus)
    return found[machines.kind]


def fastest_training_layouts(
    physics: Physics, work: Training, machines: MachineTable, fixed: FixedLayout = FREE
) -> Fastest:
    """The same of many machines at once, without their estimates."""
    search = _Search(physics, work, machines, fixed)
    found = search.among(search.shapes(np.ones(len(machines), dtype=bool)), across=False)
    if fixed.tensor is None and work.model.transformer is not None:
        hopeless = found.exists & (search.least_bytes() > machines.usable_bytes)
        left = search.shapes(~found.fits & ~hopeless)
        if left:
            more = search.among(left, across=True)
            found = either(found, more, more.exists & ~found.fits & (more.fits | ~found.exists))
    found = taken(search.simplified(found), search.alike)
    fits = found.fits & machines.hosts_fit(work, found.layouts.micro_batch)
    return replace(found, fits=fits, seconds_per_sample=np.where(fits, found.seconds_per_sample, np.inf))


class _Search:
    """Layouts by machines: a product of what layouts ask for and what machines take for it."""

    def __init__(self, physics: Physics, work: Training, machines: MachineTable, fixed: FixedLayout) -> None:
        self.physics, self.work, self.machines, self.fixed = physics, work, machines, fixed
        self.facts = training_work_facts(work)
        self.log_of_work: dict[tuple[str, str], float] = {}
        self.rates = machines.seconds_per_unit(work)
        self.whole = self._of_machines("*")
        self.log_ways = self._log_ways()
        hosts_matter = work.model.transformer is None
        self.alike = np.arange(len(machines)) if hosts_matter else machines.same_but_host

    def shapes(self, wanted: Truths) -> list[Shape]:
        """Where to look for the wanted machines: one of those that are alike."""
        wanted = wanted & (self.alike == np.arange(len(self.machines)))
        found = [Shape(s.gpus, s.linked_gpus, s.places[wanted[s.places]]) for s in self.machines.shapes]
        return [shape for shape in found if len(shape.places)]

    def among(self, shapes: Sequence[Shape], *, across: bool) -> Fastest:
        """The fastest of the candidates, in a table of all machines."""
        found = Fastest.nothing(len(self.machines))
        sizes = [(shape.gpus, shape.linked_gpus) for shape in shapes]
        candidates = training_candidates(self.work, sizes, self.fixed, across=across, ways=self.ways)
        layouts = candidates.layouts
        if not len(layouts.tensor):
            return found
        need, usable = self.bytes_needed(layouts), self.machines.usable_bytes
        shape_of = np.repeat(np.arange(len(shapes)), np.diff(candidates.starts))
        order = np.lexsort((need, shape_of))
        largest = np.array([usable[shape.places].max() for shape in shapes])
        place = np.zeros(len(self.machines), dtype=np.int64)
        for shape, start, end in zip(shapes, candidates.starts, candidates.starts[1:], strict=False):
            if start < end:
                found.exists[shape.places], place[shape.places] = True, order[start]
        order = order[need[order] <= largest[shape_of[order]]]
        asked, costs = self.asked_and_costs(taken(layouts, order), candidates.linked_gpus[order])
        starts = np.searchsorted(shape_of[order], np.arange(len(shapes) + 1))
        for shape, start, end in zip(shapes, starts, starts[1:], strict=False):
            here, needs = shape.places, need[order[start:end]]
            possible = np.searchsorted(needs, usable[here], side="right")
            for some in _of_like_size(possible):
                those, fitting = here[some], possible[some]
                times = costs[those] @ asked[:, start : start + fitting.max()]
                times[np.arange(times.shape[1]) >= fitting[:, None]] = np.inf
                chosen = times.argmin(axis=1)
                found.fits[those], place[those] = True, order[start + chosen]
                found.seconds_per_sample[those] = times[np.arange(len(those)), chosen]
        found.needed_bytes[found.exists] = need[place[found.exists]]
        return replace(found, layouts=taken(layouts, place))

    def ways(self, highest: int) -> list[Way]:
        """ZeRO stages and checkpointings without those that another one beats in any cut of any machine.

        Up to stage 2, a higher one moves no more bytes and holds fewer; selective checkpointing costs no time. Only the
        calibration of a stack may say otherwise.
        """
        every = every_way(self.work, self.fixed, highest)
        slower = {way: self.log_ways[way] for way in every}
        lighter = self._of(MEMORY, "selected", {}) <= self._of(MEMORY, "kept", {})
        beaten = set()
        for stage, how in every:
            others = [(higher, how) for higher in range(stage + 1, min(2, highest) + 1)]
            if how == CHECKPOINTINGS.index("none") and lighter:
                others.append((stage, CHECKPOINTINGS.index("selective")))
            if any(slower.get(other, np.inf) <= slower[(stage, how)] for other in others):
                beaten.add((stage, how))
        return [way for way in every if way not in beaten]

    def _log_ways(self) -> dict[Way, float]:
        """The logarithm of what each way makes a step of this stack take."""
        every = every_way(self.work, self.fixed, 3)
        stages, hows = (np.array([way[side] for way in every]) for side in (0, 1))
        layouts = replace(LayoutTable.plain(len(every)), zero_stage=stages.astype(np.float64), checkpointing=hows)
        slowed = np.broadcast_to(self._of(TRAINING, "*", layout_columns(layouts)), len(every))
        return {way: float(each) for way, each in zip(every, slowed, strict=True)}

    def simplified(self, found: Fastest) -> Fastest:
        """Without selective checkpointing, and at ZeRO stage 1 instead of 2, where that is as fast and fits too."""
        for stage, how in ((1, "none"), (2, "none"), (1, "selective")):
            found = self._with_way_if_as_good(found, stage, CHECKPOINTINGS.index(how))
        return found

    def _with_way_if_as_good(self, found: Fastest, stage: int, how: int) -> Fastest:
        free = (self.fixed.zero_stage is None, self.fixed.activation_checkpointing is None)
        lower = (found.layouts.zero_stage == 2) & free[0] & (stage < 2)
        eased = (found.layouts.checkpointing == 1) & free[1] & (how < 1)
        places = np.flatnonzero(found.fits & (lower | eased))
        old = taken(found.layouts, places)
        new = replace(
            old,
            zero_stage=np.where(lower[places], stage, old.zero_stage),
            checkpointing=np.where(eased[places], how, old.checkpointing),
        )
        needed = self.bytes_needed(new)
        slowed = self._of(TRAINING, "*", layout_columns(new)) - self._of(TRAINING, "*", layout_columns(old))
        good = (slowed == 0) & (needed <= self.machines.usable_bytes[places])
        moved = np.arange(len(found.fits))
        moved[places[good]] = len(moved) + np.flatnonzero(good)
        found.needed_bytes[places[good]] = needed[good]
        return replace(found, layouts=taken(joined(found.layouts, new), moved))

    def least_bytes(self) -> Floats:
        """What no layout goes below: states cut evenly over all GPUs."""
        every = Levels(("", "yes"), np.arange(2))
        parts = training_parts(self.work, Layout())
        total = 0.0
        for name in ("weights", "gradients", "optimizer"):
            total += float(parts[name]) * float(np.exp(np.min(self._of(MEMORY, name, {"sharded": every}))))
        return total * np.exp(self._of(MEMORY, "*", {})) / self.machines.gpus

    def bytes_needed(self, layouts: LayoutTable) -> Floats:
        """Per GPU, calibrated."""
        columns = layout_columns(layouts)
        total = np.zeros(len(layouts.tensor))
        for part, amount in training_parts(self.work, layouts).items():
            total += amount * MEMORY.start[part] * np.exp(self._of(MEMORY, part, columns))
        return total * np.exp(self._of(MEMORY, "*", columns))

    def asked_and_costs(self, layouts: LayoutTable, linked_gpus: Floats) -> tuple[Floats, Floats]:
        """Amounts per sample, demands by layouts; and seconds that a unit really takes, machines by demands."""
        columns = layout_columns(layouts)
        per_sample = np.exp(self._of(TRAINING, "*", columns)) / layouts.global_batch
        demands = training_demands(self.work, layouts, linked_gpus)
        keys = [key for key, amount in demands.items() if key[0] in TRAINING.start and np.any(amount)]
        asked, costs = np.empty((len(keys), len(layouts.tensor))), np.empty((len(self.machines), len(keys)))
        for place, (term, resource) in enumerate(keys):
            np.multiply(demands[(term, resource)], per_sample, out=asked[place])
            factor = TRAINING.start[term] * np.exp(self._of(TRAINING, term, {}) + self._of_machines(term) + self.whole)
            costs[:, place] = self.rates[resource] * factor
        return asked, costs

    def _of(self, kind: Kind, term: str, columns: Mapping[str, Column]) -> Number:
        calibration, key = self.physics.calibration, (kind.name, term)
        if key not in self.log_of_work:
            self.log_of_work[key] = calibration.log_factor(kind, term, self.facts)
        return self.log_of_work[key] + calibration.log_factors(kind, term, self.facts, columns)

    def _of_machines(self, term: str) -> Number:
        """What the machines add to it."""
        return self.physics.calibration.log_factors(TRAINING, term, self.facts, self.machines.facts)


def _of_like_size(counts: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Places of counts above zero, those within a factor of two together, so that little is computed in vain."""
    sizes = np.frexp(counts)[1]
    for size in np.unique(sizes[counts > 0]):
        yield np.flatnonzero(sizes == size)
