"""Checks the charges of providers beyond the constraints of their tables; each problem is a sentence."""

from collections import defaultdict
from itertools import pairwise

from service.db.write_catalog import Batch, Record
from service.importers.table_checks import Problems, name_of


def _billing_minimums_hold_an_increment(batch: Batch) -> Problems:
    for rule in batch.tables["billing_rule"]:
        if rule["minimum_seconds"] < rule["increment_seconds"]:
            yield f"{name_of('billing_rule', rule)}: the minimum is shorter than one increment."


def _storage_is_priced_or_included(batch: Batch) -> Problems:
    for price in batch.tables["storage_price"]:
        if price["included"] != (price["micros_per_gib_month"] is None):
            yield f"{name_of('storage_price', price)}: what has no price comes with the machine, and nothing else does."


def _classes_are_of_one_kind(batch: Batch) -> Problems:
    """The kind decides whether a class is paid per machine or once, so it is the same in every row."""
    kinds: dict[tuple[str, str], str] = {}
    for price in batch.tables["storage_price"]:
        kind = kinds.setdefault((price["provider"], price["storage_class"]), price["kind"])
        if kind != price["kind"]:
            yield f"{name_of('storage_price', price)} is {price['kind']} here and {kind} elsewhere."


def _tiers_are_contiguous(batch: Batch) -> Problems:
    """The first tier starts at 0, and each further tier starts where the one before it ends."""
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
        last = tiers[-1]
        if last["tier_to_gb"] is not None and last["tier_to_gb"] <= last["tier_from_gb"]:
            yield f"{name_of('transfer_price', last)} ends before it begins."


def _transfer_costs_at_least_0(batch: Batch) -> Problems:
    for tier in batch.tables["transfer_price"]:
        if tier["micros_per_gb"] < 0:
            yield f"{name_of('transfer_price', tier)} has a price below 0."


def _priors_make_sense(batch: Batch) -> Problems:
    for prior in batch.tables["interruption_prior"]:
        name = name_of("interruption_prior", prior)
        if not prior["per_hour_low"] <= prior["per_hour_likely"] <= prior["per_hour_high"]:
            yield f"{name}: the rates are not in order, low, likely and high."
        if not 0 <= prior["lost_together"] <= 1:
            yield f"{name}: lost_together is a share, from 0 to 1."
        if prior["available_share"] is not None and not 0 < prior["available_share"] <= 1:
            yield f"{name}: available_share is a share, above 0 and up to 1."


CHARGE_CHECKS = (
    _billing_minimums_hold_an_increment,
    _storage_is_priced_or_included,
    _classes_are_of_one_kind,
    _tiers_are_contiguous,
    _transfer_costs_at_least_0,
    _priors_make_sense,
)
