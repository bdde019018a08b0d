"""The software that runs on each instance type, by the rules in force on the catalog's day.

Of the rules that apply to a machine, those of the narrowest scope decide. Rules about families of models or formats of
weights restrict what the rules about all work say.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np

from service.domain.arrays import Indices, Mask
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import CPU, Gpu, InstanceType
from service.domain.catalog.names import near_names
from service.domain.catalog.reference import SoftwareRule
from service.domain.groups import grouped, one_of_each
from service.domain.versions import EVERY, Versions, known_versions

SCOPES = ("kind", "vendor", "platform", "architecture", "gpu", "family", "instance")
"""Scopes of rules, from the widest to the narrowest."""

SCOPES_OF_HOSTS = ("family", "instance")
"""Scopes of rules about the machine around a GPU, such as its Arm host."""

RUNS = ("yes", "partly")
"""Levels of support with which software runs, the best first."""

LEVELS = (*RUNS, "no")
"""Levels of support, the best first."""

NEEDS_A_FRAMEWORK = frozenset({"training", "inference", "development"})
"""Tasks of deep learning: a GPU on which no framework is known to run does none of them."""

MAINSTREAM = "pytorch"
"""The framework of most deep-learning code. If no software is named, only GPUs that run it in full take part."""

CUDA = "cuda"
"""The platform of most GPUs."""

LIBRARY_OF_METHOD: Mapping[str, str] = {"qlora": "bitsandbytes"}
"""Method of training → the library whose kernels it needs in the mainstream framework."""

LIBRARY_OF_OPTIMIZER: Mapping[str, str] = dict.fromkeys(
    (
        "adamw_8bit", "adam_8bit", "ademamix_8bit", "lion_8bit", "paged_adamw", "paged_adamw_8bit", "paged_lion",
        "paged_lion_8bit",
    ),
    "bitsandbytes",
)  # fmt: skip
"""Optimizer → the library whose kernels it needs in the mainstream framework."""

LIBRARY_OF_FORMAT: Mapping[str, str] = dict.fromkeys(("nf4", "nf4-dq"), "bitsandbytes")
"""Format of the weights of inference → the library that has kernels for it."""

LIBRARIES_OF_KERNELS = frozenset(
    chain(LIBRARY_OF_METHOD.values(), LIBRARY_OF_OPTIMIZER.values(), LIBRARY_OF_FORMAT.values())
)
"""Libraries without which work in the mainstream framework does not run, whatever machine its code is written for."""

FEATURE_OF_FAMILY: Mapping[str, str] = {"detection": "dynamic-shapes"}
"""Family of models → the feature that its training needs in the mainstream framework. The sizes of images, the regions
of R-CNN and the boxes to find differ from batch to batch, and compilers for fixed shapes compile each of them again."""


class WorkKind(NamedTuple):
    """The work on which rules of software may depend, besides hardware and versions. The default is any work."""

    task: str | None = None
    family: str | None = None
    """The family of the model; None without one."""
    formats: tuple[str, ...] = ()
    """Number formats in which the weights may be stored; any of them is enough."""


ANY_WORK = WorkKind()


class Restriction(NamedTuple):
    """Software that does not do a kind of work on some hardware, or does it in part."""

    software: str
    about: Literal["model", "format"]
    """Whether the family of the model is restricted, or the format of its weights."""
    supported: str
    """`partly` or `no`."""
    note: str | None


def usual_library(
    task: str, method: str | None, formats: Iterable[str], family: str | None = None, optimizer: str | None = None
) -> str | None:
    """Returns the library or feature that work needs in the mainstream framework; None if it needs none.

    That is the library of a method of training or of its optimizer, or of all formats in which inference may store the
    weights, and the feature that training of a family of models needs.
    """
    if task == "training":
        of_kernels = LIBRARY_OF_METHOD.get(method or "") or LIBRARY_OF_OPTIMIZER.get(optimizer or "")
        return of_kernels or FEATURE_OF_FAMILY.get(family or "")
    if task != "inference":
        return None
    libraries = {LIBRARY_OF_FORMAT.get(each) for each in formats}
    return libraries.pop() if len(libraries) == 1 else None


Place = tuple[str, str]
"""A scope of rules and a value of it, such as `architecture` and `hopper`."""


def places_of(instance_type: InstanceType) -> tuple[Place, ...]:
    """Returns the places of the rules that apply to an instance type. A rule for a card also applies to parts of it."""
    return (*_places_of_host(instance_type), *places_of_gpu(instance_type.gpu))


def _places_of_host(instance_type: InstanceType) -> tuple[Place, ...]:
    # A managed instance type follows the rules of the plain one that it runs on.
    names = dict.fromkeys((instance_type.name, instance_type.id, instance_type.twin_of))
    families = dict.fromkeys((instance_type.family, instance_type.family.removeprefix("ml.")))
    return (*(("instance", name) for name in names if name), *(("family", family) for family in families))


def places_of_gpu(gpu: Gpu | None) -> tuple[Place, ...]:
    """Returns the places of the rules that apply to a GPU, or to machines without one (None), whatever the host."""
    if gpu is None:
        return ("kind", CPU), ("platform", CPU)
    cards = filter(None, (gpu.id, gpu.partition_of))
    wider = (("kind", gpu.kind), ("vendor", gpu.vendor), ("platform", gpu.platform), ("architecture", gpu.architecture))
    return (*(("gpu", card) for card in cards), *((scope, value) for scope, value in wider if value))


def support_by(rules: Collection[SoftwareRule], versions: Versions = EVERY, cuda: Versions = EVERY) -> str | None:
    """Returns the best support (`yes`, `partly` or `no`) of some versions by the rules that decide.

    It is `no` for versions, of the software or of CUDA, that none of the rules covers, and None without rules.
    """
    supported = {rule.supported for rule in rules if _covers(rule, versions, cuda)}
    return next((word for word in RUNS if word in supported), "no" if rules else None)


def remark_by(rules: Collection[SoftwareRule], versions: Versions = EVERY, cuda: Versions = EVERY) -> str | None:
    """Returns the note of the rules that decide about some versions; None if they have none."""
    level = support_by(rules, versions, cuda)
    notes = (rule.note for rule in rules if rule.supported == level and _covers(rule, versions, cuda))
    return next(filter(None, notes), None)


def _covers(rule: SoftwareRule, versions: Versions, cuda: Versions) -> bool:
    return known_versions(rule.versions).overlaps(versions) and known_versions(rule.cuda).overlaps(cuda)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ByType(Generic[T]):
    """A value for each instance type, found once for each group of types to which the same rules apply."""

    values: Sequence[T]
    group: Indices
    """The index of the value of each type."""

    def on(self, index: int) -> T:
        """Returns the value of an instance type."""
        return self.values[self.group.item(index)]

    def where(self, holds: Callable[[T], bool]) -> Mask:
        """Returns a mask of the types for whose value something holds."""
        return np.array([holds(value) for value in self.values], np.bool_)[self.group]


def restrictions_by_type(
    catalog: Catalog, software: str, versions: Versions, kind: WorkKind
) -> ByType[tuple[Restriction, ...]]:
    """Returns what restricts a kind of work on each instance type: the software that does it, and the toolkits."""
    groups = catalog.derive(_groups)
    return ByType(_restrictions(catalog, software, versions, kind, groups.values), groups.group)


def restrictions_on_gpu(
    catalog: Catalog, software: str, versions: Versions, kind: WorkKind, gpu_id: str | None
) -> tuple[Restriction, ...]:
    """Returns what restricts a kind of work on a GPU, or on CPUs (None), without the rules about hosts."""
    gpu = None if gpu_id is None else catalog.reference.gpus.get(gpu_id)
    (there,) = _restrictions(catalog, software, versions, kind, [places_of_gpu(gpu)])
    return there


def _restrictions(
    catalog: Catalog, software: str, versions: Versions, kind: WorkKind, machines: Sequence[tuple[Place, ...]]
) -> list[tuple[Restriction, ...]]:
    """Returns the restrictions on machines, each given by its places.

    Where several formats are possible, the one with the best support counts.
    """
    rules_of = catalog.derive(_rules_about_some_work)
    concerning = {software: versions} | dict.fromkeys(software_names(catalog, ("toolkit",)), EVERY)
    restrictions: list[tuple[Restriction, ...]] = [()] * len(machines)
    for name in sorted(concerning.keys() & rules_of.keys()):
        rules = [
            rule
            for rule in rules_of[name]
            if rule.task in (None, kind.task)
            and rule.names_family(kind.family)
            and known_versions(rule.versions).overlaps(concerning[name])
        ]
        options: dict[Literal["model", "format"], list[list[SoftwareRule]]] = {
            "model": [[rule for rule in rules if rule.formats is None]],
            "format": [[rule for rule in rules if rule.names_format(each)] for each in kind.formats],
        }
        for about, alternatives in options.items():
            at = [_by_place(each) for each in alternatives]
            if not any(at):
                continue
            for index, places in enumerate(machines):
                decided = (_deciding(each, places) for each in at)
                best = min(decided, key=lambda rules: LEVELS.index(support_by(rules) or LEVELS[0]))
                level = support_by(best)
                if level is not None and level != LEVELS[0]:
                    restrictions[index] += (Restriction(name, about, level, remark_by(best)),)
    return restrictions


def rules_by_type(catalog: Catalog, software: str) -> ByType[tuple[SoftwareRule, ...]]:
    """Returns, for each instance type, the rules that decide about a piece of software in any task."""
    return _deciding_by_type(catalog.derive(_rules_about_all_work).get(software, ()), catalog)


def rules_on_gpu(catalog: Catalog, software: str, gpu_id: str | None) -> tuple[SoftwareRule, ...]:
    """Returns the rules that decide about software on a GPU, or on CPUs (None), without those about hosts."""
    gpu = None if gpu_id is None else catalog.reference.gpus.get(gpu_id)
    return _deciding(catalog.derive(_places_of_rules, software), places_of_gpu(gpu))


def code_change(software: str | None, platforms: Collection[str], gpu: Gpu | None, catalog: Catalog) -> str | None:
    """Returns how code for CUDA has to change for a GPU, or for CPUs (None); None if it runs unchanged.

    Code that is written for the platform already needs no change. If no software is named, the code uses the mainstream
    framework.
    """
    card, platform = (None, CPU) if gpu is None else (gpu.id, gpu.platform)
    rules = () if platform in platforms else catalog.derive(rules_on_gpu, software or MAINSTREAM, card)
    return next((rule.code_change for rule in rules if rule.supported in RUNS and rule.code_change), None)


def has_one_code(framework: str, platform: str, catalog: Catalog) -> bool:
    """Returns whether code in a framework runs on the GPUs of a platform in full, and is the same as for CUDA.

    XLA also compiles for CUDA: code in JAX is for both, whereas code for PyTorch/XLA is for TPUs alone.
    """
    gpus = [gpu for gpu in catalog.reference.gpus.values() if gpu.platform == platform]
    rules = (catalog.derive(rules_on_gpu, framework, gpu.id) for gpu in gpus)
    in_full = any(support_by(each) in RUNS[:1] for each in rules)
    return in_full and not any(code_change(framework, (), gpu, catalog) for gpu in gpus)


def mainstream_gpus_mask(catalog: Catalog, library: str | None = None, kind: WorkKind = ANY_WORK) -> Mask:
    """Returns a mask of the types whose GPU, or CPUs, run the mainstream framework in full for a kind of work.

    If the work needs a library, it must run at least in part. Rules about hosts do not count.
    """
    levels = {MAINSTREAM: RUNS[:1]} | ({library: RUNS} if library else {})
    cards = [None if type_.gpu is None else type_.gpu.id for type_ in catalog.instance_types]
    runs = {
        card: all(support_by(rules_on_gpu(catalog, name, card)) in enough for name, enough in levels.items())
        and not restrictions_on_gpu(catalog, MAINSTREAM, EVERY, kind, card)
        for card in set(cards)
    }
    return np.array([runs[card] for card in cards], np.bool_)


def software_mask(
    catalog: Catalog,
    software: str,
    versions: Versions = EVERY,
    cuda: Versions = EVERY,
    enough: tuple[str, ...] = RUNS,
) -> Mask:
    """Returns a mask of the types on which software is known to run in one of these versions, with enough support."""
    return catalog.derive(rules_by_type, software).where(lambda rules: support_by(rules, versions, cuda) in enough)


def frameworks_mask(catalog: Catalog, frameworks: tuple[str, ...]) -> Mask:
    """Returns a mask of the types on which all of the frameworks are known to run."""
    runs: Mask = np.all([software_mask(catalog, software) for software in frameworks], axis=0)
    return runs


def no_framework_mask(catalog: Catalog) -> Mask:
    """Returns a mask of the types on which no framework runs, although there are rules about frameworks."""
    has_rules, runs = np.zeros((2, len(catalog.instance_types)), np.bool_)
    for software in software_names(catalog, ("framework",)):
        has_rules |= catalog.derive(rules_by_type, software).where(bool)
        runs |= software_mask(catalog, software)
    return has_rules & ~runs


def task_mask(catalog: Catalog, task: str) -> Mask:
    """Returns a mask of the types that can do a task, which are all types without a rule to the contrary."""
    about = [rule for rule in catalog.software if rule.task == task and rule.is_about_all_work]
    able = _deciding_by_type(about, catalog).where(lambda rules: support_by(rules) != "no")
    return able & ~catalog.derive(no_framework_mask) if task in NEEDS_A_FRAMEWORK else able


def software_names(
    catalog: Catalog, kinds: tuple[str, ...] = ("framework", "engine", "toolkit", "library", "feature")
) -> list[str]:
    """Returns the names of the software of some kinds that have rules, sorted."""
    return sorted({rule.software for rule in catalog.reference.software if rule.kind in kinds})


def near_software(names: Iterable[str], catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Returns the names of software without rules, each with similar names that have some."""
    return {name: near_names(name, catalog.derive(software_names)) for name in names}


