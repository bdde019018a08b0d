"""The sentences of an answer: for each code of the domain, a text with its figures."""

from collections.abc import Mapping, Sequence
from itertools import chain
from math import ceil
from typing import Any

from service.api.estimate.sentences import WARNINGS as WARNINGS_OF_ESTIMATES
from service.api.estimate.sentences import Sentence, lengths_assumed, rate_text, text_of
from service.api.estimate.software_sentences import software_unknown
from service.api.http.fields import NoteResponse, StatementResponse
from service.api.http.figures import dollars, plural, readable
from service.api.recommend.advice_texts import ADVICE, LINKS
from service.api.recommend.codes import REJECTIONS
from service.domain.bill.interruption import Expectation
from service.domain.catalog.names import either, with_near
from service.domain.codes import NoteCode, ReasonCode, WarningCode
from service.domain.recommend.answer import Choice, CitedPrior, Note, RankedOffer, Rejection, SpotEstimate
from service.domain.statement import Statement
from service.domain.units import GIB


def with_text(statement: Statement[Any]) -> StatementResponse:
    """Returns a statement with its text."""
    return StatementResponse(statement.code, text_of(SENTENCES[statement.code], statement.figures))


def note_response(note: Note) -> NoteResponse:
    """Returns a note with its text."""
    return NoteResponse(note.code, text_of(NOTES[note.code], note.figures), list(note.fields))


def rejection_text(rejection: Rejection) -> str:
    """Returns the meaning of a rejection with the words that it is about, and how many instance types it rejects."""
    types = f"{plural(rejection.rejects, 'instance type')} {'was' if rejection.rejects == 1 else 'were'}"
    alone = f", {rejection.only_this} of them by this alone" if rejection.only_this else ""
    meaning = REJECTIONS[rejection.code]
    if rejection.about:
        meaning = f"{meaning.removesuffix('.')}, {either(rejection.about)}."
    return f"{meaning} {types} rejected{alone}."


def placement_text(choice: Choice, *, together: bool) -> str:
    """Returns where the nodes of a choice must be placed."""
    where = f"in one zone of {choice.offer.region}" if choice.offer.region else "in one zone"
    if together:
        return f"The {choice.nodes} nodes work as one: start them {where}, close together (a placement group)."
    return f"The {choice.nodes} nodes need not be close together; the estimate assumes the network of nodes {where}."


# Reasons


def _objective(rank: int, ranked: int, figures: Sequence[tuple[str, float | None]]) -> str:
    position = "First" if rank == 1 else f"Number {rank}"
    reasons = " and ".join(_criterion(name, value) for name, value in figures) or "its market"
    return f"{position} of {ranked} by the objective, with {reasons}."


CRITERIA: Mapping[str, tuple[str, int, str]] = {
    "usd_per_hour": ("${} an hour", 6, "an unknown price"),
    "usd_of_job": ("${} for the whole job", 4, "an unknown price"),
    "hours": ("{} hours", 3, "unknown hours"),
    "seconds_per_request": ("{} seconds per request", 3, "an unknown time per request"),
    "samples_per_second": ("{} samples per second", 4, "an unknown speed"),
    "samples_per_usd": ("{} samples per dollar", 4, "an unknown price"),
    "joules_per_sample": ("{} joules per sample", 4, "an unknown power"),
    "risk": ("a risk of {}", 6, "the risk of its market"),
    "gpu_count": ("a GPU count of {}", 6, "an unknown number of GPUs"),
    "gpu_memory_gb": ("{} GB on each GPU", 6, "an unknown memory"),
    "peak_tflops": ("a peak of {} TFLOPS", 6, "an unknown peak"),
    "peak_tflops_per_usd_hour": ("{} TFLOPS per dollar-hour", 4, "an unknown peak per dollar"),
    "peak_tflops_per_watt": ("{} TFLOPS per watt", 4, "an unknown peak per watt"),
    "vcpus": ("{} vCPUs", 6, "an unknown number of vCPUs"),
    "vcpus_per_usd_hour": ("{} vCPUs per dollar-hour", 4, "an unknown number of vCPUs per dollar"),
    "vcpus_per_watt": ("{} vCPUs per watt", 4, "an unknown number of vCPUs per watt"),
}
"""For each criterion: the text of its figure, the significant digits, and the text where the figure is unknown."""


def _criterion(name: str, value: float | None) -> str:
    text, digits, unknown = CRITERIA[name]
    return unknown if value is None else text.format(readable(value, digits))


