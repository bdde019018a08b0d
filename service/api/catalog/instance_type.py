"""An instance type as every endpoint shows it."""

from datetime import date

from pydantic import Field

from service.api.http.fields import ResponseModel
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu, InstanceType
from service.domain.catalog.offer import Offer, Price
from service.domain.money import number


class PrecisionRateResponse(ResponseModel):
    """How one GPU runs one precision."""

    support: str | None = Field(description="`accelerated`, `native`, `reduced` or `none`; null: unknown.")
    tflops: float | None = Field(description="Dense peak of one GPU in 10^12 operations per second; null: unknown.")


class InstanceGpuResponse(ResponseModel):
    """The GPUs of an instance type; figures are of one of them unless they say total."""

    id: str
    name: str
    kind: str
    vendor: str
    architecture: str
    count: int
    fraction: float = Field(description="1 for a whole card, else the part of a card that each GPU is.")
    memory_gb: float | None
    usable_memory_gib: float | None
    total_memory_gb: float | None
    memory_bandwidth_gb_per_second: float | None
    tdp_watts: float | None
    tensor_core_generation: int | None
    released_on: str | None
    interconnect: str | None
    interconnect_gb_per_second: float | None
    precisions: dict[str, PrecisionRateResponse]


class CpuResponse(ResponseModel):
    """The host's CPU, read from an instance type or from the CPU of a region."""

    architecture: str | None = Field(validation_alias="cpu_architecture")
    vendor: str | None = Field(validation_alias="cpu_vendor")
    model: str | None = Field(validation_alias="cpu_model")


class PriceResponse(ResponseModel):
    """The price of an offer per hour, with its source."""

    usd_per_hour: float | None = Field(
        description="The price that is believed today. Filters, rankings and limits use it. Null if it is "
        "unknown; `unknown_because` then says why."
    )
    usd_per_hour_low: float | None = Field(
        description="Low end of the band in which today's price lies in eight of ten cases."
    )
    usd_per_hour_high: float | None = Field(description="High end of that band.")
    listed_usd_per_hour: float | None = Field(description="As the source lists it on `observed_on`.")
    old: bool = Field(description="Whether no recent observation confirms it; it then ranks at `usd_per_hour_high`.")
    suspect: bool = Field(description="Whether one source alone states it, far below the same GPU elsewhere.")
    market: str
    term: str | None = Field(description="The commitment of a reserved offer, such as `1y_reserved_all_upfront`.")
    region: str | None
    zone: str | None
    currency: str
    per_hour: float | None = Field(description="As listed, in the provider's currency.")
    observed_on: date | None
    dated: str
    kind: str
    source: str
    unknown_because: str | None

    @classmethod
    def of(cls, offer: Offer) -> "PriceResponse":
        """The price of this offer."""
        price = offer.price
        usd, native = price.listed
        return cls.like(
            price,
            **believed(price),
            listed_usd_per_hour=None if usd is None else number(usd),
            old=price.belief is not None and price.belief.old,
            suspect=price.belief is not None and price.belief.suspect,
            market=offer.market,
            term=offer.term,
            region=offer.region,
            zone=offer.zone,
            per_hour=None if native is None else number(native),
            unknown_because=_unknown_because(offer),
        )


def believed(price: Price) -> dict[str, float | None]:
    """Returns the fields of the low and the high end of a believed price in dollars."""
    usd, (low, _, high) = price.usd_per_hour, price.factors
    ends = {"usd_per_hour_low": low, "usd_per_hour_high": high}
    return {name: None if usd is None else round(usd * factor, 6) for name, factor in ends.items()}


def _unknown_because(offer: Offer) -> str | None:
    if offer.price.usd_per_hour is not None:
        return None
    if offer.price.native_micros_per_hour is not None:
        return f"No exchange rate for {offer.price.currency} is known for that day."
    return offer.price.note or "No price is published."


class InstanceTypeResponse(ResponseModel):
    """The hardware of an instance type."""

    provider: str
    name: str
    service: str
    family: str
    lifecycle: str
    launched_on: date | None
    gpu: InstanceGpuResponse | None
    vcpus: float | None
    cpu: CpuResponse
    memory_gib: float | None
    network_gbps: float | None
    rdma: bool | None
    gpudirect_rdma: bool | None
    local_storage_gb: float | None
    bare_metal: bool | None
    orderable: bool | None = Field(description="Whether the provider takes this name in an order; null: unknown.")
    hypervisor: str | None = Field(description="`nitro` or `xen` at AWS; `none` on bare metal; null: unknown.")
    cpu_fp32_tflops: float | None = Field(description="Dense peak of all vCPUs, where it is known.")

    @classmethod
    def of(cls, instance_type: InstanceType, day: date) -> "InstanceTypeResponse":
        """The instance type as it was on that day."""
        return InstanceTypeResponse.like(
            instance_type,
            lifecycle=instance_type.state_on(day),
            gpu=instance_type.gpu and _gpu_response(instance_type, instance_type.gpu),
            cpu=instance_type,
        )


class RegionCpuResponse(ResponseModel):
    """The CPU that a region is known to combine with a GPU."""

    region: str
    gpu: str
    cpu: CpuResponse
    source: str


class InstanceResponse(InstanceTypeResponse):
    """An instance type in a list, with its best price."""

    gpus_exclusive: bool | None = Field(description="Whether a renter has the GPUs to itself; null: unknown.")
    memory_gib_per_gpu: float | None = Field(description="Host memory for each GPU; null: unknown, or without GPUs.")
    region_cpus: list[RegionCpuResponse] = Field(description="CPUs that regions are known to combine with the GPU.")
    price: PriceResponse | None = Field(
        description="The best offer under the filters; null when there is no offer at all."
    )
    offers: int = Field(description="How many offers the type has on the catalog's day.")


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
    """Returns an instance type with one of its offers: its default one unless another is given; -1 for none."""
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
