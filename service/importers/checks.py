"""Checks a seed before it replaces the present one. Each problem is a sentence that names the row."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from datetime import date
from itertools import pairwise
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from service.db.read_history import model_from_row
from service.db.write_catalog import Batch, Record
from service.domain.catalog.hardware import LIFECYCLE_STATES
from service.domain.catalog.names import fold_model
from service.domain.catalog.precision import FORMATS
from service.domain.errors import ImpossibleModel
from service.domain.models.counts import parameter_count
from service.domain.models.model import Transformer
from service.importers.price_checks import PRICE_CHECKS
from service.importers.row_checks import exceeds, row_problems
from service.importers.seed import SeedLine, lines
from service.importers.stated_facts import facts_are_found
from service.importers.table_checks import Problems, check_tables, name_of

ROUNDING = 1.001
"""Tolerance, because fractions of a card have only four digits."""

COUNTED_WITHIN = 0.01
"""How far counted parameters may differ from published ones, because biases, poolers and the like are not counted."""

RESERVED_SHARE = 0.2
"""Largest share of a card's memory that belongs to none of its parts: 4 GB of 28 on a V710, 20 GB of 180 on a B200."""


def check_seed(batch: Batch, folder: Path) -> list[str]:
    """Returns a sentence for each problem of a seed; only a seed without problems may be written."""
    prices = lines(folder / "prices.csv")
    runs = lines(folder / "published_runs.csv")
    facts = lines(folder / "stated_facts.csv")
    return [
        *check_tables(batch.tables),
        *row_problems(batch.tables),
        *(problem for check in BATCH_CHECKS for problem in check(batch)),
        *(problem for check in PRICE_CHECKS for problem in check(batch, prices)),
        *_names_resolve_to_the_model(batch, runs),
        *facts_are_found(batch, facts),
    ]


# Hardware


def _parts_fit_their_cards(batch: Batch) -> Problems:
    """Yields parts of cards with larger figures than their card, or with less than their fraction of its memory."""
    cards = {gpu["id"]: gpu for gpu in batch.tables["gpu"]}
    for gpu in cards.values():
        name, card = name_of("gpu", gpu), cards.get(gpu["partition_of"])
        if card is None:
            continue
        for figure in ("memory_gb", "usable_memory_gib", "memory_bandwidth_gb_per_second", "tdp_watts"):
            if exceeds(gpu[figure], card[figure]):
                yield f"{name} has more {figure} than its card, {card['id']}."
        if gpu["memory_gb"] and card["memory_gb"]:
            share = card["memory_gb"] * gpu["fraction"]
            if gpu["memory_gb"] * ROUNDING < share * (1 - RESERVED_SHARE):
                yield f"{name} has {gpu['memory_gb']:g} GB, and {gpu['fraction']:g} of its card has {share:g}."


def _parts_are_no_faster_than_their_cards(batch: Batch) -> Problems:
    card_of = {gpu["id"]: gpu["partition_of"] for gpu in batch.tables["gpu"]}
    rates = {(rate["gpu"], rate["precision"]): rate for rate in batch.tables["gpu_precision"]}
    for (gpu, precision), rate in rates.items():
        card = rates.get((card_of.get(gpu), precision))
        if card and exceeds(rate["dense_tflops"], card["dense_tflops"]):
            yield f"{name_of('gpu_precision', rate)} is faster than its card, {card['gpu']}."


def _twins_have_the_same_gpus(batch: Batch) -> Problems:
    types = {(row["provider"], row["name"]): row for row in batch.tables["instance_type"]}
    for row in types.values():
        twin = types.get((row["provider"], row["twin_of"]))
        if twin and (twin["gpu"], twin["gpu_count"]) != (row["gpu"], row["gpu_count"]):
            yield f"{name_of('instance_type', row)} does not have the GPUs of its twin, {twin['name']}."


# Time


