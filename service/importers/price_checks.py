"""Checks prices against the rest of a batch; each problem is a sentence."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from datetime import date

from service.db.schema import vocabulary
from service.db.write_catalog import Batch
from service.domain.catalog.tariffs import commitment_in
from service.importers.prices import QUARANTINE_REASONS
from service.importers.seed import SeedLine
from service.importers.table_checks import Problems, unknown_word

LARGEST_SHARE_QUARANTINED = 0.2
"""If a larger share is set aside, names have changed, and the remaining prices would mislead."""

LONGEST_WITHOUT_A_RATE_DAYS = 45
"""Exchange rates are monthly, and a price may be observed some days after the last rate."""


def _cells_are_possible(batch: Batch, prices: Sequence[SeedLine]) -> Problems:
    """Checks every line, including those that do not enter the catalog."""
    sources = {source["id"] for source in batch.tables["source"]}
    words = {**vocabulary("offer"), **vocabulary("price")}
    # A row that is set aside may enter the catalog later, so its errors are reported now.
    for line in prices:
        cell = line.cells
        if cell["per_hour"] and float(cell["per_hour"]) <= 0:
            yield f"{line}: a price must be above 0; an unknown price is an empty cell."
        if not cell["per_hour"] and not cell["note"]:
            yield f"{line} has no price, and its note does not say why."
        if cell["source"] not in sources:
            yield f"{line}: sources.csv has no {cell['source']}."
        if (cell["market"] == "reserved") != (commitment_in(cell["term"]) is not None):
            yield f"{line}: a reserved price has a term, such as '1y_reserved_no_upfront', and no other price has one."
        if (cell["observed_on"] == "") != (cell["dated"] == "unknown"):
            yield f"{line}: a price without a day is dated 'unknown', and no other price is."
        for column, allowed in words.items():
            if cell[column] not in allowed:
                yield f"{line}: {unknown_word(column, cell[column], allowed)}"


def _places_are_known(batch: Batch, prices: Sequence[SeedLine]) -> Problems:
    """Checks region and zone of every line, including those that do not enter the catalog."""
    regions = {(region["provider"], region["id"]) for region in batch.tables["region"]}
    for line in prices:
        cell = line.cells
        if cell["region"] and (cell["provider"], cell["region"]) not in regions:
            yield f"{line}: regions.csv has no {cell['provider']} {cell['region']}."
        if cell["zone"] and not cell["region"]:
            yield f"{line}: a price of the zone {cell['zone']} names its region; one that holds everywhere has no zone."


def _few_are_quarantined(batch: Batch, prices: Sequence[SeedLine]) -> Problems:
    for reason in batch.quarantined.keys() - QUARANTINE_REASONS.keys():
        yield f"prices.csv: rows are set aside for {reason!r}, which QUARANTINE_REASONS does not explain."
    quarantined = sum(batch.quarantined.values())
    if quarantined > LARGEST_SHARE_QUARANTINED * len(prices):
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(batch.quarantined.items()))
        yield f"prices.csv: {quarantined:,} of {len(prices):,} rows cannot enter the catalog ({reasons})."


def _prices_convert_to_dollars(batch: Batch, _prices: Sequence[SeedLine]) -> Problems:
    days: dict[str, list[date]] = defaultdict(list)
    for rate in batch.tables["exchange_rate"]:
        days[rate["currency"]].append(rate["on"])
    for row in batch.observations:
        if row["currency"] == "USD":
            continue
        rated, day = sorted(days[row["currency"]]), row["effective_from"].date()
        earlier = bisect_right(rated, day)
        has_rate = earlier > 0 and (day - rated[earlier - 1]).days <= LONGEST_WITHOUT_A_RATE_DAYS
        if row["per_hour_micros"] is not None and not has_rate:
            yield f"prices.csv, {' '.join(row['key'].split())}: exchange_rates.csv has no rate for {day}."


PRICE_CHECKS = (_cells_are_possible, _places_are_known, _few_are_quarantined, _prices_convert_to_dollars)
