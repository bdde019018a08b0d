"""Lambda: instance types with prices of the machine in cents, the same in every region.

A type keeps its price while no region has capacity.
"""

import re
from collections.abc import Sequence
from typing import Any

from service.feeds.fetching import documents_at
from service.feeds.listing import CENT, Content, Listing, Specification, number_in
from service.feeds.reading import object_of

GPU_WITH_MEMORY = re.compile(r"(.+?) \((\d+) GB ?(.*)\)")
"""The name of a GPU with its memory and, for some, its form: `H100 (80 GB SXM5)`."""


fetch = documents_at("/api/v1/instance-types")


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices of the list."""
    types = object_of(bodies[0], "data")["data"]
    return Content(listings=[_listing(item["instance_type"]) for item in types.values()])


def _listing(item: dict[str, Any]) -> Listing:
    specs = item.get("specs") or {}
    words = GPU_WITH_MEMORY.fullmatch(str(item.get("gpu_description") or ""))
    hardware = Specification(
        vcpus=number_in(specs.get("vcpus")),
        memory_gib=number_in(specs.get("memory_gib")),
        gpu_name=f"{words[1]} {words[3]}".strip() if words else None,
        gpu_count=number_in(specs.get("gpus")),
        gpu_memory_gb=float(words[2]) if words else None,
    )
    listing = Listing(provider="lambda", name=str(item.get("name", "")), market="on_demand", hardware=hardware)
    cents = item.get("price_cents_per_hour")
    # The feed writes cents as a number; a text would be dollars.
    return listing.because("price_unreadable") if isinstance(cents, str) else listing.priced(cents, CENT)
