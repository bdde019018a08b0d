"""Reads offers and prices into columns of whole numbers."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from service.db.bulk_columns import Numbers, read_columns
from service.db.tables import EXCHANGE_RATE, OFFER, PRICE
from service.domain.catalog.history import EPOCH
from service.domain.catalog.offer import DATED, FOREVER, MARKETS, PRICE_KINDS, UNKNOWN, OfferColumns, PriceColumns
from service.domain.money import NANO, USD
from service.domain.units import SECONDS_A_DAY

Rates = Mapping[str, tuple[list[int], list[int]]]
"""The days of each currency in order, and its value in nanodollars per unit on each of these days."""


class PriceVocabulary(dict[str, int]):
    """Codes of texts, numbered as they are first looked up; the empty text, which stands for null, is `UNKNOWN`."""

    def __init__(self) -> None:
        super().__init__({"": UNKNOWN})

    def __missing__(self, word: str) -> int:
        return self.setdefault(word, len(self) - 1)

    @property
    def words(self) -> tuple[str, ...]:
        """Returns the texts, each at the index of its code."""
        return tuple(word for word in self if word)

    def sorted(self) -> tuple[tuple[str, ...], Numbers]:
        """Returns the texts in alphabetical order, and the new code for each old one."""
        new = np.argsort(np.argsort(self.words))
        return tuple(sorted(self.words)), np.array([*new, UNKNOWN], np.int64)  # the old code -1 reads the last item


class _Parsed(dict[str, int]):
    """Parses texts to numbers, each distinct text once, because most texts repeat."""

    def __init__(self, parse: Callable[[str], int], null: int) -> None:
        super().__init__({"": null})
        self._parse = parse

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, self._parse(text))


def _seconds_since_1970(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())  # SQLite drops the zone


def _codes_of(words: tuple[str, ...]) -> dict[str, int]:
    return {word: code for code, word in enumerate(words)}


def read_offers(
    connection: Connection, index_of: Mapping[int, int], vocabulary: PriceVocabulary
) -> tuple[OfferColumns, Numbers, Numbers]:
    """Returns the offers in an order that is the same in every database, with their ids and codes of their currencies.

    `index_of` gives the index of an instance type by its database id.
    """
    regions, terms = PriceVocabulary(), PriceVocabulary()
    columns = read_columns(
        connection,
        OFFER,
        {
            "id": None,
            "instance_type_id": None,
            "region": regions,
            "zone": regions,
            "market": _codes_of(MARKETS),
            "currency": vocabulary,
            "term": terms,
        },
    )
    # An array that is indexed by database id maps 200,000 offers in one step.
    type_index = np.zeros(max(index_of, default=0) + 1, np.int64)
    type_index[list(index_of)] = list(index_of.values())
    region_names, region_code = regions.sorted()
    term_names, term_code = terms.sorted()
    currency_rank = vocabulary.sorted()[1][columns["currency"]]
    type_of, market = type_index[columns["instance_type_id"]], columns["market"]
    region, zone, term = region_code[columns["region"]], region_code[columns["zone"]], term_code[columns["term"]]
    order = np.lexsort((currency_rank, term, market, zone, region, type_of))
    offers = OfferColumns(
        instance_type=_frozen(type_of[order], np.int32),
        region=_frozen(region[order], np.int32),
        zone=_frozen(zone[order], np.int32),
        market=_frozen(market[order], np.int8),
        places=region_names,
        term=_frozen(term[order], np.int16),
        terms=term_names,
    )
    return offers, columns["id"][order], columns["currency"][order]


def read_prices(
    connection: Connection, offer_ids: Numbers, currency_of: Numbers, vocabulary: PriceVocabulary
) -> PriceColumns:
    """Returns the prices sorted by offer and time; `offer_ids` and `currency_of` have an entry per offer, in order."""
    columns = read_columns(
        connection,
        PRICE,
        {
            "offer_id": None,
            "valid_from": _Parsed(_seconds_since_1970, UNKNOWN),
            "valid_to": _Parsed(_seconds_since_1970, FOREVER),
            "per_hour_micros": None,
            "observed_on": _Parsed(lambda day: date.fromisoformat(day).toordinal(), UNKNOWN),
            "dated": _codes_of(DATED),
            "kind": _codes_of(PRICE_KINDS),
            "source": vocabulary,
            "note": vocabulary,
        },
    )
    # The order of rows in a table differs between databases; in the columns, it has to be by offer and time.
    offer_by_id = np.argsort(offer_ids)
    offer_id = columns["offer_id"]
    offer = offer_by_id[np.searchsorted(offer_ids, offer_id, sorter=offer_by_id)] if len(offer_id) else offer_id
    by_offer_and_time = np.lexsort((columns["valid_from"], offer))
    offer = offer[by_offer_and_time]
    _, begin, end, native, observed, dated, kind, source, note = (
        column[by_offer_and_time] for column in columns.values()
    )
    currency = currency_of[offer]
    usd = _in_usd(native, currency, begin // SECONDS_A_DAY + EPOCH, vocabulary, _read_rates(connection))
    words, code_of = vocabulary.sorted()
    return PriceColumns(
        offer=_frozen(offer, np.int32),
        valid_from=_frozen(begin, np.int64),
        valid_to=_frozen(end, np.int64),
        usd_micros=_frozen(usd, np.int64),
        native_micros=_frozen(native, np.int64),
        observed_day=_frozen(observed, np.int32),
        currency=_frozen(code_of[currency], np.int16),
        dated=_frozen(dated, np.int8),
        kind=_frozen(kind, np.int8),
        source=_frozen(code_of[source], np.int32),
        note=_frozen(code_of[note], np.int32),
        words=words,
    )


def _frozen(values: Numbers, dtype: Any) -> NDArray[Any]:
    column = values.astype(dtype)
    column.setflags(write=False)
    return column


def _read_rates(connection: Connection) -> Rates:
    table = EXCHANGE_RATE.c
    query = select(table.currency, table.on, table.usd_per_unit_nanos).order_by(table.currency, table.on)
    rates: dict[str, tuple[list[int], list[int]]] = {}
    for currency, day, nanos in connection.execute(query):
        days, values = rates.setdefault(currency, ([], []))
        days.append(day.toordinal())
        values.append(nanos)
    return rates


def _in_usd(native: Numbers, currency: Numbers, day: Numbers, vocabulary: PriceVocabulary, rates: Rates) -> Numbers:
    """Returns microdollars at the last exchange rate up to each day; `UNKNOWN` for a day before the first rate."""
    usd = native.copy()
    words = vocabulary.words
    for row in np.flatnonzero((currency != vocabulary.get(USD, UNKNOWN)) & (native != UNKNOWN)).tolist():
        days, nanos = rates.get(words[currency[row]], ([], []))
        earlier = bisect_right(days, int(day[row]))
        # Python's integers: micro-units times nanodollars can exceed 64 bits.
        usd[row] = (int(native[row]) * nanos[earlier - 1] + NANO // 2) // NANO if earlier else UNKNOWN
    return usd