def _precision(precision: str, tflops: float | None) -> str:
    peak = "an unknown peak" if tflops is None else f"a dense peak of {tflops:g} TFLOPS for the machine"
    return f"Rated at {precision}, with {peak}."


def _tied(ranks: Sequence[int], beyond: bool) -> str:
    numbers = f"number{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else ""
    others = filter(None, (numbers, "choices beyond the limit" if beyond else ""))
    return f"The estimates cannot distinguish it from {' and from '.join(others)}."


def _within_limits(
    hours: float,
    deadline_hours: float | None,
    usd: float | None,
    budget_usd: float | None,
    safe: bool,
    instances: int,
    runs: int,
) -> str:
    work, s = ("The job", "s") if runs == 1 else (f"The {runs} runs", "")
    shared = f", shared by {instances} independent instances," if instances > 1 else ""
    kept = []
    if deadline_hours is not None:
        taken = "less than a second" if hours * 3600 < 1 else readable(hours, 3)
        kept.append(f"take{s} {taken} of {readable(deadline_hours, 6)} hour{'s' * (deadline_hours != 1)}")
    if budget_usd is not None and usd is not None:
        spent = "less than a cent" if usd < 0.01 else f"${readable(usd, 4)}"
        kept.append(f"cost{s} {spent} of ${readable(budget_usd, 6)}")
    end = "; the limits hold at the pessimistic end as well" if safe else ""
    return f"{work}{shared} {' and '.join(kept)}{end}."


def _spot_in_expectation(spot: SpotEstimate) -> str:
    expected: Expectation = spot.expected
    if spot.break_even is None:
        compared = "no price on demand is known there"
    elif (rate := spot.break_even.interruptions_per_hour) is None:
        compared = "it is no cheaper than on demand"
    else:
        of_each = " of each instance" if spot.interruptions_per_hour != expected.per_hour else ""
        compared = f"up to {readable(rate, 3)} interruptions an hour{of_each} it costs less than on demand"
    paid = expected.hours.likely
    elapsed = expected.elapsed
    waiting = "" if elapsed is None else f", and {readable(elapsed.likely - paid, 3)} more pass without capacity"
    return (
        f"About {readable(spot.interruptions.likely, 3)} interruptions are expected, so {readable(paid, 4)} hours are "
        f"paid for, {readable(100 * (expected.stretch - 1), 3)} % more than without interruptions{waiting}; {compared}."
    )


REASONS: Mapping[ReasonCode, Sentence] = {
    ReasonCode.OBJECTIVE: _objective,
    ReasonCode.ONLY_CHOICE: "Nothing else satisfies the constraints.",
    ReasonCode.PRECISION: _precision,
    ReasonCode.FITS: lambda needed_bytes, usable_bytes, on_gpus: (
        f"Needs {needed_bytes / GIB:.1f} of the {usable_bytes / GIB:.1f} GiB that "
        f"{'each GPU' if on_gpus else 'the machine'} can use."
    ),
    ReasonCode.MEASURED: rate_text,
    ReasonCode.SCALED: rate_text,
    ReasonCode.WITHIN_LIMITS: _within_limits,
    ReasonCode.WITHIN_BUDGET: "A month of the load costs ${usd_a_month:,.2f} of ${budget_usd:,.2f}.",
    ReasonCode.SPOT_IN_EXPECTATION: _spot_in_expectation,
    ReasonCode.SOFTWARE: lambda software: f"Known to run there: {', '.join(software)}.",
    ReasonCode.INTERCONNECT: lambda gpus, links, gb_per_second: (
        f"Its {gpus} GPUs are linked by {LINKS[links]}"
        + ("." if gb_per_second is None else f", {gb_per_second:g} GB/s for each.")
    ),
    ReasonCode.RANKED_AT_HIGH_PRICE: lambda usd_per_hour: (
        f"It ranks at ${readable(usd_per_hour, 4)} an hour, the high end of its price, because no recent observation "
        "confirms it."
    ),
    ReasonCode.SPARE_VCPUS: lambda vcpus, needed: (
        f"{ceil(needed)} of its {vcpus:g} vCPUs {'prepare' if needed > 1 else 'prepares'} samples as fast as the GPUs "
        "take them; more vCPUs make it no faster."
    ),
    ReasonCode.TIED: _tied,
}


# Warnings


