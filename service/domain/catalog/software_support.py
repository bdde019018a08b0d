"""The software that runs on each instance type, by the rules in force on the catalog's day; the narrowest decides."""

from collections.abc import Collection, Iterable

import numpy as np

from service.domain.arrays import Mask
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.reference import SoftwareRule
from service.domain.versions import EVERY, Versions, known_versions

SCOPES = ("kind", "vendor", "architecture", "gpu", "family", "instance")
"""From the widest to the narrowest."""

RUNS = ("yes", "partly")
"""Levels of support with which software runs, the best first."""

NEEDS_A_FRAMEWORK = frozenset({"training", "inference", "development"})
"""Tasks of deep learning: a GPU on which no framework is known to run does none of them."""


def speaks_of(rule: SoftwareRule, instance_type: InstanceType) -> bool:
    """Returns whether a rule is about an instance type; the rules for a card hold for its parts too."""
    gpu = instance_type.gpu
    match rule.scope:
        case "instance":
            # A name of a managed service follows the rules of the plain machine that it runs on.
            return rule.scope_value in (instance_type.name, instance_type.id, instance_type.twin_of)
        case "family":
            return rule.scope_value in (instance_type.family, instance_type.family.removeprefix("ml."))
        case "kind":
            return rule.scope_value == (gpu.kind if gpu else "cpu")
        case "gpu":
            return gpu is not None and rule.scope_value in (gpu.id, gpu.partition_of)
    return gpu is not None and rule.scope_value == getattr(gpu, rule.scope)


def support_by(rules: Collection[SoftwareRule], versions: Versions = EVERY) -> str | None:
    """Returns `yes`, `partly` or `no` by the rules that decide; None if there is no rule.

    Versions that none of the rules covers do not run.
    """
    supported = {rule.supported for rule in rules if known_versions(rule.versions).meets(versions)}
    return next((word for word in RUNS if word in supported), "no" if rules else None)


def rules_by_type(catalog: Catalog, software: str) -> list[tuple[SoftwareRule, ...]]:
    """Returns, for each instance type, the rules that decide about a piece of software, whatever the task."""
    rules = [rule for rule in catalog.software if rule.software == software and rule.task is None]
    return [_deciding(rules, instance_type) for instance_type in catalog.instance_types]


def software_mask(catalog: Catalog, software: str, versions: Versions = EVERY, enough: tuple[str, ...] = RUNS) -> Mask:
    """Returns where software is known to run in one of these versions, at a level of support that is enough."""
    rules_of_types = catalog.derive(rules_by_type, software)
    # Most types are decided by the same few rules, whose versions need to be read only once.
    runs = {rules: support_by(rules, versions) in enough for rules in set(rules_of_types)}
    return np.array([runs[rules] for rules in rules_of_types], np.bool_)


def frameworks_mask(catalog: Catalog, frameworks: tuple[str, ...]) -> Mask:
    """Returns where all of the frameworks are known to run."""
    runs: Mask = np.all([software_mask(catalog, software) for software in frameworks], axis=0)
    return runs


def no_framework_mask(catalog: Catalog) -> Mask:
    """Returns the types with rules about frameworks that let none of them run."""
    has_rules, runs = np.zeros((2, len(catalog.instance_types)), np.bool_)
    for software in software_names(catalog, ("framework",)):
        has_rules |= np.array([bool(rules) for rules in catalog.derive(rules_by_type, software)], np.bool_)
        runs |= software_mask(catalog, software)
    return has_rules & ~runs


def task_mask(catalog: Catalog, task: str) -> Mask:
    """Returns where no rule says that a task cannot be done."""
    rules = [rule for rule in catalog.software if rule.task == task]
    able = np.array([support_by(_deciding(rules, type_)) != "no" for type_ in catalog.instance_types], np.bool_)
    return able & ~catalog.derive(no_framework_mask) if task in NEEDS_A_FRAMEWORK else able


def software_names(
    catalog: Catalog, kinds: tuple[str, ...] = ("framework", "engine", "toolkit", "library", "feature")
) -> list[str]:
    """Returns the names of the software that rules are about, sorted."""
    return sorted({rule.software for rule in catalog.reference.software if rule.kind in kinds})


def _deciding(rules: Iterable[SoftwareRule], instance_type: InstanceType) -> tuple[SoftwareRule, ...]:
    """The rules of the narrowest scope that are about the instance type."""
    rules = [rule for rule in rules if speaks_of(rule, instance_type)]
    # A rule about a card is an exception to the rule about its architecture.
    narrowest = max((SCOPES.index(rule.scope) for rule in rules), default=-1)
    return tuple(rule for rule in rules if SCOPES.index(rule.scope) == narrowest)
