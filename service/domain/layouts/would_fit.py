"""Changes that would make a job fit, each estimated, the least intrusive first."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np

from service.domain.calibration.calibration import Calibration
from service.domain.catalog.hardware import Gpu
from service.domain.catalog.precision import bytes_per_value
from service.domain.errors import QuestionError
from service.domain.jobs.config import QLORA_FORMAT, Config, InferenceConfig, TrainingConfig
from service.domain.jobs.fixed_layout import FREE, FixedLayout
from service.domain.layouts.cluster_table import cluster_table
from service.domain.layouts.search import best_layout, fastest_layouts
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, Footprint, footprint_of
from service.domain.physics.parallelism import Layout
from service.domain.units import GIB

MOST_NODES = 64
"""Most nodes of a change."""

MOST_PAIRS = 3
"""Most pairs of changes that are named."""

MOST_DOUBLINGS = 20
"""Doublings in the search for the largest batch, up to a million samples on a GPU."""

DIVISION = ("tensor", "pipeline", "data", "context", "expert", "zero_stage")
"""Parts of a layout that say how a model is divided over GPUs."""


@dataclass(frozen=True, slots=True)
class FitChange:
    """One change that makes the job fit, or two that do so only together, with everything else as requested."""

    code: str
    """A field of the layout or of the workload; `layout`, `nodes`, `usable_memory_gib` or `host_memory_gib`."""
    to: float | str | bool
    """The new value of the field."""
    needed_bytes: float
    """Bytes per GPU after the change, or per node if `of_host`. An engine with more room runs more requests in it."""
    of_host: bool = False
    """Whether the job lacks memory of the host, so that the bytes are those of a node's host."""
    also: tuple[str, float | str | bool] | None = None
    """The field and the value of the other change of a pair."""


def nearest_changes(
    calibration: Calibration, config: Config, cluster: Cluster, fixed: FixedLayout = FREE, now: Estimate | None = None
) -> tuple[FitChange, ...]:
    """Returns every single change that would make the job fit, the nearest first; none if the job fits already.

    Where none of the job or of its layout is enough, pairs of changes that are enough together follow.

    A job that likely fits, but not with its confidence, keeps its layout in every change: this layout needs the least
    memory, and a search for another one takes several times as long as the estimate. `now` is the estimate of the best
    layout, if it is known already.
    """
    now = now or _Changes(calibration, config, cluster, fixed).best(config, fixed)
    lacks_host = now is not None and now.memory.fits_surely and not now.host.fits
    return tuple(_Changes(calibration, config, cluster, fixed, lacks_host).all(now))


