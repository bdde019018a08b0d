"""The cheapest hour of the same GPU on other machines."""

from service.api.estimate.cost_response import CostResponse, GpuHourResponse, rounded_usd
from service.domain.bill.payment_options import cheapest_gpu_hours
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType


def elsewhere_of(
    catalog: Catalog, gpu: str | None, kind: InstanceType | None, own_usd: float | None
) -> list[GpuHourResponse]:
    """`own_usd` is what an hour of one GPU costs here on demand."""
    if gpu is None:
        return []
    return [
        GpuHourResponse(
            instance=each.instance,
            region=each.offer.region,
            gpus=each.gpus,
            usd_per_gpu_hour=rounded_usd(each.usd_per_gpu_hour),
            observed_on=each.offer.price.observed_on,
            saves_percent=None if not own_usd else round(100 - each.usd_per_gpu_hour / own_usd * 100, 2),
        )
        for each in cheapest_gpu_hours(catalog, gpu, None if kind is None else kind.id)
    ]


def own_gpu_hour(costs: list[CostResponse], gpus: float) -> float | None:
    entry = next((each for each in costs if each.market == "on_demand" and each.managed_service is None), None)
    if entry is None or entry.price.usd_per_hour is None or not gpus:
        return None
    return entry.price.usd_per_hour / gpus
