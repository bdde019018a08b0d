"""What the caller refuses: each constraint beside the column it asks.

Every constraint is asked of every instance type, so that an empty answer can say what to relax. A number or flag that
nobody knows cannot meet a constraint; it is counted apart from one that is known to miss it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The smallest change of the question that lets something back in, and whom."""

    to: dict[str, object]
    admits: Mask


@dataclass(frozen=True, slots=True)
class Test:
    """One constraint, asked of every instance type: where it rejects, and how to relax it for the ones given."""

    code: str
    ground: Ground
    fails: Mask
    relax: Callable[[Mask], Relaxed | None]


def type_tests(asked: Constraints, catalog: Catalog) -> Iterator[Test]:
    """The constraints on hardware, software and lifecycle, one test each."""
    for name, wanted in asked.words.items():
        yield word_test(name, wanted, catalog)
    for name, limit in asked.at_least.items():
        yield from range_tests(name, limit, catalog, asked, lower=True)
    for name, limit in asked.at_most.items():
        yield from range_tests(name, limit, catalog, asked, lower=False)
    for name, wanted_flag in asked.flags.items():
        yield from flag_tests(name, wanted_flag, catalog)
    for precision in asked.precision_all:
        yield precision_test((precision,), asked, catalog)
    if asked.precision_any:
        yield precision_test(asked.precision_any, asked, catalog)
    if asked.framework:
        yield framework_test(asked.framework, catalog)
    if asked.task:
        fails = ~task_mask(catalog, asked.task)
        yield Test("task", "software", fails, lambda only: Relaxed({"task": None}, only))
    if asked.exclude:
        yield exclude_test(asked.exclude, catalog)


def word_test(name: str, wanted: tuple[str, ...], catalog: Catalog) -> Test:
    column = catalog.columns.words[name]
    also = ALSO_FOUND.get(name, {})
    fails = ~column.among([*wanted, *(more for word in wanted for more in also.get(word, ()))])

    def relax(only: Mask) -> Relaxed | None:
        codes = column.codes[only]
        counts = np.bincount(codes[codes >= 0], minlength=len(column.words))
        if not counts.any():
            return None
        added = int(counts.argmax())
        return Relaxed({name: [*wanted, column.words[added]]}, only & (column.codes == added))

    ground: Ground = "availability" if name == "lifecycle" else "hardware" if name in HARDWARE_WORDS else "constraint"
    return Test(name, ground, fails, relax)


def range_tests(name: str, limit: float, catalog: Catalog, asked: Constraints, *, lower: bool) -> Iterator[Test]:
    column = tflops_column(catalog, asked) if name == "tflops" else catalog.columns.numbers[name]
    unknown = np.isnan(column)
    field_name = f"min_{name}" if lower else f"max_{name}"
    with np.errstate(invalid="ignore"):
        misses = (column < limit) if lower else (column > limit)

    def relax(only: Mask) -> Relaxed:
        nearest = float(column[only].max() if lower else column[only].min())
        admits = only & ((column >= nearest) if lower else (column <= nearest))
        return Relaxed({field_name: nearest}, admits)

    yield Test(field_name, "hardware", misses, relax)
    if unknown.any():
        yield Test(f"{name}_unknown", "data", unknown, lambda only: Relaxed({field_name: None}, only))


def tflops_column(catalog: Catalog, asked: Constraints) -> np.ndarray:
    """The machine's peak at the precision asked for; where several are, at the first."""
    precision = (*asked.precision_all, *asked.precision_any)[0]
    return catalog.columns.tflops[precision]


def flag_tests(name: str, wanted: bool, catalog: Catalog) -> Iterator[Test]:
    column = catalog.columns.flags[name]
    relax = lambda only: Relaxed({name: None}, only)  # noqa: E731
    yield Test(name, "hardware", column == (not wanted), relax)
    unknown = column == -1
    if unknown.any():
        yield Test(f"{name}_unknown", "data", unknown, relax)


def precision_test(any_of: tuple[str, ...], asked: Constraints, catalog: Catalog) -> Test:
    enough = np.array([level in ENOUGH[asked.precision_support] for level in SUPPORT_LEVELS] + [False])
    support = catalog.columns.support
    runs = np.zeros(len(catalog.instance_types), np.bool_)
    for precision in any_of:
        runs |= enough[support[precision]]

    def relax(only: Mask) -> Relaxed | None:
        gains = {other: only & enough[column] for other, column in support.items() if other not in any_of}
        best = max(gains, key=lambda other: int(gains[other].sum()), default=None)
        if best is None or not gains[best].any():
            return None
        return Relaxed({"precision": [*any_of, best]} if asked.precision_any else {"precision": [best]}, gains[best])

    return Test("precision", "hardware", ~runs, relax)


def framework_test(wanted: tuple[str, ...], catalog: Catalog) -> Test:
    return Test(
        "framework",
        "software",
        ~frameworks_mask(catalog, wanted),
        lambda only: Relaxed({"framework": None}, only),
    )


def exclude_test(excluded: tuple[str, ...], catalog: Catalog) -> Test:
    listed = set(excluded)
    fails = np.array([bool(names_of(kind) & listed) for kind in catalog.instance_types], np.bool_)

    def relax(only: Mask) -> Relaxed:
        hit = {name for place in np.flatnonzero(only) for name in names_of(catalog.instance_types[place]) & listed}
        freed = next(name for name in excluded if name in hit)
        kept = [name for name in excluded if name != freed]
        admits = np.array([not (names_of(kind) & set(kept)) for kind in catalog.instance_types], np.bool_)
        return Relaxed({"exclude": kept}, only & admits)

    return Test("exclude", "constraint", fails, relax)


def names_of(kind: InstanceType) -> set[str]:
    """What `exclude` may call an instance type by."""
    gpu = {kind.gpu.id} if kind.gpu else set()
    return {kind.id, kind.name, kind.family, kind.provider} | gpu