def _slow_network(nodes: int, gbps: float | None, assumed: bool, rdma: bool | None) -> str:
    speed = "a network of unknown speed" if gbps is None else f"{'an assumed ' if assumed else ''}{gbps:g} Gbps"
    link = "without RDMA" if rdma is False else "for which RDMA is unknown"
    return f"The {nodes} nodes are connected by {speed} {link}: one job on all of them may scale badly."


def _local_storage_small(needed_gb: float | None, local_gb: float) -> str:
    if not local_gb:
        return "The machine has no local disks to read from."
    return f"The samples take {needed_gb:.4g} GB; the local disks hold {local_gb:g}."


def _commits(term: str, hours: float, machines: int, usd: float | None) -> str:
    cost = "" if usd is None else f": ${usd:,.0f}"
    on = "the machine" if machines == 1 else f"each of {machines} machines"
    return f"Under the term {term}, {hours:,.0f} hours of {on} are paid for, used or not{cost}."


def _spot_can_be_interrupted(notice_seconds: int | None, others: int | None, utilisation: float | None) -> str:
    """Returns the sentence; `others` are the instances that go on serving a load, None without one."""
    notice = "" if notice_seconds is None else f" with {notice_seconds} seconds' notice"
    taken = f"Spot machines can be taken away{notice}"
    if others is None:
        return f"{taken}; the work must save and resume."
    if others == 0:
        return f"{taken}. Until the only instance is replaced, no request is answered: `min_replicas` asks for more."
    if utilisation is None:
        return f"{taken}. Until one is replaced, its clients share {plural(others, 'other instance')} with theirs."
    more = "" if utilisation <= 1.0 else ", so that requests pile up"
    of_others = f"{utilisation:.0%} of what {plural(others, 'instance')} can do"
    return f"{taken}. Until one is replaced, the load is {of_others}{more}."


WARNINGS: Mapping[WarningCode, Sentence] = {
    WarningCode.PCIE_MULTI_GPU: "The {gpus} GPUs are linked by PCIe only. Training one model on all of them can be "
    "slow; measure it.",
    WarningCode.SOLD_FOR_INFERENCE: "The vendor positions the {gpu} for inference. Measure how well it trains.",
    WarningCode.WITHOUT_GPU: lambda tflops: (
        "It has no GPU, and the peak of its CPUs is unknown."
        if tflops is None
        else f"It has no GPU: its CPUs peak at {tflops:.3g} TFLOPS in fp32."
    ),
    WarningCode.ARM_HOST: "The host CPU is Arm: every library of the workload must exist for it.",
    WarningCode.PART_OF_A_CARD: "The GPU is {fraction:.3g} of the {card}, not a whole card.",
    WarningCode.PREVIEW: "The type is in preview: access must be granted and may be withdrawn.",
    WarningCode.CLOSED_TO_NEW: "The provider no longer admits new customers to this type.",
    WarningCode.ENDS: lambda state, starts_on, days: (
        f"It {'is retired' if state == 'retired' else 'admits no new customers'} from {starts_on} on, in "
        f"{plural(days, 'day')}."
    ),
    WarningCode.SUPERSEDED: "{successor.instance_type.name} is newer: {successor.peak_tflops:g} TFLOPS at peak, "
    "from ${successor.usd_per_hour:g} an hour on demand; this type has {successor.old_peak_tflops:g}, "
    "from ${successor.old_usd_per_hour:g}.",
    WarningCode.NO_FRAMEWORK: "No deep-learning framework is known to run on the {gpu}.",
    WarningCode.SLOW_NETWORK: _slow_network,
    WarningCode.SINGLE_THREADED: lambda vcpus: (
        f"Code with one thread uses one of its {'many' if vcpus is None else f'{vcpus:g}'} vCPUs, "
        "and a core of a server is slower than one of a desktop."
    ),
    WarningCode.LOCAL_STORAGE_SMALL: _local_storage_small,
    WarningCode.SPOT_CAN_BE_INTERRUPTED: _spot_can_be_interrupted,
    WarningCode.SPOT_MORE_EXPENSIVE: "On demand it costs ${on_demand:g} an hour here, less than the ${spot:g} of spot.",
    WarningCode.COMMITS: _commits,
    WarningCode.PRICE_UNDATED: "The day on which this price was observed is unknown.",
    WarningCode.PRICE_OLD: "The price was last observed {days} days before the catalog's day, on {observed_on}.",
    WarningCode.PRICE_SUSPECT: "One source alone states ${listed:g} an hour, far below the same GPU at other sellers; "
    "${believed:g} is believed.",
    WarningCode.COST_INCOMPLETE: lambda reasons: f"The dollars are a lower bound. {' '.join(reasons)}",
    WarningCode.PRICE_ASSUMED: lambda note: (
        f"The price is carried over, not observed: {note or 'without a note of its origin'}."
    ),
    **WARNINGS_OF_ESTIMATES,
    WarningCode.MEASUREMENT_OLD: "Last measured on {measured_on}, on {machine}; measure it again.",
    WarningCode.MEASUREMENT_OTHER_SOFTWARE: "Measured with {measured}; the workload asks for {requested}. Measure it "
    "again.",
}


