"""What the caller refuses: each constraint beside the column it asks.

Every constraint is asked of every instance type, so that an empty answer can say what to relax. A number or flag that
nobody knows cannot meet a constraint; it is counted apart from one that is known to miss it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from service.domain.catalog import Catalog, Mask
from service.domain.hardware import InstanceType
from service.domain.precision import ENOUGH, SUPPORT_LEVELS, SupportAsked
from service.domain.software import frameworks_mask, task_mask

Ground = Literal["hardware", "software", "availability", "constraint", "data"]

ALSO_FOUND: dict[str, dict[str, tuple[str, ...]]] = {"interconnect": {"nvlink": ("nvswitch",)}}
"""Words that a wanted word stands for as well: NVSwitch is NVLink through a switch."""

HARDWARE_WORDS = frozenset(
    {"gpu", "gpu_vendor", "gpu_kind", "architecture", "cpu_architecture", "cpu_vendor", "interconnect"}
)


@dataclass(frozen=True, slots=True)
class Constraints:
    """What an answer must satisfy. Names are already the catalog's own; empty means anything goes."""

    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)
    precision_all: tuple[str, ...] = ()
    precision_any: tuple[str, ...] = ()
    precision_support: SupportAsked = "native"
    framework: tuple[str, ...] = ()
    task: str | None = None
    exclude: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    market: tuple[str, ...] = ()
    max_usd_per_hour: float | None = None
    max_price_age_days: float | None = None
    needs_price: bool = False
    needs_peak: bool = False


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The smallest change of the question that lets something back in, and whom."""

    to: dict[str, object]
    admits: Mask


@dataclass(frozen=True, slots=True)
class Check:
    """One constraint, asked of every instance type.

    `relax` is given the types that miss exactly one constraint and tells the least change that lets some of them in.
    """

    code: str
    ground: Ground
    fails: Mask
    relax: Callable[[Mask], Relaxed | None]


def never(_sole: Mask) -> None:
    """No change of the question helps: what is missing is data, or software."""
    return


def type_checks(asked: Constraints, catalog: Catalog) -> Iterator[Check]:
    """The constraints on hardware, software and lifecycle, one check each."""
    for name, wanted in asked.words.items():
        yield catalog.memory.recall((name, wanted), partial(word_check, name, wanted, catalog))
    for name in dict.fromkeys((*asked.at_least, *asked.at_most)):
        yield from range_checks(name, catalog, asked)
    for name, wanted_flag in asked.flags.items():
        yield from flag_checks(name, wanted_flag, catalog)
    for precision in asked.precision_all:
        yield precision_check((precision,), asked, catalog)
    if asked.precision_any:
        key = ("precision", asked.precision_any, asked.precision_support, asked.needs_peak)
        yield catalog.memory.recall(key, partial(precision_check, asked.precision_any, asked, catalog))
    if asked.framework:
        yield framework_check(asked.framework, catalog)
    if asked.task:
        yield Check("task", "software", ~task_mask(catalog, asked.task), never)
    if asked.exclude:
        yield exclude_check(asked.exclude, catalog)


def word_check(name: str, wanted: tuple[str, ...], catalog: Catalog) -> Check:
    column = catalog.columns.words[name]
    also = ALSO_FOUND.get(name, {})
    fails = ~column.among([*wanted, *(more for word in wanted for more in also.get(word, ()))])

    def relax(sole: Mask) -> Relaxed:
        """One word more, the one that lets in the most; where those kept out have no word at all, no filter."""
        codes = column.codes[sole & fails]
        counts = np.bincount(codes[codes >= 0], minlength=len(column.words))
        if not counts.any():
            return Relaxed({name: []}, sole & fails)
        added = column.words[int(counts.argmax())]
        found = column.among([added, *also.get(added, ())])
        return Relaxed({name: [*wanted, added]}, sole & fails & found)

    ground: Ground = "availability" if name == "lifecycle" else "hardware" if name in HARDWARE_WORDS else "constraint"
    return Check(name, ground, fails, relax)


def range_checks(name: str, catalog: Catalog, asked: Constraints) -> Iterator[Check]:
    """Below the least, above the most, and not known at all: at most one of them holds of a type."""
    column = tflops_column(catalog, asked) if name == "tflops" else catalog.columns.numbers[name]
    low, high = asked.at_least.get(name, -np.inf), asked.at_most.get(name, np.inf)
    unknown = np.isnan(column)
    with np.errstate(invalid="ignore"):
        below, above = column < low, column > high

    def lower(sole: Mask) -> Relaxed | None:
        only = sole & below
        nearest = float(column[only].max())
        return Relaxed({f"min_{name}": nearest}, only & (column >= nearest))

    def raise_(sole: Mask) -> Relaxed | None:
        only = sole & above
        nearest = float(column[only].min())
        return Relaxed({f"max_{name}": nearest}, only & (column <= nearest))

    def drop(sole: Mask) -> Relaxed | None:
        limits = {f"min_{name}": name in asked.at_least, f"max_{name}": name in asked.at_most}
        return Relaxed({limit: None for limit, given in limits.items() if given}, sole & (unknown | below | above))

    if name in asked.at_least:
        yield Check(f"min_{name}", "hardware", below, lower)
    if name in asked.at_most:
        yield Check(f"max_{name}", "hardware", above, raise_)
    if unknown.any():
        yield Check(f"{name}_unknown", "data", unknown, drop)


def tflops_column(catalog: Catalog, asked: Constraints) -> np.ndarray:
    """The machine's peak at the precision asked for; where several are, at the first."""
    precision = (*asked.precision_all, *asked.precision_any)[0]
    return catalog.columns.tflops[precision]


