"""What a choice says of its host: the cores and memory that the work needs there, and what will hold it up."""

from dataclasses import dataclass

from service.api.workload.workload import WorkloadRequest
from service.domain.catalog.hardware import InstanceType
from service.domain.jobs.job import Job
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.physics.cluster import GIB
from service.domain.physics.input_pipeline import (
    CORES_PER_GPU_THAT_DECODES,
    USUAL_CORES_PER_GPU,
    SampleLoading,
    cores_needed,
    samples_fed_per_second,
    samples_read_per_second,
)

USUAL = SampleLoading()
TASKS_THAT_LOAD = ("training", "inference")


@dataclass(frozen=True, slots=True)
class HostResponse:
    """What each node's host should have, beside what it has in `specs`."""

    needed_vcpus: float | None
    ideal_vcpus: float | None
    needed_memory_gib: float | None


def loading_of(work: WorkloadRequest, job: Job | None) -> SampleLoading:
    """How samples get to the GPUs. Tokens are read as they are: there is nothing to decode."""
    transformer = None if job is None else job.model.transformer
    reads_tokens = transformer is not None and transformer.vocabulary > 0
    if not reads_tokens and not work.model_fields_set & {"host", "sample_mb", "reads_from"}:
        return USUAL
    return SampleLoading(
        vcpus_per_gpu=work.host.vcpus_per_gpu,
        samples_per_second_per_vcpu=work.host.cpu_samples_per_second_per_vcpu,
        gpu_decoding=work.host.gpu_decoding or reads_tokens,
        sample_mb=work.sample_mb,
        from_local_disks=work.reads_from == "local",
    )


def node_rate(found: JobEstimate | None, nodes: int) -> float | None:
    """Samples per second that the GPUs of one node take."""
    rate = None if found is None else found.estimate.samples_per_second
    return None if rate is None else rate.likely / nodes


def host_told(
    kind: InstanceType, work: WorkloadRequest, loading: SampleLoading, found: JobEstimate | None, nodes: int
) -> HostResponse:
    cores = cores_needed(kind, loading, node_rate(found, nodes)) if work.task in TASKS_THAT_LOAD else None
    asked = work.host.memory_gib
    computed = None if found is None or found.estimate.host is None else found.estimate.host.needed_bytes / GIB
    memory = max((each for each in (asked, computed) if each is not None), default=None)
    return HostResponse(
        needed_vcpus=None if cores is None else round(cores.needed, 3),
        ideal_vcpus=None if cores is None else round(cores.ideal, 3),
        needed_memory_gib=None if memory is None else round(memory, 3),
    )


def host_warnings(
    kind: InstanceType, work: WorkloadRequest, loading: SampleLoading, found: JobEstimate | None, nodes: int
) -> dict[str, str]:
    told = memory_unknown(kind, work) | disks_too_small(kind, work, loading)
    if work.task not in TASKS_THAT_LOAD or not kind.gpu_count:
        return told
    rate = node_rate(found, nodes)
    fed, read = samples_fed_per_second(kind, loading), samples_read_per_second(kind, loading)
    if rate is None or fed is None:
        told |= too_few_cores(kind, loading)
    elif fed < rate:
        told["host_bound"] = (
            f"The GPUs of a node could take {figure(rate)} samples per second; its {kind.vcpus:g} vCPUs feed "
            f"{figure(fed)}. The estimate does not count this."
        )
    if rate is not None and read is not None and read < rate:
        told["slow_reads"] = (
            f"The GPUs of a node could take {figure(rate)} samples per second; {kind.network_gbps:g} Gbps bring "
            f"{figure(read)} of {loading.sample_mb:g} MB. The estimate does not count this."
        )
    return told


def figure(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def too_few_cores(kind: InstanceType, loading: SampleLoading) -> dict[str, str]:
    cores = cores_needed(kind, loading, None)
    if cores is None or kind.vcpus is None or kind.vcpus >= cores.needed:
        return {}
    if loading.vcpus_per_gpu is not None:
        text = f"{kind.vcpus_per_gpu:g} vCPUs per GPU; the workload asks for {loading.vcpus_per_gpu:g}."
    else:
        least, most = CORES_PER_GPU_THAT_DECODES if loading.gpu_decoding else USUAL_CORES_PER_GPU
        text = (
            f"{kind.vcpus / kind.whole_gpus:.3g} vCPUs per GPU; loading samples usually takes {least:g} to {most:g}, "
            "unless the work is light on its CPUs."
        )
    return {"few_vcpus": text}


def memory_unknown(kind: InstanceType, work: WorkloadRequest) -> dict[str, str]:
    needed = work.host.memory_gib
    if needed is None or kind.memory_gib is not None:
        return {}
    return {"host_memory_unknown": f"Nobody tells its host memory; the workload asks for {needed:g} GiB."}


def disks_too_small(kind: InstanceType, work: WorkloadRequest, loading: SampleLoading) -> dict[str, str]:
    if not loading.from_local_disks or kind.local_storage_gb is None:
        return {}
    samples = None if work.amount is None else work.amount.samples
    needed = None if samples is None or loading.sample_mb is None else samples * loading.sample_mb / 1000
    if not kind.local_storage_gb:
        return {"local_storage_small": "The machine has no disks of its own to read from."}
    if needed is None or needed <= kind.local_storage_gb:
        return {}
    return {"local_storage_small": f"The samples take {needed:.4g} GB; its own disks hold {kind.local_storage_gb:g}."}
