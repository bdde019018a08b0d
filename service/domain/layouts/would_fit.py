"""What would make a job fit that does not: each change computed, the least intrusive first."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from service.domain.arrays import Mask
from service.domain.calibration.error_bands import Physics
from service.domain.catalog.precision import bytes_per_value
from service.domain.errors import QuestionError
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.layouts.cluster_table import ClusterTable, cluster_table
from service.domain.layouts.inference_search import best_inference_layout, fastest_inference_layouts
from service.domain.layouts.training_search import best_training_layout, fastest_training_layouts
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.physics.cluster import GIB, Cluster, with_nodes
from service.domain.physics.estimate import Estimate
from service.domain.physics.parallelism import Floats

MOST_NODES = 64


@dataclass(frozen=True, slots=True)
class FitChange:
    """One change that makes the job fit, all else as asked."""

    code: str
    """A field of the layout or of the workload; `layout`, `nodes`, `usable_memory_gib` or `host_memory_gib`."""
    to: float | str | bool
    needed_bytes: float
    """Per GPU, after the change; of host_memory_gib per node."""


def nearest_changes(
    physics: Physics, config: TrainingConfig | InferenceConfig, cluster: Cluster, fixed: FixedLayout = FREE
) -> tuple[FitChange, ...]:
    """Every single change that would make it fit; the first is the nearest. None where it fits already."""
    found = _best(physics, config, cluster, fixed)
    if found is not None and found.fits:
        return ()
    return tuple(_changes(physics, config, cluster, fixed, found))


def _changes(
    physics: Physics,
    config: TrainingConfig | InferenceConfig,
    cluster: Cluster,
    fixed: FixedLayout,
    now: Estimate | None,
) -> Iterator[FitChange]:
    yield from _of_layout(physics, config, cluster, fixed)
    for code, to, other in _of_work(config):
        found = _best(physics, other, cluster, fixed)
        if found is not None and found.fits:
            yield FitChange(code, to, found.memory.needed_bytes)
    yield from _of_machine(physics, config, cluster, fixed, now)


def _of_layout(
    physics: Physics, config: TrainingConfig | InferenceConfig, cluster: Cluster, fixed: FixedLayout
) -> Iterator[FitChange]:
    """One wish given up, or all of them where one is not enough."""
    told = [field.name for field in fields(fixed) if getattr(fixed, field.name) is not None]
    enough = False
    for name in told:
        found = _best(physics, config, cluster, replace(fixed, **{name: None}))
        if found is not None and found.fits:
            enough = True
            yield FitChange(name, getattr(found.layout, name), found.memory.needed_bytes)
    if told and not enough:
        found = _best(physics, config, cluster, FREE)
        if found is not None and found.fits:
            yield FitChange("layout", "free", found.memory.needed_bytes)


Other = tuple[str, float | str | bool, TrainingConfig | InferenceConfig]
"""What differs, what it becomes, and the work then."""


def _of_work(config: TrainingConfig | InferenceConfig) -> Iterator[Other]:
    """Other ways to do the same, from those that change no result to those that change much."""
    return _of_training(config) if isinstance(config, TrainingConfig) else _of_answering(config)


def _of_answering(config: InferenceConfig) -> Iterator[Other]:
    if config.concurrency and config.concurrency > 1:
        yield "concurrency", 1.0, replace(config, concurrency=1.0)
    if not config.kv_precision:
        yield "kv_cache_precision", "fp8", replace(config, kv_precision="fp8")
    for precision, bits in (("fp8", 8.0), ("int4", 4.25)):
        if (config.weight_bits or 8 * bytes_per_value(config.precision)) > bits:
            yield "weight_precision", precision, replace(config, weight_bits=bits)


def _of_training(config: TrainingConfig) -> Iterator[Other]:
    if not config.flash_attention:
        yield "flash_attention", True, replace(config, flash_attention=True)
    if not config.chunked_loss:
        yield "chunked_loss", True, replace(config, chunked_loss=True)
    if not config.offload_optimizer:
        yield "offload_optimizer", True, replace(config, offload_optimizer=True)
    if config.optimizer in ("adamw", "adam"):
        yield "optimizer", "adamw_8bit", replace(config, optimizer="adamw_8bit")
    if config.model.transformer is None:
        return
    if config.method == "full":
        yield "method", "lora", replace(config, method="lora", trainable_parameters=None)
    if config.method in ("full", "lora"):
        yield "method", "qlora", replace(config, method="qlora", weight_precision="nf4", trainable_parameters=None)


def _of_machine(
    physics: Physics,
    config: TrainingConfig | InferenceConfig,
    cluster: Cluster,
    fixed: FixedLayout,
    now: Estimate | None,
) -> Iterator[FitChange]:
    """The fewest nodes, the smallest GPU memory and the smallest host memory that would do."""
    numbers = range(cluster.nodes + 1, MOST_NODES + 1)
    more = cluster_table([with_nodes(cluster, nodes) for nodes in numbers])
    fits, needed = _on_each(physics, config, more, fixed)
    fitting = np.flatnonzero(fits)
    if len(fitting):
        yield FitChange("nodes", int(numbers[fitting[0]]), float(needed[fitting[0]]))
    if now is None:
        return
    if not now.memory.fits and (now.host is None or now.host.fits):
        yield FitChange("usable_memory_gib", now.memory.needed_bytes / GIB, now.memory.needed_bytes)
    if now.memory.fits and now.host is not None:
        yield FitChange("host_memory_gib", now.host.needed_bytes / GIB, now.host.needed_bytes)


def _on_each(
    physics: Physics, config: TrainingConfig | InferenceConfig, clusters: ClusterTable, fixed: FixedLayout
) -> tuple[Mask, Floats]:
    if isinstance(config, TrainingConfig):
        training = fastest_training_layouts(physics, config, clusters, fixed)
        return training.fits, training.needed_bytes
    answering = fastest_inference_layouts(physics, config, clusters, fixed)
    return answering.fits, answering.needed_bytes


def _best(
    physics: Physics, config: TrainingConfig | InferenceConfig, cluster: Cluster, fixed: FixedLayout
) -> Estimate | None:
    try:
        if isinstance(config, TrainingConfig):
            return best_training_layout(physics, config, cluster, fixed)
        return best_inference_layout(physics, config, cluster, fixed)
    except QuestionError:
        return None
