"""What the catalog knows beside machines and prices: providers, regions, software, measurements, models, sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from service.domain.charges import BillingRule, StoragePrice, TransferPrice
from service.domain.estimate import Physics
from service.domain.hardware import Gpu, LifecycleState
from service.domain.interruption import InterruptionPrior
from service.domain.model import Model
from service.domain.money import ExchangeRate
from service.domain.precision import Precision


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
    models: Mapping[str, Model]
    physics: Physics
    imports: tuple[ImportSummary, ...]
    exchange_rates: tuple[ExchangeRate, ...] = ()
    billing_rules: tuple[BillingRule, ...] = ()
    storage_prices: tuple[StoragePrice, ...] = ()
    transfer_prices: tuple[TransferPrice, ...] = ()
    interruption_priors: tuple[InterruptionPrior, ...] = ()
