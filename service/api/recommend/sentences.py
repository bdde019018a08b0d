"""Sentences for codes: why a choice stands where it does, what to beware of, what kept the others out."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from pydantic_core import to_json

from service.api.http.fields import NoteResponse, StatementResponse
from service.api.recommend.codes import REJECTIONS
from service.api.recommend.host import host_warnings, loading_of
from service.api.recommend.request import RecommendRequest, leaves_spot_out
from service.api.workload.requirements import unknown_software
from service.domain.bill.unit_costs import samples_per_usd
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.software_support import no_framework_mask
from service.domain.jobs.job import Job
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.physics.cluster import GIB
from service.domain.recommend.fleet import FleetEstimate
from service.domain.recommend.named_work import NamedWork, seen_under
from service.domain.recommend.recommend import Answer, Choice, Question, Rejection, RelaxationOutcome
from service.domain.recommend.successors import successor
from service.domain.selection.requirements import Requirements, partly_run

OLD_PRICE_DAYS = 90


ONLY_CHOICE = to_json(StatementResponse("only_choice", "Nothing else satisfies the constraints."))


def standing_json(rank: int, ranked: int, figures: bytes) -> bytes:
    """The reason `objective`, with the figures as they stand within quotes; and `only_choice` where it is one."""
    place = b"First" if rank == 1 else b"Number %d" % rank
    standing = b'{"code":"objective","text":"%b of %d by the objective, with %b."}' % (place, ranked, figures)
    return standing if ranked > 1 else b"%b,%b" % (standing, ONLY_CHOICE)


def tied_json(ranks: Sequence[int]) -> bytes:
    """The reason `tied`, and the comma before it."""
    others = f"number {ranks[0]}" if len(ranks) == 1 else f"numbers {', '.join(map(str, ranks))}"
    return b",%b" % to_json(StatementResponse("tied", f"The estimates cannot tell it apart from {others}."))


def terms_told(question: Question, answer: Answer) -> tuple[str, ...]:
    """The terms of the objective that ranked."""
    if answer.price_ignored:
        return ("hours",)
    return tuple([term for term, weight in question.objective.weights.items() if weight])


def reasons_for(
    choice: Choice, terms: Sequence[str], outlook: FleetEstimate[Any] | None
) -> tuple[str, list[StatementResponse]]:
    """The figures that put the choice where it stands, and the reasons besides."""
    tell = figure_told if outlook is None else partial(job_figure_told, outlook.job)
    told = dict.fromkeys(figure for term in terms if (figure := tell(term, choice)))
    figures = " and ".join(told) or "its market"
    if outlook is not None:
        return figures, [] if isinstance(outlook.job, NamedWork) else [StatementResponse("fits", room(choice, outlook))]
    if choice.precision is None:
        return figures, []
    peak = "an unknown peak" if choice.speed is None else f"a dense peak of {choice.speed:g} TFLOPS for the machine"
    return figures, [StatementResponse("precision", f"Rated at {choice.precision}, with {peak}.")]


def room(choice: Choice, outlook: FleetEstimate[Any]) -> str:
    on_nodes = outlook.on(choice.nodes)
    needed, usable = (float(column[choice.place]) / GIB for column in (on_nodes.needed_bytes, on_nodes.usable_bytes))
    return f"Needs {needed:.1f} of the {usable:.1f} GiB that each GPU has to use."


def figure_told(term: str, choice: Choice) -> str | None:
    """What a term of the objective comes to here; nothing for risk, which the market tells."""
    price, speed, watts = choice.offer.price.usd_per_hour, choice.speed, choice.instance_type.tdp_watts
    match term:
        case "usd":
            return "an unknown price" if price is None else f"${price:g} an hour"
        case "hours" | "samples_per_second":
            return "an unknown peak" if speed is None else f"a peak of {speed:g} {unit(choice)}"
        case "samples_per_usd":
            if price is None or speed is None:
                return "an unknown peak per dollar"
            return f"{speed / price:.4g} {unit(choice)} per dollar-hour"
        case "joules":
            if watts is None or speed is None:
                return "an unknown peak per watt"
            return f"{speed / watts:.4g} {unit(choice)} per watt"
        case _:
            return None


def job_figure_told(job: Job, term: str, choice: Choice) -> str | None:
    """The same of a job: dollars and hours of the whole of it, where the amount of work is told."""
    usd, speed, watts = choice.usd, choice.speed, choice.instance_type.tdp_watts
    machines = choice.nodes * choice.instances
    price = choice.offer.price.usd_per_hour
    assert speed is not None
    match term:
        case "usd":
            if usd is None:
                return "an unknown price"
            return f"${usd:.4g} an hour" if job.amount is None else f"${usd:.4g} for the whole job"
        case "hours" if choice.hours is not None:
            return f"{choice.hours:.3g} hours"
        case "hours" | "samples_per_second":
            return f"{speed:.4g} samples per second"
        case "samples_per_usd":
            return (
                "an unknown price"
                if not price
                else f"{samples_per_usd(speed, price * machines):.4g} samples per dollar"
            )
        case "joules":
            return "an unknown power" if watts is None else f"{watts * machines / speed:.4g} joules per sample"
        case _:
            return None


def unit(choice: Choice) -> str:
    return "TFLOPS" if choice.precision else "vCPU" if choice.speed == 1 else "vCPUs"


def warnings_for(
    choice: Choice,
    asked: RecommendRequest,
    needs: Requirements,
    found: JobEstimate | None,
    job: Job | None,
    catalog: Catalog,
) -> list[StatementResponse]:
    """`found` is the job on the choice, where there is one."""
    told = (
        use_warnings(choice, asked)
        | lifecycle_warnings(choice, catalog)
        | successor_warnings(choice, catalog)
        | software_warnings(choice, asked.workload.task, needs, catalog)
        | network_warnings(choice)
        | host_warnings(choice.instance_type, asked.workload, loading_of(asked.workload, job), found, choice.nodes)
        | price_warnings(choice, catalog)
    )
    return [StatementResponse(code=code, text=text) for code, text in told.items()]


def use_warnings(choice: Choice, asked: RecommendRequest) -> dict[str, str]:
    kind, work = choice.instance_type, asked.workload
    found: dict[str, str] = {}
    if work.task == "training" and kind.gpu_count > 1 and kind.interconnect == "pcie":
        found["pcie_multi_gpu"] = (
            f"The {kind.gpu_count} GPUs talk over PCIe. Training one model on all of them can be slow; measure it."
        )
    if work.task == "training" and kind.gpu and kind.gpu.positioned_for == "inference":
        found["sold_for_inference"] = (
            f"The maker sells the {kind.gpu.name} for inference. It can train; a measurement decides how well."
        )
    if kind.cpu_architecture == "arm64":
        found["arm_host"] = "The host CPU is Arm: every library of the workload must exist for it."
    if kind.gpu and kind.gpu.fraction < 1:
        found["part_of_a_card"] = f"This is {kind.gpu.fraction:.3g} of a {kind.gpu.partition_of}, not a whole card."
    return found


def lifecycle_warnings(choice: Choice, catalog: Catalog) -> dict[str, str]:
    match choice.instance_type.state_on(catalog.day):
        case "preview":
            return {"preview": "The type is in preview: access must be granted and may be withdrawn."}
        case "closed_to_new":
            return {"closed_to_new": "The provider no longer admits new customers to this type."}
        case _:
            return {}


def successor_warnings(choice: Choice, catalog: Catalog) -> dict[str, str]:
    """Of machines with a GPU: what replaces them, in the figures of a whole machine on demand."""
    new = successor(choice.place, catalog) if choice.instance_type.gpu else None
    if new is None:
        return {}
    return {
        "superseded": f"{new.instance_type.name} is newer: {new.peak_tflops:g} TFLOPS at peak for "
        f"${new.usd_per_hour:g} an hour on demand; this has {new.old_peak_tflops:g} for ${new.old_usd_per_hour:g}."
    }


def software_warnings(choice: Choice, task: str, needs: Requirements, catalog: Catalog) -> dict[str, str]:
    gpu = choice.instance_type.gpu
    if task in ("training", "inference") and gpu and no_framework_mask(catalog)[choice.place]:
        return {"no_framework": f"No deep-learning framework is known to run on the {gpu.name}."}
    parts = partly_run(needs, choice.place, catalog)
    told = ", ".join(software if note is None else f"{software} ({note})" for software, note in parts)
    return {"software_partly": f"Runs here in part, or with less than on other machines: {told}."} if told else {}


def network_warnings(choice: Choice) -> dict[str, str]:
    kind = choice.instance_type
    if choice.nodes == 1 or kind.rdma:
        return {}
    speed = "a network of unknown speed" if kind.network_gbps is None else f"{kind.network_gbps:g} Gbps"
    rdma = "without RDMA" if kind.rdma is False else "of which nobody tells whether it has RDMA"
    return {"slow_network": f"The {choice.nodes} nodes talk over {speed} {rdma}: one job over them may scale badly."}


def spot_dearer(choice: Choice, catalog: Catalog) -> dict[str, str]:
    """Where the same machine costs less on demand in the region."""
    spot = choice.offer.price.usd_per_hour
    offers = [catalog.offer(place) for place in catalog.offer_places(choice.place)]
    on_demand = [
        each.price.usd_per_hour
        for each in offers
        if each.market == "on_demand" and each.region == choice.offer.region and each.price.usd_per_hour is not None
    ]
    if spot is None or not on_demand or min(on_demand) >= spot:
        return {}
    return {"spot_dearer": f"On demand it costs ${min(on_demand):g} an hour here, less than the ${spot:g} of spot."}


def price_warnings(choice: Choice, catalog: Catalog) -> dict[str, str]:
    price, found = choice.offer.price, {}
    if choice.offer.market == "spot":
        seller = catalog.reference.providers[choice.instance_type.provider]
        notice = "" if seller.spot_notice_seconds is None else f" with {seller.spot_notice_seconds} seconds' notice"
        found["spot_can_be_interrupted"] = f"Spot machines can be taken away{notice}; the work must save and resume."
        found |= spot_dearer(choice, catalog)
    if price.usd_per_hour is None:
        return found
    if price.observed_on is None:
        found["price_undated"] = "Nobody knows on which day this price was seen."
    elif (age := (catalog.day - price.observed_on).days) > OLD_PRICE_DAYS:
        found["price_old"] = f"The price was last seen {age} days before the catalog's day, on {price.observed_on}."
    if price.kind == "assumed":
        found["price_assumed"] = f"The price is carried over, not seen: {price.note or 'no note tells from where'}."
    return found


def rejection_json(rejection: Rejection, catalog: Catalog) -> bytes:
    """As `RejectionTold` says; there are many in an answer, so what a code always says is encoded once."""
    turned = b"1 instance type was" if rejection.count == 1 else b"%d instance types were" % rejection.count
    alone = b", %d of them by this alone" % rejection.only_this if rejection.only_this else b""
    return b'%b%b turned away%b.","count":%d,"only_this":%d,"relax":%b}' % (
        rejection_opening(rejection.code, rejection.ground),
        turned,
        alone,
        rejection.count,
        rejection.only_this,
        b"null" if rejection.relaxation is None else relaxation_json(rejection.relaxation, catalog),
    )


@cache
def rejection_opening(code: str, ground: str) -> bytes:
    """The first sentence of a rejection's text, and what stands before it."""
    return to_json({"code": code, "ground": ground, "text": f"{REJECTIONS[code]} "}).removesuffix(b'"}')


