"""The format of published weights, as configs state it."""

from typing import Any

import pytest

from service.domain.errors import QuestionError
from service.domain.jobs.published_format import published_precision


@pytest.mark.parametrize(
    ("stated", "precision"),
    [
        (None, None),
        ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4"),
        ({"quant_method": "AWQ", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}, "nf4"),
        ({"load_in_8bit": True}, "int8"),
    ],
)
def test_each_method_and_its_bits_give_a_format(stated: Any, precision: str | None) -> None:
    assert published_precision({"quantization_config": stated}) == precision


@pytest.mark.parametrize(
    ("stated", "field", "near"),
    [
        ({"quant_method": "gptqq", "bits": 4}, "quant_method", "gptq"),
        ({"quant_method": 4}, "quant_method", None),
        ({"quant_method": "gptq", "bits": 3}, "bits", None),
        ({"quant_method": "gptq"}, "bits", None),
        ({"bnb_4bit_quant_type": "nf4"}, "bits", None),
    ],
)
def test_an_unknown_method_or_number_of_bits_is_refused(stated: Any, field: str, near: str | None) -> None:
    with pytest.raises(QuestionError) as error:
        published_precision({"quantization_config": stated})
    assert error.value.field == f"config.quantization_config.{field}"
    assert near is None or near in error.value.near
