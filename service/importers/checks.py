"""What a seed must satisfy before it replaces the last good one; each failing is a sentence that names the row."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from datetime import date
from itertools import pairwise
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from service.db.read_history import model_from_row
from service.db.tables import (
    GpuPrecisionRow,
    GpuRow,
    InstanceTypeRow,
    LifecycleRow,
    MeasurementRow,
    ModelRow,
    ProviderRow,
    ServiceLifecycleRow,
    SoftwareSupportRow,
)
from service.db.write_catalog import Batch
from service.domain.catalog.hardware import LIFECYCLE_STATES
from service.domain.catalog.names import fold_model
from service.domain.errors import ImpossibleModel
from service.domain.models.counts import parameter_count
from service.domain.models.model import Transformer
from service.importers.charge_checks import CHARGE_CHECKS
from service.importers.price_checks import PRICE_CHECKS
from service.importers.run_checks import RUN_CHECKS
from service.importers.seed import lines
from service.importers.stated_facts import facts_are_found
from service.importers.table_checks import TABLE_CHECKS, name_of

Problems = Iterator[str]

ROUNDING = 1.001
"""Shares of a card are written with four digits."""

COUNTED_WITHIN = 0.01
"""How far a count from dimensions may be from what is published: biases, poolers and the like are not counted."""

RESERVED_SHARE = 0.2
"""Of a card's memory, how much may be kept back from its parts: 4 GB of 28 on a V710, 20 GB of 180 on a B200."""


def check_seed(batch: Batch, folder: Path) -> list[str]:
    """Everything that is wrong with a seed; nothing when it may be written."""
    prices = lines(folder / "prices.csv")
    runs = lines(folder / "published_runs.csv")
    facts = lines(folder / "stated_facts.csv")
    return [
        *(problem for check in TABLE_CHECKS for problem in check(batch.tables)),
        *(problem for check in BATCH_CHECKS for problem in check(batch)),
        *(problem for check in CHARGE_CHECKS for problem in check(batch)),
        *(problem for check in PRICE_CHECKS for problem in check(batch, prices)),
        *(problem for check in RUN_CHECKS for problem in check(batch, runs)),
        *facts_are_found(batch, facts),
    ]


# Hardware


def parts_fit_their_cards(batch: Batch) -> Problems:
    """A part has no more of anything than its card, and its share of the memory (a MIG slice may have more)."""
    cards = {gpu["id"]: gpu for gpu in batch.tables[GpuRow]}
    for gpu in cards.values():
        name, card = name_of(GpuRow, gpu), cards.get(gpu["partition_of"])
        if (gpu["fraction"] < 1) != (gpu["partition_of"] is not None):
            yield f"{name}: a part of a card has both a fraction below 1 and a card that it is a part of."
        if card is None:
            continue
        for figure in ("memory_gb", "usable_memory_gib", "memory_bandwidth_gb_per_second", "tdp_watts"):
            if exceeds(gpu[figure], card[figure]):
                yield f"{name} has more {figure} than its card, {card['id']}."
        if gpu["memory_gb"] and card["memory_gb"]:
            share = card["memory_gb"] * gpu["fraction"]
            if gpu["memory_gb"] * ROUNDING < share * (1 - RESERVED_SHARE):
                yield f"{name} has {gpu['memory_gb']:g} GB, and {gpu['fraction']:g} of its card has {share:g}."


def parts_are_no_faster_than_their_cards(batch: Batch) -> Problems:
    card_of = {gpu["id"]: gpu["partition_of"] for gpu in batch.tables[GpuRow]}
    rates = {(rate["gpu"], rate["precision"]): rate for rate in batch.tables[GpuPrecisionRow]}
    for (gpu, precision), rate in rates.items():
        card = rates.get((card_of.get(gpu), precision))
        if card and exceeds(rate["dense_tflops"], card["dense_tflops"]):
            yield f"{name_of(GpuPrecisionRow, rate)} is faster than its card, {card['gpu']}."


def programs_get_no_more_than_the_label_says(batch: Batch) -> Problems:
    for gpu in batch.tables[GpuRow]:
        if exceeds(gpu["usable_memory_gib"], gpu["memory_gb"]):
            yield f"{name_of(GpuRow, gpu)} has more usable_memory_gib than memory_gb."


def rates_make_sense(batch: Batch) -> Problems:
    for rate in batch.tables[GpuPrecisionRow]:
        name = name_of(GpuPrecisionRow, rate)
        if exceeds(rate["dense_tflops"], rate["sparse_tflops"]):
            yield f"{name}: the sparse rate is below the dense one."
        if rate["support"] == "none" and (rate["dense_tflops"] or rate["sparse_tflops"]):
            yield f"{name} has a rate, and no support."


def types_count_their_gpus(batch: Batch) -> Problems:
    """Memory of all GPUs is not among the figures: it is always the count times the memory of one."""
    for kind in batch.tables[InstanceTypeRow]:
        name, count = name_of(InstanceTypeRow, kind), kind["gpu_count"]
        if count < 0 or (kind["gpu"] is None) != (count == 0):
            yield f"{name}: {kind['gpu'] or 'no gpu'} and a gpu_count of {count} do not go together."
        if kind["interconnect"] and (kind["interconnect"] == "none") != (count <= 1):
            yield f"{name}: {count} GPUs and the interconnect {kind['interconnect']!r} do not go together."


def twins_are_alike(batch: Batch) -> Problems:
    kinds = {(kind["provider"], kind["name"]): kind for kind in batch.tables[InstanceTypeRow]}
    for kind in kinds.values():
        twin = kinds.get((kind["provider"], kind["twin_of"]))
        if twin and (twin["gpu"], twin["gpu_count"]) != (kind["gpu"], kind["gpu_count"]):
            yield f"{name_of(InstanceTypeRow, kind)} does not have the GPUs of its twin, {twin['name']}."


