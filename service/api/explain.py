"""Sentences for codes: why a choice stands where it does, what to beware of, what kept the others out."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated

from pydantic import Field
from pydantic_core import to_json

from service.api.question import RecommendAsked
from service.domain.catalog import Catalog
from service.domain.codes import REJECTIONS
from service.domain.job import Job
from service.domain.machine import GIB
from service.domain.outlook import Outlook
from service.domain.recommend import Answer, Choice, Question, Rejection, Relaxation

OLD_PRICE_DAYS = 90


@dataclass(frozen=True, slots=True)
class Statement:
    """A code from a closed list, and its sentence with the figures."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something to know about the whole answer."""

    code: str
    text: str
    fields: Annotated[list[str], Field(description="The fields of the question that it speaks of.")]


ONLY_CHOICE = to_json(Statement("only_choice", "Nothing else satisfies the constraints."))


def standing_json(rank: int, ranked: int, figures: bytes) -> bytes:
    """The reason `objective`, with the figures as they stand within quotes; and `only_choice` where it is one."""
    place = b"First" if rank == 1 else b"Number %d" % rank
    standing = b'{"code":"objective","text":"%b of %d by the objective, with %b."}' % (place, ranked, figures)
    return standing if ranked > 1 else b"%b,%b" % (standing, ONLY_CHOICE)


def terms_told(question: Question, answer: Answer) -> tuple[str, ...]:
    """The terms of the objective that ranked."""
    if answer.price_ignored:
        return ("hours",)
    return tuple([term for term, weight in question.objective.weights.items() if weight])


def reasons_for(choice: Choice, terms: Sequence[str], outlook: Outlook | None) -> tuple[str, list[Statement]]:
    """The figures that put the choice where it stands, and the reasons besides."""
    tell = figure_told if outlook is None else partial(job_figure_told, outlook.job)
    told = dict.fromkeys(figure for term in terms if (figure := tell(term, choice)))
    figures = " and ".join(told) or "its market"
    if outlook is not None:
        return figures, [Statement("fits", room(choice, outlook))]
    if choice.precision is None:
        return figures, []
    peak = "an unknown peak" if choice.speed is None else f"a dense peak of {choice.speed:g} TFLOPS for the machine"
    return figures, [Statement("precision", f"Rated at {choice.precision}, with {peak}.")]


def room(choice: Choice, outlook: Outlook) -> str:
    needed, usable = (
        float(column[choice.place]) / GIB for column in (outlook.best.needed_bytes, outlook.best.usable_bytes)
    )
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
    price, speed, watts = choice.offer.price.usd_per_hour, choice.speed, choice.instance_type.tdp_watts
    assert speed is not None
    match term:
        case "usd":
            if price is None or choice.node_hours is None:
                return "an unknown price"
            if job.amount is None:
                return f"${price * choice.nodes:.4g} an hour"
            return f"${price * choice.node_hours:.4g} for the whole job"
        case "hours" if job.amount is not None and choice.node_hours is not None:
            return f"{choice.node_hours / choice.nodes:.3g} hours"
        case "hours" | "samples_per_second":
            return f"{speed:.4g} samples per second"
        case "samples_per_usd":
            return "an unknown price" if not price else f"{speed * 3600 / price / choice.nodes:.4g} samples per dollar"
        case "joules":
            return "an unknown power" if watts is None else f"{watts * choice.nodes / speed:.4g} joules per sample"
        case _:
            return None


def unit(choice: Choice) -> str:
    return "TFLOPS" if choice.precision else "vCPUs"


def warnings_for(choice: Choice, asked: RecommendAsked, catalog: Catalog) -> list[Statement]:
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
    found |= lifecycle_warnings(choice, catalog) | host_warnings(choice, asked) | price_warnings(choice, catalog)
    return [Statement(code=code, text=text) for code, text in found.items()]


def lifecycle_warnings(choice: Choice, catalog: Catalog) -> dict[str, str]:
    match choice.instance_type.state_on(catalog.day):
        case "preview":
            return {"preview": "The type is in preview: access must be granted and may be withdrawn."}
        case "closed_to_new":
            return {"closed_to_new": "The provider no longer admits new customers to this type."}
        case _:
            return {}


