"""What software runs on which hardware, by the rules in force on the catalog's day; the narrowest rule decides."""

from collections.abc import Iterable

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

NEEDS_A_FRAMEWORK = frozenset({"training"})
"""Tasks that need a framework; inference can use an engine alone."""


def speaks_of(rule: SoftwareRule, instance_type: InstanceType) -> bool:
    """Whether a rule is about an instance type."""
    return rule.scope_value in _scope_values(instance_type, rule.scope)


def said(rules: Iterable[SoftwareRule], versions: Versions = EVERY) -> str | None:
    """Returns `yes`, `partly` or `no` by the rules that decide; None if there is no rule.

    Versions that none of the rules covers do not run.
    """
    rules = list(rules)
    supported = {rule.supported for rule in rules if known_versions(rule.versions).meets(versions)}
    return next((word for word in RUNS if word in supported), "no" if rules else None)


def rules_by_type(catalog: Catalog, software: str) -> list[list[SoftwareRule]]:
    """Returns, for each instance type, the rules that decide about a piece of software, whatever the task."""
    return catalog.derive(_rules_by_type, software)


def software_mask(catalog: Catalog, software: str, versions: Versions = EVERY, enough: tuple[str, ...] = RUNS) -> Mask:
    """Returns where software is known to run in one of these versions, at a level of support that is enough."""
    return catalog.derive(_software_mask, software, versions, enough)


def frameworks_mask(catalog: Catalog, frameworks: tuple[str, ...]) -> Mask:
    """Returns where all of the frameworks are known to run."""
    mask = np.ones(len(catalog.instance_types), np.bool_)
    for software in frameworks:
        mask &= software_mask(catalog, software)
    return mask


def no_framework_mask(catalog: Catalog) -> Mask:
    """Returns where frameworks are known not to run, and none is known to run."""
    return catalog.derive(_no_framework_mask)


def task_mask(catalog: Catalog, task: str) -> Mask:
    """Returns where no rule says that a task cannot be done."""
    return catalog.derive(_task_mask, task)


def software_names(
    catalog: Catalog, kinds: tuple[str, ...] = ("framework", "engine", "toolkit", "library")
) -> list[str]:
    """Returns the names of the software that rules are about, sorted."""
    return sorted({rule.software for rule in catalog.reference.software if rule.kind in kinds})


def _scope_values(instance_type: InstanceType, scope: str) -> set[str]:
    """The names of an instance type at a scope; the rules for a card hold for its parts too."""
    gpu = instance_type.gpu
    match scope:
        case "instance":
            return {instance_type.name, instance_type.id, instance_type.twin_of or instance_type.name}
        case "family":
            return {instance_type.family, instance_type.family.removeprefix("ml.")}
        case "kind":
            return {gpu.kind if gpu else "cpu"}
    if gpu is None:
        return set()
    return {gpu.id, gpu.partition_of or gpu.id} if scope == "gpu" else {getattr(gpu, scope)}


def _deciding(rules: Iterable[SoftwareRule], instance_type: InstanceType) -> list[SoftwareRule]:
    """The rules of the narrowest scope that are about the instance type."""
    rules = [rule for rule in rules if speaks_of(rule, instance_type)]
    narrowest = max((SCOPES.index(rule.scope) for rule in rules), default=-1)
    return [rule for rule in rules if SCOPES.index(rule.scope) == narrowest]


def _rules_by_type(catalog: Catalog, software: str) -> list[list[SoftwareRule]]:
    rules = [rule for rule in catalog.software if rule.software == software and rule.task is None]
    return [_deciding(rules, instance_type) for instance_type in catalog.instance_types]


def _software_mask(catalog: Catalog, software: str, versions: Versions, enough: tuple[str, ...]) -> Mask:
    return np.array([said(rules, versions) in enough for rules in rules_by_type(catalog, software)], np.bool_)


def _no_framework_mask(catalog: Catalog) -> Mask:
    has_rules, runs = np.zeros((2, len(catalog.instance_types)), np.bool_)
    for software in software_names(catalog, ("framework",)):
        has_rules |= np.array([bool(rules) for rules in rules_by_type(catalog, software)], np.bool_)
        runs |= software_mask(catalog, software)
    return has_rules & ~runs


def _task_mask(catalog: Catalog, task: str) -> Mask:
    rules = [rule for rule in catalog.software if rule.task == task]
    able = np.array([said(_deciding(rules, each)) != "no" for each in catalog.instance_types], np.bool_)
    return able & ~no_framework_mask(catalog) if task in NEEDS_A_FRAMEWORK else able
