"""RunPod: prices per GPU of each GPU type by GraphQL, in secure data centres and from the community."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from service.domain.catalog.offer import Market
from service.feeds.fetching import Get
from service.feeds.listing import Content, DocumentRefused, Listing, Specification, number_in
from service.feeds.reading import items_of, object_of
from service.feeds.sources.gpuhunt import runpod_name

QUERY = """query { gpuTypes { id displayName memoryInGb securePrice communityPrice
secureSpotPrice communitySpotPrice lowestPrice(input: {gpuCount: 1}) { minVcpu minMemory availableGpuCounts } } }"""
PRICES: tuple[tuple[str, bool, Market], ...] = (
    ("securePrice", True, "on_demand"),
    ("communityPrice", False, "on_demand"),
    ("secureSpotPrice", True, "spot"),
    ("communitySpotPrice", False, "spot"),
)


def fetch(get: Get, _part: str) -> Iterator[bytes]:
    """Yields the answer to the query for all GPU types with their prices."""
    yield get("/graphql", body={"query": QUERY})


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices of every number of GPUs that is available. Errors come with status 200 and are refused."""
    content = object_of(bodies[0], "data")
    if content.get("errors") or not isinstance(content["data"], dict):
        raise DocumentRefused("The answer holds errors instead of data.")
    types = items_of(content["data"].get("gpuTypes"), "gpuTypes")
    return Content(listings=[listing for gpu in types for listing in _listings(gpu)])


def _listings(gpu: dict[str, Any]) -> Iterator[Listing]:
    lowest = gpu.get("lowestPrice") or {}
    for count in lowest.get("availableGpuCounts") or [1]:
        hardware = Specification(
            vcpus=_times(lowest.get("minVcpu"), count),
            memory_gib=_times(lowest.get("minMemory"), count),
            gpu_name=str(gpu.get("id")),
            gpu_count=float(count),
            gpu_memory_gb=number_in(gpu.get("memoryInGb")),
        )
        for column, secure, market in PRICES:
            name = runpod_name(str(gpu.get("id")), int(count), secure=secure)
            plain = Listing(provider="runpod", name=name, market=market, hardware=hardware)
            yield plain.priced(gpu.get(column), Decimal(int(count)))


def _times(value: Any, count: int) -> float | None:
    number = number_in(value)
    return None if number is None else number * count
