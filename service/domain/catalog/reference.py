"""Facts other than instance types and prices: providers, regions, software, measurements, models, sources."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal, TypeAlias, get_args

from service.domain.calibration.calibration import Calibration
from service.domain.calibration.price_belief import PriceMovement
from service.domain.catalog.hardware import Gpu, HasLifecycle, InstanceType, LifecycleState
from service.domain.catalog.precision import Precision
from service.domain.catalog.tariffs import BillingRule, InterruptionPrior, StoragePrice, TransferPrice, most_specific
from service.domain.models.model import Model
from service.domain.money import ExchangeRate, Unknown


@dataclass(frozen=True, slots=True)
class Source:
    """A publication, price list or other source of facts, with the day on which it was read."""

    id: str
    """The id by which facts refer to it."""
    title: str
    """The name of the publication, or of the pages or files that were read."""
    version: str | None
    """Version or commit; None if it has none."""
    published_on: str | None
    """Day, month or year of the publication; None if unknown."""
    retrieved_on: date
    """The day on which it was read."""
    licence: str | None
    """Licence of the source; None if none was found."""
    note: str | None


SellerClass = Literal["hyperscaler", "neocloud", "marketplace", "reseller"]
SELLER_CLASSES: tuple[SellerClass, ...] = get_args(SellerClass)

RDMA_FABRICS = {
    "efa": "EFA (Elastic Fabric Adapter)",
    "infiniband": "InfiniBand",
    "roce": "RoCE (RDMA over Converged Ethernet)",
}
"""Networks with RDMA, by the id in `Provider.rdma_fabric`."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A seller, with its own words for an instance type and for the markets."""

    id: str
    name: str
    instance_type_term: str | None
    """The provider's own word for an instance type, such as `machine type`; None if unknown."""
    on_demand_term: str | None
    """The provider's own word for on-demand machines; None if unknown."""
    spot_term: str | None
    """The provider's own word for spot machines; None if it is not known to sell any."""
    spot_notice_seconds: int | None
    """Seconds between the notice of an interruption and the end of a spot machine; None if unknown."""
    priced_by_region: bool
    seller_class: SellerClass | None
    """How it comes by its machines; None if unknown."""
    gpus_exclusive: bool | None
    """Whether a renter does not share the GPUs with other renters; None if unknown."""
    rdma_fabric: str | None
    """The RDMA network of its machines: `efa`, `infiniband` or `roce`; None if unknown or none."""
    third_party_suffix: str | None
    """How the names of its instance types end whose machines belong to third parties; None if it has none of these."""
    source: str
    note: str | None


@dataclass(frozen=True, slots=True)
class RegionCpu:
    """The CPU of the machines with a certain GPU in a region."""

    gpu: str
    cpu_model: str
    cpu_vendor: str | None
    cpu_architecture: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Region:
    """A region, as its provider names it."""

    provider: str
    id: str
    name: str | None
    """The provider's name of the region in words; None if it has none."""
    country: str | None
    """ISO 3166 alpha-2 code, such as `DE`; None if unknown."""
    continent: str | None
    """In small letters, such as `north america`; None if unknown."""
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
class Service(HasLifecycle[ServiceEvent]):
    """Something that a provider offers besides instance types: managed training, a fraction of a card, an image."""

    provider: str
    id: str
    name: str
    kind: str
    """`managed_training`, `managed_spot`, `platform`, `image` (of machines or containers) or `fraction` (of a card)."""
    description: str | None
    source: str
    lifecycle: tuple[ServiceEvent, ...]
    machines: str | None = None
    """Families, and names of single instance types, on which the service runs, with commas; None: all of its
    provider, or unknown."""

    def runs_on(self, instance_type: InstanceType) -> bool:
        """Returns whether the service is of the provider of an instance type, and not known to lack it."""
        if instance_type.provider != self.provider:
            return False
        names = {instance_type.name, instance_type.family}
        return self.machines is None or not names.isdisjoint(self.machines_listed)

    @property
    def machines_listed(self) -> list[str]:
        """The names of `machines`; empty if there are none."""
        return self.machines.split(",") if self.machines else []


