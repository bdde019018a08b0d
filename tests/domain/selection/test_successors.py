"""A machine is superseded by a newer one that is no worse in anything, and by no other."""

from dataclasses import replace
from typing import Any

import pytest

from service.domain.catalog.hardware import InstanceType
from service.domain.selection.successors import successor
from tests.builders.catalogs import catalog
from tests.builders.gpus import gpu, rate
from tests.builders.instance_types import event, instance_type
from tests.builders.offers import priced

OLD_CARD = gpu(
    "m60-8gb", rates=(rate("fp32", "native", 4.8),), released_on="2015-08", memory_gb=8.0,
    memory_bandwidth_gb_per_second=160.0,
)  # fmt: skip
NEW_CARD = gpu(
    "t4-16gb", rates=(rate("fp16", "accelerated", 65.0),), released_on="2018-09", memory_gb=16.0,
    memory_bandwidth_gb_per_second=320.0,
)  # fmt: skip
OLD = instance_type("g3s.xlarge", gpu=OLD_CARD, gpu_count=1)
NEW = instance_type("g4dn.xlarge", gpu=NEW_CARD, gpu_count=1)


def found(new: InstanceType, usd: float = 0.526, **offer: Any) -> str | None:
    world = catalog(priced(OLD, 0.75), priced(new, usd, **offer))
    by = successor(world.index_of[OLD.id], world)
    assert successor(world.index_of[new.id], world) is None
    return None if by is None else by.instance_type.name


def test_a_newer_machine_that_is_no_worse_supersedes() -> None:
    assert found(NEW) == "g4dn.xlarge"
    world = catalog(priced(OLD, 0.75), priced(NEW, 0.526))
    by = successor(world.index_of[OLD.id], world)
    assert by is not None
    assert (by.usd_per_hour, by.old_usd_per_hour, by.peak_tflops, by.old_peak_tflops) == (0.526, 0.75, 65.0, 4.8)


@pytest.mark.parametrize(
    "changed",
    [
        {"released_on": "2015-12"},
        {"memory_gb": 4.0},
        {"memory_gb": None},
        {"memory_bandwidth_gb_per_second": 100.0},
        {"vendor": "aws"},
        {"rates": {}},
        {"released_on": None},
    ],
)
def test_a_card_that_is_worse_or_not_known_does_not(changed: dict[str, Any]) -> None:
    assert found(replace(NEW, gpu=replace(NEW_CARD, **changed))) is None


def test_a_more_expensive_or_unavailable_machine_does_not() -> None:
    assert found(NEW, 0.76) is None
    assert found(NEW, market="spot") is None
    assert found(replace(NEW, provider="gcp")) is None
    assert found(replace(NEW, lifecycle=(event("preview"),))) is None


def test_a_host_with_too_few_cores_does_not_where_the_old_one_had_them() -> None:
    few = replace(NEW, vcpus=4.0)
    assert found(few) is None
    assert found(replace(few, vcpus=8.0)) == "g4dn.xlarge", "more than 8 for a GPU gain little"
    assert found(replace(NEW, cpu_architecture="arm64")) is None


def test_fast_links_are_not_given_up() -> None:
    linked = replace(OLD, gpu_count=2, interconnect="nvlink")
    many = replace(NEW, gpu_count=8, interconnect="pcie")
    world = catalog(priced(linked, 5.0), priced(many, 4.0))
    assert successor(world.index_of[linked.id], world) is None
    world = catalog(priced(linked, 5.0), priced(replace(many, interconnect="nvswitch"), 4.0))
    assert successor(world.index_of[linked.id], world) is not None
