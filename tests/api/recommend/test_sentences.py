"""Every code is put into words with exactly the figures that the domain gives it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from service.api.recommend.sentences import note_response, with_text
from service.domain.bill.run import Run, TransferredData
from service.domain.calibration.coefficients import Coefficient
from service.domain.calibration.price_belief import PriceMovement
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.reference import Measurement, Prior
from service.domain.catalog.software_support import WorkKind
from service.domain.catalog.tariffs import InterruptionPrior
from service.domain.codes import AdviceCode, NoteCode, ReasonCode, WarningCode
from service.domain.evidence.named import NamedWork
from service.domain.jobs.job import Amount, Job
from service.domain.jobs.loading import SampleLoading
from service.domain.jobs.serving import Length, Serving
from service.domain.jobs.stacks import UNKNOWN, SoftwareStack
from service.domain.models.described import UNNAMED_SAMPLE
from service.domain.recommend.answer import Answer, Limits, Note
from service.domain.recommend.objective import OBJECTIVES
from service.domain.recommend.recommend import recommend
from service.domain.selection.constraints import Constraints
from service.domain.selection.requirements import Requirement, Requirements
from service.domain.statement import Statement
from service.domain.versions import EVERY
from tests.builders.calibrations import FITTED
from tests.builders.catalogs import catalog, provider, published_run, software_rule
from tests.builders.gpus import gpu, rate
from tests.builders.instance_types import event, instance_type
from tests.builders.jobs import LARGE_MODEL, LLAMA_3_8B, model
from tests.builders.offers import priced
from tests.builders.selection import question_of
from tests.builders.sources import DAY, SOURCE

BF16, LOW_FP16 = rate("bf16", "accelerated", 312.0), rate("fp16", "reduced", 20.0)
PART = gpu("a100-1of4", fraction=0.25, partition_of="a100-sxm4-40gb", rates=(BF16,), memory_gb=10.0)
REDUCED = gpu("p40", positioned_for="inference", rates=(LOW_FP16,), architecture="pascal")
NPU = gpu("mlu", vendor="cambricon", architecture="mluv02", kind="npu")
NEWER = gpu("h100", released_on="2023-01", rates=(rate("bf16", "accelerated", 989.0),), memory_gb=80.0,
            memory_bandwidth_gb_per_second=3350.0)  # fmt: skip

P4D = instance_type()
NEXT = instance_type("p5.48xlarge", gpu=NEWER, gpu_count=8)
PCIE = instance_type("pcie.4", gpu=REDUCED, gpu_count=4, interconnect="pcie", vcpus=4.0, cpu_architecture="arm64",
                     memory_gib=None, rdma=False, local_storage_gb=0.0, lifecycle=(event("preview"),))  # fmt: skip
ENDING = instance_type("end.1", lifecycle=(event(), event("retired", date(2024, 9, 1))))
GONE = instance_type("gone.1", lifecycle=(event(), event("retired", date(2022, 1, 1))))
PARTLY = instance_type("part.1", gpu=PART, gpu_count=1, lifecycle=(event("closed_to_new"),))
DARK = instance_type("dark.1", gpu=gpu("dark", rates=(rate("bf16", "accelerated", None),)))
CARD = instance_type("card.1", provider="vast", gpu_count=1, vcpus=None, network_gbps=None)
HOST = instance_type("t3.medium", gpu=None, cpu_fp32_tflops=0.16, cpu_baseline_share=0.2)
OTHER = instance_type("mlu.8", gpu=NPU, gpu_count=8, rdma=False, network_gbps=None)

PRIOR = InterruptionPrior("spot", "", "", date(2020, 1, 1), 0.01, 0.05, 0.2, 0.5, 0.9, SOURCE, None)
MEASURED = Measurement(
    "m", "pictures", "pytorch", P4D.id, 8, "bf16", 64, None, 1000.0, None, date(2021, 1, 1), SOURCE, None,
    software="pytorch==1.8",
)  # fmt: skip
RULES = tuple(
    Prior(name, "training", None, None, None, ranking, None, None, None, "So it is.", date(2020, 1, 1), None, SOURCE)
    for name, ranking in {"one": f"{P4D.family} > {OTHER.family}", "other": f"{OTHER.family} > {P4D.family}"}.items()
)
WORLD = catalog(
    priced(P4D, 32.0), priced(P4D, 33.0, market="spot"), priced(P4D, 30.0, market="spot", region="us-west-2"),
    priced(NEXT, 30.0, observed_on=date(2020, 1, 1)), priced(PCIE, 4.0, observed_on=None),
    priced(PARTLY, 1.0, kind="assumed", note="as in May"), priced(OTHER, 20.0),
    providers={"aws": provider(spot_term="Spot")},
    calibration=FITTED, measurements=(MEASURED,), interruption_priors=(PRIOR,), priors=RULES,
    software=(
        software_rule("pytorch", "partly"),
        software_rule("pytorch", "no", scope_value="cambricon"),
        software_rule("jax", "yes"),
        software_rule("jax", "no", families="llm"),
        software_rule("jax", "no", formats="nvfp4", note="too old"),
    ),
)  # fmt: skip

SUSPECT = catalog(
    *(
        priced(instance_type("p4d", provider=seller), usd, valid_from=DAY, observed_on=DAY)
        for seller, usd in {"one": 1.0, "two": 30.0, "three": 31.0, "four": 32.0}.items()
    ),
    price_movement=PriceMovement.of(
        [Coefficient(f"price.{name}", "", value, "", "", 1) for name, value in {"change": 0.4, "spread": 0.5}.items()]
    ),
)
"""One seller asks far less than three others."""

PYTORCH = Requirements(framework=Requirement("pytorch", EVERY), host_memory_gib=64.0)
SMALL_JOB = Job("training", model(), ("bf16",), amount=Amount(samples=1000.0), sequence_length=2048, global_batch=64)
PICTURES = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9)
SERVING = Job("inference", model(), ("fp16",), input_length=512.0, output_length=128.0)
OF_READERS = Serving(prompt=Length(512.0), answer=Length(128.0), max_seconds_per_output_token=0.2)
HUGE_JOB = Job("training", replace(LARGE_MODEL, parameters=7e12), ("bf16",), sequence_length=2048, global_batch=64)


def ask(job: Job | NamedWork | None = None, world: Catalog = WORLD, **given: Any) -> Answer:
    machines = tuple(machine.id for machine in given.pop("machines", ()))
    words = {"instance": machines, "gpu": given.pop("gpus", ())}
    constraints = Constraints(words={name: ids for name, ids in words.items() if ids}, **given.pop("constraints", {}))
    plain = {
        "task": "training", "precisions": (), "objective": OBJECTIVES["cheapest"], "current_instance": None,
        "limit": 20, "per_offer": True, "job": job,
    }  # fmt: skip
    if isinstance(job, Job):
        given["limits"] = given.get("limits", Limits())._replace(load=job.serving)
    return recommend(question_of(**{**plain, **given, "constraints": constraints}), world)


HOURS, USD = 0.022, 0.6
"""Only the A100s finish the small job in these hours, and only the NPUs within these dollars."""

SPOT = {"market": ("spot",)}
FEEDING = SampleLoading(samples_per_second_per_vcpu=0.001, sample_mb=1e6)
LOADING = SampleLoading(from_local_disks=True, single_threaded=True)
SHORT_RUN = published_run(model="a-model", gpu="a100-sxm4-40gb", global_batch=1, sequence_length=8, known_on=DAY)
ANSWERS: dict[str, Callable[[], Answer]] = {
    "peaks": lambda: ask(precisions=("bf16",), needs=PYTORCH, loading=LOADING),
    "software that runs in full": lambda: ask(needs=Requirements(framework=Requirement("jax", EVERY))),
    "software that the machine in use lacks": lambda: ask(
        needs=Requirements(framework=Requirement("mxnet", EVERY)), current_instance=P4D.id
    ),
    "a kind of work that the machine in use lacks": lambda: ask(
        needs=Requirements(framework=Requirement("jax", EVERY), kind=WorkKind("inference", "llm", ("nvfp4",))),
        current_instance=P4D.id,
    ),
    "one machine": lambda: ask(machines=(P4D,), constraints={"market": ("on_demand",)}),
    "spot": lambda: ask(SMALL_JOB, constraints=SPOT, limits=Limits(deadline_hours=1e6, budget_usd=1e9, safe=True)),
    "two nodes": lambda: ask(replace(SMALL_JOB, loading=FEEDING), nodes=(2, 2)),
    "up to seven nodes": lambda: ask(SMALL_JOB, nodes=(1, 7)),
    "a run on several instances": lambda: ask(
        SMALL_JOB, objective=OBJECTIVES["fastest"], limits=Limits(max_instances=2)
    ),
    "slow samples": lambda: ask(replace(SMALL_JOB, loading=FEEDING)),
    "vCPUs to spare": lambda: ask(SMALL_JOB, machines=(P4D,), loading=SampleLoading(samples_per_second_per_vcpu=1e6)),
    "machines of a marketplace": lambda: ask(
        replace(SMALL_JOB, model=PICTURES, loading=SampleLoading(samples_per_second_per_vcpu=10.0)),
        world=catalog(
            priced(CARD, 0.5), providers={"vast": provider(seller_class="marketplace")}, calibration=FITTED
        ),
        nodes=(2, 2),
    ),
    "as published": lambda: ask(
        replace(SERVING, model=replace(LARGE_MODEL, published_precision="fp16")), task="inference"
    ),
    "a load without limits": lambda: ask(
        replace(SERVING, serving=OF_READERS), task="inference"
    ),
    "a load with a budget": lambda: ask(
        replace(SERVING, serving=OF_READERS), task="inference", limits=Limits(budget_usd=1e9)
    ),
    "a load of pictures": lambda: ask(
        Job("inference", PICTURES, ("fp16",), serving=Serving(10.0)), task="inference"
    ),
    "a load of long prompts": lambda: ask(
        replace(SERVING, input_length=16384.0, serving=replace(OF_READERS, prompt=Length(16384.0), concurrency=4.0)),
        task="inference",
    ),
    "drafts of the model itself": lambda: ask(
        replace(SERVING, serving=replace(
            OF_READERS, speculative_acceptance=0.7, draft_length=5, draft_cost=None, drafter=SERVING.model
        )),
        task="inference",
    ),
    "conversations beyond the context": lambda: ask(
        replace(SERVING, model=model(replace(LLAMA_3_8B, context_tokens=512))), task="inference"
    ),
    "attention to selected tokens on a GPU without kernels for it": lambda: ask(
        replace(SERVING, precisions=("bf16",), model=model(replace(
            LLAMA_3_8B, indexed_tokens=64, indexer_layers=32, indexer_heads=4, indexer_head_size=128
        ))),
        task="inference", machines=(P4D,),
    ),
    "a network in an engine of language models": lambda: ask(
        Job("inference", PICTURES, ("fp16",), software=SoftwareStack("vllm")), task="inference"
    ),
    "a language model in an engine of embeddings": lambda: ask(
        replace(SERVING, software=SoftwareStack("text-embeddings-inference")), task="inference"
    ),
    "training in an engine of inference, of a model that reads images": lambda: ask(replace(
        SMALL_JOB, model=replace(model(), other_flops_per_sample=5e9), software=SoftwareStack("vllm")
    )),
    "training of all weights of a model that reads images": lambda: ask(replace(
        SMALL_JOB, model=replace(model(), other_flops_per_sample=5e9), image_tokens=100.0
    )),
    "a model by its parameters": lambda: ask(replace(SMALL_JOB, dimensions_of="Llama 3 8B")),
    "a network by its FLOPs": lambda: ask(
        Job("inference", replace(PICTURES, sample=UNNAMED_SAMPLE), ("fp16",)), task="inference"
    ),
    "another stack": lambda: ask(replace(SMALL_JOB, unrecognised_software=("abacus",))),
    "nothing at all": lambda: ask(constraints={"region": ("nowhere",), "market": ("reserved",)}),
    "a commitment": lambda: ask(world=catalog(priced(P4D, 1.0, market="reserved", term="1y_reserved"))),
    "a long block": lambda: ask(
        replace(SMALL_JOB, amount=Amount(samples=1e9)),
        world=catalog(priced(P4D, 1.0, market="reserved", term="capacity_block"), calibration=FITTED),
    ),
    "an early day": lambda: ask(world=catalog(instance_types=())),
    "a machine that is retired": lambda: ask(machines=(GONE,), world=catalog(priced(GONE, 1.0))),
    "a commitment that matches nothing": lambda: ask(machines=(P4D,), commitments_held=("3y_reserved",)),
    "requests without lengths": lambda: ask(
        replace(SERVING, input_length=None, output_length=None), task="inference"
    ),
    "weights in 8 bits": lambda: ask(replace(SERVING, precisions=("fp8",)), task="inference"),
    "slow links": lambda: ask(
        replace(SERVING, model=LARGE_MODEL, memory_confidence=0.5), task="inference", machines=(PCIE,)
    ),
    "a batch that eight GPUs do not divide": lambda: ask(
        replace(SMALL_JOB, model=PICTURES, global_batch=60), machines=(P4D,)
    ),
    "a step of far more tokens than any published run": lambda: ask(SMALL_JOB, world=catalog(
        priced(P4D, 32.0), calibration=FITTED, models={"a-model": model()}, published_runs=(SHORT_RUN,)
    )),
    "less than a step": lambda: ask(replace(SMALL_JOB, amount=Amount(samples=1.0))),
    "no batch": lambda: ask(replace(SMALL_JOB, global_batch=None)),
    "too large": lambda: ask(HUGE_JOB, current_instance=P4D.id),
    "too large for the host": lambda: ask(
        replace(HUGE_JOB, model=LARGE_MODEL, offload_optimizer=True), current_instance=P4D.id
    ),
    "by name": lambda: ask(
        NamedWork("pictures", "training", "bf16", Amount(samples=1e6)), name="pictures", framework="pytorch==2.0"
    ),
    "limits that exclude each other": lambda: ask(
        SMALL_JOB, machines=(P4D, OTHER), limits=Limits(deadline_hours=HOURS, budget_usd=USD)
    ),
    "another objective": lambda: ask(previous_objective=OBJECTIVES["fastest"]),
    "no spot price": lambda: ask(machines=(NEXT,), constraints={"market": ("on_demand", "spot")}),
    "no peak": lambda: ask(world=catalog(priced(DARK, 1.0)), objective=OBJECTIVES["fastest"]),
    "an end": lambda: ask(world=catalog(priced(ENDING, 1.0))),
    "a GPU of no machine": lambda: ask(gpus=("a GPU of no seller",)),
    "no GPU": lambda: ask(world=catalog(priced(HOST, 0.2), priced(P4D, 32.0))),
    "an unknown charge": lambda: ask(SMALL_JOB, run=Run(sent=(TransferredData(1.0),))),
    "a suspect price": lambda: ask(world=SUSPECT),
    "no price": lambda: ask(world=catalog(priced(P4D, None)), constraints={"needs_price": True}),
    "fields without effect": lambda: ask(
        name="unmeasured", spot_left_out=True, software_unknown=(("abacus", "workload.software.framework"),),
        given=frozenset({"workload.amount", "workload.optimizer"}),
    ),
}  # fmt: skip


OF_ONE_MACHINE = {
    WarningCode.BATCH_ASSUMED,
    WarningCode.LENGTHS_ASSUMED,
    WarningCode.REQUESTS_WAIT,
    WarningCode.TASK_UNSUPPORTED,
    WarningCode.HOST_MEMORY_SMALL,
    WarningCode.ENDED,
    WarningCode.SOFTWARE_UNKNOWN,
}
"""Warnings of `POST /estimate` that a choice never has."""


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    return [ask_it() for ask_it in ANSWERS.values()]


def test_every_reason_and_warning_has_the_figures_of_its_sentence(answers: list[Answer]) -> None:
    shown = [choice for answer in answers for choice in (*answer.choices, *filter(None, [answer.current]))]
    statements: list[Statement[Any]] = []
    for choice in shown:
        statements += [*choice.reasons, *choice.warnings]
    assert all(with_text(statement).text for statement in statements)
    assert {statement.code for statement in statements} == {*ReasonCode, *WarningCode} - OF_ONE_MACHINE


def test_every_note_has_the_figures_of_its_sentence(answers: list[Answer]) -> None:
    notes = [each for answer in answers for each in answer.notes]
    assert all(note_response(each).text for each in notes)
    assert {each.code for each in notes} == set(NoteCode)


@pytest.mark.parametrize(("needed", "start"), [(0.6, "1 of its 8 vCPUs prepares"), (1.2, "2 of its 8 vCPUs prepare ")])
def test_one_vcpu_prepares_and_several_prepare(needed: float, start: str) -> None:
    reason = Statement(ReasonCode.SPARE_VCPUS, {"vcpus": 8.0, "needed": needed})
    assert with_text(reason).text.startswith(start)


def test_the_numbers_of_nodes_tried_include_the_least() -> None:
    note = Note(NoteCode.NODES_NOT_TRIED, ("constraints.max_nodes",), {"most": 15, "tried": 13})
    assert note_response(note).text == (
        "The numbers of nodes tried are `min_nodes`, and 2^n, 3 x 2^n and 5 x 2^n above it; the largest is 13. "
        "To try 15, send `min_nodes: 15`."
    )


@pytest.mark.parametrize("names", [["Batch"], ["Batch", "Vertex AI"]])
def test_advice_reads_well_with_one_name_and_with_several(names: list[str]) -> None:
    joined = " and ".join(names)
    texts = [
        with_text(Statement(AdviceCode.MANAGED_SPOT, {"services": names})).text,
        with_text(Statement(AdviceCode.IMAGE_ADVICE, {"images": names})).text,
    ]
    assert texts == [
        f"{joined} can run the work on spot capacity and handle interruptions and checkpoints.",
        f"Drivers and frameworks built for these machines come with {joined}.",
    ]


def sentence(code: Any, **figures: Any) -> str:
    return with_text(Statement(code, figures)).text


def test_small_parts_of_limits_have_words() -> None:
    limits = {"deadline_hours": 2.0, "budget_usd": 1000.0, "safe": False, "instances": 1, "runs": 1}
    assert sentence(ReasonCode.WITHIN_LIMITS, hours=4.17e-5, usd=0.000318, **limits) == (
        "The job takes less than a second of 2 hours and costs less than a cent of $1,000."
    )
    assert sentence(ReasonCode.WITHIN_LIMITS, hours=1.5, usd=0.5, **limits) == (
        "The job takes 1.5 of 2 hours and costs $0.5 of $1,000."
    )


def test_a_part_of_a_card_is_named_after_the_card() -> None:
    (part,) = (choice for choice in ask(machines=(PARTLY,)).choices)
    (text,) = (with_text(each).text for each in part.warnings if each.code == WarningCode.PART_OF_A_CARD)
    assert text == f"The GPU is 0.25 of the {P4D.gpu.name if P4D.gpu else ''}, not a whole card."


def test_two_lengths_that_were_not_given_are_named_in_one_sentence() -> None:
    both, one = (
        sentence(WarningCode.LENGTHS_ASSUMED, lengths=lengths, speech=False)
        for lengths in ({"input": 1, "output": 1}, {"output": 1})
    )
    assert both.startswith("Neither `input_length` nor `output_length` was given, so a sample is taken to have 1 token")
    assert one.startswith("No `output_length` was given, so a sample is taken to have 1 token of output.")


def test_an_engine_that_is_not_named_is_not_assumed_to_multiply_in_a_narrow_format() -> None:
    figures = {"gpu": "NVIDIA A100", "asked": "int8", "precision": "bf16"}
    assert sentence(WarningCode.PRECISION_STORED, engine=UNKNOWN.line, **figures) == (
        "No engine is named, so none is assumed to multiply in int8 on the NVIDIA A100: the weights are stored in it, "
        "and multiplied in bf16."
    )
