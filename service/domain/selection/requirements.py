"""Requirements of a workload on a machine: software, platforms, number formats and host memory.

Software is checked by the rules in force on the catalog's day, in the versions that the caller states.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.columns import WORDS
from service.domain.catalog.hardware import CPU, Gpu
from service.domain.catalog.precision import FORMATS, SupportAsked
from service.domain.catalog.software_support import (
    ANY_WORK,
    LIBRARIES_OF_KERNELS,
    MAINSTREAM,
    RUNS,
    Restriction,
    WorkKind,
    code_change,
    mainstream_gpus_mask,
    remark_by,
    restrictions_by_type,
    rules_by_type,
    software_mask,
    software_names,
    software_of_cpus,
    support_by,
)
from service.domain.codes import RejectionCode
from service.domain.evidence.named import NamedWork
from service.domain.jobs.job import Job
from service.domain.jobs.software_names import has_other_releases, software_name
from service.domain.selection.constraints import (
    Constraints,
    types_for_code,
    types_with_peak,
    types_with_support,
    without_gpu,
)
from service.domain.selection.filters import number_index
from service.domain.selection.offers import AdmittedOffers
from service.domain.selection.relax import AddWord, BestOption, Check, MoveLimit, Relaxation, drop
from service.domain.typeset import TypeSet, types_where, union
from service.domain.versions import EVERY, Versions, known_versions, split_requirement

FEWEST_EXPONENT_BITS = 6
"""Formats with fewer exponent bits have at most the range of fp16 (65,504), so values that overflow in fp16 overflow in
them too."""

TASKS_WITHOUT_GPU = frozenset({"classical", "sequential", "development"})
"""Tasks that need no GPU, so code for CPUs does them on any machine."""

WORDS_OF_MACHINES = ("family", "series", "instance")
"""Filters whose words name machines."""


class Requirement(NamedTuple):
    """A piece of software, as the catalog names it, in some of its versions, built for some versions of CUDA."""

    software: str
    versions: Versions = EVERY
    cuda: Versions = EVERY

    @classmethod
    def of(cls, text: str, field: str, known: Collection[str]) -> "Requirement":
        """Reads `pytorch>=2.3`; software that is not `known` keeps its name. Raises `QuestionError` about the field."""
        written, versions = split_requirement(text, field)
        name = software_name(written, known)
        if name is None:
            return cls(written, versions)
        return cls(name, EVERY if has_other_releases(written, name) else versions)

    def overlaps(self, other: "Requirement") -> bool:
        """Returns whether the same software in the same version meets both."""
        return self.software == other.software and self.versions.overlaps(other.versions)


KERNELS = Requirement("custom-cuda-kernels")
"""Kernels that are written in CUDA, which rules list as if they were software."""


@dataclass(frozen=True, slots=True)
class Numerics:
    """The number formats that a workload tolerates."""

    min_bits: int | None = None
    fp16_overflows: bool = False

    def tolerated(self, precisions: Iterable[str], catalog: Catalog) -> tuple[str, ...]:
        """Returns the precisions with enough bits, and with a wider range than fp16 if values overflow in fp16."""
        return tuple(name for name in precisions if self._tolerates(name, catalog))

    def _tolerates(self, name: str, catalog: Catalog) -> bool:
        precision = catalog.reference.precisions.get(name)
        exponent_bits = precision.exponent_bits if precision else None
        is_narrow = exponent_bits is not None and exponent_bits < FEWEST_EXPONENT_BITS
        return _bits(name, catalog) >= (self.min_bits or 0) and not (self.fp16_overflows and is_narrow)

    def relaxed(self, precisions: Iterable[str], catalog: Catalog) -> Iterator[tuple[str, "Numerics"]]:
        """Yields changes, as field and changed numerics; for each field the smallest change comes first."""
        if self.fp16_overflows:
            yield "fp16_overflows", replace(self, fp16_overflows=False)
        if self.min_bits is not None:
            bits = {int(_bits(name, catalog)) for name in precisions if _bits(name, catalog) < self.min_bits}
            yield from (("min_bits", replace(self, min_bits=fewer)) for fewer in sorted(bits, reverse=True))


@dataclass(frozen=True, slots=True)
class PrecisionRequirement:
    """The precisions that a workload can use."""

    numerics: Numerics
    preferred: tuple[str, ...]
    """Precisions in order of preference."""
    tolerated: tuple[str, ...]
    """The preferred precisions that the numerics allow."""
    free: bool = False
    """Whether the caller names no precision. The fastest one is then used, and not the first."""
    support: SupportAsked = "native"
    needs_peak: bool = False
    """Whether the ranking needs a known peak."""

    @property
    def usable(self) -> tuple[str, ...]:
        """The tolerated precisions, or all preferred ones if none is tolerated."""
        return self.tolerated or self.preferred


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of a workload. The defaults require nothing."""

    framework: Requirement | None = None
    engine: Requirement | None = None
    cuda: Requirement | None = None
    platforms: tuple[str, ...] = ()
    """Platforms that the code runs on; any of them is enough."""
    libraries: tuple[Requirement, ...] = ()
    """Libraries that must all run."""
    optional: tuple[Requirement, ...] = ()
    """Libraries whose absence is a warning and rejects nothing."""
    custom_cuda_kernels: bool = False
    """Whether kernels that are written in CUDA must run as they are."""
    host_memory_gib: float | None = None
    precision: PrecisionRequirement | None = None
    of_a_job: bool = False
    """Whether a job is estimated. Its stack and precision are then not relaxed, as the estimate depends on them."""
    platform_named_by: frozenset[str] | None = None
    """Fields of the question that name the platform of the code; without any, the mainstream framework is assumed. None
    if the question names hardware, or if the task needs no framework."""
    cpu_suffices: bool = False
    """Whether the task needs no GPU, so that code for CPUs does it on any machine."""
    library: str | None = None
    """A library or feature that the work needs in the mainstream framework."""
    kind: WorkKind = ANY_WORK
    """The kind of work that the software does."""
    library_must_run: bool = False
    """Whether this library must run: the code is written in the mainstream framework, and for no other platform."""

    @property
    def stack(self) -> tuple[Requirement, ...]:
        """The framework and the engine, as far as the question names them; the last one does the work."""
        return tuple(needed for needed in (self.framework, self.engine) if needed)

    @property
    def software(self) -> tuple[Requirement, ...]:
        """The framework, the engine and the libraries that must run."""
        return (*self.stack, *self.libraries)

    @property
    def of_code(self) -> tuple[Requirement, ...]:
        """All software without which the code does not run: also a toolkit, and kernels of its own."""
        toolkit, kernels = [self.cuda] if self.cuda else [], [KERNELS] if self.custom_cuda_kernels else []
        return (*self.stack, *toolkit, *kernels, *self.libraries)

    @property
    def runs_the_work(self) -> Requirement:
        """The software that does the work: the engine, or else the framework, or else the mainstream framework."""
        return self.engine or self.framework or Requirement(MAINSTREAM)

    def can_drop(self, name: str) -> bool:
        """Returns whether the platform is named by another field too, or need not be named."""
        return self.platform_named_by is None or bool(self.platform_named_by - {name})


