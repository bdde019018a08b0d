"""Google Cloud prices by Cyclenerd: on-demand, spot and committed use by machine type and region, in one dated YAML.

For regions without the GPU, the file states the price of the host alone; the check against the catalog finds such rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from service.domain.units import HOURS_A_MONTH
from service.feeds.fetching import documents_at
from service.feeds.listing import Content, DocumentRefused, Listing, Specification, number_in, to_millionths
from service.feeds.reading import yaml_of

COMMITMENTS = {"month_1y": "1y_committed_use", "month_3y": "3y_committed_use"}
NO_GPU = ("cpu", "ram", "cost", "local-ssd", "type", "a2", "bandwidth", "network")


fetch = documents_at("/pricing.yml")


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices of the file."""
    content = yaml_of(bodies[0])
    try:
        machines = content["compute"]["instance"]
        published = datetime.fromtimestamp(content["about"]["timestamp"], UTC)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise DocumentRefused("The file has no compute.instance or no about.timestamp.") from None
    listings = [listing for name, machine in machines.items() for listing in _of_machine(str(name), machine)]
    return Content(listings=listings, published_at=published)


def _of_machine(name: str, machine: dict[str, Any]) -> Iterator[Listing]:
    gpus = {key: count for key, count in machine.items() if key not in NO_GPU and isinstance(count, int)}
    gpu, count = next(iter(gpus.items()), (None, 0))
    hardware = Specification(
        vcpus=number_in(machine.get("cpu")), memory_gib=number_in(machine.get("ram")), gpu_name=gpu, gpu_count=count
    )
    for region, cost in (machine.get("cost") or {}).items():
        plain = Listing(provider="gcp", name=name, market="on_demand", region=str(region), hardware=hardware)
        yield plain.priced(cost.get("hour"))
        yield replace(plain, market="spot").priced(cost.get("hour_spot"))
        for column, term in COMMITMENTS.items():
            if column in cost:
                listing = replace(plain, market="reserved", term=term).priced(cost[column])
                per_month = listing.per_hour
                yield replace(listing, per_hour=None if per_month is None else to_millionths(per_month / HOURS_A_MONTH))
