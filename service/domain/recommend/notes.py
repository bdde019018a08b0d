"""Notes on a whole answer: defaults that were used, and fields that did not affect the ranking."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from service.domain.bill.seller_terms import is_held
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import near_names
from service.domain.catalog.offer import RESERVED, SPOT
from service.domain.catalog.software_support import near_software
from service.domain.codes import NoteCode, RejectionCode
from service.domain.evidence.named import NamedWork
from service.domain.jobs.job import Job, assumed_lengths, purpose_of, sequence_length
from service.domain.jobs.kind_of_work import fields_without_effect
from service.domain.jobs.serving import Serving
from service.domain.layouts.candidates import usual_batch
from service.domain.physics.load import TIMES
from service.domain.recommend.answer import LIMITS_IN_DOLLARS, CitedPrior, Note, Question, Rejection
from service.domain.recommend.fleet import node_counts
from service.domain.recommend.priors import in_conflict, usual_gpus
from service.domain.recommend.rejections import Nearest, NearestMiss
from service.domain.selection.offers import AdmittedOffers
from service.domain.selection.selection import sold_at_spot

ALWAYS_WEIGHED = frozenset({
    "task", "precision", "precision_support", "fault_tolerant", "host", "software", "numerics",
    "precision_flexible", "code_changes", "dataset", "goal", "model_size", "concurrent_runs", "growth",
})  # fmt: skip
"""Fields of a workload that affect every ranking."""

WEIGHED_BY_NAME = frozenset({"name", "amount", "checkpoint"})
"""Fields that also affect the ranking of a workload that is known by its name alone."""

FIGURES_OF_A_GPU = frozenset(
    {RejectionCode.PEAK_UNKNOWN, RejectionCode.POWER_UNKNOWN, RejectionCode.GPU_FIGURES_UNKNOWN}
)
"""Rejections because of a figure that a vendor does not publish."""

MOST_NAMES = 1000
"""Number of an owner's latest measurements that are searched for a similar name, in up to ten milliseconds."""

CHARGES = (
    "checkpoint", "data_transfer_already_gb", "data_transfer_between_regions_gb", "data_transfer_between_zones_gb",
    "data_transfer_out_gb", "idle_fraction", "setup_minutes", "storage",
)  # fmt: skip
"""Fields of the question that count only with an amount of work."""

LIMITS_ON_TIMES = frozenset(f"workload.serving.{name}" for name in TIMES)


def notes_on(
    question: Question, admitted: AdmittedOffers, rejected: Sequence[Rejection], priors: Sequence[CitedPrior],
    nearest: Nearest | None, miss: NearestMiss | None, catalog: Catalog, *, price_ignored: bool,
) -> Iterator[Note]:  # fmt: skip
    """Yields the notes of an answer.

    `nearest` has the offers nearest to a deadline and a budget; `miss` is the machine that misses the
    fewest constraints, where no single change admits any.
    """
    given, job = question.given, question.work.job
    if given and "objective" not in given:
        yield Note(NoteCode.OBJECTIVE_DEFAULTED, ("objective",))
    if price_ignored:
        figures = {"weaker_first": question.asks_for_least_hardware, "usual_gpus": usual_gpus(question, catalog)}
        yield Note(NoteCode.PRICE_IGNORED, ("objective",), figures)
    if (work := question.modelled) is not None:
        yield from _published_precision(work, given)
        yield from _assumed_samples(work)
    load = None if work is None else work.serving
    if load is not None and given.isdisjoint(LIMITS_ON_TIMES):
        yield _usual_limit(load)
    elif job is not None and job.amount is None and question.limits.load is None:
        unused = tuple(name for name in ("deadline_hours", "budget_usd") if f"constraints.{name}" in given)
        lacking: dict[str, Any] = {"given": "workload.amount.hours_on" in given, "unused": unused}
        yield Note(NoteCode.NO_AMOUNT, ("workload.amount",), lacking)
    if "workload.amount" in given and question.limits.deadline_hours is None:
        yield Note(NoteCode.NO_DEADLINE, ("constraints.deadline_hours",))
    yield from _notes_on_nodes(question)
    if opposite := in_conflict(priors):
        yield Note(NoteCode.CONFLICT_IN_SOURCES, (), {"priors": opposite})
    yield from _notes_on_offers(question, admitted, catalog)
    yield from _notes_on_figures(rejected)
    yield from _near_notes(nearest, miss)
    if not catalog.instance_types:
        yield Note(NoteCode.EMPTY_CATALOG, ("as_of",), {"day": catalog.day, "first_day": catalog.first_day})
    yield from _notes_on_names(question, catalog)
    if fields := (*_unknown_subjects(question, catalog), *_fields_without_effect(question)):
        yield Note(NoteCode.NOT_WEIGHED, fields, {"modelled": work is not None, "by_name": isinstance(job, NamedWork)})