def _lifecycles_run_forwards(batch: Batch) -> Problems:
    """Yields lifecycles whose states are not in order; the days of a type override those of its family."""
    days: dict[tuple[str, str, str], dict[str, date]] = defaultdict(dict)
    for event in batch.tables["lifecycle"]:
        days[event["provider"], event["family"], event["name"]][event["state"]] = event["starts_on"]
    for row in batch.tables["instance_type"]:
        family = (row["provider"], row["family"])
        own = {**days.get((*family, ""), {}), **days.get((*family, row["name"]), {})}
        if not own:
            yield f"{name_of('instance_type', row)} has no dated lifecycle, neither of its own nor of its family."
        yield from _disorder(name_of("instance_type", row), own)
    services: dict[str, dict[str, date]] = defaultdict(dict)
    for event in batch.tables["service_lifecycle"]:
        services[f"service_lifecycle.csv, {event['provider']}/{event['service']}"][event["state"]] = event["starts_on"]
    for name, starts in services.items():
        yield from _disorder(name, starts)


def _disorder(name: str, starts: dict[str, date]) -> Problems:
    reached = [state for state in LIFECYCLE_STATES if state in starts]
    for earlier, later in pairwise(reached):
        if starts[earlier] > starts[later]:
            yield f"{name} is {later} on {starts[later]}, before it is {earlier} on {starts[earlier]}."


def _software_rules_apply_to_something(batch: Batch) -> Problems:
    values_of = _scope_values(batch)
    known_words = {
        "families": {model["family"] for model in batch.tables["model"]},
        "formats": {precision["id"] for precision in batch.tables["precision"]},
    }
    for rule in batch.tables["framework_support"]:
        name = name_of("framework_support", rule)
        if rule["scope_value"] not in values_of.get(rule["scope"], ()):
            yield f"{name}: the catalog has no {rule['scope']} called {rule['scope_value']!r}."
        for column in ("versions", "cuda"):
            try:
                SpecifierSet(rule[column] or "")
            except InvalidSpecifier:
                yield f"{name}: {rule[column]!r} is not a PEP 440 specifier."
        for column, known in known_words.items():
            unknown = sorted(set((rule[column] or "").split(",")) - known - {""})
            if unknown:
                yield f"{name}: the catalog has no {' and no '.join(unknown)}, which {column} names."


def _scope_values(batch: Batch) -> dict[str, set[str]]:
    gpus, types = batch.tables["gpu"], batch.tables["instance_type"]
    return {
        # Machines without a GPU have rules of the kind `cpu`, which no row of the GPUs has.
        "kind": {"cpu", *(gpu["kind"] for gpu in gpus)},
        "vendor": {gpu["vendor"] for gpu in gpus},
        "platform": {"cpu", *(gpu["platform"] for gpu in gpus)},
        "architecture": {gpu["architecture"] for gpu in gpus},
        "gpu": {gpu["id"] for gpu in gpus},
        "family": {row["family"] for row in types},
        "instance": {row["name"] for row in types},
    }


def _fees_are_of_machines(batch: Batch) -> Problems:
    """Yields surcharges of a family or a machine that the catalog lacks."""
    types = batch.tables["instance_type"]
    known = {(row["provider"], row[column]) for row in types for column in ("family", "name")}
    for fee in batch.tables["fee"]:
        if fee["family"] and (fee["provider"], fee["family"]) not in known:
            yield f"{name_of('fee', fee)}: instance_types.csv has no {fee['provider']} {fee['family']}."


def _measured_machines_exist(batch: Batch) -> Problems:
    """Yields measured machines of providers that the catalog lacks; machines of other owners may be missing."""
    providers = {provider["id"] for provider in batch.tables["provider"]}
    known = {f"{row['provider']}/{row['name']}" for row in batch.tables["instance_type"]}
    for measurement in batch.tables["measurement"]:
        if measurement["machine"].partition("/")[0] in providers and measurement["machine"] not in known:
            yield f"{name_of('measurement', measurement)}: instance_types.csv has no {measurement['machine']}."


# Models


