"""The number format of the published weights of a model, from its Hugging Face config."""

from service.domain.catalog.names import unknown
from service.domain.errors import ImpossibleModel
from service.domain.models.config_fields import Config, flag, number, section

FIELD = "huggingface_config.quantization_config"

FORMATS_OF_METHOD: dict[str, dict[int, str]] = {
    "fp8": {8: "fp8"},
    "fbgemm_fp8": {8: "fp8"},
    "mxfp4": {4: "mxfp4"},
    "awq": {4: "int4"},
    "gptq": {4: "int4", 8: "int8"},
    "bitsandbytes": {4: "nf4", 8: "int8"},
}
"""Method of quantisation → bits → number format. The 4-bit formats of bitsandbytes, nf4 and fp4, are equally large."""

METHODS_WITH_GROUPS = ("compressed-tensors", "modelopt", "modelopt_fp4")
"""Methods that state a format for each group of layers, by the libraries of vLLM and NVIDIA."""

FORMATS_OF_WEIGHTS: dict[tuple[str, int, int | None], str] = {
    ("int", 4, None): "int4",
    ("int", 8, None): "int8",
    ("float", 8, None): "fp8",
    ("float", 8, 32): "mxfp8",
    ("float", 4, 16): "nvfp4",
    ("float", 4, 32): "mxfp4",
}
"""Type, bits and number of values that share a scale → number format. None: any number of values."""

FORMATS_OF_ALGORITHM = {
    "fp8": "fp8",
    "fp8_pb_wo": "fp8",
    "fp8_per_channel_per_token": "fp8",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
    "nvfp4_awq": "nvfp4",
    "int4_awq": "int4",
    "w4a16_awq": "int4",
    "w4a8_awq": "int4",
    "int8_sq": "int8",
    "w8a8_sq_per_channel": "int8",
}
"""`quant_algo` of ModelOpt → number format of the weights."""


def published_precision(config: Config) -> str | None:
    """Returns the number format of the weights; None if the config states no quantisation.

    Raises `QuestionError` for an unknown method, or a number of bits that the method does not have.
    """
    quantisation = section(config, "quantization_config")
    if not quantisation:
        return None
    # Older files of bitsandbytes name no method.
    method = quantisation.get("quant_method", "bitsandbytes")
    if not isinstance(method, str):
        raise ImpossibleModel("quant_method must be text.", field=f"{FIELD}.quant_method")
    if method.lower() in METHODS_WITH_GROUPS:
        return _of_algorithm(quantisation) or _of_groups(quantisation, method)
    formats = FORMATS_OF_METHOD.get(method.lower())
    if formats is None:
        known = (*FORMATS_OF_METHOD, *METHODS_WITH_GROUPS)
        raise unknown("method of quantisation", method[:80], known, f"{FIELD}.quant_method")
    bits = next(iter(formats)) if len(formats) == 1 else _bits(quantisation, method)
    if bits not in formats:
        raise ImpossibleModel(
            f"{method} stores weights in {' or '.join(map(str, formats))} bits: the config must state which.",
            field=f"{FIELD}.bits",
        )
    quantised_twice = formats[bits] == "nf4" and flag(quantisation, "bnb_4bit_use_double_quant", default=False)
    return "nf4-dq" if quantised_twice else formats[bits]


def _bits(quantisation: Config, method: str) -> int | None:
    if method.lower() != "bitsandbytes":
        return number(quantisation, "bits")
    return next((bits for bits in (4, 8) if flag(quantisation, f"load_in_{bits}bit", default=False)), None)


def _of_algorithm(quantisation: Config) -> str | None:
    """Returns the format of the algorithm that ModelOpt states for the whole model; None if it states none."""
    algorithm = quantisation.get("quant_algo")
    if algorithm is None:
        return None
    if not isinstance(algorithm, str):
        raise ImpossibleModel("quant_algo must be text.", field=f"{FIELD}.quant_algo")
    if algorithm.lower() not in FORMATS_OF_ALGORITHM:
        raise unknown("quant_algo", algorithm[:80], FORMATS_OF_ALGORITHM, f"{FIELD}.quant_algo")
    return FORMATS_OF_ALGORITHM[algorithm.lower()]


def _of_groups(quantisation: Config, method: str) -> str:
    """Returns the format of the group with the most bits, because the sizes of the groups are not stated."""
    groups = section(quantisation, "config_groups")
    stated = [section(section(groups, name), "weights") for name in groups]
    weights_of_groups = [(bits, weights) for weights in stated if (bits := number(weights, "num_bits")) is not None]
    if not weights_of_groups:
        raise ImpossibleModel(
            f"{method} states num_bits of the weights of a group: the config must have it.",
            field=f"{FIELD}.config_groups",
        )
    bits, weights = max(weights_of_groups, key=lambda group: group[0])
    kind, scaled = str(weights.get("type", "int")).lower(), number(weights, "group_size")
    for key in ((kind, bits, scaled), (kind, bits, None)):
        if key in FORMATS_OF_WEIGHTS:
            return FORMATS_OF_WEIGHTS[key]
    raise ImpossibleModel(
        f"Weights of {bits} bits of type {kind[:20]} are not known as a number format.", field=f"{FIELD}.config_groups"
    )