def _notes_on_nodes(question: Question) -> Iterator[Note]:
    """Yields a note if the largest number of nodes is not tried."""
    if question.modelled is None:
        return
    tried, most = node_counts(*question.nodes)[-1], question.nodes[1]
    if tried < most:
        yield Note(NoteCode.NODES_NOT_TRIED, ("constraints.max_nodes",), {"most": most, "tried": tried})


def _assumed_samples(work: Job) -> Iterator[Note]:
    """Yields the batch of training and the lengths of a sample of inference that the caller does not state."""
    if work.task == "training" and work.global_batch is None:
        usual = usual_batch(work.model, work.method, purpose_of(work), sequence_length(work))
        steps = work.amount is not None and work.amount.steps is not None
        batch = {"samples": usual, "per_gpu": work.micro_batch, "steps": steps}
        yield Note(NoteCode.BATCH_ASSUMED, ("workload.global_batch_size",), batch)
    if lengths := assumed_lengths(work):
        fields = tuple(f"workload.{name}_length" for name in lengths)
        yield Note(NoteCode.LENGTHS_ASSUMED, fields, {"lengths": lengths, "speech": work.model.family == "speech"})


def _published_precision(work: Job, given: Collection[str]) -> Iterator[Note]:
    """Yields the published format of the weights, if it is used because the caller names no other."""
    below_adapters = work.task == "training"
    decides = "workload.weight_precision" if below_adapters else "workload.precision"
    if work.as_published is not None and decides not in given:
        figures = {"precision": work.as_published, "below_adapters": below_adapters}
        yield Note(NoteCode.PUBLISHED_PRECISION, (decides,), figures)


def _usual_limit(load: Serving) -> Note:
    """Returns the limit on a time that holds where a load names none."""
    if (seconds := load.max_seconds_per_output_token) is None:
        return Note(NoteCode.NO_TIME_LIMIT, ("workload.serving.max_seconds_per_request",))
    return Note(NoteCode.READING_SPEED, ("workload.serving.max_seconds_per_output_token",), {"seconds": seconds})


def _notes_on_offers(question: Question, admitted: AdmittedOffers, catalog: Catalog) -> Iterator[Note]:
    """Yields notes on offers that the admitted types lack: under the commitments held, and at spot."""
    held, offers = question.work.commitments_held, catalog.offers
    if held and admitted.types:
        of_terms = np.array([is_held("reserved", term, held) for term in (*offers.terms, None)])
        under = of_terms[offers.term] & (offers.market == RESERVED)
        if not under[admitted.cheapest.offer[admitted.rows]].any():
            left_out = bool(under[catalog.mask(admitted.types)[offers.instance_type]].any())
            yield Note(NoteCode.COMMITMENT_UNUSED, ("commitments_held",), {"held": held, "left_out": left_out})
    allowed = "spot" in question.constraints.market and admitted.types & catalog.derive(sold_at_spot)
    if allowed and not catalog.derive(_any_at_spot, admitted, cache=catalog.outlooks):
        yield Note(NoteCode.SPOT_PRICE_UNKNOWN, ("constraints.market",))


def _notes_on_figures(rejected: Sequence[Rejection]) -> Iterator[Note]:
    """Yields notes on types that are left out only because a figure of their GPU is unknown."""
    for rejection in rejected:
        if rejection.code in FIGURES_OF_A_GPU and rejection.only_this:
            figures = {"instances": rejection.instances, "count": rejection.only_this, "lacks": rejection.code}
            yield Note(NoteCode.UNRANKED, ("objective",), figures)


def _any_at_spot(catalog: Catalog, admitted: AdmittedOffers) -> bool:
    return bool((catalog.offers.market[admitted.cheapest.offer[admitted.rows]] == SPOT).any())


def _notes_on_names(question: Question, catalog: Catalog) -> Iterator[Note]:
    """Yields notes on names of which the catalog knows too little."""
    yield from _retired(question, catalog)
    asked, rented = question.constraints.words.get("gpu", ()), catalog.columns.words["gpu"].words
    if asked and not set(asked).intersection(rented):
        yield Note(NoteCode.GPU_NOT_RENTED, ("constraints.gpu",), {"gpus": asked})
    if question.name is not None and not catalog.measurements.under(question.name):
        near = near_names(question.name, catalog.measurements.workloads(MOST_NAMES))
        yield Note(NoteCode.NAME_NOT_MEASURED, ("workload.name",), {"name": question.name, "near": near})
    if question.spot_left_out:
        yield Note(NoteCode.SPOT_LEFT_OUT, ("constraints.market", "workload.fault_tolerant"))
    if unknown := dict(question.software_unknown):
        figures = {"near": near_software(unknown, catalog)}
        yield Note(NoteCode.SOFTWARE_UNKNOWN, tuple(dict.fromkeys(unknown.values())), figures)