def _models_are_possible(batch: Batch) -> Problems:
    """Yields models with impossible dimensions, and unexplained differences from the published parameters above 1 %."""
    for row in batch.tables["model"]:
        name = name_of("model", row)
        given = [field.name for field in fields(Transformer) if row[field.name] is not None]
        missing = [field.name for field in fields(Transformer) if field.default is MISSING and field.name not in given]
        if given and missing:
            yield f"{name} is an incomplete transformer: it has {given[0]} and no {', '.join(missing)}."
            continue  # the class of the domain cannot be made without them
        try:
            model = model_from_row(row)
        except ImpossibleModel as error:
            yield f"{name}: {error.sentence}"
            continue
        if model.published_precision is not None and model.published_precision not in FORMATS:
            yield f"{name}: no number format is called '{model.published_precision}'."
        # Some sources round their counts; the notes of these models give the count by the dimensions.
        if model.transformer is None or "by the dimensions" in (model.note or ""):
            continue
        counted = parameter_count(model.transformer)
        if abs(counted / model.parameters - 1) > COUNTED_WITHIN:
            yield f"{name} has {model.parameters:g} parameters, and its dimensions give {counted:g}."


def _model_names_are_unambiguous(batch: Batch) -> Problems:
    owner: dict[str, str] = {}
    for row in batch.tables["model"]:
        for spelling in sorted(_spellings(row)):
            if spelling in owner:
                yield f"{name_of('model', row)}: the name {spelling!r} also means {owner[spelling]}."
            owner.setdefault(spelling, row["id"])


def _spellings(model: Record) -> set[str]:
    return {fold_model(name) for name in (model["id"], model["name"], *(model["aliases"] or model["id"]).split(";"))}


# Published runs


def _machines_have_the_gpu(batch: Batch) -> Problems:
    gpu_of = {f"{row['provider']}/{row['name']}": row["gpu"] for row in batch.tables["instance_type"]}
    for run in batch.tables["published_run"]:
        name, machine = name_of("published_run", run), run["machine"]
        if machine and machine not in gpu_of:
            yield f"{name}: instance_types.csv has no {machine}."
        elif machine and gpu_of[machine] != run["gpu"]:
            yield f"{name}: {machine} has {gpu_of[machine] or 'no GPU'}, not {run['gpu']}."


def _names_resolve_to_the_model(batch: Batch, runs: Sequence[SeedLine]) -> Problems:
    id_of = {spelling: model["id"] for model in batch.tables["model"] for spelling in _spellings(model)}
    for line in runs:
        name, stated = line.cells["model"], line.cells["model_id"]
        model = id_of.get(fold_model(name))
        if model != stated:
            yield f"{line}: the model '{name}' is {model or 'none'} of models.csv, not {stated}."


# Charges


def _classes_are_of_one_kind(batch: Batch) -> Problems:
    """Yields storage classes with several kinds; the kind decides whether a class is paid per machine or once."""
    kinds: dict[tuple[str, str], str] = {}
    for price in batch.tables["storage_price"]:
        kind = kinds.setdefault((price["provider"], price["storage_class"]), price["kind"])
        if kind != price["kind"]:
            yield f"{name_of('storage_price', price)} is {price['kind']} here and {kind} elsewhere."


def _tiers_are_contiguous(batch: Batch) -> Problems:
    """Yields tiers that do not start at 0 or where the tier before them ends."""
    tables: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for tier in batch.tables["transfer_price"]:
        tables[tier["provider"], tier["from_region"], tier["destination"], tier["valid_from"]].append(tier)
    for tiers in tables.values():
        tiers.sort(key=lambda tier: tier["tier_from_gb"])
        if tiers[0]["tier_from_gb"] != 0:
            yield f"{name_of('transfer_price', tiers[0])}: no tier begins at 0."
        for tier, following in pairwise(tiers):
            if tier["tier_to_gb"] != following["tier_from_gb"]:
                yield f"{name_of('transfer_price', following)} does not begin where the tier before it ends."


BATCH_CHECKS: tuple[Callable[[Batch], Problems], ...] = (
    _parts_fit_their_cards,
    _parts_are_no_faster_than_their_cards,
    _twins_have_the_same_gpus,
    _lifecycles_run_forwards,
    _software_rules_apply_to_something,
    _fees_are_of_machines,
    _measured_machines_exist,
    _models_are_possible,
    _model_names_are_unambiguous,
    _machines_have_the_gpu,
    _classes_are_of_one_kind,
    _tiers_are_contiguous,
)