# Time


def types_are_dated(batch: Batch) -> Problems:
    dated = {(event["provider"], event["family"], event["name"]) for event in batch.tables[LifecycleRow]}
    for kind in batch.tables[InstanceTypeRow]:
        family = (kind["provider"], kind["family"])
        if not dated & {(*family, ""), (*family, kind["name"])}:
            yield f"{name_of(InstanceTypeRow, kind)} has no dated lifecycle, neither of its own nor of its family."


def lives_run_forwards(batch: Batch) -> Problems:
    """Announced, preview, available, closed to new, retired; a type's own days stand before those of its family."""
    days: dict[tuple[str, str, str], dict[str, date]] = defaultdict(dict)
    for event in batch.tables[LifecycleRow]:
        days[event["provider"], event["family"], event["name"]][event["state"]] = event["starts_on"]
    for kind in batch.tables[InstanceTypeRow]:
        family = (kind["provider"], kind["family"])
        own = {**days.get((*family, ""), {}), **days.get((*family, kind["name"]), {})}
        yield from disorder(name_of(InstanceTypeRow, kind), own)
    services: dict[str, dict[str, date]] = defaultdict(dict)
    for event in batch.tables[ServiceLifecycleRow]:
        services[f"service_lifecycle.csv, {event['provider']}/{event['service']}"][event["state"]] = event["starts_on"]
    for name, starts in services.items():
        yield from disorder(name, starts)


def disorder(name: str, starts: dict[str, date]) -> Problems:
    reached = [state for state in LIFECYCLE_STATES if state in starts]
    for earlier, later in pairwise(reached):
        if starts[earlier] > starts[later]:
            yield f"{name} is {later} on {starts[later]}, before it is {earlier} on {starts[earlier]}."


def rules_can_hold(batch: Batch) -> Problems:
    known = scopes(batch)
    for rule in batch.tables[SoftwareSupportRow]:
        name = name_of(SoftwareSupportRow, rule)
        if rule["scope_value"] not in known.get(rule["scope"], ()):
            yield f"{name}: the catalog has no {rule['scope']} called {rule['scope_value']!r}."
        if rule["valid_from"] and rule["valid_to"] and rule["valid_from"] >= rule["valid_to"]:
            yield f"{name} ends on {rule['valid_to']}, before it begins."
        try:
            SpecifierSet(rule["versions"] or "")
        except InvalidSpecifier:
            yield f"{name}: {rule['versions']!r} is not a PEP 440 specifier."


def scopes(batch: Batch) -> dict[str, set[str]]:
    gpus, kinds = batch.tables[GpuRow], batch.tables[InstanceTypeRow]
    return {
        "kind": {"cpu", *(gpu["kind"] for gpu in gpus)},
        "vendor": {gpu["vendor"] for gpu in gpus},
        "architecture": {gpu["architecture"] for gpu in gpus},
        "gpu": {gpu["id"] for gpu in gpus},
        "family": {kind["family"] for kind in kinds},
        "instance": {kind["name"] for kind in kinds},
    }


def measured_machines_exist(batch: Batch) -> Problems:
    """A machine that nobody rents out may be measured too: its maker is no provider."""
    providers = {provider["id"] for provider in batch.tables[ProviderRow]}
    known = {f"{kind['provider']}/{kind['name']}" for kind in batch.tables[InstanceTypeRow]}
    for seen in batch.tables[MeasurementRow]:
        if seen["machine"].partition("/")[0] in providers and seen["machine"] not in known:
            yield f"{name_of(MeasurementRow, seen)}: instance_types.csv has no {seen['machine']}."


# Models


def models_are_possible(batch: Batch) -> Problems:
    """Dimensions that can be, and count to the parameters told within 1 %, or a note that says why not."""
    for row in batch.tables[ModelRow]:
        name = name_of(ModelRow, row)
        told = [field.name for field in fields(Transformer) if row[field.name] is not None]
        missing = [field.name for field in fields(Transformer) if field.default is MISSING and field.name not in told]
        if told and missing:
            yield f"{name} is half a transformer: it has {told[0]} and no {', '.join(missing)}."
            continue
        try:
            model = model_from_row(row)
        except ImpossibleModel as error:
            yield f"{name}: {error.sentence}"
            continue
        if model.transformer is None or "by the dimensions" in (model.note or ""):
            continue
        counted = parameter_count(model.transformer)
        if abs(counted / model.parameters - 1) > COUNTED_WITHIN:
            yield f"{name} has {model.parameters:g} parameters, and its dimensions give {counted:g}."


def model_names_mean_one(batch: Batch) -> Problems:
    owner: dict[str, str] = {}
    for row in batch.tables[ModelRow]:
        spellings = {fold_model(name) for name in (row["id"], row["name"], *(row["aliases"] or row["id"]).split(";"))}
        for spelling in sorted(spellings):
            if spelling in owner:
                yield f"{name_of(ModelRow, row)}: the name {spelling!r} also means {owner[spelling]}."
            owner.setdefault(spelling, row["id"])


def exceeds(one: float | None, other: float | None) -> bool:
    """Unknown exceeds nothing, and nothing exceeds unknown."""
    return one is not None and other is not None and one > other


BATCH_CHECKS: tuple[Callable[[Batch], Problems], ...] = (
    parts_fit_their_cards,
    parts_are_no_faster_than_their_cards,
    programs_get_no_more_than_the_label_says,
    rates_make_sense,
    types_count_their_gpus,
    twins_are_alike,
    types_are_dated,
    lives_run_forwards,
    rules_can_hold,
    measured_machines_exist,
    models_are_possible,
    model_names_mean_one,
)