def largest_batch(
    calibration: Calibration, config: TrainingConfig, cluster: Cluster, layout: Layout, fixed: FixedLayout = FREE
) -> int:
    """Returns the most samples of a micro-batch that fit with the degrees and the ZeRO stage of a layout; 0: none fits.

    What is not fixed of checkpointing and of virtual stages is chosen for each size.
    """
    changes = _Changes(calibration, config, cluster, fixed)
    same = replace(fixed, accumulation=layout.accumulation, **{name: getattr(layout, name) for name in DIVISION})

    together = config.samples_together

    def fits(groups: int) -> bool:
        batch = groups * together
        of_batch = replace(config, global_batch=batch * layout.data * layout.accumulation)
        estimate = changes.best(of_batch, replace(same, micro_batch=batch))
        return estimate is not None and estimate.fits_surely

    # Doubled until it does not fit, then narrowed down to the last batch that does.
    above = 1
    while above < 1 << MOST_DOUBLINGS and fits(above):
        above *= 2
    most = bisect_left(range(above // 2 + 1, above), x=True, key=lambda groups: not fits(groups)) + above // 2
    return most * together


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of one configuration on one cluster."""

    calibration: Calibration
    config: Config
    cluster: Cluster
    fixed: FixedLayout
    lacks_host: bool = False
    """Whether the job fits in the GPUs, and not in the memory of the hosts."""

    def all(self, now: Estimate | None) -> Iterator[FitChange]:
        """Yields every change that makes the job fit, the least intrusive first; none if the job fits already."""
        if now is not None and now.fits_surely:
            return
        yield from _of_confidence(now)
        yield from self._of_job() if now is None or not now.fits else self._in(now.layout)
        if now is not None:
            yield from _of_memory(now)

    def _of_job(self) -> Iterator[FitChange]:
        singles = list(self._of_layout())
        for code, to, other in self.others():
            singles += self._change(code, to, self.best(other, self.fixed))
        yield from singles
        on_nodes = list(self.of_nodes())
        yield from on_nodes
        pairs = [] if singles else list(islice(self._pairs(), MOST_PAIRS))
        yield from pairs
        if not (singles or on_nodes or pairs):
            yield from self._on_fewest_nodes()

    def _pairs(self) -> Iterator[FitChange]:
        """Yields the pairs of changes of the job with which it fits, the least intrusive first."""
        earlier = set[str]()
        for code, to, other in self.others():
            changed, earlier = replace(self, config=other), earlier | {code}
            for second, value, both in changed.others():
                if second not in earlier:
                    for change in self._change(second, value, self.best(both, self.fixed)):
                        yield replace(change, also=(code, to))

    def _on_fewest_nodes(self) -> Iterator[FitChange]:
        """Yields the change of the job that takes the fewest nodes besides."""
        changes = [
            replace(on_nodes, also=(code, to))
            for code, to, other in self.others()
            for on_nodes in replace(self, config=other).of_nodes()
        ]
        yield from sorted(changes, key=attrgetter("to"))[:1]

    def _in(self, layout: Layout) -> Iterator[FitChange]:
        """Yields changes with which the job fits in a layout.

        On twice the nodes, the layout has twice the ranks, each with half of the samples.
        """
        for code, to, other in self.others():
            yield from self._change(code, to, footprint_of(self.calibration, other, self.cluster, layout))
        half, rest = divmod(layout.accumulation, 2)
        is_free = self.fixed.data is None and self.fixed.accumulation is None
        if is_free and half and not rest and not layout.empty_samples:
            twice = replace(self.cluster, nodes=2 * self.cluster.nodes)
            stage = max(layout.zero_stage, 1) if self.fixed.zero_stage is None else layout.zero_stage
            wider = replace(layout, data=2 * layout.data, accumulation=half, zero_stage=stage)
            footprint = footprint_of(self.calibration, self.config, twice, wider)
            yield from self._change("nodes", twice.nodes, footprint)

    def _change(self, code: str, to: float | str | bool, footprint: Footprint | None) -> Iterator[FitChange]:
        """Yields a change if the job fits with it."""
        if footprint is not None and footprint.fits_surely:
            needed = footprint.host.needed_bytes if self.lacks_host else footprint.memory.least_bytes
            yield FitChange(code, to, needed, self.lacks_host)

    def others(self) -> Iterator["Other"]:
        """Returns the job with each change, from changes that alter no result to those that alter much."""
        config = self.config
        if isinstance(config, TrainingConfig):
            return _other_training(config)
        return _other_inference(config, self.cluster.gpu)

    def best(self, config: Config, fixed: FixedLayout) -> Estimate | None:
        """Returns the best layout of a configuration; None if there is none."""
        try:
            return best_layout(self.calibration, config, self.cluster, fixed)
        except QuestionError:
            return None

    def _of_layout(self) -> Iterator[FitChange]:
        """Yields each fixed part of the layout that is enough if set free; if none is, all of them together."""
        names = [field.name for field in fields(self.fixed) if getattr(self.fixed, field.name) is not None]
        enough: list[FitChange] = []
        for name in names:
            estimate = self.best(self.config, replace(self.fixed, **{name: None}))
            if estimate is not None:
                enough += self._change(name, getattr(estimate.layout, name), estimate)
        if names and not enough:
            enough += self._change("layout", "free", self.best(self.config, FREE))
        yield from enough

    def of_nodes(self) -> Iterator[FitChange]:
        """Yields the fewest nodes on which the job fits."""
        counts = range(self.cluster.nodes + 1, MOST_NODES + 1)
        clusters = cluster_table([replace(self.cluster, nodes=nodes) for nodes in counts])
        fastest = fastest_layouts(self.calibration, self.config, clusters, self.fixed)
        for index in np.flatnonzero(fastest.fits)[:1].tolist():
            on_more = replace(self.cluster, nodes=counts[index])
            estimate = best_layout(self.calibration, self.config, on_more, self.fixed)
            yield from self._change("nodes", counts[index], estimate)


def _of_confidence(now: Estimate | None) -> Iterator[FitChange]:
    """Yields the change to the highest memory confidence with which the job fits, if there is one."""
    if now is not None and now.host.fits and (confidence := now.memory.highest_confidence) is not None:
        yield FitChange("memory_confidence", confidence, now.memory.needed_bytes)


def _of_memory(now: Estimate) -> Iterator[FitChange]:
    """Yields the smallest memory of a GPU, or of a host, with which the job fits."""
    if not now.memory.fits_surely and (now.host is None or now.host.fits):
        yield FitChange("usable_memory_gib", now.memory.sure_bytes / GIB, now.memory.needed_bytes)
    if now.memory.fits_surely and now.host is not None:
        yield FitChange("host_memory_gib", now.host.needed_bytes / GIB, now.host.needed_bytes, of_host=True)


Other = tuple[str, float | str | bool, Config]
"""The field that changes, its new value, and the configuration with it."""


def _other_inference(config: InferenceConfig, gpu: Gpu) -> Iterator[Other]:
    if config.concurrency and config.concurrency > 1:
        yield "concurrency", 1.0, replace(config, concurrency=1.0)
    if not config.kv_precision and not config.software.stack.keeps_wide_cache:
        yield "kv_cache_precision", "fp8", replace(config, kv_precision="fp8")
    for precision in ("fp8" if gpu.runs("fp8") else "int8", "int4"):
        bits = 8 * bytes_per_value(precision)
        if (config.weight_bits or 8 * bytes_per_value(config.precision)) > bits:
            yield "weight_precision", precision, replace(config, weight_bits=bits)


def _other_training(config: TrainingConfig) -> Iterator[Other]:
    for name in ("flash_attention", "chunked_loss", "offload_optimizer"):
        change: dict[str, Any] = {name: True}
        if not getattr(config, name):
            yield name, True, replace(config, **change)
    if config.optimizer in ("adamw", "adam"):
        yield "optimizer", "adamw_8bit", replace(config, optimizer="adamw_8bit")
    # Without an fp32 copy, weights and optimizer states are in bf16; those in fp16 would lack its range.
    if config.method == "full" and config.recipe == "mixed" and config.precision == "bf16":
        yield "mixed_precision", False, replace(config, recipe="pure")
    # LoRA is proposed for models with tokens; image models train with it only where the caller asks for it.
    has_tokens = config.model.transformer is not None
    if config.method == "full" and has_tokens:
        yield "method", "lora", replace(config, method="lora", trainable_parameters=None)
    if config.method == "lora" or (config.method == "full" and has_tokens):
        yield (
            "method",
            "qlora",
            replace(config, method="qlora", weight_precision=QLORA_FORMAT, trainable_parameters=None),
        )
