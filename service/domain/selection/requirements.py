"""What the code, the numbers and the host's share of the work need of a machine, each as a check with its relaxation.

Software is asked by the rules in force on the catalog's day, in the versions that the caller names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.precision import SupportAsked, runs_as
from service.domain.catalog.software_support import RUNS, rules_by_type, said, software_mask
from service.domain.selection.constraints import types_with_peak, types_with_support
from service.domain.selection.filters import number_index
from service.domain.selection.offers import AdmittedOffers
from service.domain.selection.relax import AddWord, BestOption, Check, Drop, MoveLimit, Relaxation
from service.domain.typeset import TypeSet, types_where, union
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


def partly_run(needs: Requirements, index: int, catalog: Catalog) -> list[tuple[str, str | None]]:
    """Software that runs on a type only in part, or is optional and does not run, with the note of its rule."""
    requirements = [needs.framework, needs.engine, *needs.libraries, *needs.optional]
    rules_of = {each: rules_by_type(catalog, each.software)[index] for each in requirements if each is not None}
    return [
        (requirement.software, next((rule.note for rule in rules if rule.note), None))
        for requirement, rules in rules_of.items()
        if said(rules, requirement.versions) != "yes"
    ]


def requirement_checks(needs: Requirements, catalog: Catalog) -> Iterator[Check]:
    """One check for each requirement."""
    for name, requirement, fixed in (
        ("framework", needs.framework, needs.of_a_job),
        ("engine", needs.engine, needs.of_a_job),
        ("cuda", needs.cuda, False),
    ):
        if requirement is not None:
            yield catalog.derive(_software_check, name, requirement, fixed)
    if needs.platforms:
        yield catalog.derive(_platforms_check, needs.platforms, needs.cpu_suffices)
    if needs.libraries:
        yield catalog.derive(_libraries_check, needs.libraries)
    if needs.custom_cuda_kernels:
        yield catalog.derive(_kernels_check)
    if needs.host_memory_gib is not None:
        yield _host_memory_check(catalog, needs.host_memory_gib)
    if needs.numbers is not None:
        yield catalog.derive(_numbers_check, needs.numbers, needs.of_a_job)


def platform_names(catalog: Catalog) -> list[str]:
    """The platforms that code can be written for, as software rules name them."""
    return sorted({rule.software for rule in catalog.reference.software if rule.kind == "toolkit"})


def _software_check(catalog: Catalog, name: str, requirement: Requirement, fixed: bool) -> Check:
    fails = catalog.everyone & ~types_where(software_mask(catalog, requirement.software, requirement.versions))
    rule = None if fixed else WidenVersions(f"workload.software.{name}", requirement, fails)
    return Check(f"software_{name}", "software", fails, rule)


@dataclass(frozen=True, slots=True)
class WidenVersions:
    """Widens the versions of a piece of software up to the nearest range that runs on the most types.

    If none of its versions runs on any of the types, the requirement is dropped.
    """

    field: str
    requirement: Requirement
    fails: TypeSet

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        software = self.requirement.software
        name = "" if self.field.endswith(".cuda") else software  # the field `cuda` holds versions only
        options = tuple(
            ({self.field: f"{name}{versions}"}, self.fails & types_where(software_mask(catalog, software, versions)))
            for versions in self._wider_versions(rejected.types, catalog)
        )
        return BestOption(self.fails, options, otherwise={self.field: None}).relax(rejected, catalog)

    def _wider_versions(self, types: TypeSet, catalog: Catalog) -> list[Versions]:
        """The required versions, widened to reach each range that runs on one of the types."""
        if self.requirement.versions == EVERY:
            return []
        rules = rules_by_type(catalog, self.requirement.software)
        indices = np.flatnonzero(catalog.mask(types & self.fails)).tolist()
        ranges = {known_versions(rule.versions) for i in indices for rule in rules[i] if rule.supported in RUNS}
        return sorted({self.requirement.versions.reaching(known) for known in ranges}, key=str)


def _platforms_check(catalog: Catalog, platforms: tuple[str, ...], cpu_suffices: bool) -> Check:
    """Code for CPUs runs on machines with GPUs too; if it also has a platform for GPUs, it needs no other machines."""
    without_gpu = types_where(np.array([each.gpu is None for each in catalog.instance_types], np.bool_))
    runs = {name: types_where(software_mask(catalog, name)) for name in (*platforms, *platform_names(catalog))}
    if not cpu_suffices and platforms != ("cpu",) and "cpu" in runs:
        runs["cpu"] &= without_gpu
    fails = catalog.everyone & ~union(runs[name] for name in platforms)
    others = {name: types for name, types in runs.items() if name not in platforms}
    return Check(
        "software_platforms", "software", fails, AddWord("workload.software.platforms", platforms, fails, others)
    )


def _libraries_check(catalog: Catalog, libraries: tuple[Requirement, ...]) -> Check:
    """All libraries must run. Relaxing drops them all, because the one that is missing differs between types."""
    fails = types_where(~np.all([software_mask(catalog, each.software, each.versions) for each in libraries], axis=0))
    return Check("software_libraries", "software", fails, Drop({"workload.software.libraries": []}, fails))


def _kernels_check(catalog: Catalog) -> Check:
    """CUDA kernels must run as they are, because a port to another platform is different code."""
    fails = types_where(~software_mask(catalog, "custom-cuda-kernels", enough=("yes",)))
    return Check(
        "custom_cuda_kernels", "software", fails, Drop({"workload.software.custom_cuda_kernels": False}, fails)
    )


def _host_memory_check(catalog: Catalog, needed_gib: float) -> Check:
    """Too little memory ends a run, because there is no swap; unknown memory passes and is answered with a warning."""
    index = number_index(catalog, "memory_gib")
    fails = index.below(needed_gib)
    return Check("host_memory_gib", "hardware", fails, MoveLimit("workload.host.memory_gib", "min", fails, index))


def _numbers_check(catalog: Catalog, numbers: Numbers, fixed: bool) -> Check:
    supported, peaks = catalog.derive(types_with_support, numbers.support), catalog.derive(types_with_peak)
    # A format that only stores numbers is no rate of the hardware, so it runs everywhere.
    runs = {name: supported.get(runs_as(name), catalog.everyone) for name in numbers.wanted}
    rated = {name: types & peaks.get(name, 0) for name, types in runs.items()}
    fails = catalog.everyone & ~union(runs[name] for name in numbers.borne)

    def rankable(precisions: tuple[str, ...]) -> TypeSet:
        """Types with a known peak at the first precision that runs, or at any precision if none is named."""
        if numbers.free:
            return union(rated[name] for name in precisions)
        types, left = 0, catalog.everyone
        for name in precisions:
            types |= rated[name] & left
            left &= ~runs[name]
        return types

    def admitted(precisions: tuple[str, ...]) -> TypeSet:
        """Types that pass if the work tolerates these precisions, including those that only then can be ranked."""
        if not numbers.needs_peak:
            return fails & union(runs[name] for name in precisions)
        return (fails | ~rankable(numbers.borne)) & rankable(precisions)

    options = tuple(
        ({f"workload.numerics.{change.field}": change.value}, admitted(change.borne)) for change in numbers.loosened
    )
    return Check("numerics", "hardware", fails, None if fixed else BestOption(fails, options))
