"""Names as people type them, and the near names of unknown ones."""

from collections.abc import Iterable

import pytest

from service.domain.catalog.names import either, fold_gpu, near_names, resolve, resolve_instance
from service.domain.errors import UnknownName
from tests.builders.catalogs import catalog

PRECISIONS = ("bf16", "fp16", "fp32", "fp8", "fp4", "int8")
CARDS = ("a100", "h100", "v100", "p100", "t4", "t4g", "rtx-4090")


def test_a_slip_of_the_fingers_is_near() -> None:
    assert near_names("us-eats-1", ["us-east-1", "eu-west-1", "ap-south-1"])[0] == "us-east-1"


def test_a_card_that_never_was_is_near_its_series() -> None:
    assert near_names("T100", CARDS)[0] == "t4"


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("rnn", ["cnn", "recurrent"], ()),
        ("wav2vec2-large", ["e5-large", "vit-large"], ()),
        ("object-detection", ["detection", "diffusion"], ("detection",)),
        ("kuda", ["cuda", "rocm"], ("cuda",)),
        ("lama-3-8b", ["llama-3-8b", "gemma-3-4b"], ("llama-3-8b",)),
        ("g5", ["g5.xlarge", "g5.2xlarge", "g5g.xlarge", "p5.48xlarge"], ("g5.2xlarge", "g5.xlarge")),
    ],
)
def test_what_begins_otherwise_is_another_thing(name: str, known: list[str], near: tuple[str, ...]) -> None:
    assert near_names(name, known) == near


@pytest.mark.parametrize(
    ("name", "near"), [("googel", "Google Cloud"), ("amazn", "Amazon Web Services"), ("watson", None)]
)
def test_a_slip_in_one_word_of_a_name_is_near(name: str, near: str | None) -> None:
    known = ["gcp", "Google Cloud", "aws", "Amazon Web Services", "vast"]
    assert near_names(name, known) == ((near,) if near else ())


def test_a_name_without_its_last_word_is_nearer_than_a_name_with_a_slip() -> None:
    known = ["llama-33b", "llama-30b", "llama-13b", "llama-3-8b", "llama-3-70b"]
    assert set(near_names("llama-3", known)[:2]) == {"llama-3-8b", "llama-3-70b"}


def test_nothing_is_near_nonsense() -> None:
    assert near_names("qqqqqqq", CARDS) == ()


def test_a_very_long_name_is_answered_too() -> None:
    assert near_names("a100" * 10_000, CARDS) == ()


def test_case_does_not_matter() -> None:
    assert resolve("precision", ["BF16", "bf16"], PRECISIONS, "precision") == ("bf16",)


def test_separators_do_not_matter_where_one_name_is_meant() -> None:
    regions = ("us-east-1", "us-east1", "eu-west-1", "Beijing A", "beijing-a")
    assert resolve("region", ["EU West 1", "US-EAST1", "beijing a"], [*regions[:4]], "region") == (
        "eu-west-1", "us-east1", "Beijing A",
    )  # fmt: skip
    with pytest.raises(UnknownName) as caught:
        resolve("region", ["us east 1"], regions, "region")
    assert {"us-east-1", "us-east1"} <= set(caught.value.near)


def test_an_unknown_name_is_a_sentence_with_field_and_near_names() -> None:
    with pytest.raises(UnknownName) as caught:
        resolve("precision", ["fp7"], PRECISIONS, "precision")
    assert caught.value.field == "precision"
    assert set(caught.value.near) == {"fp4", "fp8"}
    assert caught.value.sentence.startswith("No precision is called 'fp7'. Did you mean ")


def test_a_small_vocabulary_is_listed_whole_when_no_name_is_near() -> None:
    with pytest.raises(UnknownName, match="Known: on_demand, spot"):
        resolve("market", ["zzz"], ["spot", "on_demand"], "market")


@pytest.mark.parametrize("spelling", ["NVIDIA Tesla V100", "tesla-v100", "tesla_v100", "V100"])
def test_spellings_of_one_card_fold_together(spelling: str) -> None:
    assert fold_gpu(spelling) == "v100"


@pytest.mark.parametrize(
    ("spelling", "folded"),
    [
        ("Huawei Ascend 910", "ascend910"),
        ("A100 40 GB", "a10040gb"),
        ("A100-40GB", "a10040gb"),
        ("V100-32G", "v10032gb"),
        ("GTX-1080Ti-11GB", "gtx1080ti11gb"),
        ("1g.10gb", "1g.10gb"),
        ("T4G", "t4g"),
        ("nvidia", "nvidia"),
    ],
)
def test_makers_and_gigabytes_are_written_in_many_ways(spelling: str, folded: str) -> None:
    assert fold_gpu(spelling) == folded


@pytest.mark.parametrize(
    ("names", "text"),
    [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c"), ({"a": 1, "b": 2}, "a or b")],
)
def test_alternatives_have_one_or_before_the_last(names: Iterable[str], text: str) -> None:
    assert either(names) == text


def test_an_instance_type_is_unknown_on_a_day() -> None:
    """P3 was not yet announced in 2016, so the day belongs to the error."""
    world = catalog()
    with pytest.raises(UnknownName, match=rf"The catalog of {world.day} has no instance type 'p7\.48xlarge'"):
        resolve_instance("p7.48xlarge", world, "instance")
