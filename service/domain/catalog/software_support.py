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


def scope_value(kind: InstanceType, scope: str) -> set[str]:
    """What an instance type is called at a scope; a part of a card answers for its whole card too."""
    match scope:
        case "instance":
            return {kind.name, kind.id, kind.twin_of or kind.name}
        case "family":
            return {kind.family, kind.family.removeprefix("ml.")}
    if kind.gpu is None:
        return {"cpu"} if scope == "kind" else set()
    match scope:
        case "gpu":
            return {kind.gpu.id, kind.gpu.partition_of or kind.gpu.id}
        case "architecture":
            return {kind.gpu.architecture}
        case "vendor":
            return {kind.gpu.vendor}
        case _:
            return {kind.gpu.kind}


def speaks_of(rule: SoftwareRule, kind: InstanceType) -> bool:
    return rule.scope_value in scope_value(kind, rule.scope)


def deciding(rules: Iterable[SoftwareRule], kind: InstanceType) -> list[SoftwareRule]:
    """The rules of the narrowest scope that speaks of the machine; none when none does."""
    speaking = [rule for rule in rules if speaks_of(rule, kind)]
    narrowest = max((SCOPES.index(rule.scope) for rule in speaking), default=-1)
    return [rule for rule in speaking if SCOPES.index(rule.scope) == narrowest]


def said(rules: Iterable[SoftwareRule], versions: Versions = EVERY) -> str | None:
    """`yes`, `partly` or `no` by the rules that decide; nothing when there is none.

    Versions of which these rules say nothing do not run there.
    """
    rules = list(rules)
    says = {rule.supported for rule in rules if known_versions(rule.versions).meets(versions)}
    return next((word for word in RUNS if word in says), "no" if rules else None)


def rules_by_type(catalog: Catalog, software: str) -> list[list[SoftwareRule]]:
    """Of each instance type, the rules that decide about a piece of software, whatever the task."""

    def ask() -> list[list[SoftwareRule]]:
        rules = [rule for rule in catalog.software if rule.software == software and rule.task is None]
        return [deciding(rules, kind) for kind in catalog.instance_types]

    return catalog.memory.get_or_compute(("rules", software), ask)


def software_mask(catalog: Catalog, software: str, versions: Versions = EVERY, enough: tuple[str, ...] = RUNS) -> Mask:
    """Where a framework, engine or toolkit is known to run in one of these versions; in part too, if that will do."""

    def ask() -> Mask:
        return np.array([said(rules, versions) in enough for rules in rules_by_type(catalog, software)], np.bool_)

    return catalog.memory.get_or_compute(("software", software, versions, enough), ask)


def frameworks_mask(catalog: Catalog, wanted: tuple[str, ...]) -> Mask:
    mask = np.ones(len(catalog.instance_types), np.bool_)
    for software in wanted:
        mask &= software_mask(catalog, software)
    return mask


def no_framework_mask(catalog: Catalog) -> Mask:
    """Where frameworks are known not to run, and none is known to."""

    def ask() -> Mask:
        spoken, runs = np.zeros((2, len(catalog.instance_types)), np.bool_)
        for software in software_names(catalog, ("framework",)):
            spoken |= np.array([bool(rules) for rules in rules_by_type(catalog, software)], np.bool_)
            runs |= software_mask(catalog, software)
        return spoken & ~runs

    return catalog.memory.get_or_compute("no_framework", ask)


NEEDS_A_FRAMEWORK = frozenset({"training"})
"""Answering can do with an engine alone."""


def task_mask(catalog: Catalog, task: str) -> Mask:
    """Where no rule says that a task cannot be done: a family's purpose never excludes it, its software can."""

    def ask() -> Mask:
        rules = [rule for rule in catalog.software if rule.task == task]
        able = np.array([said(deciding(rules, kind)) != "no" for kind in catalog.instance_types], np.bool_)
        return able & ~no_framework_mask(catalog) if task in NEEDS_A_FRAMEWORK else able

    return catalog.memory.get_or_compute(("task", task), ask)


def software_names(
    catalog: Catalog, kinds: tuple[str, ...] = ("framework", "engine", "toolkit", "library")
) -> list[str]:
    return sorted({rule.software for rule in catalog.reference.software if rule.kind in kinds})
