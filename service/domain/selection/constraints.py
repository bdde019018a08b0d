"""What the caller refuses: each constraint beside the column it asks.

Every constraint is asked of every instance type, so that an empty answer can say what to relax. A number or flag that
nobody knows cannot meet a constraint; it is counted apart from one that is known to miss it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from service.domain.arrays import Floats
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.precision import ENOUGH, SUPPORT_LEVELS, SupportAsked
from service.domain.catalog.software_support import frameworks_mask, task_mask
from service.domain.typeset import ThresholdIndex, TypeSet, by_word, commonest, types_where

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


class TypeRelaxation(NamedTuple):
    """The smallest change of the question that lets something back in, and whom."""

    to: dict[str, object]
    admits: TypeSet


class Check(NamedTuple):
    """One constraint, asked of every instance type.

    `relax` is given the types that miss exactly one constraint and tells the least change that lets some of them in.
    """

    code: str
    ground: Ground
    fails: TypeSet
    relax: Callable[[TypeSet], TypeRelaxation | None]


def never(_sole: TypeSet) -> None:
    """No change of the question helps: what is missing is data, or software."""
    return


def type_checks(asked: Constraints, catalog: Catalog) -> list[Check]:
    """The constraints on hardware, software and lifecycle, one check each.

    Only ranges are asked anew: their limits are any number, where the rest comes again and is remembered.
    """
    named = (
        tuple(asked.words.items()),
        tuple(asked.flags.items()),
        asked.precision_all,
        asked.precision_any,
        asked.precision_support,
        asked.needs_peak,
        asked.framework,
        asked.task,
        asked.exclude,
    )
    checks = [*catalog.memory.get_or_compute(named, lambda: tuple(checks_by_name(asked, catalog)))]
    for name in {**asked.at_least, **asked.at_most}:
        checks += range_checks(name, catalog, asked)
    return checks


def checks_by_name(asked: Constraints, catalog: Catalog) -> Iterator[Check]:
    get_or_compute = catalog.memory.get_or_compute
    for name, wanted in asked.words.items():
        yield get_or_compute((name, wanted), partial(word_check, name, wanted, catalog))
    for name, wanted_flag in asked.flags.items():
        yield from get_or_compute((name, wanted_flag), partial(flag_checks, name, wanted_flag, catalog))
    for any_of in (*((each,) for each in asked.precision_all), asked.precision_any):
        if any_of:
            key = ("precision", any_of, asked.precision_support, asked.needs_peak)
            yield get_or_compute(key, partial(precision_check, any_of, asked, catalog))
    if asked.framework:
        yield get_or_compute(("framework", asked.framework), partial(framework_check, asked.framework, catalog))
    if asked.task:
        yield get_or_compute(("task_check", asked.task), partial(task_check, asked.task, catalog))
    if asked.exclude:
        yield get_or_compute(("exclude", asked.exclude), partial(exclude_check, asked.exclude, catalog))


def word_check(name: str, wanted: tuple[str, ...], catalog: Catalog) -> Check:
    column = catalog.columns.words[name]
    words = catalog.memory.get_or_compute(("words", name), lambda: by_word(column.codes.tolist()))
    also = ALSO_FOUND.get(name, {})

    def types_with(asked: tuple[str, ...]) -> TypeSet:
        return types_where(column.among([*asked, *(more for word in asked for more in also.get(word, ()))]))

    fails = catalog.everyone & ~types_with(wanted)

    def relax(sole: TypeSet) -> TypeRelaxation:
        """One word more, the one that lets in the most; where those kept out have no word at all, no filter."""
        most = commonest(words, sole & fails)
        if most is None:
            return TypeRelaxation({name: []}, sole & fails)
        added = column.words[most.code]
        found = types_with((added,)) if added in also else most.types
        return TypeRelaxation({name: [*wanted, added]}, sole & fails & found)

    ground: Ground = "availability" if name == "lifecycle" else "hardware" if name in HARDWARE_WORDS else "constraint"
    return Check(name, ground, fails, relax)


def range_checks(name: str, catalog: Catalog, asked: Constraints) -> Iterator[Check]:
    """Below the least, above the most, and not known at all: at most one of them holds of a type."""
    key = ("steps", name, (*asked.precision_all, *asked.precision_any)[:1] if name == "tflops" else ())
    steps = catalog.memory.get_or_compute(key, lambda: ThresholdIndex.of(number_column(name, catalog, asked)))
    unknown = catalog.everyone & ~steps.first[-1]
    below = steps.below(asked.at_least[name]) if name in asked.at_least else 0
    above = steps.above(asked.at_most[name]) if name in asked.at_most else 0

    def lower(sole: TypeSet) -> TypeRelaxation | None:
        nearest = steps.most(sole & below)
        return TypeRelaxation({f"min_{name}": nearest}, sole & below & ~steps.below(nearest))

    def raise_(sole: TypeSet) -> TypeRelaxation | None:
        nearest = steps.least(sole & above)
        return TypeRelaxation({f"max_{name}": nearest}, sole & above & steps.at_most(nearest))

    def drop(sole: TypeSet) -> TypeRelaxation | None:
        limits = {f"min_{name}": name in asked.at_least, f"max_{name}": name in asked.at_most}
        return TypeRelaxation(
            {limit: None for limit, given in limits.items() if given}, sole & (unknown | below | above)
        )

    if name in asked.at_least:
        yield Check(f"min_{name}", "hardware", below, lower)
    if name in asked.at_most:
        yield Check(f"max_{name}", "hardware", above, raise_)
    if unknown:
        yield Check(f"{name}_unknown", "data", unknown, drop)


def number_column(name: str, catalog: Catalog, asked: Constraints) -> Floats:
    """A number of each type; `tflops` is the machine's peak at the precision asked for, the first of several."""
    if name != "tflops":
        return catalog.columns.numbers[name]
    precision = (*asked.precision_all, *asked.precision_any)[0]
    return catalog.columns.tflops[precision]


