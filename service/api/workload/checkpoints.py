"""How a run saves and resumes, as it is sent, and what is assumed where nothing is told."""

from service.api.workload.workload import CheckpointRequest, WorkloadRequest
from service.domain.bill.interruption import Checkpoints

USUAL_SAVE_SECONDS = 30.0
USUAL_RESTART_SECONDS = 300.0
"""Where nothing is told: seconds to write a checkpoint, and to be running again after an interruption. Assumed."""


def checkpoints_in(told: CheckpointRequest, work: WorkloadRequest | None) -> Checkpoints:
    """How the run saves; one that says that it bears no fault saves at its end only."""
    interval = None if told.interval_minutes is None else told.interval_minutes * 60
    if interval is None and bears_no_fault(work):
        interval = float("inf")
    return Checkpoints(
        save_seconds=USUAL_SAVE_SECONDS if told.save_seconds is None else told.save_seconds,
        restart_seconds=USUAL_RESTART_SECONDS if told.restart_seconds is None else told.restart_seconds,
        interval_seconds=interval,
    )


def bears_no_fault(work: WorkloadRequest | None) -> bool:
    return work is not None and not work.fault_tolerant and "fault_tolerant" in work.model_fields_set


def assumed_of(told: CheckpointRequest, work: WorkloadRequest | None) -> str | None:
    """The sentence about what spot machines were priced with where nothing was told."""
    if bears_no_fault(work):
        return "The workload bears no fault, so an interruption at spot loses all of the work."
    if told.model_fields_set:
        return None
    return (
        f"Nothing is told of checkpoints: at spot, saving is taken to last {USUAL_SAVE_SECONDS:g} s and a restart "
        f"{USUAL_RESTART_SECONDS:g} s, at the best interval."
    )
