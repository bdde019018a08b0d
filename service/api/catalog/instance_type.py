"""An instance type as every endpoint shows it."""

from datetime import date
from typing import Self

from pydantic import Field

from service.api.http.fields import ResponseModel, copy_of
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu, InstanceType
from service.domain.catalog.offer import Offer, Price
from service.domain.money import number


class PrecisionRateResponse(ResponseModel):
    """How one GPU runs one precision."""

    support: str | None = Field(description="`accelerated`, `native`, `reduced` or `none`; null: unknown.")
    tflops: float | None = Field(description="Dense peak of one GPU in 10^12 operations per second; null: unknown.")


_OF_GPU = (
    "id", "name", "kind", "vendor", "architecture", "fraction", "memory_gb", "usable_memory_gib",
    "memory_bandwidth_gb_per_second", "tdp_watts", "tensor_core_generation", "released_on",
)  # fmt: skip


class InstanceGpuResponse(copy_of(Gpu, only=_OF_GPU), ResponseModel):  # type: ignore[misc]
    """The GPUs of an instance type. Figures are of one GPU, except for `total_memory_gb`; null: unknown."""

    count: int
    """GPUs of one machine; a part of a card counts as one."""
    total_memory_gb: float | None
    """Memory of all GPUs together, in GB."""
    interconnect: str | None
    """How the GPUs are linked, such as `nvlink`; `none` for a single GPU, null: unknown."""
    interconnect_gb_per_second: float | None
    """Bandwidth per GPU, both directions added; null: unknown or none."""
    precisions: dict[str, PrecisionRateResponse]
    """Rates by precision, for each precision that the GPU runs or is not known to lack."""


class CpuResponse(ResponseModel):
    """The CPU of the host; null: unknown."""

    architecture: str | None = Field(validation_alias="cpu_architecture")
    vendor: str | None = Field(validation_alias="cpu_vendor")
    model: str | None = Field(validation_alias="cpu_model")


class ListedPriceResponse(ResponseModel):
    """The price of an offer per hour as its seller lists it, with its source."""

    usd_per_hour: float | None
    """The listed price in US dollars. Null if it is unknown; `unknown_because` then says why."""
    market: str
    """`on_demand`, `spot` or `reserved`."""
    term: str | None
    """The commitment of a reserved offer, such as `1y_reserved_all_upfront`."""
    region: str | None
    """Null: the source names no region."""
    zone: str | None
    """Zone of a spot price; null if the price holds in the whole region."""
    currency: str
    """The currency of `per_hour`, such as `USD`."""
    per_hour: float | None = Field(description="The listed price in the provider's currency; null: unknown.")
    observed_on: date | None
    """The day on which the source showed the price; null: unknown."""
    dated: str
    """How well the day is known: `day`, `month`, `not_before` or `unknown`."""
    kind: str
    """How the price is known: `api`, `published`, `entered` by hand or `assumed`."""
    source: str
    """Id of the source."""
    unknown_because: str | None
    """Why `usd_per_hour` is null; null if it is known."""

    @classmethod
    def of(cls, offer: Offer, **more: object) -> Self:
        """Returns the price of this offer, with `more` fields of a subclass."""
        _, native = offer.price.listed
        return cls.like(
            offer.price,
            market=offer.market,
            term=offer.term,
            region=offer.region,
            zone=offer.zone,
            per_hour=None if native is None else number(native),
            unknown_because=_unknown_because(offer),
            **more,
        )


class PriceResponse(ListedPriceResponse):
    """The price of an offer per hour that is believed on the catalog's day, and the listed price that it rests on."""

    usd_per_hour: float | None
    """The price per machine that is believed on the catalog's day; filters, rankings and limits use it. Null if it is
    unknown; `unknown_because` then says why."""
    usd_per_hour_low: float | None
    """Low end of the band that contains the true price in eight of ten cases."""
    usd_per_hour_high: float | None
    """High end of the band of `usd_per_hour_low`."""
    listed_usd_per_hour: float | None = Field(description="As the source lists it on `observed_on`.")
    old: bool
    """Whether no recent observation confirms it; it then ranks at `usd_per_hour_high`."""
    suspect: bool
    """Whether one source alone states it, far below the same GPU elsewhere."""

    @classmethod
    def of(cls, offer: Offer, **more: object) -> Self:
        """Returns the believed price of this offer."""
        price = offer.price
        usd, _ = price.listed
        return super().of(
            offer,
            **ends_of_band(price),
            listed_usd_per_hour=None if usd is None else number(usd),
            old=price.belief is not None and price.belief.old,
            suspect=price.belief is not None and price.belief.suspect,
            **more,
        )


