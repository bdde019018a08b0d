"""The number format in which the weights of a model are published, as its Hugging Face config states it."""

from service.domain.catalog.names import unknown
from service.domain.errors import ImpossibleModel
from service.domain.models.config_fields import Config, flag, number, section

FIELD = "config.quantization_config"

FORMATS_OF_METHOD: dict[str, dict[int, str]] = {
    "fp8": {8: "fp8"},
    "fbgemm_fp8": {8: "fp8"},
    "mxfp4": {4: "mxfp4"},
    "awq": {4: "int4"},
    "gptq": {4: "int4", 8: "int8"},
    "bitsandbytes": {4: "nf4", 8: "int8"},
}
"""Method of quantisation → bits → number format. The 4-bit formats of bitsandbytes, nf4 and fp4, take equal room."""


def published_precision(config: Config) -> str | None:
    """Returns the format of the weights; None if the config states no quantisation.

    Raises `QuestionError` for an unknown method, or for bits that the method does not have.
    """
    quantisation = section(config, "quantization_config")
    if not quantisation:
        return None
    # Older files of bitsandbytes name no method.
    method = quantisation.get("quant_method", "bitsandbytes")
    if not isinstance(method, str):
        raise ImpossibleModel("quant_method must be text.", field=f"{FIELD}.quant_method")
    formats = FORMATS_OF_METHOD.get(method.lower())
    if formats is None:
        raise unknown("method of quantisation", method[:80], FORMATS_OF_METHOD, f"{FIELD}.quant_method")
    bits = next(iter(formats)) if len(formats) == 1 else _bits(quantisation, method)
    if bits not in formats:
        raise ImpossibleModel(
            f"{method} stores weights in {' or '.join(map(str, formats))} bits: the config must state which.",
            field=f"{FIELD}.bits",
        )
    return formats[bits]


def _bits(quantisation: Config, method: str) -> int | None:
    if method.lower() != "bitsandbytes":
        return number(quantisation, "bits")
    return next((bits for bits in (4, 8) if flag(quantisation, f"load_in_{bits}bit", default=False)), None)
