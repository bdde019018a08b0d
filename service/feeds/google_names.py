"""Names of machines of Google Cloud, from feeds that list hosts and GPUs separately, or TPUs by slice."""

import re
from dataclasses import replace

from service.feeds.listing import Listing

SLICES = {
    "v5litepod-1": ("ct5lp-hightpu-1t", 1),
    "v5litepod-4": ("ct5lp-hightpu-4t", 4),
    "v5litepod-8": ("ct5lp-hightpu-8t", 8),
    "v5p-8": ("ct5p-hightpu-4t", 4),
    "v6e-1": ("ct6e-standard-1t", 1),
    "v6e-4": ("ct6e-standard-4t", 4),
    "v6e-8": ("ct6e-standard-8t", 8),
    "v2-8": ("v2-8", 4),
    "v3-8": ("v3-8", 4),
    "v4-8": ("v4-8", 4),
}
"""Machine type and number of chips of slices that are one machine. Names of v2 to v5p count two cores per chip."""

ACCELERATOR_OF_FAMILY = {
    "a2-highgpu": "A100",
    "a2-megagpu": "A100",
    "a2-ultragpu": "A100-80GB",
    "a3-highgpu": "H100",
    "a3-megagpu": "H100-MEGA",
    "a3-ultragpu": "H200",
    "a4-highgpu": "B200",
}
"""Families whose names end in the number of their GPUs, such as `a2-highgpu-8g`."""

LARGER_G2 = {"24": 2.0, "48": 4.0, "96": 8.0}
"""GPUs of the larger sizes of G2; the others have one."""

FAMILY_AND_COUNT = re.compile(r"(a\d-[a-z]+)-(\d+)g")
ATTACHED = re.compile(r"n1-\w+-\d+")
GPUS_OF_N1 = ("T4", "V100", "P100", "P4", "K80")


def tpu_machine(listing: Listing, slice_name: str) -> Listing:
    """Returns the listing of a TPU slice under its machine type, with the number of its chips."""
    name, chips = SLICES.get(slice_name, (slice_name, None))
    hardware = listing.hardware
    stated = replace(hardware, gpu_name=None, gpu_count=chips, gpu_memory_gb=None) if hardware else None
    return replace(listing, name=name, hardware=stated)


def with_attached_gpu(listing: Listing, gpu: str | None, count: float | None) -> Listing:
    """Returns the listing of an N1 host with GPUs under the catalog's name for the combination."""
    if not (gpu and count and ATTACHED.fullmatch(listing.name)):
        return listing
    times = f"x{count:g}" if count > 1 else ""
    return listing.named(f"{listing.name}+{gpu.lower()}{times}")


def built_in_gpu(name: str) -> tuple[str, float] | None:
    """Returns the GPU that a machine type always has, and how many; None for other types."""
    family = FAMILY_AND_COUNT.fullmatch(name)
    if family and family[1] in ACCELERATOR_OF_FAMILY:
        return ACCELERATOR_OF_FAMILY[family[1]], float(family[2])
    if name.startswith("g2-standard-"):
        return "L4", LARGER_G2.get(name.rpartition("-")[2], 1.0)
    return None
