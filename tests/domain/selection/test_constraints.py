"""Each constraint on hardware: whom it turns away, and how little opens it again."""

from functools import partial

import pytest

from service.domain.catalog.catalog import Catalog
from service.domain.selection.constraints import Constraints, type_checks
from service.domain.selection.offers import AdmittedOffers
from service.domain.selection.relax import Check, Relaxation
from tests.builders.catalogs import catalog
from tests.builders.gpus import gpu, rate
from tests.builders.instance_types import instance_type
from tests.builders.selection import names_of, relaxed_check

SMALL = instance_type("small", gpu=gpu("t4-16gb", memory_gb=16.0), gpu_count=1, vcpus=4.0, rdma=False)
MIDDLE = instance_type("middle", gpu=gpu("l40s-48gb", memory_gb=48.0), gpu_count=4, vcpus=48.0, rdma=None)
LARGE = instance_type("large", gpu=gpu("h100-80gb", memory_gb=80.0), gpu_count=8, vcpus=None, rdma=True)
CPU_ONLY = instance_type("cpu", gpu=None, gpu_count=0, vcpus=96.0, rdma=False, interconnect=None)
ALL = (SMALL, MIDDLE, LARGE, CPU_ONLY)


def the_check(asked: Constraints, code: str, of: Catalog) -> Check:
    return next(check for check in type_checks(asked, of) if check.code == code)


def relaxed(asked: Constraints, code: str, of: Catalog) -> Relaxation:
    relaxation = relaxed_check(the_check(asked, code, of), of)
    assert relaxation is not None
    return relaxation


@pytest.fixture(scope="module")
def world() -> Catalog:
    return catalog(instance_types=ALL)


def test_a_minimum_rejects_types_with_less_but_not_unknown_ones(world: Catalog) -> None:
    asked = Constraints(at_least={"vcpus": 40})
    assert names_of(the_check(asked, "min_vcpus", world).fails, world) == {"small"}
    assert names_of(the_check(asked, "vcpus_unknown", world).fails, world) == {"large"}


def test_a_least_is_lowered_to_the_nearest_below(world: Catalog) -> None:
    found = relaxed(Constraints(at_least={"gpu_memory_gb": 64}), "min_gpu_memory_gb", world)
    assert found.to == {"min_gpu_memory_gb": 48.0}
    assert names_of(found.admitted.types, world) == {"middle"}


def test_a_most_is_raised_to_the_nearest_above(world: Catalog) -> None:
    found = relaxed(Constraints(at_most={"gpu_count": 1}), "max_gpu_count", world)
    assert found.to == {"max_gpu_count": 4.0}
    assert names_of(found.admitted.types, world) == {"middle"}


def test_a_maximum_of_no_gpu_is_raised_to_parts_of_gpus_alone_and_a_part_to_a_whole_one() -> None:
    """With a whole GPU, a question for machines without one would be another question."""
    half = instance_type("half", gpu=gpu("half-16gb"), gpu_count=0.5)
    known = catalog(instance_types=(*ALL, half))
    assert relaxed(Constraints(at_most={"gpu_count": 0}), "max_gpu_count", known).to == {"max_gpu_count": 0.5}
    assert relaxed(Constraints(at_most={"gpu_count": 0.5}), "max_gpu_count", known).to == {"max_gpu_count": 1.0}
    whole = catalog(instance_types=ALL)
    assert relaxed_check(the_check(Constraints(at_most={"gpu_count": 0}), "max_gpu_count", whole), whole) is None


def test_dropping_a_range_lets_in_the_unknown_and_what_missed_it(world: Catalog) -> None:
    found = relaxed(Constraints(at_least={"vcpus": 40}, at_most={"vcpus": 50}), "vcpus_unknown", world)
    assert found.to == {"min_vcpus": None, "max_vcpus": None}
    assert names_of(found.admitted.types, world) == {"small", "large", "cpu"}


def test_dropping_a_flag_lets_in_the_unknown_and_the_other(world: Catalog) -> None:
    for code in ("rdma", "rdma_unknown"):
        found = relaxed(Constraints(flags={"rdma": True}), code, world)
        assert found.to == {"rdma": None}
        assert names_of(found.admitted.types, world) == {"small", "middle", "cpu"}


def test_nvlink_finds_nvswitch_too(world: Catalog) -> None:
    asked = Constraints(words={"interconnect": ("nvlink",)})
    assert {kind.interconnect for kind in world.instance_types} == {"none", "nvswitch", None}
    assert names_of(the_check(asked, "interconnect", world).fails, world) == {"small", "cpu"}


def test_a_word_is_added_where_one_is_missing(world: Catalog) -> None:
    found = relaxed(Constraints(words={"gpu": ("t4-16gb", "l40s-48gb")}), "gpu", world)
    assert found.to == {"gpu": ["t4-16gb", "l40s-48gb", "h100-80gb"]}
    assert names_of(found.admitted.types, world) == {"large"}


def test_machines_without_a_gpu_come_in_only_when_the_filter_goes() -> None:
    world = catalog(instance_types=(SMALL, CPU_ONLY))
    found = relaxed(Constraints(words={"gpu_vendor": ("nvidia",)}), "gpu_vendor", world)
    assert found.to == {"gpu_vendor": []}
    assert names_of(found.admitted.types, world) == {"cpu"}