NOTHING = Requirements()


def precision_requirement(
    numerics: Numerics,
    named: tuple[str, ...],
    usual: tuple[str, ...],
    catalog: Catalog,
    *,
    support: SupportAsked = "native",
    needs_peak: bool = False,
) -> PrecisionRequirement | None:
    """Returns the precisions that a workload can use, among those it names, or else the usual ones of its task.

    If no usual precision is tolerated, all floating-point formats with enough bits replace them, the narrowest first.
    None if the workload tolerates every precision.
    """
    preferred = named or usual
    if not preferred or numerics == Numerics():
        return None
    tolerated = numerics.tolerated(preferred, catalog)
    if not named and not tolerated:
        floats = sorted((row.bits, row.id) for row in catalog.reference.precisions.values() if row.kind == "float")
        preferred = tolerated = tuple(name for bits, name in floats if bits >= (numerics.min_bits or 0)) or preferred
    return PrecisionRequirement(numerics, preferred, tolerated, free=not named, support=support, needs_peak=needs_peak)


def not_run(needs: Requirements, index: int, catalog: Catalog) -> list[str]:
    """Returns the required software, with kernels of PyTorch code, that is not known to run on an instance type."""
    lacking = [needed.software for needed in needs.software if _support(needed, index, catalog) not in RUNS]
    return [*lacking, *_lacking_kernels(needs, index, catalog)]


def _lacking_kernels(needs: Requirements, index: int, catalog: Catalog) -> list[str]:
    """Returns the library whose kernels the work takes, if it is not known to run on an instance type."""
    kernels = LIBRARIES_OF_KERNELS.intersection((needs.library,)) - {each.software for each in needs.libraries}
    return [library for library in kernels if _support(Requirement(library), index, catalog) not in RUNS]


