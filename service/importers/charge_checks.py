"""What sellers' charges must satisfy beside what the tables promise; each failing is a sentence that names the row."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from service.db.tables import BillingRuleRow, InterruptionPriorRow, StoragePriceRow, TransferPriceRow
from service.db.write_catalog import Batch, Record
from service.importers.table_checks import name_of

Problems = Iterator[str]


def billing_minimums_hold_an_increment(batch: Batch) -> Problems:
    for rule in batch.tables[BillingRuleRow]:
        if rule["minimum_seconds"] < rule["increment_seconds"]:
            yield f"{name_of(BillingRuleRow, rule)}: the minimum is shorter than one increment."


def storage_is_priced_or_included(batch: Batch) -> Problems:
    for price in batch.tables[StoragePriceRow]:
        if price["included"] != (price["micros_per_gib_month"] is None):
            yield f"{name_of(StoragePriceRow, price)}: what has no price comes with the machine, and nothing else does."


def classes_are_of_one_kind(batch: Batch) -> Problems:
    """A class is paid per machine or once, everywhere and always."""
    kinds: dict[tuple[str, str], str] = {}
    for price in batch.tables[StoragePriceRow]:
        kind = kinds.setdefault((price["provider"], price["storage_class"]), price["kind"])
        if kind != price["kind"]:
            yield f"{name_of(StoragePriceRow, price)} is {price['kind']} here and {kind} elsewhere."


def tiers_join(batch: Batch) -> Problems:
    """From 0 on, each tier begins where the one before it ends."""
    tables: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for tier in batch.tables[TransferPriceRow]:
        tables[tier["provider"], tier["from_region"], tier["destination"], tier["valid_from"]].append(tier)
    for tiers in tables.values():
        tiers.sort(key=lambda tier: tier["tier_from_gb"])
        if tiers[0]["tier_from_gb"] != 0:
            yield f"{name_of(TransferPriceRow, tiers[0])}: no tier begins at 0."
        for tier, after in pairwise(tiers):
            if tier["tier_to_gb"] != after["tier_from_gb"]:
                yield f"{name_of(TransferPriceRow, after)} does not begin where the tier before it ends."
        last = tiers[-1]
        if last["tier_to_gb"] is not None and last["tier_to_gb"] <= last["tier_from_gb"]:
            yield f"{name_of(TransferPriceRow, last)} ends before it begins."


def nobody_is_paid_to_send(batch: Batch) -> Problems:
    for tier in batch.tables[TransferPriceRow]:
        if tier["micros_per_gb"] < 0:
            yield f"{name_of(TransferPriceRow, tier)} has a price below 0."


def priors_make_sense(batch: Batch) -> Problems:
    for prior in batch.tables[InterruptionPriorRow]:
        name = name_of(InterruptionPriorRow, prior)
        if not prior["per_hour_low"] <= prior["per_hour_likely"] <= prior["per_hour_high"]:
            yield f"{name}: the rates are not in order, low, likely and high."
        if not 0 <= prior["lost_together"] <= 1:
            yield f"{name}: lost_together is a share, from 0 to 1."
        if prior["available_share"] is not None and not 0 < prior["available_share"] <= 1:
            yield f"{name}: available_share is a share, above 0 and up to 1."


CHARGE_CHECKS = (
    billing_minimums_hold_an_increment,
    storage_is_priced_or_included,
    classes_are_of_one_kind,
    tiers_join,
    nobody_is_paid_to_send,
    priors_make_sense,
)