SENTENCES: Mapping[str, Sentence] = dict(chain(REASONS.items(), WARNINGS.items(), ADVICE.items()))


# Notes


def _batch_assumed(samples: float, per_gpu: int | None, *, steps: bool) -> str:
    count = "one sample" if samples == 1 else f"{samples:,.0f} samples"
    usual = f"about {count}, the same number on each GPU and at least one"
    step = usual if per_gpu is None else f"the `batch_size` of each GPU once, {per_gpu:,}"
    differ = " The same number of steps on more GPUs then takes more samples." if steps and per_gpu is not None else ""
    return f"No `global_batch_size` was given, so an optimizer step is taken to have {step}.{differ}"


def _nearest(
    in_time: RankedOffer | None,
    in_budget: RankedOffer | None,
    fastest: RankedOffer | None,
    cheapest: RankedOffer | None,
) -> str:
    sides = (
        ("in time, the cheapest is {} for {usd}", in_time),
        ("nothing is in time, and the fastest is {} in {hours}", fastest),
        ("within the budget, the fastest is {} in {hours}", in_budget),
        ("nothing is within the budget, and the cheapest is {} for {usd}", cheapest),
    )
    texts = [
        text.format(offer.instance_type.id, usd=f"${readable(offer.usd, 4)}", hours=f"{readable(offer.hours, 3)} hours")
        for text, offer in sides
        if offer is not None and offer.usd is not None and offer.hours is not None
    ]
    return f"Nothing is both in time and within the budget: {'; '.join(texts)}."


LACKING = {
    "peak_unknown": "no peak at the precision is published",
    "power_unknown": "no power rating is published",
    "gpu_figures_unknown": "a figure of the GPU that estimates need is not published",
}


def _unranked(instances: Sequence[str], count: int, lacks: str) -> str:
    more = "" if count == len(instances) else f" and {count - len(instances)} more"
    return (
        f"The constraints admit {', '.join(instances)}{more}, but {LACKING[lacks]}: measure the work there to rank it."
    )


def _objective_changed(before: RankedOffer, after: RankedOffer) -> str:
    if before.index == after.index:
        return f"{after.instance_type.id} is first under the earlier objective, too."
    prices = [f"${dollars(offer.usd_per_hour)}" for offer in (before, after) if offer.usd_per_hour is not None]
    figures = [f"{prices[1]} instead of {prices[0]} an hour"] if len(prices) == 2 else []
    figures += [f"at {after.speed / before.speed:.3g} times the speed"] if after.speed and before.speed else []
    replaces = f"{after.instance_type.id} replaces {before.instance_type.id}"
    return f"{replaces}: {', '.join(figures)}." if figures else f"{replaces}."


def prior_text(cited: CitedPrior) -> str:
    """Returns a rule of thumb, and how the answer compares with it."""
    prior, figures = cited.prior, [_criterion(*figure) for figure in cited.figures]
    first = cited.compared[0]
    if prior.groups:
        names = [offer.instance_type.id for offer in cited.compared]
        better, worse = (f"{name} ({figure})" for name, figure in zip(names, figures, strict=True))
        if cited.verdict == "followed":
            return f"{prior.says} The answer agrees: {better} comes before {worse}."
        return f"{prior.says} The figures say otherwise: {worse} comes before {better}."
    if prior.min_gpus is not None:
        gpus = plural(first.instance_type.gpu_count * first.machines, "GPU")
        return f"{prior.says} The first choice, {first.instance_type.id} ({figures[0]}), has {gpus}."
    took = "an unknown time" if first.hours is None else f"{readable(first.hours, 3)} hours"
    return f"{prior.says} The first choice, {first.instance_type.id}, takes {took}."


