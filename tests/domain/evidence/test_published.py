"""Published runs and measurements as evidence for a question: order, days, and how far a scaled rate reaches."""

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.catalog.hardware import Gpu
from service.domain.catalog.reference import RUN_KINDS, RUN_UNITS, PublishedRun, Reference, first_known
from service.domain.evidence.published import (
    NEAREST_FIRST,
    RELEVANT_KINDS,
    UNIT_TEXTS,
    Evidence,
    EvidenceQuery,
    nearest_runs,
    runs_by_nearness,
)
from service.domain.models.model import Model
from tests.builders.catalogs import published_run as run
from tests.builders.catalogs import reference
from tests.builders.gpus import gpu
from tests.builders.instance_types import instance_type
from tests.builders.sources import SOURCE, source

DAY = date(2025, 6, 1)


def model(id: str, parameters: float = 8e9, family: str = "llm") -> Model:  # noqa: A002
    return Model(
        id=id,
        name=id.upper(),
        family=family,
        parameters=int(parameters),
        active_parameters=int(parameters),
        sample="token",
        forward_flops_per_sample=None,
        transformer=None,
        released_on=None,
        source=SOURCE,
        note=None,
        aliases=(),
    )


A100 = gpu("a100", memory_bandwidth_gb_per_second=2000.0)
A100_PCIE = gpu("a100-pcie", memory_bandwidth_gb_per_second=1900.0)
A10G = gpu("a10g", memory_bandwidth_gb_per_second=600.0)
H100 = gpu("h100", architecture="hopper", memory_bandwidth_gb_per_second=3350.0)
GPUS = {each.id: each for each in (A100, A100_PCIE, A10G, H100)}
LLAMA, MISTRAL, LARGE, RESNET = (
    model("llama"),
    model("mistral", 7e9),
    model("large", 70e9),
    model("resnet", 25e6, "cnn"),
)
MODELS = {each.id: each for each in (LLAMA, MISTRAL, LARGE, RESNET)}


def known(*runs: PublishedRun) -> Reference:
    return reference([instance_type(gpu=A100)], [], gpus=GPUS, models=MODELS, published_runs=runs)


def near(
    runs: list[PublishedRun],
    card: Gpu = A100,
    of: Model = LLAMA,
    most: int = 3,
    **given: Any,
) -> tuple[Evidence, ...]:
    reference, query = known(*runs), EvidenceQuery(of, card, "training", DAY, **given)
    return nearest_runs(reference, query, runs_by_nearness(reference, query), most)


def test_runs_of_the_same_gpu_come_before_those_of_similar_ones() -> None:
    runs = [
        run("similar-both", model="mistral", gpu="a100-pcie"),
        run("another-card", gpu="h100"),
        run("similar-model", model="mistral"),
        run("similar-card", gpu="a100-pcie"),
        run("same"),
    ]
    found = near(runs, most=10)
    assert [each.id for each in found] == ["same", "similar-card", "similar-model", "another-card", "similar-both"]
    assert [each.nearness for each in found] == list(NEAREST_FIRST)


def test_a_card_of_one_architecture_and_a_third_of_the_speed_is_not_similar() -> None:
    assert [each.nearness for each in near([run(gpu="a10g")])] == ["same_model"]
    assert near([run(gpu="a10g", model="mistral")]) == ()


def test_models_of_another_size_or_family_say_nothing() -> None:
    assert near([run("large", model="large"), run("cnn", model="resnet")]) == ()