def flag_checks(name: str, wanted: bool, catalog: Catalog) -> Iterator[Check]:
    column = catalog.columns.flags[name]
    other, unknown = column == (not wanted), column == -1

    def drop(sole: Mask) -> Relaxed:
        return Relaxed({name: None}, sole & (other | unknown))

    yield Check(name, "hardware", other, drop)
    if unknown.any():
        yield Check(f"{name}_unknown", "data", unknown, drop)


def precision_check(any_of: tuple[str, ...], asked: Constraints, catalog: Catalog) -> Check:
    enough = np.array([level in ENOUGH[asked.precision_support] for level in SUPPORT_LEVELS] + [False])
    columns = catalog.columns
    fails = np.ones(len(catalog.instance_types), np.bool_)
    for precision in any_of:
        fails &= ~enough[columns.support[precision]]

    def relax(sole: Mask) -> Relaxed | None:
        gains = {other: sole & fails & enough[column] for other, column in columns.support.items()}
        if asked.needs_peak:
            gains = {other: gained & ~np.isnan(columns.tflops[other]) for other, gained in gains.items()}
        best = max(gains, key=lambda other: int(gains[other].sum()))
        if not gains[best].any():
            return None
        return Relaxed({"workload.precision": [*any_of, best]}, gains[best])

    return Check("precision", "hardware", fails, relax)


def framework_check(wanted: tuple[str, ...], catalog: Catalog) -> Check:
    fails = ~frameworks_mask(catalog, wanted)
    return Check("framework", "software", fails, lambda sole: Relaxed({"framework": []}, sole & fails))


def exclude_check(excluded: tuple[str, ...], catalog: Catalog) -> Check:
    listed = set(excluded)
    hits = [names_of(kind) & listed for kind in catalog.instance_types]
    fails = np.array([bool(hit) for hit in hits], np.bool_)

    def relax(sole: Mask) -> Relaxed | None:
        """Take one name off: the one that by itself keeps the most out."""
        by_one = [next(iter(hits[place])) for place in np.flatnonzero(sole & fails) if len(hits[place]) == 1]
        if not by_one:
            return Relaxed({"exclude": []}, sole & fails)
        freed = max(excluded, key=by_one.count)
        admits = np.array([hit == {freed} for hit in hits], np.bool_)
        return Relaxed({"exclude": [name for name in excluded if name != freed]}, sole & admits)

    return Check("exclude", "constraint", fails, relax)


def names_of(kind: InstanceType) -> set[str]:
    """What `exclude` may call an instance type by."""
    gpu = {kind.gpu.id} if kind.gpu else set()
    return {kind.id, kind.name, kind.family, kind.provider} | gpu
