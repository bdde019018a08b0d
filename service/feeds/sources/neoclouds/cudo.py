"""CUDO Compute: prices of the parts of a machine, from which the price of one GPU with its smallest host follows."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from service.feeds.fetching import documents_at
from service.feeds.listing import Content, Listing, Specification, number_in, price_in
from service.feeds.reading import items_of, object_of

fetch = documents_at("/v1/vms/machine-types")


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices of one GPU with its smallest host."""
    items = items_of(object_of(bodies[0], "machineTypes")["machineTypes"], "machineTypes")
    return Content(listings=[_listing(item) for item in items])


def _listing(item: dict[str, Any]) -> Listing:
    vcpus, memory = number_in(item.get("minVcpu")), number_in(item.get("minMemoryGib"))
    amounts = {"gpuPriceHr": 1.0, "vcpuPriceHr": vcpus, "memoryGibPriceHr": memory}
    prices = {column: price_in((item.get(column) or {}).get("value")) for column in amounts}
    reason = next((reason for _, reason in prices.values() if reason), None)
    if None in amounts.values():
        reason = "row_unreadable"
    listing = Listing(
        provider="cudo",
        name=f"1x {item.get('gpuModel') or item.get('machineType')}",
        market="on_demand",
        region=str(item.get("dataCenterId") or "") or None,
        note="one GPU with the smallest host",
        hardware=Specification(
            vcpus=vcpus, memory_gib=memory, gpu_name=str(item.get("gpuModel") or "") or None, gpu_count=1.0
        ),
        reason=reason,
    )
    if reason:
        return listing
    parts = [Decimal(str(amounts[column])) * (price or Decimal(0)) for column, (price, _) in prices.items()]
    return replace(listing, per_hour=sum(parts, Decimal(0)).normalize())
