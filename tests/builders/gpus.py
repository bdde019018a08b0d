"""GPUs and their rates: every default is sane, so that a test names only what matters to it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.domain.catalog.hardware import Gpu
from service.domain.catalog.precision import Precision, Rate, Support
from tests.builders.sources import SOURCE


def precision(id: str = "bf16", **given: Any) -> Precision:  # noqa: A002 - the field is called id
    plain = Precision(
        id=id,
        name=id.upper(),
        kind="int" if id.startswith("int") else "float",
        bits=int("".join(filter(str.isdigit, id)) or 16),
        exponent_bits=None,
        mantissa_bits=None,
        description=f"{id} numbers",
        source=SOURCE,
    )
    return replace(plain, **given)


def rate(precision: str = "bf16", support: Support | None = "accelerated", dense_tflops: float | None = 100.0) -> Rate:
    return Rate(precision, support, dense_tflops, sparse_tflops=None, source=SOURCE, note=None)


def unknown_gpu(id: str = "a-gpu", *, rates: Sequence[Rate] = (), **given: Any) -> Gpu:  # noqa: A002
    """An NVIDIA GPU with a name and no figures."""
    plain = Gpu(
        id=id,
        name=f"NVIDIA {id}",
        kind="gpu",
        vendor="nvidia",
        architecture="ampere",
        platform="cuda",
        released_on=None,
        memory_gb=None,
        usable_memory_gib=None,
        memory_type=None,
        memory_bandwidth_gb_per_second=None,
        tdp_watts=None,
        cores=None,
        base_clock_mhz=None,
        boost_clock_mhz=None,
        gpus_per_board=None,
        gpus_per_rack=None,
        gpus_per_tray=None,
        slices=None,
        compute_capability=None,
        tensor_core_generation=None,
        interconnect=None,
        interconnect_gb_per_second=None,
        pcie_generation=None,
        form_factor=None,
        positioned_for=None,
        consumer=False,
        fraction=1.0,
        partition_of=None,
        successor=None,
        source=SOURCE,
        note=None,
        aliases=(),
        has_flash_attention=True,
        rates={each.precision: each for each in rates},
    )
    return replace(plain, **given)


def gpu(id: str = "a100-sxm4-40gb", *, rates: Sequence[Rate] | None = None, **given: Any) -> Gpu:  # noqa: A002
    """An A100 by default."""
    a100: dict[str, Any] = {
        "released_on": "2020-05",
        "memory_gb": 40.0,
        "usable_memory_gib": 39.4,
        "memory_type": "HBM2",
        "memory_bandwidth_gb_per_second": 1555.0,
        "tdp_watts": 400.0,
        "compute_capability": "8.0",
        "tensor_core_generation": 3,
        "interconnect": "nvlink",
        "interconnect_gb_per_second": 600.0,
        "form_factor": "sxm4",
    }
    a100_rates = rate("fp32", "native", 19.5), rate("bf16", "accelerated", 312.0)
    return unknown_gpu(id, rates=a100_rates if rates is None else rates, **{**a100, **given})


def gpu_with_peaks(memory_gb: float = 80, tflops: float = 312, bandwidth: float = 2039) -> Gpu:
    """A GPU with the figures that the roofline reads; bf16 and fp16 run at `tflops`, others in proportion."""
    return unknown_gpu(
        memory_gb=memory_gb,
        memory_bandwidth_gb_per_second=bandwidth,
        interconnect="nvlink",
        interconnect_gb_per_second=600,
        rates=(
            rate("fp32", "native", tflops / 16),
            rate("tf32", "accelerated", tflops / 2),
            rate("fp16", "accelerated", tflops),
            rate("bf16", "accelerated", tflops),
        ),
    )
