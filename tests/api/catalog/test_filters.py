"""Each entry in the tables of filters has its request fields, its column, its check and its documented codes."""

import pytest

from service.api.catalog.instances import InstancesRequest
from service.api.recommend.codes import REJECTIONS
from service.api.recommend.request import ConstraintsRequest
from service.domain.catalog.columns import FLAGS, NUMBERS, WORDS
from service.domain.selection.constraints import Constraints, type_checks
from service.domain.selection.filters import RANGES
from tests.builders.catalogs import catalog
from tests.builders.instance_types import instance_type

REQUESTS = (InstancesRequest, ConstraintsRequest)


@pytest.mark.parametrize("request_model", REQUESTS)
def test_every_filter_has_its_described_request_fields(request_model: type[InstancesRequest]) -> None:
    names = [*WORDS, *FLAGS, *(f"{side}_{name}" for name in RANGES for side in ("min", "max"))]
    assert [name for name in names if not request_model.model_fields[name].description] == []


def test_every_numeric_column_that_is_a_filter_takes_a_range() -> None:
    assert [name for name in NUMBERS if NUMBERS[name].is_filter] == [name for name in RANGES if name != "tflops"]


@pytest.mark.parametrize("name", RANGES)
def test_a_range_rejects_with_documented_codes(name: str) -> None:
    unknown = instance_type("unknown", gpu=None, gpu_count=0, vcpus=None, memory_gib=None, network_gbps=None)
    world = catalog(instance_types=(instance_type("known"), unknown))
    asked = Constraints(at_least={name: 1e15}, at_most={name: -1.0}, precision_any=("bf16",))
    codes = {check.code for check in type_checks(asked, world)} - {"precision"}
    assert (
        {f"min_{name}", f"max_{name}"} <= codes <= {f"min_{name}", f"max_{name}", f"{name}_unknown"} <= set(REJECTIONS)
    )


def test_words_and_flags_reject_with_documented_codes() -> None:
    asked = Constraints(words=dict.fromkeys((*WORDS, "lifecycle"), ()), flags=dict.fromkeys(FLAGS, True))
    codes = {check.code for check in type_checks(asked, catalog())}
    assert codes <= set(REJECTIONS)
    assert {*WORDS, *FLAGS, "lifecycle"} <= codes
