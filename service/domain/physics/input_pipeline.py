"""The input of a job: CPU cores that prepare samples for the GPUs, and the network that brings them."""

from dataclasses import dataclass

from service.domain.catalog.hardware import InstanceType

USUAL_CORES_PER_GPU = (4.0, 8.0)
"""Logical cores per GPU that load samples: fewer slow it down, more gain little (AutoDL help, 2022-03-04)."""

CORES_PER_GPU_THAT_DECODES = (1.0, 4.0)
"""One core with DALI does more than eight that load in Python (the same page); the upper end is assumed."""

BITS_PER_MB = 8e6


@dataclass(frozen=True, slots=True)
class SampleLoading:
    """The caller's description of how the job loads its samples; None where it is left open."""

    vcpus_per_gpu: float | None = None
    samples_per_second_per_vcpu: float | None = None
    gpu_decoding: bool = False
    sample_mb: float | None = None
    from_local_disks: bool = False
    single_threaded: bool = False


@dataclass(frozen=True, slots=True)
class CoresNeeded:
    """Logical cores of one node: fewer than `needed` slow the GPUs down, more than `ideal` gain little."""

    needed: float
    ideal: float


def cores_needed(
    instance_type: InstanceType, loading: SampleLoading, samples_per_second: float | None
) -> CoresNeeded | None:
    """Derived from the job's own rate if known, else as requested, else by the rule of thumb; None without a GPU.

    `samples_per_second` are those that the GPUs of one node could take.
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


def samples_fed_per_second(instance_type: InstanceType, loading: SampleLoading) -> float | None:
    """Samples that the cores of one node prepare; None when their rate or their number is unknown."""
    if instance_type.vcpus is None or not loading.samples_per_second_per_vcpu:
        return None
    return instance_type.vcpus * loading.samples_per_second_per_vcpu


def samples_read_per_second(instance_type: InstanceType, loading: SampleLoading) -> float | None:
    """Samples that the network of one node brings; None if they are on its disks, or a figure is unknown."""
    if loading.from_local_disks or not loading.sample_mb or not instance_type.network_gbps:
        return None
    return instance_type.network_gbps * 1e9 / (loading.sample_mb * BITS_PER_MB)
