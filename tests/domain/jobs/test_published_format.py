"""The format of published weights, as configs state it."""

from typing import Any

import pytest

from service.domain.errors import QuestionError
from service.domain.jobs.published_format import published_precision


def compressed(layout: str, **weights: Any) -> dict[str, Any]:
    """A config of compressed-tensors, with one group of layers as published configs have it."""
    group = {"targets": ["Linear"], "weights": {"dynamic": False, **weights}, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
    }


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
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, "nf4-dq"),
        ({"load_in_8bit": True}, "int8"),
        (compressed("pack-quantized", num_bits=4, type="int", symmetric=True, strategy="group", group_size=32), "int4"),
        (compressed("int-quantized", num_bits=8, type="int", strategy="channel", group_size=None), "int8"),
        (compressed("float-quantized", num_bits=8, type="float", strategy="channel"), "fp8"),
        (compressed("nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16), "nvfp4"),
        (compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32), "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "producer": {"name": "modelopt"}}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8}}, "fp8"),
        ({**compressed("", num_bits=4, type="float", group_size=16), "quant_method": "modelopt"}, "nvfp4"),
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
        ({"quant_method": "compressed-tensors"}, "config_groups", None),
        (compressed("", num_bits=3, type="int"), "config_groups", None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP5"}, "quant_algo", "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": 4}, "quant_algo", None),
    ],
)
def test_an_unknown_method_or_number_of_bits_is_refused(stated: Any, field: str, near: str | None) -> None:
    with pytest.raises(QuestionError) as error:
        published_precision({"quantization_config": stated})
    assert error.value.field == f"huggingface_config.quantization_config.{field}"
    assert near is None or near in error.value.near