def test_a_precision_is_met_by_any_of_those_asked_at_the_level_asked() -> None:
    old = instance_type("old", gpu=gpu("p100", rates=(rate("fp16", "native"), rate("fp32", "native"))))
    new = instance_type("new", gpu=gpu("a100", rates=(rate("bf16"), rate("fp64", "reduced"))))
    world = catalog(instance_types=(old, new))
    asked = Constraints(precision_any=("bf16", "fp64"))
    assert names_of(the_check(asked, "precision", world).fails, world) == {"old"}
    accelerated = Constraints(precision_any=("fp16",), precision_support="accelerated")
    assert names_of(the_check(accelerated, "precision", world).fails, world) == {"old", "new"}
    any_rate = Constraints(precision_any=("fp64",), precision_support="any")
    assert names_of(the_check(any_rate, "precision", world).fails, world) == {"old"}


def test_a_precision_is_relaxed_only_to_one_whose_peak_is_known_when_the_ranking_needs_it() -> None:
    unknown = instance_type(
        "unknown", gpu=gpu("x", rates=(rate("fp16", "accelerated", None), rate("fp32", "native", 10)))
    )
    world = catalog(instance_types=(unknown, instance_type("known")))
    found = relaxed(Constraints(precision_any=("bf16",), needs_peak=True), "precision", world)
    assert found.to == {"workload.precision": ["bf16", "fp32"]}


def test_a_precision_is_relaxed_to_the_usual_one_that_is_nearest_in_size() -> None:
    """Most types run int8, which replaces no fp64, and formats of 16 bits keep less of it than fp32."""
    rates = (rate("int8", "accelerated", 240), rate("bf16", "accelerated", 120))
    small, large = gpu("l4", rates=rates), gpu("rtx", rates=(*rates, rate("fp16"), rate("fp32", "native", 30)))
    exact = instance_type("exact", gpu=gpu("a100", rates=(rate("fp64"), rate("fp8"))))
    types = (exact, *(instance_type(name, gpu=small) for name in ("one", "other")), instance_type("both", gpu=large))
    world = catalog(instance_types=types)

    def nearest(precision: str, among: Catalog = world) -> object:
        return relaxed(Constraints(precision_any=(precision,)), "precision", among).to["workload.precision"]

    assert nearest("fp64") == ["fp64", "fp32"]
    assert nearest("fp8") == ["fp8", "bf16"]
    assert nearest("fp64", catalog(instance_types=types[:3])) == ["fp64", "bf16"]


def test_exclude_takes_providers_families_types_and_gpus(world: Catalog) -> None:
    for name in ("aws/small", "small", "t4-16gb"):
        assert names_of(the_check(Constraints(exclude=(name,)), "exclude", world).fails, world) == {"small"}
    assert names_of(the_check(Constraints(exclude=("aws",)), "exclude", world).fails, world) == {
        "small",
        "middle",
        "large",
        "cpu",
    }


def test_exclude_is_relaxed_by_the_name_that_keeps_most_out(world: Catalog) -> None:
    found = relaxed(Constraints(exclude=("t4-16gb", "l40s-48gb", "middle")), "exclude", world)
    assert found.to == {"exclude": ["l40s-48gb", "middle"]}
    assert names_of(found.admitted.types, world) == {"small"}


def test_exclude_takes_every_meaning_of_a_name_and_is_relaxed_by_the_name_as_it_was_sent() -> None:
    """A family may be called as a GPU is, and so may machines of several sellers."""
    l4, other = gpu("l4"), gpu("other")
    types = (
        instance_type("by-gpu", gpu=l4),
        instance_type("by-family", gpu=other, family="L4"),
        instance_type("l4", gpu=other),
        instance_type("l4", gpu=other, provider="acme"),
        instance_type("none", gpu=other),
    )
    known = catalog(instance_types=types)
    assert names_of(the_check(Constraints(exclude=("L4",)), "exclude", known).fails, known) == {
        "by-gpu", "by-family", "l4"
    }  # fmt: skip
    assert names_of(the_check(Constraints(exclude=("acme",)), "exclude", known).fails, known) == {"l4"}
    assert relaxed(Constraints(exclude=("none", "L4")), "exclude", known).to == {"exclude": ["none"]}


def _always(index: int, _: AdmittedOffers) -> int:
    return index


def test_of_several_words_the_one_of_the_preferred_type_is_added(world: Catalog) -> None:
    check = the_check(Constraints(words={"gpu": ("a-gpu-of-no-type",)}), "gpu", world)
    offered = [type_.gpu.id for type_ in world.instance_types if type_.gpu is not None]
    assert len(set(offered)) > 1
    for index, type_ in enumerate(world.instance_types):
        if type_.gpu is not None:
            found = relaxed_check(check, world, preferred=partial(_always, index))
            assert found is not None
            assert found.to == {"gpu": ["a-gpu-of-no-type", type_.gpu.id]}
            assert found.admitted.types.bit_count() == offered.count(type_.gpu.id)
    assert relaxed_check(check, world, preferred=lambda _: None) is None