def ends_of_band(price: Price) -> dict[str, float | None]:
    """Returns the low and the high end of a believed price in dollars, by the names of their fields."""
    usd, (low, _, high) = price.usd_per_hour, price.factors
    ends = {"usd_per_hour_low": low, "usd_per_hour_high": high}
    return {name: None if usd is None else round(usd * factor, 6) for name, factor in ends.items()}


def _unknown_because(offer: Offer) -> str | None:
    if offer.price.usd_per_hour is not None:
        return None
    if offer.price.native_micros_per_hour is not None:
        return f"No exchange rate for {offer.price.currency} is known for that day."
    return offer.price.note or "No price is published."


_OF_INSTANCE_TYPE = (
    "provider", "name", "service", "family", "vcpus", "memory_gib", "network_gbps", "rdma", "gpudirect_rdma",
    "local_storage_gb", "bare_metal", "orderable", "hypervisor", "cpu_fp32_tflops",
)  # fmt: skip


class InstanceTypeResponse(copy_of(InstanceType, only=_OF_INSTANCE_TYPE), ResponseModel):  # type: ignore[misc]
    """The hardware of an instance type."""

    lifecycle: str
    """State on the catalog's day, such as `available` or `retired`."""
    launched_on: date | None
    """The day on which the type became generally available; null: unknown."""
    gpu: InstanceGpuResponse | None
    """Null: the machine has no GPU."""
    cpu: CpuResponse

    @classmethod
    def of(cls, instance_type: InstanceType, day: date) -> "InstanceTypeResponse":
        """Returns the instance type as it was on that day."""
        return InstanceTypeResponse.like(
            instance_type,
            lifecycle=instance_type.state_on(day),
            gpu=instance_type.gpu and _gpu_response(instance_type, instance_type.gpu),
            cpu=instance_type,
        )


class RegionCpuResponse(ResponseModel):
    """The CPU that a region is known to combine with a GPU."""

    region: str = Field(description="Id of the region, see `/regions`.")
    gpu: str = Field(description="Id of the GPU.")
    cpu: CpuResponse
    source: str


class InstanceResponse(InstanceTypeResponse):
    """An instance type in a list, with its best price."""

    gpus_exclusive: bool | None
    """Whether no other customer shares the GPUs; null: unknown."""
    memory_gib_per_gpu: float | None
    """Host memory for each GPU; null: unknown, or without GPUs."""
    region_cpus: list[RegionCpuResponse]
    """CPUs that regions are known to combine with the GPU."""
    price: PriceResponse | None
    """The best offer under the filters; null when there is no offer at all."""
    offers: int
    """How many offers the type has on the catalog's day."""


def _gpu_response(instance_type: InstanceType, gpu: Gpu) -> InstanceGpuResponse:
    return InstanceGpuResponse.like(
        gpu,
        count=instance_type.gpu_count,
        total_memory_gb=instance_type.total_gpu_memory_gb,
        interconnect=instance_type.interconnect,
        interconnect_gb_per_second=instance_type.interconnect_gb_per_second,
        precisions={
            name: PrecisionRateResponse(support=rate.support, tflops=rate.dense_tflops)
            for name, rate in gpu.rates.items()
            # The list shows what runs; the details of one type also show what does not.
            if rate.support != "none"
        },
    )


def instance_response(catalog: Catalog, index: int, offer_index: int | None = None) -> InstanceResponse:
    """Returns an instance type with an offer: its default one unless another is given; -1 means no offer."""
    offer = int(catalog.default_offers[index]) if offer_index is None else offer_index
    instance_type = catalog.instance_types[index]
    memory, gpus = instance_type.memory_gib, instance_type.gpu_count
    return InstanceResponse.like(
        InstanceTypeResponse.of(instance_type, catalog.day),
        gpus_exclusive=catalog.reference.providers[instance_type.provider].gpus_exclusive,
        memory_gib_per_gpu=None if memory is None or not gpus else memory / gpus,
        region_cpus=region_cpus(catalog, index),
        price=None if offer < 0 else PriceResponse.of(catalog.offers.offer(offer)),
        offers=len(catalog.offers_of(index)),
    )


def region_cpus(catalog: Catalog, index: int) -> list[RegionCpuResponse]:
    """Returns the CPUs that the provider's regions are known to combine with the GPU of an instance type."""
    cpus = catalog.reference.cpus_of(catalog.instance_types[index])
    return [RegionCpuResponse.like(cpu, region=region, cpu=cpu) for region, cpu in cpus]