def flag_checks(name: str, wanted: bool, catalog: Catalog) -> list[Check]:
    column = catalog.columns.flags[name]
    other, unknown = types_where(column == (not wanted)), types_where(column == -1)

    def drop(sole: TypeSet) -> TypeRelaxation:
        return TypeRelaxation({name: None}, sole & (other | unknown))

    checks = [Check(name, "hardware", other, drop)]
    if unknown:
        checks.append(Check(f"{name}_unknown", "data", unknown, drop))
    return checks


def precision_check(any_of: tuple[str, ...], asked: Constraints, catalog: Catalog) -> Check:
    enough = np.array([level in ENOUGH[asked.precision_support] for level in SUPPORT_LEVELS] + [False])
    runs = {name: types_where(enough[column]) for name, column in catalog.columns.support.items()}
    fails = catalog.everyone
    for precision in any_of:
        fails &= ~runs[precision]
    if asked.needs_peak:
        gains = {name: runs[name] & types_where(~np.isnan(peak)) for name, peak in catalog.columns.tflops.items()}
    else:
        gains = runs

    def relax(sole: TypeSet) -> TypeRelaxation | None:
        out = sole & fails
        best = max(gains, key=lambda other: (out & gains[other]).bit_count())
        if not out & gains[best]:
            return None
        return TypeRelaxation({"workload.precision": [*any_of, best]}, out & gains[best])

    return Check("precision", "hardware", fails, relax)


def framework_check(wanted: tuple[str, ...], catalog: Catalog) -> Check:
    fails = types_where(~frameworks_mask(catalog, wanted))
    return Check("framework", "software", fails, lambda sole: TypeRelaxation({"framework": []}, sole & fails))


def task_check(task: str, catalog: Catalog) -> Check:
    return Check("task", "software", types_where(~task_mask(catalog, task)), never)


def exclude_check(excluded: tuple[str, ...], catalog: Catalog) -> Check:
    listed = set(excluded)
    hits = [names_of(kind) & listed for kind in catalog.instance_types]
    fails = types_where(np.array([bool(hit) for hit in hits], np.bool_))

    def relax(sole: TypeSet) -> TypeRelaxation | None:
        """Take one name off: the one that by itself keeps the most out."""
        out = np.flatnonzero(catalog.mask(sole & fails))
        by_one = [next(iter(hits[place])) for place in out if len(hits[place]) == 1]
        if not by_one:
            return TypeRelaxation({"exclude": []}, sole & fails)
        freed = max(excluded, key=by_one.count)
        admits = types_where(np.array([hit == {freed} for hit in hits], np.bool_))
        return TypeRelaxation({"exclude": [name for name in excluded if name != freed]}, sole & admits)

    return Check("exclude", "constraint", fails, relax)


def names_of(kind: InstanceType) -> set[str]:
    """What `exclude` may call an instance type by."""
    gpu = {kind.gpu.id} if kind.gpu else set()
    return {kind.id, kind.name, kind.family, kind.provider} | gpu
