"""The advice of an answer, as JSON: what was asked and what came out on top, and what else would help."""

from pydantic_core import to_json

from service.api.recommend.host import host_warnings, loading_of
from service.api.recommend.job_choice import basis_of
from service.api.recommend.request import RecommendRequest
from service.api.workload.requirements import refused_precisions, requirement
from service.domain.catalog.catalog import Catalog
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.recommend.advice import Advice, Situation, advise
from service.domain.recommend.recommend import Answer, Choice, Question

CORES = {"few_vcpus", "host_bound"}
ALWAYS_THERE = {"task", "precision", "fault_tolerant"}
"""Fields of a workload that a situation takes as they are."""

SMALL = 0.5
"""Of a card's memory: a job that takes less may do with a part of one."""


def advice_json(
    asked: RecommendRequest, question: Question, answer: Answer, found: JobEstimate | None, catalog: Catalog
) -> bytes:
    """`found` is the job on the first choice. What was once advised in a situation is remembered."""
    situation = situation_of(asked, question, answer, found, catalog)

    def encode() -> bytes:
        return to_json([Advice._asdict(each) for each in advise(situation, catalog)])

    return catalog.fragments.get_or_compute(("advice", situation), encode)


def situation_of(
    asked: RecommendRequest, question: Question, answer: Answer, found: JobEstimate | None, catalog: Catalog
) -> Situation:
    work, choices = asked.workload, answer.choices
    top = choices[0] if choices else None
    more = bool(work.model_fields_set - ALWAYS_THERE)
    return Situation(
        task=work.task,
        top=None if top is None else top.place,
        precision=found.precision if found is not None else None if top is None else top.precision,
        other=None if top is None else next((each.place for each in choices if is_other(each, top)), None),
        nodes=1 if top is None else top.nodes,
        current=None if question.current_instance is None else catalog.place_of[question.current_instance],
        providers=question.constraints.words.get("provider", ()),
        refused=refused_precisions(work, catalog) if more else (),
        framework=requirement(work.software.framework, "workload.software.framework", catalog) if more else None,
        concurrent_runs=work.concurrent_runs,
        fault_tolerant=work.fault_tolerant,
        cores_bind=top is not None and more and cores_bind(asked, question, top, found),
        part=part_of_a_card(asked, found),
        cut_over_gpus=found is not None and found.estimate.layout.model_ranks > 1,
        basis="peak" if top is None or answer.planner is None else basis_of(top, answer.planner),
    )


def is_other(choice: Choice, top: Choice) -> bool:
    mine, its = choice.instance_type.gpu, top.instance_type.gpu
    return mine is not None and its is not None and mine.id != its.id


def cores_bind(asked: RecommendRequest, question: Question, top: Choice, found: JobEstimate | None) -> bool:
    work = asked.workload
    if work.host.gpu_decoding:
        return False
    told = host_warnings(top.instance_type, work, loading_of(work, question.modelled), found, top.nodes)
    return not CORES.isdisjoint(told)


def part_of_a_card(asked: RecommendRequest, found: JobEstimate | None) -> float | None:
    """The least part that may do: as asked for, or by the memory that the job takes of one card."""
    least: float | None = asked.constraints.given().get("min_gpu_count")
    if least is not None and least < 1:
        return least
    if found is None or found.estimate.layout.gpus > 1 or not found.estimate.memory.usable_bytes:
        return None
    share = found.estimate.memory.needed_bytes / found.estimate.memory.usable_bytes
    return share if share < SMALL else None
