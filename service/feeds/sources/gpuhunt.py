"""gpuhunt catalogs (dstack): a dated zip with one CSV for each provider, published hourly.

A row states the price of the whole machine in dollars per hour on Linux. For machines whose details the crawler does
not know, it has `gpu_count` 0, which the check against the catalog finds.
"""

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from service.feeds.fetching import Get
from service.feeds.google_names import tpu_machine, with_attached_gpu
from service.feeds.listing import Content, DocumentRefused, Listing, Specification, number_in, price_in, unreadable
from service.feeds.places import aws_place, runpod_place, zone_and_region
from service.feeds.reading import Cells, plain, rows_of, text_of

PARTS = ("aws", "azure", "gcp", "oci", "runpod", "lambdalabs", "nebius", "verda", "cloudrift")
PROVIDERS = {"lambdalabs": "lambda"}
VERSION = re.compile(r"(\d{8})-\d+")
COLUMNS = ("instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot")
GIB_OF_LAMBDA = 1.073741824
"""The feed multiplies Lambda's memory in GiB by this number, to decimal gigabytes."""

PRODUCTS = {
    "runpod-cluster": "another_product",
    "runpod-cpu": "another_product",
    "gcp-g4-preview": "repeated",
}
"""Flags of rows that do not become a price, with the reason."""


def fetch(get: Get, part: str) -> Iterator[bytes]:
    """Yields the version, which its publisher writes last, and the zip of that version, which never changes."""
    version = get(f"/v3/{part}/version")
    published_on(text_of(version).strip())
    yield version
    yield get(f"/v3/{part}/{text_of(version).strip()}/catalog.zip", conditional=True)


def parse(bodies: Sequence[bytes], part: str) -> Content:
    """Returns the prices in a zip or in its CSV, with the version of the catalog if a document states it."""
    version, table = None, None
    for body in bodies:
        if body[:2] == b"PK":
            table = _member(body, part)
        elif body.startswith(b"instance_name,") or b"," in body[:200]:
            table = plain(body)
        else:
            version = text_of(body).strip()
    published = published_on(version) if version is not None else None
    if table is None:
        raise DocumentRefused("There is a version and no catalog.")
    rows = rows_of(iter(text_of(table).splitlines()), COLUMNS)
    return Content(listings=[_listing(part, cells) for cells in rows], version=version, published_at=published)


def published_on(version: str) -> datetime:
    """Returns the day of a version such as `20261120-20931`. Raises `DocumentRefused`."""
    match = VERSION.fullmatch(version)
    try:
        return datetime.fromisoformat(match[1] if match else version).replace(tzinfo=UTC)
    except ValueError:
        raise DocumentRefused("The version is not a day and a number, such as 20261120-20931.") from None


def _member(body: bytes, part: str) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            broken = archive.testzip()
            if broken or archive.namelist() != [f"{part}.csv"]:
                raise DocumentRefused(f"The zip does not hold exactly a sound {part}.csv.")
            return archive.read(f"{part}.csv")
    # `zipfile` raises RuntimeError for an encrypted member, and a subclass of it for an unknown compression.
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError) as error:
        raise DocumentRefused(f"The zip is broken: {error}.") from None


def _listing(part: str, cells: Cells | None) -> Listing:
    provider = PROVIDERS.get(part, part)
    if cells is None:
        return unreadable(provider)
    per_hour, reason = price_in(cells["price"])
    if cells["price"] == "" or cells["spot"] not in ("True", "False") or not cells["location"]:
        reason = "row_unreadable"
    count = number_in(cells["gpu_count"])
    if count is None or (count > 0 and not cells["gpu_name"]):
        reason = "row_unreadable"
    flags = cells.get("flags", "").split()
    reason = next((PRODUCTS[flag] for flag in flags if flag in PRODUCTS), reason)
    calendar = "gcp-dws-calendar-mode" in flags
    listing = Listing(
        provider=provider,
        name=cells["instance_name"],
        market="reserved" if calendar else "spot" if cells["spot"] == "True" else "on_demand",
        term="dws_calendar" if calendar else None,
        region=cells["location"] or None,
        per_hour=per_hour,
        note="half of the on-demand price by rule" if "oci-spot" in flags else None,
        hardware=_hardware(part, cells, count),
        reason=reason,
    )
    place = PLACED.get(part)
    return listing if place is None else place(listing)


def _hardware(part: str, cells: Cells, count: float | None) -> Specification:
    memory = number_in(cells["memory"])
    return Specification(
        vcpus=number_in(cells["cpu"]),
        memory_gib=memory / GIB_OF_LAMBDA if memory and part == "lambdalabs" else memory,
        gpu_name=cells["gpu_name"].removeprefix("tpu-") or None,
        gpu_count=count,
        gpu_memory_gb=number_in(cells["gpu_memory"]),
        cpu_architecture={"x86": "x86_64", "arm": "arm64"}.get(cells.get("cpu_arch", "")),
    )


def _aws(listing: Listing) -> Listing:
    region, zone = aws_place(listing.region or "")
    return listing.at(region or None, zone)


def _gcp(listing: Listing) -> Listing:
    region, zone = zone_and_region(listing.region or "")
    placed, hardware = listing.at(region, zone), listing.hardware
    assert hardware is not None
    if hardware.gpu_name and hardware.gpu_name.startswith(("v", "tpu")) and "-" in hardware.gpu_name:
        return tpu_machine(placed, hardware.gpu_name)
    return with_attached_gpu(placed, hardware.gpu_name, hardware.gpu_count)


def _same_everywhere(listing: Listing) -> Listing:
    return listing.at(None)


def _nebius(listing: Listing) -> Listing:
    return listing.named(listing.name.replace(" ", "_"))


def _runpod(listing: Listing) -> Listing:
    region, zone = runpod_place(listing.region or "")
    count = listing.hardware.gpu_count if listing.hardware else None
    if not count:
        return listing.because("another_product")
    hardware = replace(listing.hardware, gpu_name=listing.name) if listing.hardware else None
    placed = replace(listing, region=region, zone=zone, hardware=hardware)
    return placed.named(runpod_name(listing.name, int(count), secure=zone is not None))


def runpod_name(gpu: str, count: int, *, secure: bool) -> str:
    """Returns the name of a machine of RunPod, such as `8x_H100-80GB-HBM3_SECURE` for the GPU type id."""
    short = re.sub(r"^(NVIDIA|AMD|Tesla) ", "", gpu).removeprefix("GeForce ").removesuffix(" Generation")
    short = short.replace("RTX ", "RTX", 1).replace(" ", "-")
    return f"{count}x_{short}_{'SECURE' if secure else 'COMMUNITY'}"


PLACED = {
    "aws": _aws,
    "gcp": _gcp,
    "lambdalabs": _same_everywhere,
    "nebius": _nebius,
    "oci": _same_everywhere,
    "runpod": _runpod,
}
