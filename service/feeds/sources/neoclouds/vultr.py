"""Vultr: plans with prices of the machine by the hour; a plan without locations is sold out and keeps its price."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from service.feeds.fetching import Get
from service.feeds.listing import MIB_A_GIB, Content, DocumentRefused, Listing, Specification, number_in
from service.feeds.reading import items_of, object_of

PARTS = ("plans", "plans-metal")


def fetch(get: Get, part: str) -> Iterator[bytes]:
    """Yields the plans of virtual machines, or of metal."""
    yield get(f"/v2/{part}?per_page=500" + ("&type=all" if part == "plans" else ""), conditional=True)


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices of the plans."""
    content = object_of(bodies[0])
    name = next((name for name in ("plans", "plans_metal") if name in content), None)
    if name is None:
        raise DocumentRefused("The document has no plans.")
    if (content.get("meta") or {}).get("links", {}).get("next"):
        raise DocumentRefused("The list continues on another page.")
    plans = items_of(content[name], name)
    return Content(listings=[listing for plan in plans for listing in _listings(plan)])


def _listings(plan: dict[str, Any]) -> Iterator[Listing]:
    memory = number_in(plan.get("ram"))
    gpu = plan.get("gpu_type")
    hardware = Specification(
        vcpus=number_in(plan.get("vcpu_count") or plan.get("cpu_threads")),
        memory_gib=memory / MIB_A_GIB if memory else None,
        gpu_name=str(gpu).removeprefix("NVIDIA_").replace("_", " ") if gpu else None,
        gpu_memory_gb=number_in(plan.get("gpu_vram_gb")),
    )
    plain = Listing(provider="vultr", name=str(plan.get("id", "")), market="on_demand", hardware=hardware)
    locations = plan.get("locations") or []
    for place in locations if isinstance(locations, list) and locations else [None]:
        yield plain.at(place).priced(plan.get("hourly_cost"))
        if "hourly_cost_preemptible" in plan:
            yield replace(plain, market="spot").at(place).priced(plan["hourly_cost_preemptible"])