def run_in_full(needs: Requirements, index: int, catalog: Catalog) -> list[str]:
    """Returns the framework and the engine that run in full on an instance type, and do this kind of work there."""
    if restrictions_there(needs, index, catalog):
        return []
    return [needed.software for needed in needs.stack if _support(needed, index, catalog) == "yes"]


def partly_run(needs: Requirements, index: int, catalog: Catalog) -> list[tuple[str, str | None]]:
    """Returns software that runs only in part on an instance type, or is optional and does not run, with notes."""
    partly = [needed for needed in needs.software if _support(needed, index, catalog) == "partly"]
    kernels = _lacking_kernels(needs, index, catalog)
    optional = (needed for needed in needs.optional if needed.software not in kernels)
    lacking = [needed for needed in optional if _support(needed, index, catalog) != "yes"]
    rules = {needed: catalog.derive(rules_by_type, needed.software).on(index) for needed in (*partly, *lacking)}
    remarks = [(needed.software, remark_by(rules[needed], needed.versions, needed.cuda)) for needed in rules]
    restricted = restrictions_there(needs, index, catalog)
    return [*remarks, *((each.software, each.note) for each in restricted if each.supported == "partly")]


def restrictions_there(needs: Requirements, index: int, catalog: Catalog) -> tuple[Restriction, ...]:
    """Returns what restricts the kind of work on an instance type."""
    work = needs.runs_the_work
    return catalog.derive(restrictions_by_type, work.software, work.versions, needs.kind).on(index)


def _support(needed: Requirement, index: int, catalog: Catalog) -> str | None:
    return support_by(catalog.derive(rules_by_type, needed.software).on(index), needed.versions, needed.cuda)


def code_change_on(gpu: Gpu | None, needs: Requirements, job: Job | NamedWork | None, catalog: Catalog) -> str | None:
    """Returns the change that code written for CUDA needs on a GPU, or on CPUs (None); None if it needs none, or if it
    is in software that no rule and no stack has.
    """
    if not needs.stack and isinstance(job, Job) and job.unrecognised_software:
        return None
    return code_change(needs.runs_the_work.software, needs.platforms, gpu, catalog)


def requirement_checks(needs: Requirements, catalog: Catalog) -> Iterator[Check]:
    """Yields the checks of all requirements."""
    yield from _software_checks(needs, catalog)
    if needs.platforms:
        framework = MAINSTREAM if needs.framework is None else needs.framework.software
        # An engine has a build for each platform.
        code = framework if needs.engine is None else None
        yield catalog.derive(_platforms_check, needs.platforms, code, needs.cpu_suffices, needs.of_a_job)
    if needs.host_memory_gib is not None:
        # Too little memory ends a run, because there is no swap. Unknown memory passes with a warning.
        index = number_index(catalog, "memory_gib")
        fails = index.below(needs.host_memory_gib)
        yield Check(
            RejectionCode.HOST_MEMORY_GIB, "hardware", fails, MoveLimit("workload.host.memory_gib", "min", fails, index)
        )
    if needs.precision is not None:
        yield catalog.derive(_precision_check, needs.precision, needs.of_a_job)


def _software_checks(needs: Requirements, catalog: Catalog) -> Iterator[Check]:
    softwares = (
        (RejectionCode.SOFTWARE_FRAMEWORK, "framework", needs.framework),
        (RejectionCode.SOFTWARE_ENGINE, "engine", needs.engine),
        (RejectionCode.SOFTWARE_CUDA, "cuda", needs.cuda),
    )
    for code, name, requirement in softwares:
        if requirement is not None:
            # Software that has no build with the given CUDA fails the check of CUDA, which can be relaxed.
            built = needs.stack if name == "cuda" else ()
            fails = catalog.all_types & ~_runs_with(requirement, built, catalog)
            # The estimate depends on the framework and the engine, but not on the version of CUDA.
            is_fixed = needs.of_a_job and name != "cuda"
            change = _without(name, fails, needs, catalog)
            rule = None if is_fixed else WidenVersions(f"workload.software.{name}", requirement, fails, change, built)
            yield Check(code, "software", fails, rule)
    if needs.kind != ANY_WORK:
        work = needs.runs_the_work
        yield from catalog.derive(_kind_checks, work.software, work.versions, needs.kind)
    needed = Requirement(needs.library) if needs.library and needs.library_must_run else None
    if needs.libraries or needed:
        # The relaxation drops all libraries, because different ones are missing on different types.
        fails = union(catalog.all_types & ~_runs(library, catalog) for library in needs.libraries)
        to, admitted = _without("libraries", fails, needs, catalog, empty=[])
        # What the work itself needs cannot be dropped.
        by_work = catalog.all_types & ~_runs(needed, catalog) if needed else 0
        without = drop(to, admitted & ~by_work) if needs.libraries else None
        yield Check(RejectionCode.SOFTWARE_LIBRARIES, "software", fails | by_work, without)
    if needs.custom_cuda_kernels:
        # Partial support is not enough, because a port to another platform is different code.
        fails = catalog.all_types & ~_runs(KERNELS, catalog, ("yes",))
        to = {"workload.software.custom_cuda_kernels": False}
        yield Check(RejectionCode.CUSTOM_CUDA_KERNELS, "software", fails, drop(to, fails))


