"""Translates the software, numerics and host of a workload into requirements with the catalog's names."""

from collections.abc import Collection, Iterator

from service.api.workload.workload import WorkloadRequest
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import CPU
from service.domain.catalog.names import resolve
from service.domain.catalog.precision import FASTER_PRECISIONS, SINGLE_PRECISIONS, USUAL_PRECISIONS
from service.domain.catalog.software_support import (
    ANY_WORK,
    NEEDS_A_FRAMEWORK,
    WorkKind,
    software_names,
)
from service.domain.jobs.stacks import software_called
from service.domain.selection.requirements import (
    TASKS_WITHOUT_GPU,
    Numerics,
    PrecisionRequirement,
    Requirement,
    Requirements,
    precision_requirement,
)
from service.domain.versions import EVERY, split_requirement, versions_of

STACK_FIELDS = ("framework", "engine")
"""Fields that name the software that runs the work. If both are sent, the engine decides."""

LIBRARIES = "workload.software.libraries"
"""The field that names libraries."""


def requirements_of(
    work: WorkloadRequest,
    precision: PrecisionRequirement | None,
    catalog: Catalog,
    *,
    has_job: bool,
    platform_named_by: frozenset[str] | None,
    library: str | None = None,
    kind: WorkKind = ANY_WORK,
) -> Requirements:
    """Returns the requirements of a workload, without software that has no rules. Raises `QuestionError`.

    `library` is one that the work usually takes, and `kind` what rules of software may be about.
    """
    software = work.software
    libraries = list(_libraries(work, catalog))
    framework, engine = (_stack_requirement(work, name, catalog) for name in STACK_FIELDS)
    return Requirements(
        framework=framework,
        engine=engine,
        cuda=_toolkit(work),
        platforms=platforms_of(work, catalog),
        libraries=tuple(each for each, required in libraries if each and required),
        optional=(
            *(each for each, required in libraries if each and not required),
            *([Requirement(library)] if library else []),
        ),
        custom_cuda_kernels=software.custom_cuda_kernels,
        host_memory_gib=work.host.memory_gib,
        precision=precision,
        of_a_job=has_job,
        platform_named_by=platform_named_by,
        cpu_suffices=work.task in TASKS_WITHOUT_GPU,
        library=library,
        kind=kind,
        # If the question names hardware or a platform, its code is written for it.
        library_must_run=bool(
            work.task == "training"
            and platform_named_by is not None
            and "platforms" not in platform_named_by
            and work.software.framework
            and software_called(work.software.framework).stack.is_pytorch
        ),
    )


def platform_named_by(work: WorkloadRequest, catalog: Catalog, *, has_job: bool) -> frozenset[str] | None:
    """Returns the fields of `software` that say which platform the code is for; None if the task needs no platform.

    An empty set means that no field says it: the code then counts as written for the mainstream framework.
    """
    platforms = set(platforms_of(work, catalog))
    # A job whose code is for CPUs alone is not run on GPUs.
    if work.task not in NEEDS_A_FRAMEWORK or work.task in TASKS_WITHOUT_GPU or (has_job and platforms == {CPU}):
        return None
    software = work.software
    # Code for CPUs says nothing about GPUs.
    fields = {"framework": software.framework, "engine": software.engine, "libraries": software.libraries}
    return frozenset(name for name, value in {**fields, "platforms": platforms - {CPU}}.items() if value)


def requirement(text: str | None, field: str, catalog: Catalog) -> Requirement | None:
    """Returns the requirement in `pytorch>=2.3`; None for software without rules. Raises `QuestionError`."""
    if text is None:
        return None
    known = catalog.derive(software_names)
    software = Requirement.of(text, field, known)
    return software if software.software in known else None


def faster_formats(
    work: WorkloadRequest, named: tuple[str, ...], usual: Collection[str], catalog: Catalog
) -> tuple[str, ...]:
    """Returns the `usual` formats that may replace the first precision named, the fastest first; empty if it is
    fixed.
    """
    faster = FASTER_PRECISIONS.get(named[0], ()) if named and work.precision_flexible else ()
    allowed = set(usual) & set(USUAL_PRECISIONS if work.code_changes else SINGLE_PRECISIONS)
    return numerics_of(work).tolerated((name for name in faster if name in allowed and name not in named), catalog)


def platforms_of(work: WorkloadRequest, catalog: Catalog) -> tuple[str, ...]:
    """Returns the platforms of the code. Raises `QuestionError`."""
    known = catalog.derive(software_names, ("toolkit",))
    return resolve("platform", work.software.platforms, known, "workload.software.platforms")


def _stack_requirement(work: WorkloadRequest, name: str, catalog: Catalog) -> Requirement | None:
    """Returns the framework or the engine, in a build for the CUDA of the question; None without rules."""
    software, toolkit = requirement(getattr(work.software, name), f"workload.software.{name}", catalog), _toolkit(work)
    return software if software is None or toolkit is None else software._replace(cuda=toolkit.versions)


def unknown_software(work: WorkloadRequest, catalog: Catalog) -> dict[str, str]:
    """Returns the names of software without rules on where it runs, each with the field that names it."""
    if "software" not in work.model_fields_set:
        return {}
    named = [(getattr(work.software, name), f"workload.software.{name}") for name in STACK_FIELDS]
    named += [(library.name, LIBRARIES) for library in work.software.libraries]
    return {
        split_requirement(text, field)[0]: field
        for text, field in named
        if text is not None and requirement(text, field, catalog) is None
    }


def precision_requirement_of(
    work: WorkloadRequest, usual: tuple[str, ...], catalog: Catalog, *, needs_peak: bool
) -> PrecisionRequirement | None:
    """Returns the precisions that a workload can use; None if it can use all."""
    named = tuple(name.lower() for name in work.precision)
    return precision_requirement(
        numerics_of(work), named, usual, catalog, support=work.precision_support, needs_peak=needs_peak
    )


def numerics_of(work: WorkloadRequest) -> Numerics:
    """Returns which number formats a workload tolerates."""
    return Numerics(work.numerics.min_bits, work.numerics.fp16_overflows)


def refused_precisions(work: WorkloadRequest, catalog: Catalog) -> tuple[str, ...]:
    """Returns the precisions that a workload does not tolerate."""
    if "numerics" not in work.model_fields_set:
        return ()
    known = tuple(catalog.reference.precisions)
    tolerated = numerics_of(work).tolerated(known, catalog)
    return tuple(name for name in known if name not in tolerated)


def _toolkit(work: WorkloadRequest) -> Requirement | None:
    cuda = work.software.cuda
    if not cuda:
        return None
    return Requirement("cuda", versions_of(cuda.lower().removeprefix("cuda"), "workload.software.cuda"))


def _libraries(work: WorkloadRequest, catalog: Catalog) -> Iterator[tuple[Requirement | None, bool]]:
    """Yields each library, or None for one without rules, and whether it is required."""
    framework = requirement(work.software.framework, "workload.software.framework", catalog)
    features = catalog.derive(software_names, ("feature",))
    for library in work.software.libraries:
        known = requirement(f"{library.name} {library.versions or ''}".strip(), LIBRARIES, catalog)
        # A feature has no versions of its own: its rules name those of the framework.
        if known is not None and framework is not None and known.software in features and known.versions == EVERY:
            known = known._replace(versions=framework.versions)
        yield known, library.required
