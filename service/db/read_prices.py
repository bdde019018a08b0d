"""Rows of offers and prices → columns: many rows, so they come in portions and turn into numbers a column at a time."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, select

from service.db.columns import epoch_seconds
from service.db.tables import ExchangeRateRow, OfferRow, PriceRow
from service.domain.history import EPOCH, FOREVER, SECONDS_A_DAY, UNKNOWN, OfferColumns, PriceColumns
from service.domain.offer import DATED, MARKETS, PRICE_KINDS

READ_AT_ONCE = 10_000
"""So that reading many never holds them all as Python objects."""

USD = "USD"
NANO = 1_000_000_000

Numbers = NDArray[np.int64]
Rates = Mapping[str, tuple[list[int], list[int]]]


class Vocabulary(dict[str | None, int]):
    """Words and their codes, in the order in which they turned up; no word has the code of what is not known."""

    def __init__(self) -> None:
        super().__init__({None: UNKNOWN})

    def __missing__(self, word: str | None) -> int:
        return self.setdefault(word, len(self) - 1)

    def codes(self, words: Iterable[str | None]) -> Numbers:
        return np.array([self[word] for word in words], np.int64)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word for word in self if word is not None)


def read_offers(
    connection: Connection, place_of: Mapping[int, int], vocabulary: Vocabulary
) -> tuple[OfferColumns, Numbers, Numbers]:
    """Offers as columns in the order of their keys, and beside them their database ids and the codes of currencies."""
    table = OfferRow.__table__.c
    query = select(table.id, table.instance_type_id, table.region, table.zone, table.market, table.currency, table.term)
    market_of = {market: code for code, market in enumerate(MARKETS)}
    places, terms = Vocabulary(), Vocabulary()
    ids, kind, region, zone, market, currency, term = columns_of(
        (
            (id_, [place_of[each] for each in kind], places.codes(region), places.codes(zone),
             [market_of[each] for each in market], vocabulary.codes(currency), terms.codes(term))
            for id_, kind, region, zone, market, currency, term in portions(connection, query.order_by(table.key))
        ),
        7,
    )  # fmt: skip
    words = tuple(sorted(places.words))
    sorted_code = np.array([*np.argsort(np.argsort(places.words)), UNKNOWN])  # the last one is where -1 points
    columns = OfferColumns(
        instance_type=still(kind, np.int32),
        region=still(sorted_code[region], np.int32),
        zone=still(sorted_code[zone], np.int32),
        market=still(market, np.int8),
        places=words,
        term=still(term, np.int16),
        terms=terms.words,
    )
    return columns, ids, currency


def read_prices(
    connection: Connection, offer_ids: Numbers, currency_of: Numbers, vocabulary: Vocabulary
) -> PriceColumns:
    """Prices as columns; `offer_ids` and `currency_of` tell the id and the currency of the offer at each place."""
    table = PriceRow.__table__.c
    query = select(
        table.offer_id, epoch_seconds(table.valid_from), epoch_seconds(table.valid_to), table.per_hour_micros,
        epoch_seconds(table.observed_on), table.dated, table.kind, table.source, table.note,
    ).order_by(table.offer_id, table.valid_from)  # fmt: skip
    dated_of = {word: code for code, word in enumerate(DATED)}
    kind_of = {word: code for code, word in enumerate(PRICE_KINDS)}
    offer, begin, end, native, observed, dated, kind, source, note = columns_of(
        (
            (offer, begin, known(end, FOREVER), known(native, UNKNOWN), known(observed, UNKNOWN),
             [dated_of[each] for each in dated], [kind_of[each] for each in kind],
             vocabulary.codes(source), vocabulary.codes(note))
            for offer, begin, end, native, observed, dated, kind, source, note in portions(connection, query)
        ),
        9,
    )  # fmt: skip
    by_id = np.argsort(offer_ids)
    place = by_id[np.searchsorted(offer_ids, offer, sorter=by_id)] if len(offer) else offer
    currency = currency_of[place]
    return PriceColumns(
        offer=still(place, np.int32),
        valid_from=still(begin, np.int64),
        valid_to=still(end, np.int64),
        usd_micros=still(
            in_usd(native, currency, begin // SECONDS_A_DAY + EPOCH, vocabulary, read_rates(connection)), np.int64
        ),
        native_micros=still(native, np.int64),
        observed_day=still(np.where(observed == UNKNOWN, UNKNOWN, observed // SECONDS_A_DAY + EPOCH), np.int32),
        currency=still(currency, np.int16),
        dated=still(dated, np.int8),
        kind=still(kind, np.int8),
        source=still(source, np.int32),
        note=still(note, np.int32),
        words=vocabulary.words,
    )


def portions(connection: Connection, query: Select[Any]) -> Iterator[Iterable[Sequence[Any]]]:
    """What a query finds, a few thousand rows at a time, turned from rows to columns.

    Taken from the driver's cursor: nothing here needs the types and the rows that SQLAlchemy would make of it.
    """
    with connection.execute(query) as result:
        while found := result.cursor.fetchmany(READ_AT_ONCE):
            yield zip(*found, strict=True)


def columns_of(portions: Iterable[Sequence[Sequence[int] | Numbers]], width: int) -> list[Numbers]:
    """Portions of columns, each of whole numbers → the columns."""
    parts: list[list[Numbers]] = [[np.zeros(0, np.int64)] for _ in range(width)]
    for portion in portions:
        for part, values in zip(parts, portion, strict=True):
            part.append(np.array(values, np.int64))
    return [np.concatenate(part) for part in parts]


def known(values: Sequence[int | None], missing: int) -> list[int]:
    return [missing if value is None else value for value in values]


def still(values: Numbers, kind: Any) -> NDArray[Any]:
    column = values.astype(kind)
    column.setflags(write=False)
    return column


def read_rates(connection: Connection) -> Rates:
    """Per currency: days and, beside them, nanodollars per unit, in the order of days."""
    table = ExchangeRateRow.__table__.c
    query = select(table.currency, table.on, table.usd_per_unit_nanos).order_by(table.currency, table.on)
    rates: dict[str, tuple[list[int], list[int]]] = {}
    for currency, on, nanos in connection.execute(query):
        of_currency = rates.setdefault(currency, ([], []))
        of_currency[0].append(on.toordinal())
        of_currency[1].append(nanos)
    return rates


def in_usd(native: Numbers, currency: Numbers, day: Numbers, vocabulary: Vocabulary, rates: Rates) -> Numbers:
    """Microdollars by the rate of that day, or the last one before it; unknown where no rate is that old."""
    usd = native.copy()
    words = vocabulary.words
    for row in np.flatnonzero((currency != vocabulary.get(USD, UNKNOWN)) & (native != UNKNOWN)).tolist():
        usd[row] = converted(int(native[row]), int(day[row]), rates.get(words[currency[row]], ([], [])))
    return usd


def converted(micros: int, day: int, rates: tuple[list[int], list[int]]) -> int:
    days, nanos = rates
    earlier = bisect_right(days, day)
    return (micros * nanos[earlier - 1] + NANO // 2) // NANO if earlier else UNKNOWN
