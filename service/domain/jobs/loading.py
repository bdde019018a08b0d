"""How samples reach the GPUs of a job."""

from typing import NamedTuple


class SampleLoading(NamedTuple):
    """The caller's description of how the job loads its samples; None where it is left open."""

    vcpus_per_gpu: float | None = None
    samples_per_second_per_vcpu: float | None = None
    gpu_decoding: bool = False
    samples_per_second: float | None = None
    """Samples that one machine has to load."""
    sample_mb: float | None = None
    from_local_disks: bool = False
    single_threaded: bool = False
