"""What software runs on which hardware, by the rules in force on the catalog's day; the narrowest rule decides."""

import numpy as np

from service.domain.catalog import Catalog, Mask
from service.domain.hardware import InstanceType
from service.domain.reference import SoftwareRule

SCOPES = ("kind", "vendor", "architecture", "gpu", "family", "instance")
"""From the widest to the narrowest."""


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


def verdict(rules: list[SoftwareRule], kind: InstanceType) -> str | None:
    """`yes`, `partly` or `no` by the narrowest rule that speaks of the machine; nothing when none does."""
    speaking = [rule for rule in rules if speaks_of(rule, kind)]
    if not speaking:
        return None
    narrowest = max(SCOPES.index(rule.scope) for rule in speaking)
    says = {rule.supported for rule in speaking if SCOPES.index(rule.scope) == narrowest}
    return next(word for word in ("yes", "partly", "no") if word in says)


def software_mask(catalog: Catalog, software: str) -> Mask:
    """Where a framework, engine or toolkit is known to run, fully or in part."""

    def ask() -> Mask:
        rules = [rule for rule in catalog.software if rule.software == software and rule.task is None]
        return np.array([verdict(rules, kind) in ("yes", "partly") for kind in catalog.instance_types], np.bool_)

    return catalog.memory.recall(("software", software), ask)


def frameworks_mask(catalog: Catalog, wanted: tuple[str, ...]) -> Mask:
    mask = np.ones(len(catalog.instance_types), np.bool_)
    for software in wanted:
        mask &= software_mask(catalog, software)
    return mask


def task_mask(catalog: Catalog, task: str) -> Mask:
    """Where no rule says that a task cannot be done: a family's purpose never excludes it, its software can."""

    def ask() -> Mask:
        rules = [rule for rule in catalog.software if rule.task == task]
        return np.array([verdict(rules, kind) != "no" for kind in catalog.instance_types], np.bool_)

    return catalog.memory.recall(("task", task), ask)


def software_names(
    catalog: Catalog, kinds: tuple[str, ...] = ("framework", "engine", "toolkit", "library")
) -> list[str]:
    return sorted({rule.software for rule in catalog.reference.software if rule.kind in kinds})
