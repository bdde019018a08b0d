"""AWS with an operator's own credentials: spot prices by zone, Capacity Blocks, and the hardware of instance types.

The letters of zones differ between accounts, so only the ids of zones are kept.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from service.domain.catalog.tariffs import CAPACITY_BLOCK
from service.feeds.fetching import Get
from service.feeds.listing import (
    MIB_A_GIB,
    Content,
    DocumentRefused,
    Listing,
    Specification,
    instant_in,
    number_in,
    to_millionths,
)
from service.feeds.reading import items_of, object_of

PARTS = (
    "us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "sa-east-1", "eu-west-1", "eu-west-2",
    "eu-west-3", "eu-central-1", "eu-north-1", "ap-south-1", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3",
    "ap-southeast-1", "ap-southeast-2",
)  # fmt: skip
"""The regions that every account has from the start."""

WITH_ACCELERATORS = {"Name": "instance-type", "Values": ["dl*", "g*", "inf*", "p*", "trn*"]}
BLOCK_HOURS = 24
REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")
"""The region at the start of the name of a zone, such as `us-east-1` of `us-east-1a` and `us-east-1-atl-2a`."""

LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")


def fetch(get: Get, part: str) -> Iterator[bytes]:
    """Yields the types of a region, their spot prices now, and blocks of a day of each type that is sold in blocks."""
    types = get(f"/{part}/describe_instance_types", body={"Filters": [WITH_ACCELERATORS]})
    yield types
    # With the present as its start, the history is the price in force in each zone.
    now = datetime.now(UTC).isoformat()
    yield get(f"/{part}/describe_spot_price_history", body={"Filters": [WITH_ACCELERATORS], "StartTime": now})
    for item in object_of(types, "InstanceTypes")["InstanceTypes"]:
        if "capacity-block" in item.get("SupportedUsageClasses", ()):
            asked = {"InstanceType": item["InstanceType"], "InstanceCount": 1, "CapacityDurationHours": BLOCK_HOURS}
            yield get(f"/{part}/describe_capacity_block_offerings", body=asked)


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices, with the hardware that the documents state."""
    documents = [object_of(body) for body in bodies]
    if not any(name in document for document in documents for name in ("SpotPriceHistory", "CapacityBlockOfferings")):
        raise DocumentRefused("There are no spot prices and no Capacity Blocks among the documents.")
    hardware = {str(item["InstanceType"]): _hardware(item) for item in _items(documents, "InstanceTypes")}
    spot = (_spot(item, hardware) for item in _items(documents, "SpotPriceHistory"))
    blocks = sorted(_items(documents, "CapacityBlockOfferings"), key=lambda item: str(item["StartDate"]))
    return Content(listings=[*spot, *_first_blocks(blocks, hardware)])


def _items(documents: Sequence[dict[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    for document in documents:
        yield from items_of(document.get(name, []), name)


def _hardware(item: dict[str, Any]) -> Specification:
    """Returns the hardware as EC2 states it, without the memory of parts of GPUs and of Neuron devices."""
    # For these two, EC2 does not state the memory that is sold.
    gpu: dict[str, Any] = next(iter((item.get("GpuInfo") or {}).get("Gpus") or ()), {})
    device = gpu or next(iter((item.get("NeuronInfo") or {}).get("NeuronDevices") or ()), {})
    count = number_in(device.get("Count"))
    part = number_in(gpu.get("GpuPartitionSize"))
    memory, gpu_memory = (number_in((holder.get("MemoryInfo") or {}).get("SizeInMiB")) for holder in (item, gpu))
    architectures = (item.get("ProcessorInfo") or {}).get("SupportedArchitectures") or ()
    return Specification(
        vcpus=number_in((item.get("VCpuInfo") or {}).get("DefaultVCpus")),
        memory_gib=memory / MIB_A_GIB if memory else None,
        gpu_name=device.get("Name"),
        gpu_count=part * (number_in(gpu.get("LogicalGpuCount")) or 1) if part else count or None,
        gpu_memory_gb=gpu_memory / MIB_A_GIB if gpu_memory and not part else None,
        cpu_architecture=next((architecture for architecture in architectures if architecture != "i386"), None),
    )


def _plain(item: dict[str, Any], hardware: Mapping[str, Specification]) -> Listing:
    name = str(item["InstanceType"])
    region = REGION.match(str(item.get("AvailabilityZone") or ""))
    listing = Listing(provider="aws", name=name, market="spot", hardware=hardware.get(name))
    return listing.at(region[0] if region else None, item.get("AvailabilityZoneId"))


def _spot(item: dict[str, Any], hardware: Mapping[str, Specification]) -> Listing:
    listing = replace(_plain(item, hardware), effective_from=instant_in(item.get("Timestamp")))
    if item.get("ProductDescription") not in LINUX:
        listing = listing.because("another_product")
    if listing.zone is None:
        listing = listing.because("zone_without_id")
    return listing.priced(item.get("SpotPrice"))


def _first_blocks(blocks: Sequence[dict[str, Any]], hardware: Mapping[str, Specification]) -> Iterator[Listing]:
    """Yields the first block of each type and region. Its fee covers all of its hours and machines."""
    first: dict[tuple[str, str | None], Listing] = {}
    for item in blocks:
        hours = Decimal(int(item["CapacityBlockDurationHours"]) * int(item["InstanceCount"]))
        plain = replace(_plain(item, hardware), market="reserved", term=CAPACITY_BLOCK, zone=None)
        listing = replace(plain, currency=str(item.get("CurrencyCode") or "USD"))
        first.setdefault((listing.name, listing.region), listing.priced(item.get("UpfrontFee"), 1 / hours))
    yield from (replace(listing, per_hour=to_millionths(listing.per_hour)) for listing in first.values())
