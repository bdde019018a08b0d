"""SkyPilot catalogs (v8): one undated CSV for each cloud, whose columns differ in order and set.

The column `GpuInfo` has five formats and is not read. Prices are of the whole machine. An empty price means that the
machine is not sold; for several providers, 0 means the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from service.feeds.fetching import documents_at
from service.feeds.google_names import GPUS_OF_N1, built_in_gpu, tpu_machine, with_attached_gpu
from service.feeds.listing import REASONS, Content, Listing, Specification, number_in, unreadable
from service.feeds.places import runpod_place, vast_place
from service.feeds.reading import Cells, table_of

PARTS = (
    "aws", "azure", "gcp", "lambda", "oci", "runpod", "nebius", "verda", "vast", "hyperstack", "shadeform", "seeweb",
    "mithril", "cudo", "jarvislabs", "hyperbolic", "do", "fluidstack", "paperspace",
)  # fmt: skip
PROVIDERS = {"do": "digitalocean"}
COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "Price", "SpotPrice", "Region")
PLACEHOLDER = Decimal(700)
"""US dollars per hour that SkyPilot writes for a TPU slice whose price it does not know."""

ONE_PRICE_EVERYWHERE = ("lambda", "oci")
NO_SPOT_AT_FULL_PRICE = ("azure", "runpod")
"""Clouds for which the feed repeats the on-demand price where there is no spot."""


fetch = documents_at("/catalogs/v8/{part}/vms.csv")


def parse(bodies: Sequence[bytes], part: str) -> Content:
    """Returns the prices of a cloud's CSV."""
    rows = [cells for body in bodies for cells in table_of(body, *COLUMNS)]
    listings = _google(rows) if part == "gcp" else (listing for cells in rows for listing in _both_markets(part, cells))
    return Content(listings=list(listings))


def _both_markets(part: str, cells: Cells | None) -> Iterator[Listing]:
    provider = PROVIDERS.get(part, part)
    if cells is None:
        yield unreadable(provider)
        return
    name, _, size = cells["InstanceType"].partition("$")
    region = {"azure": str.lower}.get(part, str)(cells["Region"]) or None
    is_bad = bool(cells["AcceleratorCount"]) and number_in(cells["AcceleratorCount"]) is None
    plain = Listing(provider=provider, name=name, market="on_demand", dated="unknown", hardware=_hardware(cells))
    on_demand = plain.priced(cells["Price"]).at(region)
    spot = replace(plain, market="spot").priced(cells["SpotPrice"]).at(region)
    if part in NO_SPOT_AT_FULL_PRICE and spot.per_hour is not None and spot.per_hour == on_demand.per_hour:
        spot = spot.because("spot_not_sold")
    is_bad = is_bad or any(
        listing.reason is not None and REASONS[listing.reason].is_error for listing in (on_demand, spot)
    )
    for listing in (on_demand, spot):
        judged = listing.because("row_unreadable") if is_bad else listing
        yield _placed(part, judged.because("flexible_shape") if size else judged, cells)


def _placed(part: str, listing: Listing, cells: Cells) -> Listing:
    zone = cells.get("AvailabilityZone") or None
    if part in ONE_PRICE_EVERYWHERE:  # the feed lists every type in every region, in stock or not
        return listing.at(None)
    if part == "mithril":
        return listing.because("least_bid")
    if part == "aws":
        return listing.at(listing.region, zone if listing.market == "spot" else None)
    if part == "runpod":
        country = runpod_place(zone)[0] if zone else listing.region
        contradicts = country != listing.region
        placed = listing.at(listing.region, zone)
        return placed.because("region_contradicts_zone") if contradicts else placed
    if part == "vast" and listing.region:
        return listing.at(vast_place(listing.region), zone)
    return listing.at(listing.region, zone)


def _hardware(cells: Cells) -> Specification:
    return Specification(
        vcpus=number_in(cells["vCPUs"]),
        memory_gib=number_in(cells["MemoryGiB"]),
        gpu_name=cells["AcceleratorName"] or None,
        gpu_count=number_in(cells["AcceleratorCount"]) or 0.0,
        cpu_architecture=cells.get("Arch") or None,
    )


def _google(rows: Iterable[Cells | None]) -> Iterator[Listing]:
    """Yields machines of Google Cloud, whose price is the sum of the row of the host and the row of its GPUs."""
    hosts, gpus = [], {}
    for cells in rows:
        if cells is None:
            yield unreadable("gcp")
        elif cells["InstanceType"] == "TPU-VM":
            yield from _tpu(cells)
        elif cells["InstanceType"]:
            hosts.append(cells)
        else:
            count = number_in(cells["AcceleratorCount"]) or 0.0
            gpus[cells["AvailabilityZone"], cells["AcceleratorName"], count] = cells
    for host in hosts:
        zone, name = host["AvailabilityZone"], host["InstanceType"]
        needed = built_in_gpu(name)
        for (gpu_zone, gpu, count), cells in gpus.items():
            attached = needed is None and name.startswith("n1-") and gpu in GPUS_OF_N1
            if gpu_zone == zone and (attached or (gpu, count) == needed):
                yield from _sums(host, cells, gpu, count)


def _sums(host: Cells, gpu_cells: Cells, gpu: str, count: float) -> Iterator[Listing]:
    slices_hold_the_host = host["InstanceType"].startswith("a4-")
    for market, column in (("on_demand", "Price"), ("spot", "SpotPrice")):
        plain = Listing(
            provider="gcp",
            name=host["InstanceType"],
            market="spot" if market == "spot" else "on_demand",
            region=host["Region"],
            zone=host["AvailabilityZone"],
            dated="unknown",
            hardware=replace(_hardware(host), gpu_name=gpu, gpu_count=count),
        )
        of_gpus, of_host = plain.priced(gpu_cells[column]), plain.priced(host[column])
        reason = of_gpus.reason or (None if slices_hold_the_host else of_host.reason)
        total = None if reason else (of_gpus.per_hour or Decimal(0)) + (of_host.per_hour or Decimal(0))
        yield with_attached_gpu(replace(plain, per_hour=total, reason=reason), gpu, count)


def _tpu(cells: Cells) -> Iterator[Listing]:
    for listing in _both_markets("gcp", cells):
        placed = listing.because("placeholder") if listing.per_hour == PLACEHOLDER else listing
        yield tpu_machine(placed, cells["AcceleratorName"].removeprefix("tpu-"))
