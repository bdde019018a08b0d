"""Number formats as work needs them: how many bytes a value takes, and which peak of a chip runs it."""

from service.domain.catalog.hardware import Gpu

BITS = {
    "fp64": 64.0,
    "fp32": 32.0,
    "tf32": 32.0,
    "fp16": 16.0,
    "bf16": 16.0,
    "fp8": 8.0,
    "mxfp8": 8.25,
    "int8": 8.0,
    "int4": 4.25,
    "int1": 1.0,
    "nf4": 4.5,
    "nf4-dq": 4.127,
    "fp4": 4.5,
    "nvfp4": 4.5,
}
"""Bits a stored weight takes, block scales included (GPTQ and AWQ of group 128: 4.25; NF4 of block 64: 4.5, its scales
quantised again: 4.127, Dettmers 2305.14314; NVFP4 of block 16: 4.5; MX of block 32: 8.25)."""

RUNS_AS = {"mxfp8": "fp8", "nvfp4": "fp4", "nf4": "bf16", "nf4-dq": "bf16"}
"""Formats of storage or scaling that have the peak of another."""

SLOWER_KIN = {
    "fp4": (("fp8", 1.0), ("bf16", 1.0), ("fp16", 1.0)),
    "fp8": (("fp4", 0.5), ("int8", 1.0), ("bf16", 1.0), ("fp16", 1.0)),
    "int8": (("fp8", 1.0), ("fp4", 0.5), ("fp16", 1.0), ("bf16", 1.0)),
    "int4": (("int8", 1.0), ("fp16", 1.0), ("bf16", 1.0)),
    "int1": (("int4", 1.0), ("int8", 1.0), ("fp16", 1.0), ("bf16", 1.0)),
    "bf16": (("fp16", 1.0), ("fp4", 0.25), ("fp8", 0.5), ("fp32", 1.0)),
    "fp16": (("bf16", 1.0), ("fp4", 0.25), ("fp8", 0.5), ("fp32", 1.0)),
    "tf32": (("bf16", 0.5), ("fp16", 0.5), ("fp4", 0.125)),
    "fp32": (),
}
"""Whose peak stands in where the chip has none of its own or nobody tells it, and how much of it."""


MATRIX_ENGINE_OVER_FP32 = 4.0
"""16-bit matrix rate over plain fp32 where only the latter is published: 154.8 of 38.7 (RTX A6000), 261 of 65.3 (RTX
5000 Ada)."""


def bytes_per_value(precision: str) -> float:
    return BITS.get(precision, 16.0) / 8


def peak_flops(gpu: Gpu, precision: str) -> float:
    """Dense operations per second of one GPU; a format without a unit of its own runs as its nearest kin."""
    name = RUNS_AS.get(precision, precision)
    if name == "tf32" and not gpu.runs("tf32"):
        name = "fp32"
    own = gpu.tflops(name)
    if own and gpu.runs(name):
        return own * 1e12
    for kin, share in SLOWER_KIN.get(name, ()):
        rate = gpu.tflops(kin)
        if rate and gpu.runs(kin, "any"):
            more = MATRIX_ENGINE_OVER_FP32 if kin == "fp32" and gpu.runs(name, "accelerated") else 1.0
            return rate * share * more * 1e12
    return (gpu.tflops("fp32") or gpu.tflops("fp16") or 1.0) * 1e12