def host_warnings(choice: Choice, asked: RecommendAsked) -> dict[str, str]:
    kind, host = choice.instance_type, asked.workload.host
    found = {}
    if host.vcpus_per_gpu is not None and kind.vcpus_per_gpu is not None and kind.vcpus_per_gpu < host.vcpus_per_gpu:
        found["few_vcpus"] = f"{kind.vcpus_per_gpu:g} vCPUs per GPU; the workload asks for {host.vcpus_per_gpu:g}."
    if host.memory_gib is not None and kind.memory_gib is None:
        found["host_memory_unknown"] = f"Nobody tells its host memory; the workload asks for {host.memory_gib:g} GiB."
    return found


def price_warnings(choice: Choice, catalog: Catalog) -> dict[str, str]:
    price, found = choice.offer.price, {}
    if choice.offer.market == "spot":
        found["spot_can_be_interrupted"] = "Spot machines can be taken away; the work must save and resume."
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


def relaxation_json(relaxed: Relaxation, catalog: Catalog) -> bytes:
    def encode() -> bytes:
        return to_json(
            {
                "instance": relaxed.instance_type.id,
                "region": relaxed.offer.region,
                "market": relaxed.offer.market,
                "usd_per_hour": relaxed.offer.price.usd_per_hour,
            }
        )

    best = catalog.fragments.recall(("best", relaxed.offer_place), encode)
    return b'{"to":%b,"admits":%d,"best":%b}' % (to_json(relaxed.to), relaxed.admits, best)


def notes_on(asked: RecommendAsked, answer: Answer) -> list[Note]:
    notes = []
    if "objective" not in asked.model_fields_set:
        notes.append(
            Note(code="objective_defaulted", text="No objective was named; cheapest was taken.", fields=["objective"])
        )
    if answer.price_ignored:
        notes.append(
            Note(
                code="price_ignored",
                text="No candidate has a known price, so hardware alone ranks them.",
                fields=["objective"],
            )
        )
    if answer.outlook is not None and answer.outlook.job.amount is None:
        text = "No amount of work was told, so what an hour costs ranks, not what the job does."
        notes.append(Note(code="no_amount", text=text, fields=["workload.amount"]))
    if unweighed := unweighed_fields(asked, has_job=answer.outlook is not None):
        rests = "the physics of the job" if answer.outlook is not None else "hardware and price"
        notes.append(
            Note(
                code="not_weighed",
                text=f"These fields were read and checked but did not weigh: the ranking rests on {rests}.",
                fields=unweighed,
            )
        )
    return notes


WEIGHED = {
    "workload": {"task", "precision", "precision_support", "fault_tolerant", "host"},
    "host": {"vcpus_per_gpu", "memory_gib"},
}
NOT_WEIGHED = ("budget_usd", "deadline_hours", "min_nodes", "max_nodes", "max_instances", "same_placement")
NOT_WEIGHED_IN_A_JOB = {"name", "numerics", "concurrent_runs", "sample_mb", "reads_from", "checkpoint"}
TRAINING_ONLY = {
    "method", "purpose", "optimizer", "trainable_parameters", "mixed_precision", "flash_attention", "chunked_loss",
    "fused_optimizer", "offload_activations", "global_batch_size",
}  # fmt: skip
ANSWERING_ONLY = {"kv_cache_precision", "concurrency", "batch_size", "input_length", "output_length"}
LIMITS_OF_A_JOB = {"deadline_hours", "min_nodes", "max_nodes"}


def not_weighed_in(task: str) -> set[str]:
    """Of a job, the fields that its task does not ask for are not weighed either."""
    return NOT_WEIGHED_IN_A_JOB | (ANSWERING_ONLY if task == "training" else TRAINING_ONLY)


def unweighed_fields(asked: RecommendAsked, *, has_job: bool) -> list[str]:
    work, limits = asked.workload, asked.constraints
    told = work.model_fields_set
    fields = told & not_weighed_in(work.task) if has_job else told - WEIGHED["workload"]
    return [
        *(f"workload.{name}" for name in sorted(fields)),
        *(f"workload.host.{name}" for name in sorted(work.host.model_fields_set - WEIGHED["host"])),
        *(
            f"constraints.{name}"
            for name in NOT_WEIGHED
            if name in limits.model_fields_set and not (has_job and name in LIMITS_OF_A_JOB)
        ),
    ]
