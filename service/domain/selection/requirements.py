"""What the code, the numbers and the host's share of the work need of a machine, each as a check with its relaxation.

Software is asked by the rules in force on the catalog's day, in the versions that the caller names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.precision import ENOUGH, SUPPORT_LEVELS, SupportAsked, runs_as
from service.domain.catalog.software_support import RUNS, rules_by_type, said, software_mask
from service.domain.selection.constraints import Check, TypeRelaxation, never
from service.domain.typeset import ThresholdIndex, TypeSet, types_where
from service.domain.versions import EVERY, Versions, known_versions


class Requirement(NamedTuple):
    """A piece of software in some of its versions, by the catalog's name."""

    software: str
    versions: Versions = EVERY


class RelaxedNumerics(NamedTuple):
    """A change of the question that lets the work bear more numbers."""

    field: str
    value: object
    borne: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The precisions that the work could take, and those of them whose numbers it bears, in order of preference."""

    wanted: tuple[str, ...]
    borne: tuple[str, ...]
    loosened: tuple[RelaxedNumerics, ...]
    free: bool = False
    """Nobody named them, so that the fastest that runs is taken, and not the first."""
    support: SupportAsked = "native"
    needs_peak: bool = False


@dataclass(frozen=True, slots=True)
class Requirements:
    """Nothing is needed unless told."""

    framework: Requirement | None = None
    engine: Requirement | None = None
    cuda: Requirement | None = None
    platforms: tuple[str, ...] = ()
    """What the code runs on: any of them."""
    libraries: tuple[Requirement, ...] = ()
    """All of them."""
    optional: tuple[Requirement, ...] = ()
    """Libraries that the work had better have; they turn nothing away."""
    custom_cuda_kernels: bool = False
    host_memory_gib: float | None = None
    numbers: Numbers | None = None
    of_a_job: bool = False
    """Physics rests on the stack and the precision, so what another one would let in is not known beforehand."""
    cpu_suffices: bool = False
    """The task needs no GPU, so that what runs on CPUs runs beside any."""


NOTHING = Requirements()


def partly_run(needs: Requirements, place: int, catalog: Catalog) -> list[tuple[str, str | None]]:
    """The software that runs on a machine only in part, or is optional and does not, with what is known of it."""
    wanted = [each for each in (needs.framework, needs.engine, *needs.libraries, *needs.optional) if each is not None]
    found = []
    for software, versions in wanted:
        rules = rules_by_type(catalog, software)[place]
        if said(rules, versions) != "yes":
            found.append((software, next((rule.note for rule in rules if rule.note), None)))
    return found


def need_checks(needs: Requirements, catalog: Catalog) -> Iterator[Check]:
    """One check for each need; what stays as long as the catalog is remembered."""
    get_or_compute = catalog.memory.get_or_compute
    for name, wanted, fixed in (
        ("framework", needs.framework, needs.of_a_job),
        ("engine", needs.engine, needs.of_a_job),
        ("cuda", needs.cuda, False),
    ):
        if wanted is not None:
            yield get_or_compute(
                ("needs", name, wanted, fixed), partial(requirement_check, name, wanted, fixed, catalog)
            )
    if needs.platforms:
        platforms_key = ("needs", "platforms", needs.platforms, needs.cpu_suffices)
        yield get_or_compute(platforms_key, partial(platforms_check, needs, catalog))
    if needs.libraries:
        yield get_or_compute(
            ("needs", "libraries", needs.libraries), partial(libraries_check, needs.libraries, catalog)
        )
    if needs.custom_cuda_kernels:
        yield get_or_compute(("needs", "kernels"), partial(kernels_check, catalog))
    if needs.host_memory_gib is not None:
        yield host_memory_check(needs.host_memory_gib, catalog)
    if needs.numbers is not None:
        numbers_key = ("needs", needs.numbers, needs.of_a_job)
        yield get_or_compute(numbers_key, partial(numbers_check, needs.numbers, needs.of_a_job, catalog))


def without(admitted: TypeSet, catalog: Catalog) -> TypeSet:
    return catalog.everyone & ~admitted


def requirement_check(name: str, wanted: Requirement, fixed: bool, catalog: Catalog) -> Check:
    runs = types_where(software_mask(catalog, wanted.software, wanted.versions))
    field = f"workload.software.{name}"

    def relax(sole: TypeSet) -> TypeRelaxation | None:
        """Versions up to the nearest range that runs on the most; none of it, where no version runs there."""
        out = sole & ~runs
        best = TypeRelaxation({field: None}, 0)
        for versions in near_versions(wanted, out, catalog):
            admits = out & types_where(software_mask(catalog, wanted.software, versions))
            if admits.bit_count() > best.admits.bit_count():
                told = str(versions) if name == "cuda" else f"{wanted.software}{versions}"
                best = TypeRelaxation({field: told}, admits)
        return best if best.admits else TypeRelaxation({field: None}, out)

    return Check(f"software_{name}", "software", without(runs, catalog), never if fixed else relax)


def near_versions(wanted: Requirement, out: TypeSet, catalog: Catalog) -> list[Versions]:
    """What was asked for, widened until it reaches what runs on some of these types."""
    if wanted.versions == EVERY:
        return []
    places = np.flatnonzero(catalog.mask(out)).tolist()
    deciding = rules_by_type(catalog, wanted.software)
    ranges = {known_versions(rule.versions) for place in places for rule in deciding[place] if rule.supported in RUNS}
    return sorted({wanted.versions.reaching(each) for each in ranges}, key=str)


def platforms_check(needs: Requirements, catalog: Catalog) -> Check:
    without_gpu = types_where(np.array([kind.gpu is None for kind in catalog.instance_types], np.bool_))

    def types_with(platforms: tuple[str, ...]) -> TypeSet:
        """CPU code runs beside every GPU; but where code has a platform for GPUs too, it is for machines without."""
        found = 0
        for platform in platforms:
            types = types_where(software_mask(catalog, platform))
            beside = platform == "cpu" and not needs.cpu_suffices and len(platforms) > 1
            found |= types & without_gpu if beside else types
        return found

    fails = without(types_with(needs.platforms), catalog)

    def relax(sole: TypeSet) -> TypeRelaxation | None:
        """The one platform more that lets in the most."""
        out = sole & fails
        more = [name for name in platform_names(catalog) if name not in needs.platforms]
        gains = {name: out & types_with((*needs.platforms, name)) for name in more}
        best = max(gains, key=lambda name: gains[name].bit_count(), default=None)
        if best is None or not gains[best]:
            return None
        return TypeRelaxation({"workload.software.platforms": [*needs.platforms, best]}, gains[best])

    return Check("software_platforms", "software", fails, relax)


def platform_names(catalog: Catalog) -> list[str]:
    """What code can be written for, as the software rules know it."""
    return sorted({rule.software for rule in catalog.reference.software if rule.kind == "toolkit"})


def libraries_check(wanted: tuple[Requirement, ...], catalog: Catalog) -> Check:
    runs = [types_where(software_mask(catalog, each.software, each.versions)) for each in wanted]
    all_run = catalog.everyone
    for each in runs:
        all_run &= each
    fails = without(all_run, catalog)

    def relax(sole: TypeSet) -> TypeRelaxation:
        """All of them optional: which one alone would do differs from type to type."""
        return TypeRelaxation({"workload.software.libraries": []}, sole & fails)

    return Check("software_libraries", "software", fails, relax)


def kernels_check(catalog: Catalog) -> Check:
    """Only where they run as they are: a port to another platform is other code."""
    fails = without(types_where(software_mask(catalog, "custom-cuda-kernels", enough=("yes",))), catalog)

    def relax(sole: TypeSet) -> TypeRelaxation:
        return TypeRelaxation({"workload.software.custom_cuda_kernels": False}, sole & fails)

    return Check("custom_cuda_kernels", "software", fails, relax)


def host_memory_check(needed_gib: float, catalog: Catalog) -> Check:
    """There is no swap, so too little ends the run; unknown memory passes with a warning."""
    column = catalog.columns.numbers["memory_gib"]
    steps = catalog.memory.get_or_compute(("steps", "memory_gib", ()), lambda: ThresholdIndex.of(column))
    below = steps.below(needed_gib)

    def relax(sole: TypeSet) -> TypeRelaxation | None:
        nearest = steps.most(sole & below)
        return TypeRelaxation({"workload.host.memory_gib": nearest}, sole & below & ~steps.below(nearest))

    return Check("host_memory_gib", "hardware", below, relax)


def numbers_check(numbers: Numbers, fixed: bool, catalog: Catalog) -> Check:
    runs = {name: types_that_run(name, numbers.support, catalog) for name in numbers.wanted}
    rated = {name: types & types_rated(name, catalog) for name, types in runs.items()}
    fails = without(any_of(numbers.borne, runs), catalog)

    def rank(precisions: tuple[str, ...]) -> TypeSet:
        """The types that can be ranked by peak: it is known at the first of them that runs, or at any."""
        if numbers.free:
            return any_of(precisions, rated)
        found, left = 0, catalog.everyone
        for name in precisions:
            found |= rated[name] & left
            left &= ~runs[name]
        return found

    def gains(sole: TypeSet, more: RelaxedNumerics) -> TypeSet:
        """Those that run what is borne then; where peaks rank, also those that only then have a known one."""
        if not numbers.needs_peak:
            return sole & fails & any_of(more.borne, runs)
        return sole & (fails | ~rank(numbers.borne)) & rank(more.borne)

    def relax(sole: TypeSet) -> TypeRelaxation | None:
        """The one loosening that lets in the most."""
        best = TypeRelaxation({}, 0)
        for more in numbers.loosened if sole & fails else ():
            admits = gains(sole, more)
            if admits & fails and admits.bit_count() > best.admits.bit_count():
                best = TypeRelaxation({f"workload.numerics.{more.field}": more.value}, admits)
        return best if best.admits else None

    return Check("numerics", "hardware", fails, never if fixed else relax)


def any_of(precisions: tuple[str, ...], types: Mapping[str, TypeSet]) -> TypeSet:
    found = 0
    for name in precisions:
        found |= types[name]
    return found


def types_that_run(name: str, support: SupportAsked, catalog: Catalog) -> TypeSet:
    """Formats of storage alone are kept anywhere."""
    column = catalog.columns.support.get(runs_as(name))
    enough = np.array([level in ENOUGH[support] for level in SUPPORT_LEVELS] + [False])
    return catalog.everyone if column is None else types_where(enough[column])


def types_rated(name: str, catalog: Catalog) -> TypeSet:
    peaks = catalog.columns.tflops.get(name)
    return 0 if peaks is None else types_where(~np.isnan(peaks))
