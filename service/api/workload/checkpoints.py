"""Translates how a run saves and resumes into the domain's checkpoints, with their defaults."""

from math import inf

from service.api.workload.workload import CheckpointRequest, WorkloadRequest
from service.domain.bill.interruption import Checkpoints


def checkpoints_in(sent: CheckpointRequest, work: WorkloadRequest | None) -> Checkpoints:
    """Returns how the run saves. A run that is stated not to be fault-tolerant saves only at its end."""
    fields = ("save_seconds", "restart_seconds")
    given = {name: seconds for name in fields if (seconds := getattr(sent, name)) is not None}
    if sent.interval_minutes is not None:
        return Checkpoints(**given, interval_seconds=sent.interval_minutes * 60)
    # A run that cannot resume has nothing to gain from saving before its end.
    return Checkpoints(**given, interval_seconds=inf if is_not_fault_tolerant(work) else None)


def is_not_fault_tolerant(work: WorkloadRequest | None) -> bool:
    """Returns whether the caller states that the workload is not fault-tolerant."""
    return work is not None and work.fault_tolerant is False


def assumed_of(sent: CheckpointRequest, work: WorkloadRequest | None) -> str | None:
    """Returns a sentence on what the cost at spot assumes about checkpoints; None if the caller states them."""
    if is_not_fault_tolerant(work):
        return "The workload is not fault-tolerant: a spot interruption loses all progress."
    if sent.model_fields_set:
        return None
    assumed = Checkpoints()
    return (
        "No checkpoint settings were given. For spot, these are assumed, without a source: "
        f"{assumed.save_seconds:g} s to save and {assumed.restart_seconds:g} s to restart, at the best interval."
    )


def unused_of(sent: CheckpointRequest, checkpoints: Checkpoints, *, at_spot: bool) -> str | None:
    """Returns a sentence on the fields that the caller states without an effect on a bill; None if there are none."""
    fields = sorted(sent.model_fields_set.intersection(checkpoints.unused(at_spot=at_spot)))
    if not fields:
        return None
    why = "only spot machines are expected to be interrupted"
    if "save_seconds" in fields:
        why += ", and elsewhere the time to save counts only with `checkpoint.interval_minutes`"
    named = " and ".join(f"`checkpoint.{name}`" for name in fields)
    return f"{named} {'changes' if len(fields) == 1 else 'change'} no bill here: {why}."
