"""A run before it is priced: its work, its machines, and the data stored and sent with it."""

from dataclasses import dataclass, fields
from math import isfinite

from service.domain.band import Band
from service.domain.errors import ImpossibleRun
from service.domain.money import Unknown

NO_TIME = Band(0.0, 0.0, 0.0)
LONGEST_HOURS = 1_000_000.0
"""Limit on the hours of a run, above a century: a larger number is a typing error."""


@dataclass(frozen=True, slots=True)
class StoredData:
    """Data in a storage class; without `hours` it is stored as long as the run lasts."""

    what: str
    gib: float
    storage_class: str
    hours: float | None = None


@dataclass(frozen=True, slots=True)
class TransferredData:
    """Data that is sent to the internet, another region or another zone."""

    gb: float
    destination: str = "internet"
    already_gb: float = 0.0
    """GB sent earlier in the same month: price tiers count all data that an account sends in a month."""


@dataclass(frozen=True, slots=True)
class RunAmount:
    """The work of a run. Hours are of each machine, rates of one gang of nodes; figures that do not apply are None."""

    hours: Band | Unknown
    basis: str
    samples: float | None = None
    tokens: float | None = None
    epochs: float | None = None
    samples_per_second: Band | None = None
    input_tokens_per_second: Band | None = None
    output_tokens_per_second: Band | None = None
    saving: Band = NO_TIME
    """Hours in which each machine saves at the caller's interval, besides those of its work."""

    @property
    def billable_hours(self) -> Band | Unknown:
        """Returns the hours of the run, which are unknown beyond a century."""
        if isinstance(self.hours, Band) and self.hours.high + self.saving.high > LONGEST_HOURS:
            return Unknown(f"The run would take more than {LONGEST_HOURS:,.0f} hours, which is more than a century.")
        return self.hours


@dataclass(frozen=True, slots=True)
class Run:
    """The machines of a run, `nodes` of which work as one gang and `instances` independently, and its other charges."""

    nodes: int = 1
    instances: int = 1
    setup_minutes: float = 0.0
    idle_fraction: float = 0.0
    """Share of the paid time in which nothing runs."""
    stored: tuple[StoredData, ...] = ()
    sent: tuple[TransferredData, ...] = ()
    commitments_held: tuple[str, ...] = ()
    """Terms that the caller pays for anyway, or `reserved` for all: under these, the run pays its own hours."""

    @property
    def machines(self) -> int:
        """Returns the machines of all nodes and instances."""
        return self.nodes * self.instances

    @property
    def has_data(self) -> bool:
        """Whether storage or transfer is part of the bill."""
        return bool(self.stored or self.sent)

    def lasting(self, hours: Band, basis: str = "given", saving: Band = NO_TIME) -> "BilledRun":
        """Returns the run with its hours."""
        return BilledRun(*(getattr(self, field.name) for field in fields(Run)), hours=hours, basis=basis, saving=saving)


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledRun(Run):
    """A run whose hours are known.

    `basis` says where the hours come from: `given`, `measured`, `scaled`, `modelled` or `peak`.
    """

    hours: Band
    """Hours of uninterrupted work on each machine."""
    saving: Band = NO_TIME
    """Hours in which each machine saves at the caller's interval, whether it is interrupted or not."""
    basis: str = "given"


ONE_MACHINE = Run()
"""One machine for a run without set-up, idle time or data."""


def check(run: BilledRun) -> None:
    """Raises `ImpossibleRun` with a sentence about the first impossible figure."""
    hours = run.hours
    # NaN fails every comparison, so this also refuses hours that are not a number.
    if not 0 <= hours.low <= hours.likely <= hours.high <= LONGEST_HOURS:
        raise ImpossibleRun(f"A run lasts between 0 and {LONGEST_HOURS:,.0f} hours.", field="hours")
    if run.nodes < 1 or run.instances < 1:
        raise ImpossibleRun("A run needs at least one machine.", field="nodes" if run.nodes < 1 else "instances")
    if not 0 <= run.idle_fraction < 1:
        raise ImpossibleRun("A share of idle time is at least 0 and below 1.", field="idle_fraction")
    amounts = [
        ("setup_minutes", run.setup_minutes),
        *(("storage", data.gib) for data in run.stored),
        *(("storage", data.hours or 0.0) for data in run.stored),
        *(("data_transfer_out_gb", data.gb) for data in run.sent),
        *(("data_transfer_out_gb", data.already_gb) for data in run.sent),
    ]
    for field, amount in amounts:
        if amount < 0 or not isfinite(amount):
            raise ImpossibleRun(f"{field} cannot be {amount:g}.", field=field)
