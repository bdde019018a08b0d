"""Hosts that have less than a workload asks for, or than loading its samples usually takes."""

from collections.abc import Iterator

from service.domain.catalog.hardware import InstanceType
from service.domain.codes import WarningCode
from service.domain.jobs.loading import SampleLoading
from service.domain.physics.input_pipeline import (
    CORES_PER_GPU_THAT_DECODES,
    USUAL_CORES_PER_GPU,
    cores_needed,
    samples_fed_per_second,
    samples_read_per_second,
)
from service.domain.statement import Statement, statement
from service.domain.units import BITS_PER_BYTE

_Warnings = Iterator[Statement[WarningCode]]


def requested_host_warnings(machine: InstanceType, loading: SampleLoading, memory_gib: float | None) -> _Warnings:
    """Yields what a host lacks of the memory, the vCPUs and the samples per second that a workload asks for."""
    yield from unknown_memory(machine, memory_gib)
    if memory_gib is not None and machine.memory_gib is not None and machine.memory_gib < memory_gib:
        yield statement(WarningCode.HOST_MEMORY_SMALL, needed_gib=memory_gib, gib=machine.memory_gib)
    yield from slow_input(machine, loading)
    if loading.vcpus_per_gpu is not None:
        yield from too_few_cores(machine, loading)


def unknown_memory(machine: InstanceType, needed_gib: float | None) -> _Warnings:
    """Yields the memory that a workload asks of a host whose memory is unknown."""
    if needed_gib is not None and machine.memory_gib is None:
        yield statement(WarningCode.HOST_MEMORY_UNKNOWN, needed_gib=needed_gib)


def slow_input(instance_type: InstanceType, loading: SampleLoading) -> _Warnings:
    """Yields warnings on parts of the host that bring fewer samples than one machine has to load."""
    rate, gbps = loading.samples_per_second, instance_type.sustained_network_gbps
    if rate is None:
        return
    fed = samples_fed_per_second(instance_type.vcpus, loading)
    if fed is not None and fed < rate:
        single = loading.single_threaded
        yield statement(
            WarningCode.HOST_BOUND, rate=rate, vcpus=instance_type.vcpus, fed=fed, asked=True, single=single
        )
    read = samples_read_per_second(None if gbps is None else gbps * 1e9 / BITS_PER_BYTE, loading)
    if read is not None and read < rate:
        sample_mb = loading.sample_mb
        yield statement(WarningCode.SLOW_READS, rate=rate, gbps=gbps, read=read, sample_mb=sample_mb, asked=True)


def too_few_cores(instance_type: InstanceType, loading: SampleLoading) -> _Warnings:
    """Yields a warning if the host has fewer cores per GPU than requested, or than loading usually takes."""
    cores, vcpus = cores_needed(instance_type, loading, None), instance_type.vcpus
    if vcpus is None and loading.vcpus_per_gpu and not loading.samples_per_second_per_vcpu:
        yield statement(WarningCode.VCPUS_UNKNOWN)
    if cores is not None and vcpus is not None and vcpus < cores.needed:
        usual = CORES_PER_GPU_THAT_DECODES if loading.gpu_decoding else USUAL_CORES_PER_GPU
        per_gpu = vcpus / instance_type.whole_gpus
        yield statement(WarningCode.FEW_VCPUS, vcpus_per_gpu=per_gpu, requested=loading.vcpus_per_gpu, usual=usual)