@pytest.mark.parametrize(
    ("asked", "nearer", "farther"),
    [
        ({"precision": "fp8"}, {"precision": "fp8"}, {}),
        ({"framework": "nemo"}, {"framework": "nemo"}, {}),
        ({"gpus": 512}, {"nodes": 64}, {}),
        ({"gpus": 512}, {"nodes": 2}, {}),
        ({"gpus": 8}, {}, {"gpu_count": None}),
        ({"length": 512}, {"sequence_length": 512}, {"sequence_length": 4096}),
        ({"length": 512}, {"input_length": 384, "output_length": 128}, {}),
        ({}, {}, {"kind": "train_time", "unit": "hours"}),
        ({}, {}, {"year": 2020}),
        ({}, {}, {"quality": "B"}),
    ],
)
def test_among_equals_the_question_decides(
    asked: dict[str, Any], nearer: dict[str, Any], farther: dict[str, Any]
) -> None:
    assert [each.id for each in near([run("a", **farther), run("b", **nearer)], **asked)] == ["b", "a"]


def test_only_speeds_of_the_task_are_evidence() -> None:
    runs = [run("speed"), run("out", kind="oom", unit="fits", value=0.0), run("answers", kind="infer_throughput")]
    assert [each.id for each in near(runs)] == ["speed"]


def test_a_measurement_is_described_in_words() -> None:
    found = near(
        [run(value=1234.5, unit="tokens_per_second_per_gpu", sequence_length=4096, software="torchtitan main")]
    )
    assert found[0].measured == (
        "LLAMA on 8 x NVIDIA a100: 1,234.5 tokens/s per GPU, 4,096 tokens long, bf16, torchtitan main"
    )
    assert (found[0].source, found[0].date) == (SOURCE, "2024")


def test_a_model_without_a_preset_has_similar_models() -> None:
    own = model("my-llama", 8.5e9)
    found = near([run()], of=own)
    assert [each.nearness for each in found] == ["same_gpu_similar_model"]


def test_there_are_words_for_every_unit_and_a_task_for_every_kind_of_speed() -> None:
    of_memory = {"gb_per_gpu", "gib_per_gpu", "max_context_tokens", "fits"}
    assert set(UNIT_TEXTS) == set(RUN_UNITS) - of_memory
    kinds_of_memory = {"train_memory_fit", "infer_memory_fit", "oom"}
    assert {kind for kinds in RELEVANT_KINDS.values() for kind in kinds} == set(RUN_KINDS) - kinds_of_memory


runs_drawn = st.lists(
    st.builds(
        run,
        st.uuids().map(str),
        model=st.sampled_from(sorted(MODELS)),
        gpu=st.sampled_from(sorted(GPUS)),
        precision=st.sampled_from(["bf16", "fp8"]),
        nodes=st.sampled_from([None, 1, 16]),
        year=st.integers(2016, 2025),
        quality=st.sampled_from("AB"),
        known_on=st.dates(date(2016, 1, 1), date(2026, 12, 31)),
    ),
    max_size=12,
    unique_by=lambda run: run.id,
)


@given(runs_drawn, st.randoms(use_true_random=False), st.integers(0, 5))
def test_the_order_of_the_table_does_not_matter(runs: list[PublishedRun], random: Any, most: int) -> None:
    shuffled = list(runs)
    random.shuffle(shuffled)
    found = near(runs, most=most, precision="bf16", gpus=8)
    assert found == near(shuffled, most=most, precision="bf16", gpus=8)
    assert len(found) <= most
    assert all(each.run.known_on <= DAY for each in found)
    levels = [NEAREST_FIRST.index(each.nearness) for each in found]
    assert levels == sorted(levels)
    assert found == near(runs, most=most + 3, precision="bf16", gpus=8)[:most]


@pytest.mark.parametrize(
    ("year", "published_on", "expected"),
    [
        (2022, None, date(2022, 12, 31)),
        (2022, "2022-11-09", date(2022, 11, 9)),
        (2022, "2022-11", date(2022, 12, 31)),
        (2022, "2021-03-01", date(2022, 12, 31)),
        (2022, "2025-03-01", date(2022, 12, 31)),
        (2024, None, date(2024, 6, 1)),  # the builder's source was read then
    ],
)
def test_a_year_counts_from_its_end_or_from_the_day_of_its_source(
    year: int, published_on: str | None, expected: date
) -> None:
    assert first_known(year, source(published_on=published_on)) == expected