def _retired(question: Question, catalog: Catalog) -> Iterator[Note]:
    """Yields a note for each constraint that names nothing but retired instance types."""
    for column in ("instance", "family", "series"):
        names = question.constraints.words.get(column, ())
        named = np.flatnonzero(catalog.columns.words[column].among(names)).tolist() if names else ()
        events = [catalog.instance_types[index].event_on(catalog.day) for index in named]
        if events and all(event is not None and event.state == "retired" for event in events):
            figures = {"names": names, "since": max(event.starts_on for event in events if event is not None)}
            yield Note(NoteCode.RETIRED, (f"constraints.{column}",), figures)


def _near_notes(nearest: Nearest | None, miss: NearestMiss | None) -> Iterator[Note]:
    """Yields notes on the nearest offers and the nearest type where nothing is admitted."""
    if nearest is not None:
        yield Note(NoteCode.NEAREST, ("constraints.deadline_hours", "constraints.budget_usd"), nearest._asdict())
    if miss is not None:
        yield Note(NoteCode.SEVERAL_CONSTRAINTS, ("constraints",), {"instance": miss.instance, "codes": miss.codes})


def _unknown_subjects(question: Question, catalog: Catalog) -> Iterator[str]:
    """Yields the fields whose value no rule of thumb is about."""
    # Most questions have no subject, so the subjects of the rules are collected only for the others.
    known = frozenset[str]().union(*(prior.subjects for prior in catalog.reference.priors)) if question.subjects else ()
    yield from (field for field, name in question.subjects.items() if name not in known)


def _fields_without_effect(question: Question) -> Iterator[str]:
    paths = (path.removeprefix("workload.") for path in question.given if path.startswith("workload."))
    given = frozenset(name for name in paths if "." not in name)
    for name in sorted(given & _without_effect(question, given)):
        yield f"workload.{name}"
    yield from (name for name in CHARGES if name in question.given and not question.work.has_amount)
    if question.managed_service and question.work.has_amount:
        yield from question.given & {"idle_fraction"}  # a managed service stops its machines when they are idle
    yield from _unused_of_checkpoints(question)
    if question.work.has_amount and "data_transfer_out_gb" not in question.given:
        # Data sent earlier only decides the price tier of data that the run sends.
        yield from question.given & {"data_transfer_already_gb"}
    # The rate at which samples are needed is known only for a job.
    loads = question.work.loading.samples_per_second is not None
    if question.work.job is None and not loads and "workload.host.cpu_samples_per_second_per_vcpu" in question.given:
        yield "workload.host.cpu_samples_per_second_per_vcpu"
    yield from _limits_without_effect(question)


def _limits_without_effect(question: Question) -> Iterator[str]:
    """Yields the limits that apply only to some questions, and not to this one."""
    has_amount = question.work.has_amount
    is_billed = has_amount or question.limits.load is not None
    applies = {
        **{name: getattr(question.limits, name) is not None for name in LIMITS_IN_DOLLARS},
        "deadline_hours": has_amount,
        "max_nodes": question.modelled is not None,
        "max_instances": is_billed or question.work.concurrent_runs > 1,
        "confidence": is_billed,
    }
    for name, counts in applies.items():
        if not counts and (field := f"constraints.{name}") in question.given:
            yield field


def _unused_of_checkpoints(question: Question) -> Iterator[str]:
    """Yields the fields of checkpoints that do not affect the time of a run with an amount of work."""
    if not question.work.has_amount:
        return
    path = "checkpoint" if "checkpoint" in question.given else "workload.checkpoint"
    if path == "checkpoint":  # it takes the place of the other one
        yield from question.given & {"workload.checkpoint"}
    unused = question.checkpoints.unused(at_spot="spot" in question.constraints.market)
    yield from (field for name in unused if (field := f"{path}.{name}") in question.given)


def _without_effect(question: Question, given: frozenset[str]) -> frozenset[str]:
    """Returns the fields of the workload that cannot affect this ranking, whether given or not."""
    if question.work.job is None:
        of_loading = (
            {"sample_mb", "reads_from"} if question.work.loading.samples_per_second is not None else frozenset[str]()
        )
        return given - ALWAYS_WEIGHED - {"name"} - of_loading
    if isinstance(question.work.job, NamedWork):
        return given - ALWAYS_WEIGHED - WEIGHED_BY_NAME
    without_amount = frozenset[str]() if question.work.has_amount else frozenset({"checkpoint"})
    # The number of runs does not matter to a load, which all instances serve together.
    of_runs = frozenset({"concurrent_runs"}) if question.limits.load else frozenset[str]()
    return frozenset(fields_without_effect(question.work.job)) | without_amount | of_runs
