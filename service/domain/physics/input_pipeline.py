"""The input of a job: CPU cores that prepare samples for the GPUs, and the network that brings them."""

from dataclasses import dataclass
from math import inf

from service.domain.catalog.hardware import InstanceType
from service.domain.jobs.loading import SampleLoading
from service.domain.models.model import Model
from service.domain.models.sample_size import SampleSize
from service.domain.physics.cluster import Cluster
from service.domain.units import MB

USUAL_CORES_PER_GPU = (4.0, 8.0)
"""Logical cores per GPU that load samples: fewer slow the GPU down, more gain little (AutoDL help, 2022-03-04)."""

CORES_PER_GPU_THAT_DECODES = (1.0, 4.0)
"""Logical cores per GPU that decodes, with the same meaning: one core with DALI loads more than eight cores in Python
(AutoDL help, 2022-03-04); the second is assumed."""

FAMILIES_OF_IMAGES = frozenset({"cnn", "detection", "segmentation", "vit", "diffusion"})

PREPARATION_SECONDS = 1 / 130
"""Seconds of one CPU core per image: Pillow decodes and augments 100-150 per second."""

PREPARED_PIXELS = 224 * 224
"""Fewest pixels of an image that takes so long: smaller ones are stored small, and take less in proportion."""


@dataclass(frozen=True, slots=True)
class CoresNeeded:
    """Logical cores of one node: fewer than `needed` slow the GPUs down, more than `ideal` gain little."""

    needed: float
    ideal: float


def cores_needed(
    instance_type: InstanceType, loading: SampleLoading, samples_per_second: float | None
) -> CoresNeeded | None:
    """Returns the cores that a node needs; None without a GPU.

    They follow from the rate of the job if it is known, else from the request, else from a rule of thumb.
    `samples_per_second` is the rate that the GPUs of one node could take.
    """
    if not instance_type.gpu_count:
        return None
    if loading.samples_per_second_per_vcpu and samples_per_second is not None:
        cores = samples_per_second / loading.samples_per_second_per_vcpu
    elif loading.vcpus_per_gpu is not None:
        cores = loading.vcpus_per_gpu * instance_type.gpu_count
    else:
        least, most = CORES_PER_GPU_THAT_DECODES if loading.gpu_decoding else USUAL_CORES_PER_GPU
        return CoresNeeded(least * instance_type.whole_gpus, most * instance_type.whole_gpus)
    return CoresNeeded(cores, cores)


def preparation_seconds(model: Model, loading: SampleLoading) -> float:
    """Returns the seconds in which a core usually prepares a sample, or as stated if that is less; 0 for no image."""
    if model.family not in FAMILIES_OF_IMAGES:
        return 0.0
    size, stated = SampleSize.of(model.sample), loading.samples_per_second_per_vcpu
    usual = PREPARATION_SECONDS * (1.0 if size is None else min(1.0, size.pixels / PREPARED_PIXELS))
    return min(usual, 1.0 / stated) if stated else usual


def samples_fed_per_second(vcpus: float | None, loading: SampleLoading) -> float | None:
    """Samples per second that these cores of one machine prepare, of which one thread uses one; None where unknown."""
    if vcpus is None or not loading.samples_per_second_per_vcpu:
        return None
    return (min(vcpus, 1.0) if loading.single_threaded else vcpus) * loading.samples_per_second_per_vcpu


def samples_read_per_second(bytes_per_second: float | None, loading: SampleLoading) -> float | None:
    """Samples per second that the network brings; None if they are on local disks, or a figure is unknown."""
    if loading.from_local_disks or not loading.sample_mb or not bytes_per_second:
        return None
    return bytes_per_second / (loading.sample_mb * MB)


def feed_of(cluster: Cluster, loading: SampleLoading) -> dict[str, float]:
    """Samples per second that each part of the hosts brings to all GPUs, for the parts whose rates are known."""
    vcpus = None if cluster.vcpus_per_gpu is None else cluster.vcpus_per_gpu * cluster.gpus_per_node
    fed = samples_fed_per_second(vcpus, loading)
    network = cluster.network_bytes_per_second * cluster.gpus if cluster.network_known else None
    rates = {
        "host_cpu": None if fed is None else fed * cluster.nodes,
        "network_reads": samples_read_per_second(network, loading),
    }
    return {part: rate for part, rate in rates.items() if rate is not None}


def samples_fed(cluster: Cluster, loading: SampleLoading) -> float:
    """Samples per second that the hosts bring to all GPUs; infinite where no rate of them is known."""
    return min(feed_of(cluster, loading).values(), default=inf)