def _kind_checks(catalog: Catalog, software: str, versions: Versions, kind: WorkKind) -> tuple[Check, ...]:
    """Returns the checks of the family of the model, and of the format of its weights.

    No change of the question helps, except for another model, format or engine, on which the estimate depends.
    """
    by_type = catalog.derive(restrictions_by_type, software, versions, kind)

    def fails(about: str) -> TypeSet:
        return types_where(
            by_type.where(lambda there: any(each.about == about and each.supported not in RUNS for each in there))
        )

    return (
        Check(RejectionCode.SOFTWARE_MODEL, "software", fails("model"), about=(kind.family,) if kind.family else ()),
        Check(RejectionCode.SOFTWARE_FORMAT, "software", fails("format"), about=kind.formats),
    )


Change = tuple[Mapping[str, object], TypeSet]
"""A change of the question, and the types that it admits."""


def _without(name: str, fails: TypeSet, needs: Requirements, catalog: Catalog, empty: object = None) -> Change:
    """Returns the change that drops a piece of software, or replaces it with the mainstream framework.

    If no other field names the platform, the mainstream framework is assumed after the change. A change that rejects
    types which pass now admits none.
    """
    field, passing = f"workload.software.{name}", catalog.all_types & ~fails
    if needs.can_drop(name):
        return {field: empty}, fails
    in_full = types_where(catalog.derive(mainstream_gpus_mask, needs.library, needs.kind))
    if not passing & ~in_full:
        return {field: empty}, fails & in_full
    mainstream = _runs(Requirement(MAINSTREAM), catalog)
    can_replace = name == "framework" and not passing & ~mainstream
    return {field: MAINSTREAM}, fails & mainstream if can_replace else 0


def _runs(requirement: Requirement, catalog: Catalog, enough: tuple[str, ...] = RUNS) -> TypeSet:
    """Returns the types on which software is known to run in one of the required versions."""
    return types_where(catalog.derive(software_mask, *requirement, enough))


def _runs_with(requirement: Requirement, built: tuple[Requirement, ...], catalog: Catalog) -> TypeSet:
    """Returns the types on which software runs, without those where other software has no build with it."""
    lacks = union(
        _runs(each._replace(cuda=EVERY), catalog) & ~_runs(each._replace(cuda=requirement.versions), catalog)
        for each in built
    )
    return _runs(requirement._replace(cuda=EVERY), catalog) & ~lacks


class WidenVersions(NamedTuple):
    """Widens the versions of software to the range that admits the most types; drops it if no version runs."""

    field: str
    requirement: Requirement
    fails: TypeSet
    without: Change
    built: tuple[Requirement, ...] = ()
    """Software that must have a build with the required one, which is CUDA."""

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        """Returns the wider range of versions that admits the most types, or the change that drops the requirement."""
        software = self.requirement.software
        name = "" if self.field.endswith(".cuda") else software  # the field `cuda` holds versions only
        options = tuple(
            (
                {self.field: f"{name}{versions}"},
                self.fails & _runs_with(self.requirement._replace(versions=versions), self.built, catalog),
            )
            for versions in self._wider_versions(rejected.types, catalog)
        )
        wider = BestOption(self.fails, options).relax(rejected, catalog)
        return wider or drop(*self.without).relax(rejected, catalog)

    def _wider_versions(self, types: TypeSet, catalog: Catalog) -> list[Versions]:
        """Returns the required versions, each time extended to one of the ranges that run on rejected types."""
        if self.requirement.versions == EVERY:
            return []
        indices = np.flatnonzero(catalog.mask(types & self.fails)).tolist()
        rules = catalog.derive(rules_by_type, self.requirement.software)
        ranges = {known_versions(rule.versions) for i in indices for rule in rules.on(i) if rule.supported in RUNS}
        for each in self.built:
            rules = catalog.derive(rules_by_type, each.software)
            ranges |= {known_versions(rule.cuda) for i in indices for rule in rules.on(i) if rule.supported in RUNS}
        ranges = {known for known in ranges if not known.overlaps(self.requirement.versions)}
        # Sorted, because the order of a set differs between processes, and the first of equal options is taken.
        return sorted({self.requirement.versions.extended_to(known) for known in ranges}, key=str)


