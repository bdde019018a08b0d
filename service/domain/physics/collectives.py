"""Seconds of collective operations over real links: alpha-beta models."""

from service.domain.arrays import Number

NVSWITCH_ALPHA_SECONDS = {"nvswitch": 40e-6, "nvlink": 43e-6, "pcie": 63e-6}
"""Latency of one collective, fitted on published NCCL profiles (Vidur): 31-53 us on NVSwitch, 63 us across PCIe."""

NETWORK_ALPHA_SECONDS = 100e-6


def all_reduce_bytes(size: Number, ranks: Number) -> Number:
    """2 (n-1)/n S: what each rank of a ring sends; nothing where there is one rank."""
    return 2.0 * (ranks - 1) / ranks * size


def all_reduce_seconds(size: float, ranks: int, bytes_per_second: float, alpha: float = 0.0) -> float:
    """alpha + 2 (n-1)/n S/B: a ring; alpha is of the whole collective, B is the achieved bus rate."""
    if ranks <= 1 or size <= 0:
        return 0.0
    return alpha + float(all_reduce_bytes(size, ranks)) / bytes_per_second


def gather_seconds(size: float, ranks: int, bytes_per_second: float, alpha: float = 0.0) -> float:
    """alpha + (n-1)/n S/B: an all-gather or a reduce-scatter."""
    return all_reduce_seconds(size, ranks, bytes_per_second * 2.0, alpha)