def relaxation_json(relaxed: RelaxationOutcome, catalog: Catalog) -> bytes:
    def encode() -> bytes:
        return to_json(
            {
                "instance": relaxed.instance_type.id,
                "region": relaxed.offer.region,
                "market": relaxed.offer.market,
                "usd_per_hour": relaxed.offer.price.usd_per_hour,
            }
        )

    best = catalog.fragments.get_or_compute(("best", relaxed.offer_place), encode)
    return b'{"to":%b,"admits":%d,"best":%b}' % (to_json(relaxed.to), relaxed.admits, best)


PLAIN = frozenset({"task", "precision", "precision_support", "fault_tolerant"})
"""Of work of which no more is told, the notes depend on which fields are told and not on what they say."""


def notes_json(asked: RecommendRequest, answer: Answer, catalog: Catalog) -> bytes:
    """Each as `NoteResponse` says; usual ones are encoded once."""
    work = asked.workload
    told = work.model_fields_set
    if not told <= PLAIN or leaves_spot_out(asked):
        return to_json(notes_on(asked, answer, catalog))
    limits = asked.constraints.model_fields_set
    key = ("notes", frozenset(asked.model_fields_set), frozenset(told), frozenset(limits), answer.price_ignored)
    return catalog.fragments.get_or_compute(key, lambda: to_json(notes_on(asked, answer, catalog)))


