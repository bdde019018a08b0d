"""Advice is given where it applies, with the figures that it rests on, and nowhere else."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from service.api.recommend.sentences import with_text
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType, LifecycleState
from service.domain.catalog.reference import Fee, Service, ServiceEvent
from service.domain.codes import AdviceCode
from service.domain.recommend.advice import ADVISERS, MAX_ADVICE, Situation, advise
from service.domain.recommend.answer import WorkContext
from service.domain.selection.requirements import Requirement, Requirements
from service.domain.selection.upgrades import Upgrades
from service.domain.statement import Statement
from service.domain.versions import versions_of
from tests.builders.catalogs import catalog, software_rule
from tests.builders.gpus import gpu, rate
from tests.builders.instance_types import event, instance_type
from tests.builders.offers import priced
from tests.builders.sources import DAY, SOURCE

A100 = gpu(
    "a100",
    rates=(
        rate("fp32", "native", 20.0), rate("tf32", "accelerated", 160.0), rate("fp16", "accelerated", 320.0),
        rate("bf16", "accelerated", 320.0), rate("int8", "accelerated", 640.0),
    ),
)  # fmt: skip
A10G = gpu("a10g", rates=(rate("fp32", "native", 32.0), rate("bf16", "accelerated", 70.0)), memory_gb=24.0)
MLU = gpu("mlu", vendor="cambricon", architecture="mluv02", kind="npu", rates=(rate("int8", "accelerated", 128.0),))
PRO = gpu("pro", vendor="amd", architecture="rdna", positioned_for="graphics", rates=(rate("fp32", "native", 7.0),))
PART = gpu("a10g-1of4", fraction=0.25, memory_gb=6, partition_of="a10g", rates=())

P4D = instance_type("p4d.24xlarge", gpu=A100, gpu_count=8)
P4D_PREVIEW = instance_type("p4de.24xlarge", gpu=A100, gpu_count=16, lifecycle=(event("preview"),))
G5 = instance_type("g5.xlarge", gpu=A10G, gpu_count=1, vcpus=4.0)
G5_LARGE = instance_type("g5.48xlarge", gpu=A10G, gpu_count=8, interconnect="pcie")
G5_PART = instance_type("g5f.large", gpu=PART, gpu_count=1)
MLU_1 = instance_type("mlu.1", gpu=MLU, gpu_count=1)
G4AD = instance_type("g4ad.xlarge", gpu=PRO, gpu_count=1)
M5 = instance_type("m5.large", gpu=None, vcpus=2.0)
MANAGED = replace(G5, name="ml.g5.xlarge", service="sagemaker", twin_of="aws/g5.xlarge")


def service(id: str, kind: str, *states: tuple[str, date]) -> Service:  # noqa: A002
    events = tuple(ServiceEvent(state, day, SOURCE, None) for state, day in states)  # type: ignore[arg-type]
    return Service("aws", id, id.title(), kind, None, SOURCE, events)


OPEN = ("available", date(2020, 1, 1))
SERVICES = (
    service("images", "image", OPEN),
    service("later-images", "image", ("available", date(2030, 1, 1))),
    service("training", "managed_training", OPEN),
    service("spot-training", "managed_spot", OPEN),
    service("slices", "fraction", OPEN, ("closed_to_new", date(2023, 4, 15))),
)
FEES = (
    Fee("aws", "training", "", date(2020, 1, 1), 40.0, SOURCE, None),
    Fee("aws", "training", "g5", date(2020, 1, 1), 30.0, SOURCE, None),
    Fee("aws", "training", "g5", date(2022, 1, 1), 25.0, SOURCE, None),
    Fee("aws", "training", "g5", date(2030, 1, 1), 5.0, SOURCE, None),
)
RULES = (
    software_rule("dali", kind="library"),
    software_rule("neuware", kind="toolkit", scope_value="cambricon"),
    software_rule("pytorch-tf32-matmul-default", "no", kind="feature", versions=">=1.12", valid_from=date(2022, 6, 28)),
    software_rule("pytorch-tf32-matmul-default", kind="feature", versions=">=1.7,<1.12"),
)


def world_on(day: date) -> Catalog:
    prices = [priced(kind, usd, valid_from=date(2020, 1, 1)) for kind, usd in PRICES_BY_ID.values()]
    return catalog(*prices, instance_types=(MANAGED,), day=day, services=SERVICES, fees=FEES, software=RULES)


PRICES_BY_ID = {
    kind.id: (kind, usd)
    for kind, usd in (
        (P4D, 32.0), (P4D_PREVIEW, 40.0), (G5, 1.0), (G5_LARGE, 16.0), (G5_PART, 0.3), (MLU_1, 2.0), (G4AD, 0.4),
        (M5, 0.1),
    )
}  # fmt: skip
WORLD = world_on(DAY)


def given(
    code: str, task: str = "training", *, top: InstanceType | None = P4D, of: Catalog = WORLD, **answer: Any
) -> str:
    """The sentence, or nothing."""
    return text(code, situation(task, top=top, **answer), of)


OF_CONTEXT = {"refused": "refused_precisions"} | {
    name: name for name in ("providers", "concurrent_runs", "fault_tolerant", "part_of_gpu")
}


def situation(task: str = "training", *, framework: Requirement | None = None, **given: Any) -> Situation:
    of_context = {field: given.pop(name) for name, field in OF_CONTEXT.items() if name in given}
    return Situation(WorkContext(task, needs=Requirements(framework=framework), **of_context), **given)


def text(code: str, asked: Situation, of: Catalog) -> str:
    """The sentence of the advice, or nothing where it does not apply."""
    tasks, adviser = ADVISERS[AdviceCode(code)]
    asked = replace(asked, upgrades=asked.upgrades or Upgrades.anywhere(of))
    figures = adviser(asked, of) if asked.context.task in tasks else None
    return "" if figures is None else with_text(Statement(AdviceCode(code), figures)).text


def pytorch(versions: str) -> Requirement:
    return Requirement("pytorch", versions_of(versions, "f"))


def test_tf32_is_quicker_than_fp32_and_changes_no_code() -> None:
    answer = given("tf32", precision="fp32")
    assert "160 TFLOPS, 8 times its fp32" in answer
    assert "no change" in answer
    assert not given("tf32", precision="bf16")
    assert not given("tf32", precision="fp32", top=G5)
    assert not given("tf32", precision="fp32", refused=("tf32",))


def test_sixteen_bits_are_quicker_still_unless_the_numbers_overflow() -> None:
    assert "At fp16 or bf16" in given("mixed_precision", precision="fp32").replace("bf16 or fp16", "fp16 or bf16")
    assert "320 TFLOPS, 2 times its tf32" in given("mixed_precision", precision="tf32")
    assert "At bf16 the" in given("mixed_precision", precision="fp32", refused=("fp16",))
    assert not given("mixed_precision", precision="bf16")
    assert not given("mixed_precision", "inference", precision="fp32")
    assert "16 times its fp32" in given("half_precision", "inference", precision="fp32")


def test_int8_is_for_answers() -> None:
    assert "640 TOPS, 2 times its bf16" in given("int8", "inference", precision="bf16")
    assert not given("int8", precision="bf16")
    assert not given("int8", "inference", precision="int8")
    assert not given("int8", "inference", precision="bf16", top=G5)
    assert given("int8", "inference", precision="bf16", weight_bits=8.0)
    assert not given("int8", "inference", precision="bf16", weight_bits=4.25)


def test_fp8_comes_before_int8_where_the_gpu_has_it() -> None:
    rates = (
        rate("bf16", "accelerated", 990.0),
        rate("fp8", "accelerated", 1980.0),
        rate("int8", "accelerated", 1980.0),
    )
    top = instance_type("p5.48xlarge", gpu=gpu("h100", rates=rates), gpu_count=8)
    assert "At fp8 or int8 the" in given("int8", "inference", precision="bf16", top=top)


@pytest.mark.parametrize(
    ("versions", "day", "answer"),
    [("2.0", DAY, True), (">=1.7", DAY, True), ("1.11", DAY, False), ("2.0", date(2022, 1, 1), False)],
)
def test_pytorch_leaves_tf32_off_since_a_version_and_a_day(versions: str, day: date, answer: bool) -> None:
    found = given("tf32_off_by_default", precision="fp32", framework=pytorch(versions), of=world_on(day))
    assert ("from 1.12 on" in found) is answer
    assert not given("tf32_off_by_default", precision="bf16", framework=pytorch("2.0"))
    assert not given("tf32_off_by_default", precision="fp32")


def test_work_that_needs_no_gpu_gets_the_cheapest_machine_without_one() -> None:
    assert "aws/m5.large has none, and 2 vCPUs for $0.1 an hour" in given("no_accelerator_needed", "classical")
    assert given("no_accelerator_needed", "sequential")
    assert not given("no_accelerator_needed", "training")
    assert given("no_accelerator_needed", "classical", providers=("gcp",)).endswith("needs no GPU.")
    assert "from $0.3 an hour" in given("separate_dev_and_training", "development")


def test_graphics_has_cards_of_its_own() -> None:
    assert "aws/g4ad.xlarge has 1 from $0.4 an hour" in given("graphics", "graphics")
    assert not given("graphics", "training")
    assert not given("graphics", "graphics", providers=("gcp",))


def test_a_part_of_a_card_or_a_slice_where_that_may_do() -> None:
    early = world_on(date(2022, 1, 1))
    answer = given("fractional_gpu", "inference", top=G5, part=0.2, of=early)
    assert "0.25 of a card (NVIDIA a10g) for $0.3 an hour" in answer
    assert "Slices" in answer
    assert "Slices" not in given("fractional_gpu", "inference", top=G5, part=0.2)
    assert not given("fractional_gpu", "inference", top=G5)
    assert not given("fractional_gpu", "inference", top=G5, part=0.5)
    assert "Slices" in given("fractional_gpu", "inference", top=None, part=0.9, of=early)


def test_an_accelerator_of_int8_alone_asks_for_a_quantised_model() -> None:
    assert "neuware" in given("quantisation_required", "inference", top=MLU_1)
    assert not given("quantisation_required", "inference", top=P4D)


def test_several_gpus_ask_for_other_code_or_independent_runs_or_several_models() -> None:
    assert "16 GPUs" in given("code_change_required", nodes=2)
    assert not given("code_change_required", top=G5)
    assert not given("code_change_required", concurrent_runs=8)
    assert not given("code_change_required", nodes=2, distributes=True)
    assert "8 runs take one of the 8 GPUs" in given("independent_runs", concurrent_runs=8)
    assert "12 GB of memory for a run" in given("independent_runs", top=G5, concurrent_runs=2)
    assert not given("independent_runs")
    assert "up to 40 GB" in given("one_model_per_gpu", "inference")
    assert not given("one_model_per_gpu", "inference", cut_over_gpus=True)
    assert not given("one_model_per_gpu", "inference", top=G5)


def test_cores_that_bind_are_relieved_by_the_gpu() -> None:
    assert given("gpu_decoding", top=G5, cores_bind=True).startswith("4 vCPUs limit the speed")
    assert not given("gpu_decoding", top=G5)
    assert not given("gpu_decoding", top=MLU_1, cores_bind=True)


def test_the_path_leads_upwards_in_the_same_architecture_to_what_can_be_had() -> None:
    answer = given("migration_path", top=G5)
    assert "to aws/p4d.24xlarge of the same architecture: 8 GPUs, linked by NVLink through a switch, with " in answer
    assert "36.6 times the peak. Its best offer under the constraints costs $" in answer
    assert "p4d.24xlarge" in given("migration_path", top=G4AD, current=G5)
    assert not given("migration_path", top=P4D)
    assert not given("migration_path", top=G4AD)
    assert not given("migration_path", "inference", top=G5)


@pytest.mark.parametrize(
    ("day", "state", "answer"),
    [
        (date(2025, 5, 23), "retired", ""),
        (date(2025, 5, 24), "retired", "aws/p2.xlarge has not been offered since 2025-05-24: plan to move"),
        (date(2025, 5, 24), "closed_to_new", "aws/p2.xlarge has admitted no new customers since 2025-05-24"),
        (date(2025, 5, 24), "preview", ""),
    ],
)
def test_a_current_machine_past_its_end_gets_a_warning(day: date, state: LifecycleState, answer: str) -> None:
    old = instance_type("p2.xlarge", lifecycle=(event(), event(state, date(2025, 5, 24))))
    world = catalog(priced(old, 0.9), priced(G5, 1.0), day=day)
    found = text("current_ends", situation(current=old), world)
    assert found.startswith(answer)
    assert bool(found) == bool(answer)


def test_a_host_of_another_kind_of_cpu_is_no_step_up() -> None:
    arm = replace(G5, name="g5g.xlarge", cpu_architecture="arm64")
    world = catalog(priced(arm, 1.0), priced(P4D, 32.0))
    assert not text("migration_path", situation(top=arm), world)


def test_the_machine_to_measure_is_named_while_nothing_is_measured() -> None:
    answer = given("evaluate_next", other=G5)
    assert "on aws/p4d.24xlarge and on aws/g5.xlarge" in answer
    assert "a model of the job" in given("evaluate_next", other=G5, basis="modelled")
    assert not given("evaluate_next", other=G5, basis="measured")
    assert not given("evaluate_next")


def test_services_are_those_of_the_provider_on_the_day() -> None:
    assert "it adds 25 % to the price of g5." in given("managed_training", top=G5)
    assert "it adds 30 % to the price of g5." in given("managed_training", top=G5, of=world_on(date(2021, 1, 1)))
    assert "it adds 40 % to the price of p4d." in given("managed_training", top=P4D)
    assert not given("managed_training", top=MANAGED)
    assert given("managed_spot", fault_tolerant=True)
    assert not given("managed_spot")
    assert given("image_advice").endswith("come with Images.")
    assert not given("image_advice", "classical")


def test_there_are_only_a_few_and_the_first_matter_most() -> None:
    asked = situation(
        top=P4D, precision="fp32", other=G5, current=G5, fault_tolerant=True,
        framework=pytorch("2.0"), cores_bind=True,
    )  # fmt: skip
    answer = [each.code for each in advise(asked, WORLD)]
    assert len(answer) == MAX_ADVICE
    assert answer[:3] == ["tf32", "tf32_off_by_default", "mixed_precision"]
    assert [each for each in ADVISERS if each in answer] == answer


def test_where_nothing_is_admitted_no_advice_names_a_first_choice() -> None:
    assert advise(situation(), WORLD) == ()
