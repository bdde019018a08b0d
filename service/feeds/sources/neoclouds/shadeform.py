"""Shadeform: machines of other providers under names of its own, with the price of the machine in cents by region."""

from collections.abc import Iterator, Sequence
from typing import Any

from service.feeds.fetching import documents_at
from service.feeds.listing import CENT, Content, Listing, Specification, number_in
from service.feeds.reading import items_of, object_of

fetch = documents_at("/v1/instances/types")


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices in the regions where a machine is available."""
    types = items_of(object_of(bodies[0], "instance_types")["instance_types"], "instance_types")
    return Content(listings=[listing for item in types for listing in _listings(item)])


def _listings(item: dict[str, Any]) -> Iterator[Listing]:
    stated = item.get("configuration") or {}
    form = str(stated.get("interconnect") or "")
    hardware = Specification(
        vcpus=number_in(stated.get("vcpus")),
        memory_gib=number_in(stated.get("memory_in_gb")),
        gpu_name=f"{stated.get('gpu_type')} {form if form.startswith('sxm') else ''}".strip(),
        gpu_count=number_in(stated.get("num_gpus")),
        gpu_memory_gb=number_in(stated.get("vram_per_gpu_in_gb")),
    )
    name = f"{item.get('cloud')}_{str(item.get('shade_instance_type', '')).replace('_', '-')}"
    plain = Listing(provider="shadeform", name=name, market="on_demand", hardware=hardware)
    for place in items_of(item.get("availability") or [], "availability"):
        listing = plain.at(str(place.get("region") or "") or None).priced(item.get("hourly_price"), CENT)
        yield listing if place.get("available") else listing.because("not_offered")