def notes_on(asked: RecommendRequest, answer: Answer, catalog: Catalog) -> list[NoteResponse]:
    notes = []
    if "objective" not in asked.model_fields_set:
        notes.append(
            NoteResponse(
                code="objective_defaulted", text="No objective was named; cheapest was taken.", fields=["objective"]
            )
        )
    if answer.price_ignored:
        notes.append(
            NoteResponse(
                code="price_ignored",
                text="No candidate has a known price, so hardware alone ranks them.",
                fields=["objective"],
            )
        )
    if answer.outlook is not None and answer.outlook.job.amount is None:
        text = "No amount of work was told, so what an hour costs ranks, not what the job does."
        notes.append(NoteResponse(code="no_amount", text=text, fields=["workload.amount"]))
    if asked.workload.amount is not None and asked.constraints.deadline_hours is None:
        text = "No deadline was told, so none limits; many plan for a run to end within a day (deadline_hours: 24)."
        notes.append(NoteResponse(code="no_deadline", text=text, fields=["constraints.deadline_hours"]))
    if answer.in_time is not None or answer.in_budget is not None:
        notes.append(
            NoteResponse("nearest", nearest_told(answer), ["constraints.deadline_hours", "constraints.budget_usd"])
        )
    if (name := asked.workload.name) is not None and not seen_under(name, catalog):
        text = f"Nothing was measured under '{name}' by then, so the name did not rank."
        notes.append(NoteResponse("name_not_measured", text, ["workload.name"]))
    if leaves_spot_out(asked):
        text = "The work bears no fault, so an interruption would lose all of it: spot machines were left out."
        notes.append(NoteResponse("spot_left_out", text, ["constraints.market", "workload.fault_tolerant"]))
    if unknown := unknown_software(asked.workload, catalog):
        text = "Nobody tells where this software runs, so it turned nothing away; GET /frameworks lists what is known."
        notes.append(NoteResponse(code="software_unknown", text=text, fields=unknown))
    if unweighed := unweighed_fields(asked, None if answer.outlook is None else answer.outlook.job):
        rests = "the physics of the job" if answer.outlook is not None else "hardware and price"
        notes.append(
            NoteResponse(
                code="not_weighed",
                text=f"These fields were read and checked but did not weigh: the ranking rests on {rests}.",
                fields=unweighed,
            )
        )
    return notes


