"""What prices must satisfy beside the rest of a seed; each failing is a sentence that names the line."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date

from service.db.tables import ExchangeRateRow, OfferRow, PriceRow, RegionRow, SourceRow
from service.db.write_catalog import Batch
from service.domain.bill.commitments import commitment_in
from service.importers.prices import SET_ASIDE
from service.importers.seed import SeedLine
from service.importers.table_checks import unknown_word, vocabulary

Problems = Iterator[str]

LARGEST_SHARE_SET_ASIDE = 0.2
"""Above this share of its prices a feed has changed its names, and what is left would be a poor picture."""

LONGEST_WITHOUT_A_RATE_DAYS = 45
"""Exchange rates are kept by the month; a price may be seen some days after the last one."""


def prices_make_sense(batch: Batch, prices: Sequence[SeedLine]) -> Problems:
    """Asked of every line, also of those that do not enter the catalog."""
    regions = {(region["provider"], region["id"]) for region in batch.tables[RegionRow]}
    sources = {source["id"] for source in batch.tables[SourceRow]}
    words = {**vocabulary(OfferRow), **vocabulary(PriceRow)}
    for line in prices:
        cell = line.cells
        if cell["per_hour"] and float(cell["per_hour"]) <= 0:
            yield f"{line}: a price is more than nothing, and unknown would be empty."
        if not cell["per_hour"] and not cell["note"]:
            yield f"{line} has no price, and its note does not say why."
        if cell["region"] and (cell["provider"], cell["region"]) not in regions:
            yield f"{line}: regions.csv has no {cell['provider']} {cell['region']}."
        if cell["source"] not in sources:
            yield f"{line}: sources.csv has no {cell['source']}."
        if (cell["market"] == "reserved") != (commitment_in(cell["term"]) is not None):
            yield f"{line}: what is reserved tells its term, as in '1y_reserved_no_upfront', and nothing else has one."
        if (cell["observed_on"] == "") != (cell["dated"] == "unknown"):
            yield f"{line}: only what has no day is dated 'unknown'."
        for column, known in words.items():
            if cell[column] not in known:
                yield f"{line}: {unknown_word(column, cell[column], known)}"


def few_prices_are_set_aside(batch: Batch, prices: Sequence[SeedLine]) -> Problems:
    for reason in batch.quarantined.keys() - SET_ASIDE.keys():
        yield f"prices.csv: rows are set aside as {reason!r}, which nothing explains."
    aside = sum(batch.quarantined.values())
    if aside > LARGEST_SHARE_SET_ASIDE * len(prices):
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(batch.quarantined.items()))
        yield f"prices.csv: {aside:,} of {len(prices):,} rows cannot enter the catalog ({reasons})."


def prices_can_be_told_in_dollars(batch: Batch, _prices: Sequence[SeedLine]) -> Problems:
    days: dict[str, list[date]] = defaultdict(list)
    for rate in batch.tables[ExchangeRateRow]:
        days[rate["currency"]].append(rate["on"])
    for offer in batch.offers:
        if offer["currency"] == "USD":
            continue
        known = sorted(days[offer["currency"]])
        for price in offer["prices"]:
            if price["per_hour_micros"] is not None and not has_rate(price["valid_from"].date(), known):
                name = " ".join(offer["key"].split())
                yield f"prices.csv, {name}: exchange_rates.csv has no rate for {price['valid_from'].date()}."


def has_rate(day: date, known: Sequence[date]) -> bool:
    place = bisect_right(known, day)
    return place > 0 and (day - known[place - 1]).days <= LONGEST_WITHOUT_A_RATE_DAYS


PRICE_CHECKS = (prices_make_sense, few_prices_are_set_aside, prices_can_be_told_in_dollars)
