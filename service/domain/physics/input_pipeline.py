"""What the host does for its GPUs: the cores that prepare samples, and the ways that samples come in by."""

from dataclasses import dataclass

from service.domain.catalog.hardware import InstanceType

USUAL_CORES_PER_GPU = (4.0, 8.0)
"""Logical cores that loading takes for each GPU: fewer slow it down, more gain little (AutoDL help, 2022-03-04)."""

CORES_PER_GPU_THAT_DECODES = (1.0, 4.0)
"""One core with DALI does more than eight that load in Python (the same page); the upper end is assumed."""

BITS_PER_MB = 8e6


@dataclass(frozen=True, slots=True)
class SampleLoading:
    """How the work loads its samples, as far as it is told."""

    vcpus_per_gpu: float | None = None
    samples_per_second_per_vcpu: float | None = None
    gpu_decoding: bool = False
    sample_mb: float | None = None
    from_local_disks: bool = False


@dataclass(frozen=True, slots=True)
class CoresNeeded:
    """Logical cores of one node: fewer than needed slow the GPUs down, more than ideal gain little."""

    needed: float
    ideal: float


def cores_needed(kind: InstanceType, loading: SampleLoading, samples_per_second: float | None) -> CoresNeeded | None:
    """By the work's own rate where that is known, else as told, else by the rule of thumb; nothing without a GPU.

    `samples_per_second` are those that the GPUs of one node could take.
    """
    if not kind.gpu_count:
        return None
    if loading.samples_per_second_per_vcpu and samples_per_second is not None:
        cores = samples_per_second / loading.samples_per_second_per_vcpu
        return CoresNeeded(cores, cores)
    if loading.vcpus_per_gpu is not None:
        cores = loading.vcpus_per_gpu * kind.gpu_count
        return CoresNeeded(cores, cores)
    least, most = CORES_PER_GPU_THAT_DECODES if loading.gpu_decoding else USUAL_CORES_PER_GPU
    return CoresNeeded(least * kind.whole_gpus, most * kind.whole_gpus)


def samples_fed_per_second(kind: InstanceType, loading: SampleLoading) -> float | None:
    """What the cores of one node prepare; nothing where their rate or their number is not known."""
    if kind.vcpus is None or not loading.samples_per_second_per_vcpu:
        return None
    return kind.vcpus * loading.samples_per_second_per_vcpu


def samples_read_per_second(kind: InstanceType, loading: SampleLoading) -> float | None:
    """What the network of one node brings; nothing where samples lie on its disks, or a figure is not known."""
    if loading.from_local_disks or not loading.sample_mb or not kind.network_gbps:
        return None
    return kind.network_gbps * 1e9 / (loading.sample_mb * BITS_PER_MB)