NOTES: Mapping[NoteCode, Sentence] = {
    NoteCode.OBJECTIVE_CHANGED: _objective_changed,
    NoteCode.UNRANKED: _unranked,
    NoteCode.SPOT_PRICE_UNKNOWN: "The provider sells spot machines, but no spot price of an admitted type is known on "
    "this day, so none is ranked.",
    NoteCode.OBJECTIVE_DEFAULTED: "No objective was given, so `cheapest` was used.",
    NoteCode.PRICE_IGNORED: lambda weaker_first, usual_gpus: (
        "No candidate has a known price, so the ranking is by hardware alone: "
        + (
            f"a rule of thumb names {usual_gpus} GPUs, so machines with about as many come first."
            if usual_gpus > 1
            else "GPUs are sold one by one, so fewer GPUs count as cheaper"
            f"{', and weaker GPUs as cheaper than stronger ones' if weaker_first else ''}."
        )
    ),
    NoteCode.READING_SPEED: (
        "No limit on a time was given, so answers are twice as fast as people read: at most {seconds:g} s per token. "
        "The time to the first token has no limit. Give another limit, or null for none."
    ),
    NoteCode.NO_TIME_LIMIT: (
        "No limit on the time of a request was given, so the instances are the fewest that carry the load, and "
        "`seconds_per_request` of each choice says how long requests take. Give `max_seconds_per_request` to limit it."
    ),
    NoteCode.NO_AMOUNT: lambda given, unused: (
        (
            "The work of the given hours is unknown, because the job is not estimated to run on that machine"
            if given
            else "No amount of work was given"
        )
        + ", so the ranking is by rates and hourly prices, not by the hours and the cost of the whole job."
        + (f" No choice was compared with the limit on these: {' and '.join(unused)}." if unused else "")
    ),
    NoteCode.COMMITMENT_UNUSED: lambda held, left_out: (
        (
            f"The constraints leave out the offers of the admitted instance types under {either(held)}"
            if left_out
            else f"No admitted instance type has an offer under {either(held)}"
        )
        + ", so the commitments held change no price."
    ),
    NoteCode.EMPTY_CATALOG: lambda day, first_day: (
        f"The catalog of {day} has no instance types"
        + ("." if first_day is None else f": the first day with any is {first_day}.")
    ),
    NoteCode.NO_DEADLINE: "No deadline was given, so none was applied (typical: `deadline_hours: 24`).",
    NoteCode.NODES_NOT_TRIED: "The numbers of nodes tried are `min_nodes`, and 2^n, 3 x 2^n and 5 x 2^n above it; the "
    "largest is {tried}. To try {most}, send `min_nodes: {most}`.",
    NoteCode.BATCH_ASSUMED: _batch_assumed,
    NoteCode.LENGTHS_ASSUMED: lengths_assumed,
    NoteCode.NEAREST: _nearest,
    NoteCode.SEVERAL_CONSTRAINTS: lambda instance, codes: (
        f"No single change admits anything. {instance} misses the fewest constraints: {', '.join(codes)}."
    ),
    NoteCode.RETIRED: lambda names, since: (
        f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} not been offered since {since}: "
        "an earlier `as_of` ranks the machines of its day."
    ),
    NoteCode.GPU_NOT_RENTED: lambda gpus: (
        f"No instance type of the catalog has {either(gpus)}: `POST /estimate` estimates a machine that you "
        "describe with it."
    ),
    NoteCode.NAME_NOT_MEASURED: lambda name, near: with_near(
        f"No measurement is known under '{name}', so the name did not affect the ranking.", near
    ),
    NoteCode.SPOT_LEFT_OUT: "The workload is not fault-tolerant, and an interruption would lose all of its progress, "
    "so spot machines were left out.",
    NoteCode.SOFTWARE_UNKNOWN: lambda near: software_unknown(near, "it rejected nothing"),
    NoteCode.CONFLICT_IN_SOURCES: lambda priors: (
        f"Rules of thumb contradict each other ({', '.join(priors)}): the ranking follows the figures."
    ),
    NoteCode.PUBLISHED_PRECISION: lambda precision, below_adapters: (
        f"The adapters are trained on the weights as they are published, in {precision}, which are multiplied at 16 "
        "bits; for weights in 16 bits, send the model that they were made from."
        if below_adapters
        else f"No precision was given, so the weights are served as they are published, in {precision}; a GPU that "
        "does not multiply in that format stores them in it and multiplies at 16 bits."
    ),
    NoteCode.NOT_WEIGHED: lambda modelled, by_name: (
        "These fields were read and checked but did not affect the ranking, which rests on "
        f"{'the physics of the job' if modelled else 'measurements and price' if by_name else 'hardware and price'}."
    ),
}
