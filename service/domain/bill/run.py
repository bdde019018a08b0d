"""What runs: hours of work on machines, and what is stored and sent with it."""

from dataclasses import dataclass
from math import isfinite

from service.domain.band import Band
from service.domain.errors import ImpossibleRun

LONGEST_HOURS = 1_000_000.0
"""More than a century: a slip of the pen."""


@dataclass(frozen=True, slots=True)
class StoredData:
    """So many GiB of a storage class, for so many hours or, without, as long as the run lasts."""

    what: str
    gib: float
    storage_class: str
    hours: float | None = None


@dataclass(frozen=True, slots=True)
class TransferredData:
    """So many GB that leave for the internet, another region or another zone."""

    gb: float
    destination: str = "internet"
    already_gb: float = 0.0
    """Sent earlier in the month: tiers count what an account sends in one."""


@dataclass(frozen=True, slots=True)
class BilledRun:
    """What runs: hours of undisturbed work on each of `nodes` x `instances` machines, and what comes with it.

    `nodes` work as one gang, `instances` independently. `idle_fraction` is the share of the paid time in which nothing
    runs. `basis` says where the hours come from: `given`, `measured`, `scaled`, `modelled` or `peak`.
    """

    hours: Band
    nodes: int = 1
    instances: int = 1
    setup_minutes: float = 0.0
    idle_fraction: float = 0.0
    stored: tuple[StoredData, ...] = ()
    sent: tuple[TransferredData, ...] = ()
    basis: str = "given"

    @property
    def machines(self) -> int:
        return self.nodes * self.instances


def check(run: BilledRun) -> None:
    """Raises `ImpossibleRun` with a sentence about the first figure that cannot be."""
    hours = run.hours
    if not 0 <= hours.low <= hours.likely <= hours.high <= LONGEST_HOURS:
        raise ImpossibleRun(f"A run lasts between 0 and {LONGEST_HOURS:,.0f} hours.", field="hours")
    if run.nodes < 1 or run.instances < 1:
        raise ImpossibleRun("A run needs at least one machine.", field="nodes" if run.nodes < 1 else "instances")
    if not 0 <= run.idle_fraction < 1:
        raise ImpossibleRun("A share of idle time is at least 0 and below 1.", field="idle_fraction")
    amounts = [
        ("setup_minutes", run.setup_minutes),
        *(("storage", each.gib) for each in run.stored),
        *(("storage", each.hours or 0.0) for each in run.stored),
        *(("data_transfer_out_gb", each.gb) for each in run.sent),
        *(("data_transfer_out_gb", each.already_gb) for each in run.sent),
    ]
    for field, amount in amounts:
        if amount < 0 or not isfinite(amount):
            raise ImpossibleRun(f"{field} cannot be {amount:g}.", field=field)
