"""What a workload says of its software, numbers and host → needs of the domain, in the catalog's own words."""

from collections.abc import Iterable

from service.api.workload.workload import WorkloadRequest
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve
from service.domain.catalog.precision import FORMATS
from service.domain.catalog.software_support import software_names
from service.domain.jobs.stacks import software_called
from service.domain.selection.requirements import (
    NOTHING,
    Numbers,
    RelaxedNumerics,
    Requirement,
    Requirements,
    platform_names,
)
from service.domain.versions import split_requirement, versions_of

FEWEST_EXPONENT_BITS = 6
"""Numbers with fewer, such as fp16 with 5, end at 65,504 or below: what overflows there does so in these."""

TASKS_WITHOUT_GPU = frozenset({"classical", "sequential", "development"})


def needs_of(work: WorkloadRequest, numbers: Numbers | None, catalog: Catalog, *, has_job: bool) -> Requirements:
    """Raises `QuestionError`. Software that no rule speaks of asks for nothing; a note says so."""
    if numbers is None and not work.model_fields_set & {"software", "host"}:
        return NOTHING
    software = work.software
    cuda = software.cuda and versions_of(software.cuda.lower().removeprefix("cuda"), "workload.software.cuda")
    return Requirements(
        framework=requirement(software.framework, "workload.software.framework", catalog),
        engine=requirement(software.engine, "workload.software.engine", catalog),
        cuda=Requirement("cuda", cuda) if cuda else None,
        platforms=platforms(software.platforms, catalog),
        libraries=tuple(each for each in libraries(work, catalog) if each is not None),
        optional=tuple(each for each in libraries(work, catalog, required=False) if each is not None),
        custom_cuda_kernels=software.custom_cuda_kernels,
        host_memory_gib=work.host.memory_gib,
        numbers=numbers,
        of_a_job=has_job,
        cpu_suffices=work.task in TASKS_WITHOUT_GPU,
    )


def platforms(names: tuple[str, ...], catalog: Catalog) -> tuple[str, ...]:
    if not names:
        return ()
    known = catalog.memory.get_or_compute("platform_names", lambda: platform_names(catalog))
    return resolve("platform", names, known, "workload.software.platforms")


def requirement(text: str | None, field: str, catalog: Catalog) -> Requirement | None:
    """Nothing where no rule speaks of the software."""
    if text is None:
        return None
    known = catalog.memory.get_or_compute("software_names", lambda: software_names(catalog))
    name, versions = split_requirement(text, field)
    if name not in known:
        name = software_called(name).line
    return Requirement(name, versions) if name in known else None


def libraries(work: WorkloadRequest, catalog: Catalog, *, required: bool = True) -> list[Requirement | None]:
    """Those that must run, or those that had better; a library is required unless told otherwise."""
    field = "workload.software.libraries"
    return [
        requirement(str(each["name"]), field, catalog)
        for each in work.software.libraries
        if "name" in each and bool(each.get("required", True)) is required
    ]


def unknown_software(work: WorkloadRequest, catalog: Catalog) -> list[str]:
    """The fields that name software of which no rule says where it runs."""
    if "software" not in work.model_fields_set:
        return []
    software = work.software
    lacking = [
        f"workload.software.{name}"
        for name in ("framework", "engine")
        if (text := getattr(software, name)) is not None
        and requirement(text, f"workload.software.{name}", catalog) is None
    ]
    unknown = None in [*libraries(work, catalog), *libraries(work, catalog, required=False)]
    return [*lacking, *(["workload.software.libraries"] if unknown else [])]


def numbers_of(work: WorkloadRequest, usual: tuple[str, ...], catalog: Catalog, *, needs_peak: bool) -> Numbers | None:
    """Which of the precisions asked for, or of the task's usual ones, the work bears; nothing where it bears any."""
    asked = work.numerics
    wanted = tuple(name.lower() for name in work.precision) or usual
    if not wanted or (asked.min_bits is None and not asked.fp16_overflows):
        return None
    kept = borne(wanted, asked.min_bits, catalog, overflows=asked.fp16_overflows)
    if not work.precision and not kept:
        wanted = kept = widest(asked.min_bits, catalog) or wanted
    loosened: list[RelaxedNumerics] = []
    if asked.fp16_overflows:
        more = borne(wanted, asked.min_bits, catalog, overflows=False)
        loosened.append(RelaxedNumerics("fp16_overflows", value=False, borne=more))
    if asked.min_bits is not None:
        fewer = sorted({int(bits_of(name, catalog)) for name in wanted if bits_of(name, catalog) < asked.min_bits})
        loosened += [
            RelaxedNumerics("min_bits", bits, borne(wanted, bits, catalog, overflows=asked.fp16_overflows))
            for bits in reversed(fewer)
        ]
    return Numbers(
        wanted=wanted,
        borne=kept,
        loosened=tuple(loosened),
        free=not work.precision,
        support=work.precision_support,
        needs_peak=needs_peak,
    )


def borne(names: Iterable[str], min_bits: int | None, catalog: Catalog, *, overflows: bool) -> tuple[str, ...]:
    return tuple(
        name
        for name in names
        if (min_bits is None or bits_of(name, catalog) >= min_bits) and not (overflows and is_narrow(name, catalog))
    )


def refused_precisions(work: WorkloadRequest, catalog: Catalog) -> tuple[str, ...]:
    """All whose numbers the work does not bear."""
    asked, known = work.numerics, tuple(catalog.reference.precisions)
    if asked.min_bits is None and not asked.fp16_overflows:
        return ()
    kept = borne(known, asked.min_bits, catalog, overflows=asked.fp16_overflows)
    return tuple(name for name in known if name not in kept)


def bits_of(name: str, catalog: Catalog) -> float:
    known = catalog.reference.precisions.get(name)
    return (FORMATS[name].stored_bits if name in FORMATS else 0.0) if known is None else known.bits


def is_narrow(name: str, catalog: Catalog) -> bool:
    known = catalog.reference.precisions.get(name)
    return known is not None and known.exponent_bits is not None and known.exponent_bits < FEWEST_EXPONENT_BITS


def widest(min_bits: int | None, catalog: Catalog) -> tuple[str, ...]:
    """Floating-point formats that have the bits, the narrowest first."""
    floats = [each for each in catalog.reference.precisions.values() if each.kind == "float"]
    return tuple(
        each.id for each in sorted(floats, key=lambda each: (each.bits, each.id)) if each.bits >= (min_bits or 0)
    )