@dataclass(frozen=True, slots=True)
class Fee:
    """The percentage that a managed service adds to the price of a machine, from a day on."""

    provider: str
    service: str
    """Id of the managed service."""
    family: str
    """The family of machines, or the name of one with a fee of its own; empty for every family without one."""
    valid_from: date
    """The first day on which the percentage is in force."""
    percent_of_compute: float
    """Percentage of the price of all machine time that is paid for."""
    source: str
    note: str | None


ServiceFee: TypeAlias = Fee | Literal["contained"] | Unknown | None
"""The premium of a managed service on a machine: None without a service, and "contained" where the price of the machine
includes it, as for the ml.* types of AWS."""


def fee_of(fees: Sequence[Fee], instance_type: InstanceType, service: str | None, day: date) -> ServiceFee:
    """Returns the premium of a service on a machine; "contained" for a type whose price contains the premium."""
    if instance_type.twin_of is not None:
        return "contained"
    if service is None:
        return None
    exactly = {"provider": instance_type.provider, "service": service}
    for fee in most_specific(fees, day, exactly, {"family": (instance_type.name, instance_type.family)}):
        return fee
    return Unknown(f"The premium of {service} on {instance_type.family} machines is not known.")


@dataclass(frozen=True, slots=True)
class Prior:
    """A published rule of thumb, with the kind of work and the days that it applies to.

    A prior ranks families, states how many GPUs are usual, or how long a run may take. Measurements and estimates
    overrule priors, and an answer cites a prior in both cases.
    """

    id: str
    task: str
    gpus: Literal["one", "several"] | None
    """Whether the rule is for work on one GPU or on several; None for both."""
    objective: str | None
    """The named objective that the rule is for; None for any."""
    subject: str | None
    """Names of a data set, a goal or a size of model in lower case, with commas: `ms_coco,coco`. None: any work."""
    ranking: str | None
    """Families, the best first: `g4dn > p2,g3`. A last `*` stands for all others."""
    min_gpus: int | None
    max_gpus: int | None
    deadline_hours: float | None
    says: str
    valid_from: date
    valid_to: date | None
    source: str

    @property
    def subjects(self) -> frozenset[str]:
        """The names in `subject`; empty for any work."""
        return frozenset() if self.subject is None else frozenset(self.subject.split(","))

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The ranking as groups of families that the rule does not distinguish, the best group first."""
        groups = self.ranking.split(">") if self.ranking else ()
        return tuple(tuple(group.strip().split(",")) for group in groups)

    def is_in_force_on(self, day: date) -> bool:
        """Returns whether the rule is in force on a day."""
        return self.valid_from <= day and (self.valid_to is None or day < self.valid_to)


@dataclass(frozen=True, slots=True)
class SoftwareRule:
    """How well software is known to run on some hardware from `valid_from` until `valid_to`; None is an open end."""

    software: str
    kind: str
    """`framework`, `engine`, `toolkit`, `library` or `feature`."""
    versions: str | None
    """Versions for which the rule is stated, such as `>=1.7,<1.12`; None for all."""
    scope: str
    """Meaning of `scope_value`: the `kind`, `vendor`, `platform` or `architecture` of GPUs, one `gpu`, or a `family` or
    `instance` type of machines.
    """
    scope_value: str
    """Value of the scope that the rule is about, such as `cuda` for the scope `platform`."""
    task: str | None
    """The only task for which the rule holds; None for every task."""
    families: str | None
    """Families of models, with commas, for which alone the rule holds; None for all models."""
    formats: str | None
    """Number formats of weights, with commas, for which alone the rule holds; None for all formats."""
    cuda: str | None
    """Versions of the CUDA toolkit for which the rule is stated, such as `<12.7`; None for all."""
    supported: str
    """`yes`, `partly` or `no`. A rule about families or formats restricts the rules about all work."""
    valid_from: date | None
    """The first day on which the rule is in force; None for an open start."""
    valid_to: date | None
    """The first day on which the rule is no longer in force; None for an open end."""
    code_change: str | None
    """The change that code written for CUDA needs before it runs here; None if it runs unchanged."""
    source: str
    note: str | None

    @property
    def place(self) -> tuple[str, str]:
        """The scope with its value: the machines to which the rule applies."""
        return self.scope, self.scope_value

    @property
    def is_about_all_work(self) -> bool:
        """Whether the rule holds for models of every family and weights of every format."""
        return self.families is None and self.formats is None

    def names_family(self, family: str | None) -> bool:
        """Returns whether the rule holds for models of a family."""
        return self.families is None or family in self.families.split(",")

    def names_format(self, number_format: str) -> bool:
        """Returns whether the rule is about weights of a number format."""
        return self.formats is not None and number_format in self.formats.split(",")

    def is_in_force_on(self, day: date) -> bool:
        """Returns whether the rule is in force on a day."""
        return (self.valid_from or date.min) <= day and (self.valid_to is None or day < self.valid_to)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement: the samples per second of a workload on a machine."""

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
    """Machines that ran the workload together. `samples_per_second` is of all of them, `gpu_count` of one."""
    software: str | None = None
    """The software as the measurement names it, such as `pytorch==2.0`."""
    owner: str | None = None
    """The owner of the API key, who alone sees the measurement; None if it is public."""
    since: int = field(default=0, compare=False)
    """The version of the catalog that added the measurement."""
    watts: float | None = None
    """Power that one machine drew; None if unknown."""


