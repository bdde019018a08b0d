"""Upgrades of a machine: a larger one for later, and the next cards of its seller with more memory or more speed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from service.domain.arrays import Floats
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import SLOW_LINKS, Gpu, InstanceType
from service.domain.catalog.software_support import task_mask
from service.domain.selection.successors import best_peak, successor
from service.domain.typeset import TypeSet

MUCH_FASTER = 2.0
"""Minimum ratio of peaks for a larger machine to count as a step up rather than as another choice."""

WORTH_A_STEP = 1.1
"""Minimum ratio of speeds, or of speeds per dollar, for another card to be a step up."""

Priced = tuple[float, InstanceType]


class Card(NamedTuple):
    """A machine with one GPU."""

    machine: InstanceType
    gpu: Gpu
    memory_gb: float
    speed: float
    """Samples of the job per second, else the peak of the GPU."""
    usd: float
    """US dollars per hour; NaN if unknown."""

    @property
    def per_usd(self) -> float:
        """Speed per dollar of an hour."""
        return self.speed / self.usd


@dataclass(frozen=True, slots=True, eq=False)
class Upgrades:
    """The machines to which work may move later. Its columns have a row for each instance type of the catalog."""

    types: TypeSet
    """Types that pass all constraints of the question, except for those that choose the hardware of now."""
    usd: Floats
    """US dollars per hour of the best offer of each type; NaN if unknown."""
    rate: Floats | None = None
    """Samples per second of a job on one machine of each type; NaN where it does not run. None without a job."""

    @classmethod
    def anywhere(cls, catalog: Catalog) -> "Upgrades":
        """Returns all types of a catalog at their prices on demand, without a job."""
        return cls(catalog.all_types, catalog.on_demand_prices)

    def among(self, indices: tuple[int, ...]) -> Iterator[int]:
        """Yields those of some types to which the work may move, in their order."""
        return (index for index in indices if self.types >> index & 1)

    def card(self, index: int, catalog: Catalog) -> Card | None:
        """Returns a machine with one GPU as a card; None if it has no GPU, or one of unknown memory."""
        machine = catalog.instance_types[index]
        if machine.gpu is None or machine.gpu.memory_gb is None:
            return None
        speed = best_peak(machine) if self.rate is None else self.rate.item(index)
        return Card(machine, machine.gpu, machine.gpu.memory_gb, speed, self.usd.item(index))


class NextCards(NamedTuple):
    """The next cards of a seller, each None if there is none that is better."""

    memory: Card | None
    speed: Card | None
    value: Card | None


def larger_machine(name: str, upgrades: Upgrades, catalog: Catalog) -> Priced | None:
    """Returns a larger machine of the same seller that runs the same code: fast links first, then peak, then price."""
    larger = catalog.derive(_larger_machines, catalog.index_of[name])
    priced = [(upgrades.usd.item(index), catalog.instance_types[index]) for index in upgrades.among(larger)]
    return max(
        (pair for pair in priced if isfinite(pair[0])),
        key=lambda pair: (pair[1].interconnect not in SLOW_LINKS, best_peak(pair[1]), -pair[0]),
        default=None,
    )


def _larger_machines(catalog: Catalog, of: int) -> tuple[int, ...]:
    """Returns the larger machines that can be rented in place of a machine and run its code, in order of their names.

    Machines with a successor are left out.
    """
    old, types = catalog.instance_types[of], catalog.instance_types
    if old.gpu is None:
        return ()
    larger = [
        index
        for index, new in enumerate(types)
        if (new.provider, new.service, new.cpu_architecture) == (old.provider, old.service, old.cpu_architecture)
        and new.gpu is not None
        and new.gpu.code_family == old.gpu.code_family
        and new.state_on(catalog.day) == "available"
        and best_peak(new) >= MUCH_FASTER * best_peak(old)
        and successor(index, catalog) is None
    ]
    return tuple(sorted(larger, key=lambda index: types[index].id))


def next_cards(top: Card, task: str, precision: str | None, upgrades: Upgrades, catalog: Catalog) -> NextCards:
    """Returns the next cards of a seller that are better than one of its machines with one GPU.

    They have another GPU, and run the precision, unless that machine does not run it either.
    """
    machine = top.machine
    indices = catalog.derive(_single_cards, machine.provider, machine.service, top.gpu.kind, task)
    others = (upgrades.card(index, catalog) for index in upgrades.among(indices))
    cards = [card for card in others if card is not None and card.gpu != top.gpu]
    if precision is not None and top.gpu.runs(precision):
        cards = [card for card in cards if card.gpu.runs(precision)]
    not_slower = [card for card in cards if _is_not_slower(card, top, by_peak=upgrades.rate is None)]
    larger = [card for card in cards if card.memory_gb > top.memory_gb * (1.0 if card in not_slower else WORTH_A_STEP)]
    faster = [card for card in not_slower if card.speed >= WORTH_A_STEP * top.speed]
    return NextCards(
        memory=min(larger, key=lambda card: card.memory_gb, default=None),
        speed=min(faster, key=lambda card: card.speed, default=None),
        value=_better_value(top, cards),
    )


def _single_cards(catalog: Catalog, provider: str, service: str, kind: str, task: str) -> tuple[int, ...]:
    """Returns a seller's current machines with one GPU by their indices; the smallest host first.

    Machines with a successor are left out.
    """
    able, types = catalog.derive(task_mask, task), catalog.instance_types
    cards = [
        index
        for index, each in enumerate(types)
        if each.gpu is not None
        and (each.provider, each.service, each.gpu_count, each.gpu.kind) == (provider, service, 1, kind)
        and each.state_on(catalog.day) == "available"
        and able[index]
        and successor(index, catalog) is None
    ]
    return tuple(sorted(cards, key=lambda index: (types[index].vcpus or 0.0, types[index].id)))


def _is_not_slower(card: Card, top: Card, *, by_peak: bool) -> bool:
    """Returns whether a card is about as fast: a higher peak with slower memory is slower at much of deep learning."""
    bandwidth, needed = (each.gpu.memory_bandwidth_gb_per_second or 0.0 for each in (card, top))
    fast_memory = not by_peak or bandwidth >= needed / WORTH_A_STEP
    return fast_memory and card.speed >= top.speed / WORTH_A_STEP


def _better_value(top: Card, cards: Iterable[Card]) -> Card | None:
    """Returns the card with the most speed per dollar that is no slower; None if none is better than `top`."""
    others = [
        card
        for card in cards
        if card.machine.cpu_architecture == top.machine.cpu_architecture
        and card.speed >= top.speed
        and card.per_usd >= WORTH_A_STEP * top.per_usd
    ]
    return max(others, key=lambda card: card.per_usd, default=None)
