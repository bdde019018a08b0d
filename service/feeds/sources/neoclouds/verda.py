"""Verda: instance types with on-demand and spot prices as text, the same in every location."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from service.feeds.fetching import documents_at
from service.feeds.listing import Content, Listing, Specification, number_in
from service.feeds.reading import items_of, json_of

fetch = documents_at("/v1/instance-types")


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices of the list."""
    items = items_of(json_of(bodies[0]), "The document")
    return Content(listings=[listing for item in items for listing in _listings(item)])


def _listings(item: dict[str, Any]) -> Iterator[Listing]:
    gpu = item.get("gpu") or {}
    count = number_in(gpu.get("number_of_gpus")) or 0.0
    total = number_in((item.get("gpu_memory") or {}).get("size_in_gigabytes"))
    words = re.sub(r"^\d+x | \d+GB$", "", str(gpu.get("description", "")))
    hardware = Specification(
        vcpus=number_in((item.get("cpu") or {}).get("number_of_cores")),
        memory_gib=number_in((item.get("memory") or {}).get("size_in_gigabytes")),
        gpu_name=words or None,
        gpu_count=count,
        gpu_memory_gb=total / count if total and count else None,
    )
    plain = Listing(
        provider="verda",
        name=str(item.get("instance_type", "")),
        market="on_demand",
        currency=str(item.get("currency", "usd")).upper(),
        hardware=hardware,
    )
    yield plain.priced(item.get("price_per_hour"))
    yield replace(plain, market="spot").priced(item.get("spot_price"))