RUN_KINDS = (
    "train_throughput", "train_mfu", "train_time", "train_gpu_hours", "train_memory_fit", "infer_throughput",
    "infer_memory_fit", "oom",
)  # fmt: skip
"""Kinds of published figures: speed, the time of a whole run, or memory; `oom` reports too little memory."""

RUN_UNITS = (
    "tokens_per_second", "tokens_per_second_per_gpu", "samples_per_second", "output_tokens_per_second",
    "decode_tokens_per_second", "prefill_tokens_per_second", "milliseconds_per_output_token",
    "milliseconds_to_first_token", "minutes", "hours", "days", "gpu_hours", "mfu_percent", "tflops_per_gpu",
    "model_tflops_per_gpu", "hardware_tflops_per_gpu", "scaling_efficiency_percent", "gb_per_gpu", "gib_per_gpu",
    "max_context_tokens", "fits",
)  # fmt: skip
"""Units of published figures. A rate is that of the whole job unless it ends in `per_gpu`; `fits` is 1 or 0."""


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A published figure of training or inference, as its source states it."""

    id: str
    kind: str
    task: str
    model: str
    gpu: str
    """GPU id of the catalog; if the catalog lacks the exact card, the nearest one (see `note`)."""
    gpu_count: int | None
    """GPUs of one node."""
    nodes: int | None
    """Machines that ran it together; None if unknown."""
    machine: str | None
    """`provider/name`, where one is named."""
    precision: str
    """Precision of the arithmetic, as the catalog names it."""
    format: str
    """The number format as the source names it."""
    weight_bits: float | None
    """Bits of a stored weight where the source states them; None: those of the precision."""
    framework: str | None
    """The framework or engine, as the catalog names it, see `/frameworks`."""
    software: str | None
    """The software as the source names it."""
    sequence_length: int | None
    """Tokens of a training sequence; None: unknown or not applicable."""
    input_length: int | None
    """Tokens of a prompt; None: unknown or not applicable."""
    output_length: int | None
    """Tokens of an answer; None: unknown or not applicable."""
    micro_batch: int | None
    """Samples per GPU and pass."""
    global_batch: int | None
    concurrency: int | None
    """Requests in flight; None if unknown or as many as fit."""
    tokens: float | None
    """Amount of work of the run, if `value` is its time."""
    samples: float | None
    """Amount of work of the run, if `value` is its time."""
    value: float
    """The measured figure, in `unit`."""
    unit: str
    """Rates are of the whole job unless they end in `per_gpu`; `fits` is 1 or 0."""
    year: int
    """The year of the measurement or of the publication."""
    quality: str
    """`A`: read from a log or a table; `B`: read from elsewhere, or a setting is missing."""
    source: str
    detail: str
    note: str | None
    known_on: date
    """The first day by which the run was certainly published."""

    @property
    def gpus(self) -> int | None:
        """GPUs of all nodes; None if unknown."""
        return None if self.gpu_count is None or self.nodes is None else self.gpu_count * self.nodes


def first_known(year: int, source: Source) -> date:
    """Returns the first day by which a figure of a year was certainly published.

    It is the earliest of the last day of the year, the day on which the source was read, and the full date of the
    source if it is in this year.
    """
    days = [date(year, 12, 31), source.retrieved_on]
    if source.published_on and len(source.published_on) == len("2022-11-09"):
        published = date.fromisoformat(source.published_on)
        if published.year == year:
            days.append(published)
    return min(days)


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The last import of a feed that took effect, by which the API states how fresh the catalog is."""

    feed: str
    finished_at: datetime
    rows_seen: int
    rows_kept: int
    quarantined: Mapping[str, int]
    """Rows that were set aside, by reason."""


