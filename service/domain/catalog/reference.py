"""What the catalog knows beside machines and prices: providers, regions, software, measurements, models, sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from service.domain.calibration.error_bands import Physics
from service.domain.catalog.hardware import Gpu, LifecycleState
from service.domain.catalog.precision import Precision
from service.domain.catalog.tariffs import BillingRule, InterruptionPrior, StoragePrice, TransferPrice
from service.domain.models.model import Model
from service.domain.money import ExchangeRate


@dataclass(frozen=True, slots=True)
class Source:
    """Where a fact came from."""

    id: str
    title: str
    version: str | None
    published_on: str | None
    retrieved_on: date
    licence: str | None
    note: str | None


@dataclass(frozen=True, slots=True)
class Provider:
    """A seller, and its own words for what it sells."""

    id: str
    name: str
    instance_type_term: str | None
    on_demand_term: str | None
    spot_term: str | None
    spot_notice_seconds: int | None
    priced_by_region: bool
    gpus_exclusive: bool | None
    """Whether a renter has the GPUs alone."""
    source: str
    note: str | None


@dataclass(frozen=True, slots=True)
class RegionCpu:
    """The CPU that a region is known to put beside a GPU."""

    gpu: str
    cpu_model: str
    cpu_vendor: str | None
    cpu_architecture: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Region:
    """A place where a provider rents machines out."""

    provider: str
    id: str
    name: str | None
    country: str | None
    continent: str | None
    source: str
    cpus: tuple[RegionCpu, ...]


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """From this day on, a service is in this state."""

    state: LifecycleState
    starts_on: date
    source: str
    note: str | None


@dataclass(frozen=True, slots=True)
class Service:
    """Something rented beside instance types: managed training, a fraction of a card, an image."""

    provider: str
    id: str
    name: str
    kind: str
    description: str | None
    source: str
    lifecycle: tuple[ServiceEvent, ...]

    def state_on(self, day: date) -> LifecycleState | None:
        started = [event for event in self.lifecycle if event.starts_on <= day]
        return started[-1].state if started else None


@dataclass(frozen=True, slots=True)
class Fee:
    """A managed service's premium on the plain machine's price, in percent; an empty family is every other one."""

    provider: str
    service: str
    family: str
    valid_from: date
    percent_of_compute: float
    source: str
    note: str | None


@dataclass(frozen=True, slots=True)
class SoftwareRule:
    """What software is known to do on some hardware, over a span of days (open where an end is null)."""

    software: str
    kind: str
    versions: str | None
    scope: str
    scope_value: str
    task: str | None
    supported: str
    valid_from: date | None
    valid_to: date | None
    source: str
    note: str | None

    def holds_on(self, day: date) -> bool:
        return (self.valid_from is None or self.valid_from <= day) and (self.valid_to is None or day < self.valid_to)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Samples per second that somebody saw on a machine."""

    id: str
    workload: str
    framework: str | None
    machine: str
    gpu_count: int | None
    precision: str | None
    batch_size: int | None
    seconds_per_batch: float | None
    samples_per_second: float
    usd_per_hour: float | None
    measured_on: date
    source: str
    note: str | None
    nodes: int = 1
    """That ran it together; the rate is of all of them, `gpu_count` of one."""
    software: str | None = None
    """In the words of whoever measured, such as `pytorch==2.0`."""


RUN_KINDS = (
    "train_throughput", "train_mfu", "train_time", "train_gpu_hours", "train_memory_fit", "infer_throughput",
    "infer_memory_fit", "oom",
)  # fmt: skip
"""What a published run tells: speed, the time of a whole run, or memory; `oom` is a report of too little memory."""

RUN_UNITS = (
    "tokens_per_second", "tokens_per_second_per_gpu", "samples_per_second", "output_tokens_per_second",
    "decode_tokens_per_second", "prefill_tokens_per_second", "milliseconds_per_output_token",
    "milliseconds_to_first_token", "minutes", "hours", "days", "gpu_hours", "mfu_percent", "tflops_per_gpu",
    "model_tflops_per_gpu", "hardware_tflops_per_gpu", "scaling_efficiency_percent", "gb_per_gpu", "gib_per_gpu",
    "max_context_tokens", "fits",
)  # fmt: skip
"""Rates are of the whole job unless they end in `per_gpu`; `fits` is 1 or 0."""


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A figure that somebody published of a training or of answering, as the source tells it."""

    id: str
    kind: str
    task: str
    model: str
    gpu: str
    """Ours; where the catalog has no such card, the nearest, and the note says so."""
    gpu_count: int | None
    """In one node."""
    nodes: int | None
    machine: str | None
    """`provider/name`, where the source names a machine that is for rent."""
    precision: str
    """Ours: what numbers are multiplied in."""
    format: str
    """The number format in the source's words."""
    weight_bits: float | None
    framework: str | None
    """The line of software, by our name."""
    software: str | None
    """In the source's words."""
    sequence_length: int | None
    input_length: int | None
    output_length: int | None
    micro_batch: int | None
    global_batch: int | None
    concurrency: int | None
    """Requests at once; unknown, or as many as fit, is null."""
    tokens: float | None
    """Of the whole run."""
    samples: float | None
    value: float
    unit: str
    year: int
    quality: str
    """`A` is read from a log or a table, `B` from elsewhere or with a setting missing."""
    source: str
    detail: str
    note: str | None
    known_on: date
    """The first day on which it is certain to have been published."""

    @property
    def gpus(self) -> int | None:
        return None if self.gpu_count is None or self.nodes is None else self.gpu_count * self.nodes


def first_known(year: int, source: Source) -> date:
    """From when a figure of that year can be told: the year's end, or the day of its source if that was before."""
    days = [date(year, 12, 31), source.retrieved_on]
    if source.published_on and len(source.published_on) == len("2022-11-09"):
        published = date.fromisoformat(source.published_on)
        if published.year == year:
            days.append(published)
    return min(days)


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The last import of one feed that took effect, for freshness."""

    feed: str
    finished_at: str
    rows_seen: int
    rows_kept: int
    quarantined: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reference:
    """Everything known that is neither a machine nor a price; tuples in the order of their keys."""

    sources: Mapping[str, Source]
    precisions: Mapping[str, Precision]
    gpus: Mapping[str, Gpu]
    gpu_aliases: Mapping[str, tuple[str, ...]]
    providers: Mapping[str, Provider]
    regions: tuple[Region, ...]
    services: tuple[Service, ...]
    fees: tuple[Fee, ...]
    software: tuple[SoftwareRule, ...]
    measurements: tuple[Measurement, ...]
    published_runs: tuple[PublishedRun, ...]
    models: Mapping[str, Model]
    physics: Physics
    imports: tuple[ImportSummary, ...]
    exchange_rates: tuple[ExchangeRate, ...] = ()
    billing_rules: tuple[BillingRule, ...] = ()
    storage_prices: tuple[StoragePrice, ...] = ()
    transfer_prices: tuple[TransferPrice, ...] = ()
    interruption_priors: tuple[InterruptionPrior, ...] = ()
