"""DigitalOcean: sizes of GPU Droplets with the price of the machine in each region that offers it."""

from collections.abc import Iterator, Sequence
from typing import Any

from service.feeds.fetching import Get, pages_from, path_of
from service.feeds.listing import MIB_A_GIB, Content, Listing, Specification, number_in
from service.feeds.reading import items_of, object_of

MAKERS = ("nvidia_", "amd_")


def fetch(get: Get, _part: str) -> Iterator[bytes]:
    """Yields the pages of the list."""
    return pages_from(get, "/v2/sizes?per_page=200", _next)


def _next(page: bytes) -> str | None:
    links = object_of(page).get("links") or {}
    return path_of((links.get("pages") or {}).get("next") or "")


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices of the pages."""
    sizes = [size for body in bodies for size in items_of(object_of(body, "sizes")["sizes"], "sizes")]
    return Content(listings=[listing for size in sizes for listing in _listings(size)])


def _listings(size: dict[str, Any]) -> Iterator[Listing]:
    gpu = size.get("gpu_info") or {}
    count, memory = number_in(gpu.get("count")), number_in(size.get("memory"))
    gpu_memory = number_in((gpu.get("vram") or {}).get("amount"))
    hardware = Specification(
        vcpus=number_in(size.get("vcpus")),
        memory_gib=memory / MIB_A_GIB if memory else None,
        gpu_name=_gpu_name(str(gpu.get("model") or "")),
        gpu_count=count,
        gpu_memory_gb=gpu_memory / count if gpu_memory and count else None,  # the figure is that of all GPUs
    )
    listing = Listing(provider="digitalocean", name=str(size.get("slug", "")), market="on_demand", hardware=hardware)
    listing = listing.priced(size.get("price_hourly"))
    if not gpu:  # Droplets without a GPU share their CPUs, or do not say which they have
        listing = listing.because("without_gpu")
    regions = size.get("regions") if size.get("available") else None
    yield from (listing.at(str(region)) for region in regions or ())
    if not regions:
        yield listing.because("not_offered")


def _gpu_name(model: str) -> str | None:
    """Returns the name of a GPU without its maker, such as `rtx6000 ada` for `nvidia_rtx6000_ada`."""
    for maker in MAKERS:
        model = model.removeprefix(maker)
    return model.replace("_", " ") or None