def platforms_of(rules: Iterable[SoftwareRule], catalog: Catalog) -> dict[str, list[SoftwareRule]]:
    """Returns the platforms that rules apply to, sorted by name, each with its rules."""
    gpus: tuple[Gpu | None, ...] = (None, *catalog.reference.gpus.values())
    rules_of: dict[str, list[SoftwareRule]] = defaultdict(list)
    for rule in rules:
        platforms = {CPU if gpu is None else gpu.platform for gpu in gpus if rule.place in places_of_gpu(gpu)}
        if rule.scope in SCOPES_OF_HOSTS:
            platforms = {type_.platform for type_ in catalog.instance_types if rule.place in places_of(type_)}
        for platform in filter(None, platforms):
            rules_of[platform].append(rule)
    return dict(sorted(rules_of.items()))


def software_of_cpus(catalog: Catalog) -> frozenset[str]:
    """Returns the software that runs in full on CPUs: libraries, and engines that run on no CUDA GPU."""
    engines = {name for name in software_names(catalog, ("engine",)) if not _runs_on_cuda(name, catalog)}
    portable = engines.union(software_names(catalog, ("library",)))
    return frozenset(name for name in portable if support_by(rules_on_gpu(catalog, name, None)) == RUNS[0])


def _runs_on_cuda(software: str, catalog: Catalog) -> bool:
    gpus = [gpu.id for gpu in catalog.reference.gpus.values() if gpu.platform == CUDA]
    return any(support_by(rules_on_gpu(catalog, software, gpu)) in RUNS for gpu in gpus)


