"""How samples reach the GPUs of a job."""

from typing import NamedTuple


class SampleLoading(NamedTuple):
    """Properties of the loading of samples that the caller states; None if not stated."""

    vcpus_per_gpu: float | None = None
    samples_per_second_per_vcpu: float | None = None
    gpu_decoding: bool = False
    samples_per_second: float | None = None
    """Samples per second that one machine has to load."""
    sample_mb: float | None = None
    from_local_disks: bool = False
    single_threaded: bool = False

    @property
    def may_limit(self) -> bool:
        """Whether enough is stated for a rate of the hosts, which may be below that of their GPUs."""
        return self.samples_per_second_per_vcpu is not None or self.sample_mb is not None


STATED_NOTHING = SampleLoading()
