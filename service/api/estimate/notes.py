"""The notes of POST /estimate: what was assumed, and fields that were sent without an effect."""

from collections.abc import Collection, Iterator, Sequence

from service.api.estimate.request import EstimateRequest
from service.api.estimate.sentences import no_offer, rate_text
from service.api.workload.checkpoints import assumed_of, unused_of
from service.api.workload.workload import CheckpointRequest
from service.domain.bill.market_bills import WITHOUT_DATA
from service.domain.catalog.catalog import Catalog
from service.domain.estimate.estimate import EstimateAnswer

OWN_MACHINE = "A machine that is described has no seller: its hour costs the given price, and nothing else is known."
NO_WORK_IN_HOURS = (
    "The work of the given hours is unknown, because the job is not estimated to run on that machine: an hour of this "
    "machine is priced, and not the whole job."
)
NOTHING_SENT = "`data_transfer_already_gb` changes no price, because `data_transfer_out_gb` is 0."
COMMITMENT_UNUSED = "None of the bills is under the commitments held, so they change no price."

OF_A_JOB = ("layout", "largest_batch")
"""Fields that count only for a job that is estimated."""
TIMES = ("setup_minutes", "idle_fraction", "checkpoint", "workload.checkpoint")
"""Fields that change the time of a run."""
DATA = (
    "storage", "data_transfer_out_gb", "data_transfer_between_regions_gb", "data_transfer_between_zones_gb",
)  # fmt: skip
"""Fields of data. They count only for a run with known hours, as those of `TIMES` do."""


def notes_on(body: EstimateRequest, answer: EstimateAnswer, catalog: Catalog) -> Iterator[str]:
    """Yields the notes of an answer as sentences."""
    machine = answer.question.instance_type
    if machine is None:
        yield OWN_MACHINE
    elif not answer.bills:
        yield no_offer(machine.id, catalog.day)
    if answer.measured is not None:
        yield rate_text(answer.measured)
    if _lacks_work_of_hours(body, answer):
        yield NO_WORK_IN_HOURS
    if answer.holds_unused_commitments:
        yield COMMITMENT_UNUSED
    if body.data_transfer_already_gb and not body.data_transfer_out_gb:
        yield NOTHING_SENT
    if answer.served is not None and answer.question.run.has_data:
        yield WITHOUT_DATA
    yield from _without_effect(body, answer)
    yield from _notes_on_checkpoints(body, answer)


def _lacks_work_of_hours(body: EstimateRequest, answer: EstimateAnswer) -> bool:
    amount, job = None if body.workload is None else body.workload.amount, answer.job
    return amount is not None and amount.hours_on is not None and job is not None and job.job.amount is None


def _without_effect(body: EstimateRequest, answer: EstimateAnswer) -> Iterator[str]:
    """Yields which fields of the body change nothing here, with the reason."""
    work = body.workload
    if answer.job is not None and work is not None:
        for reason, names in answer.without_effect.items():
            named = [f"workload.{name}" for name in names if name in work.model_fields_set]
            yield from _no_effect(named, named, reason)
    sent = [name for name, field in EstimateRequest.model_fields.items() if getattr(body, name) != field.default]
    if work is not None and work.checkpoint != CheckpointRequest():
        sent.append("workload.checkpoint")
    if answer.job is None:
        yield from _no_effect(sent, OF_A_JOB, "no job is estimated")
    elif answer.job.job.task != "training":
        yield from _no_effect(sent, ("largest_batch",), "only training has a largest batch")
    if answer.bills and all(bill.managed for bill in answer.bills):
        yield from _no_effect(sent, ("idle_fraction",), "a managed service stops its machines when they are idle")
    if answer.served is not None:  # the note on its data is another one
        yield from _no_effect(sent, TIMES, "a load has no end")
    elif answer.bills and all(bill.bill is None for bill in answer.bills):
        yield from _no_effect(sent, (*TIMES, *DATA), "the hours of the run are not known")


def _no_effect(sent: Collection[str], names: Sequence[str], why: str) -> Iterator[str]:
    """Yields that some fields have no effect, if any of them was sent."""
    if named := [f"`{name}`" for name in names if name in sent]:
        have = f"{named[0]} has" if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]} have"
        yield f"{have} no effect here, because {why}."


def _notes_on_checkpoints(body: EstimateRequest, answer: EstimateAnswer) -> Iterator[str]:
    checkpoint = body.checkpoint_of(body.workload)
    billed = [bill.option for bill in answer.bills if bill.bill is not None]
    at_spot = any(option is not None and option.offer.market == "spot" for option in billed)
    unused = unused_of(checkpoint, answer.question.checkpoints, at_spot=at_spot) if billed else None
    if unused is not None:
        yield unused
    assumed = assumed_of(checkpoint, body.workload)
    if assumed is not None and at_spot:
        yield assumed
