"""Constraints of a question. All are checked on all instance types, so that an answer can say what to relax."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from service.domain.catalog.catalog import Catalog, without_cluster
from service.domain.catalog.hardware import CPU, SLOW_LINKS, InstanceType
from service.domain.catalog.names import meanings_of
from service.domain.catalog.precision import ENOUGH, SUPPORT_LEVELS, USUAL_PRECISIONS, SupportAsked, format_of
from service.domain.catalog.software_support import (
    ANY_WORK,
    MAINSTREAM,
    WorkKind,
    frameworks_mask,
    has_one_code,
    mainstream_gpus_mask,
    software_mask,
    software_names,
    task_mask,
)
from service.domain.codes import RejectionCode
from service.domain.selection.filters import flag_checks, range_checks, word_check
from service.domain.selection.offers import AdmittedOffers, OfferConstraints
from service.domain.selection.relax import BestOption, ChangeOfWork, Check, Relaxation, drop
from service.domain.typeset import TypeSet, types_where, union

NO_LIMITS: Mapping[str, Any] = MappingProxyType({})

WORDS_OF_NOW = frozenset({"instance", "family", "letters", "series", "size", "gpu", "architecture", "interconnect"})
"""Filters that name the hardware of now. The others, such as the seller, also hold for machines to move to later."""


class Constraints(NamedTuple):
    """The constraints of a question, in the names of the catalog. An empty field admits everything."""

    words: Mapping[str, tuple[str, ...]] = NO_LIMITS
    at_least: Mapping[str, float] = NO_LIMITS
    at_most: Mapping[str, float] = NO_LIMITS
    flags: Mapping[str, bool] = NO_LIMITS
    precision_all: tuple[str, ...] = ()
    precision_any: tuple[str, ...] = ()
    precision_of_job: tuple[str, ...] = ()
    """Precisions that a job names: its estimate decides which types run them, and limits on tflops apply to them."""
    precision_support: SupportAsked = "native"
    framework: tuple[str, ...] = ()
    task: str | None = None
    mainstream: bool = False
    """Whether only GPUs that run the mainstream framework in full pass, because the question names no other."""
    library: str | None = None
    """A library that the work needs, and which also has to run on these GPUs."""
    kind: WorkKind = ANY_WORK
    """The kind of work that the mainstream framework has to do on these GPUs."""
    with_gpu: bool = False
    """Whether machines without a GPU are rejected, because the question does not ask for them."""
    of_a_job: bool = False
    """Whether a job is estimated. Code for CPUs alone would then reject the machines with GPUs."""
    grows: bool = False
    """Whether the provider must have a larger machine of the same architecture with fast links between its GPUs."""
    in_clusters: bool = False
    """Whether every choice takes several machines that have to form a cluster."""
    platforms: tuple[str, ...] = ()
    """Platforms that the workload names; with `cpu` among them, machines without a GPU may pass."""
    exclude: tuple[str, ...] = ()
    """Names of providers, families, instance types and GPUs to reject, as the caller writes them."""
    region: tuple[str, ...] = ()
    country: tuple[str, ...] = ()
    continent: tuple[str, ...] = ()
    allow_unknown_region: bool = False
    market: tuple[str, ...] = ()
    max_usd_per_hour: float | None = None
    max_price_age_days: float | None = None
    needs_price: bool = False
    needs_peak: bool = False
    """Whether the ranking needs a known peak at one of the precisions."""
    managed_service: str | None = None
    """The managed service that the machines are used through; only types that it rents out pass."""
    by_region: bool = False
    """Whether the bill includes storage or transfer, whose prices differ between the regions of a provider."""
    spot_refused: bool = False
    """Whether the workload does not tolerate interruptions, so that spot does not count in a list of markets."""

    @property
    def part_of_gpu(self) -> float | None:
        """A minimum or maximum of GPUs between 0 and 1, which asks for a part of a card; None if there is none."""
        counts = [limits["gpu_count"] for limits in (self.at_least, self.at_most) if "gpu_count" in limits]
        return next((count for count in counts if 0 < count < 1), None)

    @property
    def for_later(self) -> "Constraints":
        """The constraints without those that choose the hardware of now, for machines to which the work may move."""
        words = {name: words for name, words in self.words.items() if name not in WORDS_OF_NOW}
        return self._replace(words=words, at_most=NO_LIMITS)

    @property
    def of_offers(self) -> OfferConstraints:
        """The constraints on offers, except for the price limit; their fields have the same names here."""
        return OfferConstraints(*(getattr(self, name) for name in OfferConstraints._fields))

    @property
    def limits_offers(self) -> bool:
        """Whether only types with a certain offer pass. Unknown regions alone are no limit."""
        of_offers = self.of_offers._replace(allow_unknown_region=False)
        return of_offers != OfferConstraints() or self.max_usd_per_hour is not None


def type_checks(asked: Constraints, catalog: Catalog) -> Iterator[Check]:
    """Yields the checks of the constraints on instance types: hardware, software and lifecycle."""
    for name, words in asked.words.items():
        yield catalog.derive(word_check, name, words)
    for name, flag in asked.flags.items():
        yield from catalog.derive(flag_checks, name, flag)
    for any_of in (*((precision,) for precision in asked.precision_all), asked.precision_any):
        if any_of:
            yield catalog.derive(_precision_check, any_of, asked.precision_support, asked.needs_peak)
    if asked.task:
        yield catalog.derive(_task_check, asked.task)
    optional: tuple[tuple[object, Callable[..., Check], tuple[object, ...]], ...] = (
        (asked.framework, _framework_check, (asked.framework,)),
        (asked.mainstream, _mainstream_check, (asked.platforms, asked.library, asked.kind, _admits_previews(asked))),
        (asked.with_gpu, _without_gpu_check, (asked.platforms, asked.of_a_job)),
        (asked.grows, _growth_check, ()),
        (asked.in_clusters, _cluster_check, ()),
        (asked.exclude, _exclude_check, (asked.exclude,)),
        (asked.managed_service, _managed_service_check, (asked.managed_service,)),
    )
    yield from (catalog.derive(check, *arguments) for applies, check, arguments in optional if applies)
    # Limits on tflops apply to the first precision that is named.
    precision = next(iter((*asked.precision_all, *asked.precision_any, *asked.precision_of_job)), None)
    for name in {**asked.at_least, **asked.at_most}:  # not cached, because limits can be any number
        yield from range_checks(catalog, name, asked.at_least.get(name), asked.at_most.get(name), precision)


def _task_check(catalog: Catalog, task: str) -> Check:
    return Check(RejectionCode.TASK, "software", types_where(~catalog.derive(task_mask, task)))


def types_with_support(catalog: Catalog, support: SupportAsked) -> dict[str, TypeSet]:
    """Returns, by precision, the types that run it with at least the level of support that is asked for."""
    enough = np.array([level in ENOUGH[support] for level in SUPPORT_LEVELS] + [False])
    return {name: types_where(enough[column]) for name, column in catalog.columns.support.items()}


def types_with_peak(catalog: Catalog) -> dict[str, TypeSet]:
    """Returns, by precision, the types whose peak is known."""
    return {name: types_where(~np.isnan(peak)) for name, peak in catalog.columns.tflops.items()}


def _precision_check(catalog: Catalog, any_of: tuple[str, ...], support: SupportAsked, needs_peak: bool) -> Check:
    runs = catalog.derive(types_with_support, support)
    fails = catalog.all_types & ~union(runs[precision] for precision in any_of)
    rated = catalog.derive(types_with_peak)
    usable = {name: types & rated[name] for name, types in runs.items()} if needs_peak else runs
    # Relaxing also helps types that run a named precision, but whose peaks at the named ones are unknown.
    unusable = catalog.all_types & ~union(usable[precision] for precision in any_of)
    return Check(RejectionCode.PRECISION, "hardware", fails, _NearestPrecision(any_of, unusable, usable))


class _NearestPrecision(NamedTuple):
    """Adds the usual precision whose values are nearest in size to the first one asked for, else any other.

    Of precisions that are equally near, the one that admits the most types is added.
    """

    precisions: tuple[str, ...]
    fails: TypeSet
    usable: Mapping[str, TypeSet]

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        types = rejected.types & self.fails
        admits = {name: admitted for name, runs in self.usable.items() if (admitted := types & runs)}
        if not admits:
            return None
        bits = format_of(self.precisions[0]).stored_bits
        nearest = min(admits, key=lambda name: (
            name not in USUAL_PRECISIONS, abs(format_of(name).stored_bits - bits), -admits[name].bit_count()
        ))  # fmt: skip
        precisions = (*self.precisions, nearest)
        change = ChangeOfWork(precisions=precisions)
        return Relaxation({"workload.precision": [*precisions]}, rejected.only(admits[nearest]), change)


def without_gpu(catalog: Catalog) -> TypeSet:
    """Returns the types without a GPU."""
    return catalog.types_that(lambda type_: type_.gpu is None)


def _without_gpu_check(catalog: Catalog, platforms: tuple[str, ...], of_a_job: bool) -> Check:
    fails = catalog.derive(without_gpu)
    rule = None if of_a_job else drop({"workload.software.platforms": [*platforms, CPU]}, fails)
    return Check(RejectionCode.WITHOUT_GPU, "constraint", fails, rule)


def _admits_previews(asked: Constraints) -> bool:
    return "preview" in asked.words.get("lifecycle", ())


def _mainstream_check(
    catalog: Catalog, platforms: tuple[str, ...], library: str | None, kind: WorkKind, previews: bool
) -> Check:
    """Checks that the mainstream framework runs in full on the GPU for a kind of work.

    The relaxation adds platforms to those that the question names, which admits GPUs that run the framework only in
    part, or another one. Software for GPUs in preview is in preview too, so with `previews` they pass if the framework
    runs in part.
    """
    types, in_full = catalog.instance_types, catalog.derive(mainstream_gpus_mask, library, kind)
    fails = types_where(~in_full)
    if previews:
        in_preview = catalog.types_that(lambda type_: type_.state_on(catalog.day) == "preview")
        fails &= ~(in_preview & types_where(catalog.derive(software_mask, MAINSTREAM)))
    runs = {name: types_for_code(name, MAINSTREAM, catalog) for name in software_names(catalog, ("toolkit",))}
    support = set(zip((type_.platform or "" for type_ in types), in_full.tolist(), strict=True))
    usual, others = ({name for name, full in support if full is is_full} - {CPU, ""} for is_full in (True, False))
    named = [sorted(usual & runs.keys()), *(sorted({*usual, name} & runs.keys()) for name in sorted(others - usual))]
    options = tuple(
        ({"workload.software.platforms": [*platforms, *names]}, fails & union(runs[name] for name in names))
        for names in named
    )
    return Check(RejectionCode.MAINSTREAM, "software", fails, BestOption(fails, options))


def types_for_code(platform: str, framework: str | None, catalog: Catalog) -> TypeSet:
    """Returns the types on which code for a platform runs, in the framework that it is written in; None for an engine.

    Where the code is not the same as for CUDA, it runs on the types that are made for the platform alone: XLA also
    compiles for Trainium, but code for TPUs does not run there.
    """
    runs = types_where(catalog.derive(software_mask, platform))
    if platform == CPU or (framework is not None and has_one_code(framework, platform, catalog)):
        return runs
    return runs & types_where(catalog.columns.words["platform"].among([platform]))


def _growth_check(catalog: Catalog) -> Check:
    """Checks that a type can grow: its provider has a machine with fast links between GPUs that run the same code."""
    linked = {
        _product_line(type_)
        for type_ in catalog.instance_types
        if type_.gpu_count > 1 and type_.interconnect not in SLOW_LINKS and type_.state_on(catalog.day) == "available"
    }
    fails = catalog.types_that(lambda type_: type_.gpu is None or _product_line(type_) not in linked)
    return Check(RejectionCode.GROWTH, "hardware", fails, drop({"workload.growth": None}, fails))


def _cluster_check(catalog: Catalog) -> Check:
    fails = types_where(catalog.derive(without_cluster))
    return Check(
        RejectionCode.NO_CLUSTER_THERE, "availability", fails, drop({"allow_marketplace_clusters": True}, fails)
    )


def _product_line(instance_type: InstanceType) -> tuple[str | None, ...]:
    gpu = instance_type.gpu
    host = (instance_type.provider, instance_type.service, instance_type.cpu_architecture)
    return (*host, *((None, None) if gpu is None else gpu.code_family))


def _framework_check(catalog: Catalog, frameworks: tuple[str, ...]) -> Check:
    fails = types_where(~frameworks_mask(catalog, frameworks))
    return Check(RejectionCode.FRAMEWORK, "software", fails, drop({"framework": []}, fails))


def _exclude_check(catalog: Catalog, names: tuple[str, ...]) -> Check:
    called = {name: _types_called(name, catalog) for name in names}

    def without(name: str) -> dict[str, object]:
        return {"exclude": [other for other in called if other != name]}

    fails = union(called.values())
    # Removing a name from the list admits the types that no other name excludes.
    options = tuple(
        (without(name), types & ~union(by for other, by in called.items() if other != name))
        for name, types in called.items()
    )
    return Check(RejectionCode.EXCLUDE, "constraint", fails, BestOption(fails, options, otherwise={"exclude": []}))


def _types_called(name: str, catalog: Catalog) -> TypeSet:
    """Returns the types that a name means, or whose provider, family or GPU it means."""
    meanings = meanings_of(name, catalog)
    return union(types_where(catalog.columns.words[column].among(words)) for column, words in meanings.items())


def _managed_service_check(catalog: Catalog, service: str) -> Check:
    fails = catalog.types_that(lambda type_: not catalog.reference.rents(service, type_))
    return Check(RejectionCode.MANAGED_SERVICE, "constraint", fails)