def classical_libraries(catalog: Catalog) -> frozenset[str]:
    """Returns the libraries of classical machine learning: those with a rule about the task `classical`."""
    return frozenset(rule.software for rule in catalog.reference.software if rule.task == "classical")


def _rules_about_all_work(catalog: Catalog) -> dict[str, tuple[SoftwareRule, ...]]:
    """Returns the rules of each piece of software that hold for any task, model and format."""
    return grouped((rule.software, rule) for rule in catalog.software if rule.is_about_all_work and rule.task is None)


def _rules_about_some_work(catalog: Catalog) -> dict[str, tuple[SoftwareRule, ...]]:
    """Returns the rules of each piece of software that hold for families of models or formats of weights."""
    return grouped((rule.software, rule) for rule in catalog.software if not rule.is_about_all_work)


def _places_of_rules(catalog: Catalog, software: str) -> dict[Place, tuple[SoftwareRule, ...]]:
    return _by_place(catalog.derive(_rules_about_all_work).get(software, ()))


def _by_place(rules: Iterable[SoftwareRule]) -> dict[Place, tuple[SoftwareRule, ...]]:
    return grouped((rule.place, rule) for rule in rules)


def _groups(catalog: Catalog) -> ByType[tuple[Place, ...]]:
    """Returns the places of each instance type, without those of its host that no rule is about."""
    ruled = {rule.place for rule in catalog.software}
    places = [
        (*(place for place in _places_of_host(type_) if place in ruled), *places_of_gpu(type_.gpu))
        for type_ in catalog.instance_types
    ]
    return ByType(*one_of_each(places, places))


def _deciding_by_type(rules: Iterable[SoftwareRule], catalog: Catalog) -> ByType[tuple[SoftwareRule, ...]]:
    """Returns, for each instance type, those of the rules that decide."""
    at, groups = _by_place(rules), catalog.derive(_groups)
    return ByType([_deciding(at, places) for places in groups.values], groups.group)


def _deciding(at: Mapping[Place, Sequence[SoftwareRule]], places: Iterable[Place]) -> tuple[SoftwareRule, ...]:
    """Returns the rules of the narrowest scope among those at the places of a machine.

    A rule about a card overrules one about its architecture, and a rule about a host overrules both.
    """
    rules = [rule for place in places for rule in at.get(place, ())]
    narrowest = max((SCOPES.index(rule.scope) for rule in rules), default=-1)
    return tuple(rule for rule in rules if SCOPES.index(rule.scope) == narrowest)