def _platforms_check(
    catalog: Catalog, platforms: tuple[str, ...], framework: str | None, cpu_suffices: bool, of_a_job: bool
) -> Check:
    """Checks that code for one of the platforms runs, in the framework that it is written in; None for an engine.

    Code for CPUs alone also runs on machines with GPUs, except if a job is estimated, which would leave the GPU idle.
    With a platform of GPUs besides, `cpu` admits machines without a GPU only.
    """
    names = (*platforms, *software_names(catalog, ("toolkit",)))
    runs = {name: types_for_code(name, framework, catalog) for name in names}
    if not cpu_suffices and (of_a_job or platforms != (CPU,)) and CPU in runs:
        runs[CPU] &= catalog.derive(without_gpu)
    column = catalog.columns.words["platform"]
    fails = catalog.all_types & ~union(runs[name] for name in platforms)
    others = {name: types for name, types in runs.items() if name not in platforms}
    # Platforms that types are made for are suggested first: XLA also compiles for GPUs whose code is mostly for CUDA.
    described = {name: types & types_where(column.among([name])) for name, types in others.items()}
    rule = AddWord("workload.software.platforms", platforms, fails, others, made_for=described)
    return Check(RejectionCode.SOFTWARE_PLATFORMS, "software", fails, rule)


def _precision_check(catalog: Catalog, required: PrecisionRequirement, fixed: bool) -> Check:
    supported, peaks = catalog.derive(types_with_support, required.support), catalog.derive(types_with_peak)
    # Formats that only store numbers have no rate in the hardware, and run everywhere.
    runs = {name: supported.get(name, catalog.all_types) for name in required.preferred}
    rated = {name: types & peaks.get(name, 0) for name, types in runs.items()}
    fails = catalog.all_types & ~union(runs[name] for name in required.tolerated)

    def admitted(numerics: Numerics) -> TypeSet:
        """Returns the types that pass with other numerics; if peaks rank, those with a known peak in a new format."""
        precisions = numerics.tolerated(required.preferred, catalog)
        if not required.needs_peak:
            # Without numerics there is no requirement. Types that run none of the formats fail another check.
            if numerics == Numerics():
                return fails
            return fails & union(runs[name] for name in precisions)
        return union(rated[name] for name in precisions) & ~union(rated[name] for name in required.tolerated)

    options = tuple(
        ({f"workload.numerics.{field}": getattr(numerics, field)}, admitted(numerics))
        for field, numerics in required.numerics.relaxed(required.preferred, catalog)
    )
    return Check(RejectionCode.NUMERICS, "hardware", fails, None if fixed else BestOption(fails, options))


def _bits(name: str, catalog: Catalog) -> float:
    precision = catalog.reference.precisions.get(name)
    return precision.bits if precision else FORMATS[name].stored_bits if name in FORMATS else 0.0


def leaves_cpus_out(task: str, asked: Constraints, software: Iterable[Requirement], catalog: Catalog) -> bool:
    """Returns whether machines without a GPU are rejected: unless the task needs no GPU, or the question asks for them
    by platform, name, software or a maximum of no GPUs.

    As the cheapest of all machines, they would otherwise win for work that takes months on them.
    """
    named = {(field, word) for field in WORDS_OF_MACHINES for word in asked.words.get(field, ())}
    return not (
        task in TASKS_WITHOUT_GPU
        or CPU in (*asked.platforms, *asked.words.get("platform", ()))
        or asked.at_most.get("gpu_count") == 0
        or any(each.software in catalog.derive(software_of_cpus) for each in software)
        or not named.isdisjoint(catalog.derive(_words_without_gpu))
    )


def _words_without_gpu(catalog: Catalog) -> frozenset[tuple[str, str]]:
    """Returns the names of instance types without a GPU, of their families and series, each with its filter."""
    types = [type_ for type_ in catalog.instance_types if type_.gpu is None]
    words = ((field, WORDS[field].read(type_, catalog.reference)) for field in WORDS_OF_MACHINES for type_ in types)
    return frozenset((field, word) for field, word in words if word)