@dataclass(frozen=True, slots=True)
class Reference:
    """All facts other than instance types and prices; tuples are in the order of their keys."""

    sources: Mapping[str, Source]
    precisions: Mapping[str, Precision]
    gpus: Mapping[str, Gpu]
    gpu_aliases: Mapping[str, tuple[str, ...]]
    providers: Mapping[str, Provider]
    regions: tuple[Region, ...]
    services: tuple[Service, ...]
    fees: tuple[Fee, ...]
    software: tuple[SoftwareRule, ...]
    published_runs: tuple[PublishedRun, ...]
    models: Mapping[str, Model]
    calibration: Calibration
    imports: tuple[ImportSummary, ...]
    exchange_rates: tuple[ExchangeRate, ...] = ()
    billing_rules: tuple[BillingRule, ...] = ()
    storage_prices: tuple[StoragePrice, ...] = ()
    transfer_prices: tuple[TransferPrice, ...] = ()
    interruption_priors: tuple[InterruptionPrior, ...] = ()
    priors: tuple[Prior, ...] = ()
    price_movement: PriceMovement = field(default_factory=PriceMovement)

    def seller_class_of(self, provider: str) -> SellerClass | None:
        """Returns the class of a seller; None if it, or the provider, is unknown."""
        return None if (seller := self.providers.get(provider)) is None else seller.seller_class

    def owner_class_of(self, type_: InstanceType) -> SellerClass | None:
        """Returns the class of the seller of a machine; `marketplace` if the machine belongs to a third party."""
        seller = self.providers.get(type_.provider)
        suffix = None if seller is None else seller.third_party_suffix
        return "marketplace" if suffix and type_.name.endswith(suffix) else self.seller_class_of(type_.provider)

    def card_of(self, gpu: Gpu) -> Gpu:
        """Returns the card that a GPU is, or is a part of."""
        return self.gpus.get(gpu.partition_of or gpu.id, gpu)

    def providers_of(self, service: str) -> frozenset[str]:
        """Returns the ids of the providers that offer a managed service, or add its premium to their machines."""
        offered = {each.provider for each in self.services if each.id == service}
        return frozenset(offered | {fee.provider for fee in self.fees if fee.service == service})

    def rents(self, service: str, instance_type: InstanceType) -> bool:
        """Returns whether a managed service rents out an instance type; it does if it is not known to lack it."""
        if instance_type.provider not in self.providers_of(service):
            return False
        described = [each for each in self.services if (each.provider, each.id) == (instance_type.provider, service)]
        return all(each.runs_on(instance_type) for each in described)

    def cpus_of(self, instance_type: InstanceType) -> Iterator[tuple[str, RegionCpu]]:
        """Yields region and CPU for each region of the provider in which the CPU of machines with this GPU is known."""
        for region in self.regions:
            if region.provider == instance_type.provider and instance_type.gpu is not None:
                yield from ((region.id, cpu) for cpu in region.cpus if cpu.gpu == instance_type.gpu.id)