def nearest_told(answer: Answer) -> str:
    """What comes nearest on each side where nothing is both in time and within the budget."""
    sides = []
    if (one := answer.in_time) is not None and one.usd is not None:
        sides.append(f"in time, the cheapest is {one.instance_type.id} for ${one.usd:.4g}")
    if (one := answer.in_budget) is not None and one.hours is not None:
        sides.append(f"within the budget, the fastest is {one.instance_type.id} in {one.hours:.3g} hours")
    return f"Nothing is both in time and within the budget: {'; '.join(sides)}."


WEIGHED = {"task", "precision", "precision_support", "fault_tolerant", "host", "software", "numerics"}
ONLY_OF_A_JOB = {"cpu_samples_per_second_per_vcpu"}
"""Of the host: how fast samples must come is known of a job alone."""
NOT_WEIGHED = (
    "budget_usd", "deadline_hours", "min_nodes", "max_nodes", "max_instances", "same_placement", "confidence",
)  # fmt: skip
WEIGHED_BY_NAME = {"name", "amount", "checkpoint"}
NOT_WEIGHED_IN_A_JOB = {"concurrent_runs"}
TRAINING_ONLY = {
    "method", "purpose", "optimizer", "trainable_parameters", "mixed_precision", "flash_attention", "chunked_loss",
    "fused_optimizer", "offload_activations", "global_batch_size",
}  # fmt: skip
ANSWERING_ONLY = {"kv_cache_precision", "concurrency", "batch_size", "input_length", "output_length"}
LIMITS_OF_A_JOB = {"min_nodes", "max_nodes"}
LIMITS_OF_AN_AMOUNT = {"deadline_hours", "budget_usd", "max_instances", "confidence"}


def not_weighed_in(task: str) -> set[str]:
    """Of a job, the fields that its task does not ask for are not weighed either."""
    return NOT_WEIGHED_IN_A_JOB | (ANSWERING_ONLY if task == "training" else TRAINING_ONLY)


def unweighed_fields(asked: RecommendRequest, job: Job | NamedWork | None) -> list[str]:
    work, limits = asked.workload, asked.constraints
    told = work.model_fields_set
    has_job = job is not None
    if job is None:
        fields = told - WEIGHED - {"name"}
    elif isinstance(job, NamedWork):
        fields = told - WEIGHED - WEIGHED_BY_NAME
    else:
        fields = told & (not_weighed_in(work.task) | (set() if job.amount is not None else {"checkpoint"}))
    weighed = LIMITS_OF_A_JOB if has_job else set[str]()
    if job is not None and job.amount is not None:
        weighed = weighed | LIMITS_OF_AN_AMOUNT
    return [
        *(f"workload.{name}" for name in sorted(fields)),
        *(f"workload.host.{name}" for name in sorted(set() if has_job else work.host.model_fields_set & ONLY_OF_A_JOB)),
        *(f"constraints.{name}" for name in NOT_WEIGHED if name in limits.model_fields_set and name not in weighed),
    ]
