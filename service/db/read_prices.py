"""Rows of offers and prices → columns of whole numbers: many rows, so no driver makes Python objects of them."""

from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Select, String, cast, func, literal, select

from service.db.errors import DatabaseUnusable
from service.db.tables import ExchangeRateRow, OfferRow, PriceRow, Row
from service.domain.catalog.history import EPOCH, FOREVER, SECONDS_A_DAY, UNKNOWN, OfferColumns, PriceColumns
from service.domain.catalog.offer import DATED, MARKETS, PRICE_KINDS

READ_AT_ONCE = 20_000
"""So many ids are looked at, and at most as many rows held as text."""

SEPARATOR = "\x1f"
"""Stands between the values of a column; no word of a catalog has it."""

USD = "USD"
NANO = 1_000_000_000

Numbers = NDArray[np.int64]
Rates = Mapping[str, tuple[list[int], list[int]]]
Codes = Mapping[str, int]
"""What each text of a column stands for; the empty one is null."""


class PriceVocabulary(dict[str, int]):
    """Words and their codes, in the order in which they turn up; what is not known has none of these."""

    def __init__(self) -> None:
        super().__init__({"": UNKNOWN})

    def __missing__(self, word: str) -> int:
        return self.setdefault(word, len(self) - 1)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word for word in self if word)

    def in_order(self) -> tuple[tuple[str, ...], Numbers]:
        """The words sorted, so that they do not depend on who turned up first; and the new code of each old one."""
        new = np.argsort(np.argsort(self.words))
        return tuple(sorted(self.words)), np.array([*new, UNKNOWN], np.int64)  # the last one is where -1 points


class Moments(dict[str, int]):
    """Instants in seconds since 1970. There are few that differ, so each is read once."""

    def __init__(self, missing: int) -> None:
        super().__init__({"": missing})

    def __missing__(self, text: str) -> int:
        moment = datetime.fromisoformat(text)
        utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)  # SQLite drops the zone
        return self.setdefault(text, int(utc.timestamp()))


class Days(dict[str, int]):
    """Days by their ordinals."""

    def __init__(self) -> None:
        super().__init__({"": UNKNOWN})

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, date.fromisoformat(text).toordinal())


def codes_of(words: tuple[str, ...]) -> Codes:
    return {word: code for code, word in enumerate(words)}


def read_offers(
    connection: Connection, place_of: Mapping[int, int], vocabulary: PriceVocabulary
) -> tuple[OfferColumns, Numbers, Numbers]:
    """Offers as columns in the order of their keys, and beside them their database ids and the codes of currencies."""
    places, terms = PriceVocabulary(), PriceVocabulary()
    found = columns_of(
        connection,
        OfferRow,
        {
            "id": None,
            "instance_type_id": None,
            "region": places,
            "zone": places,
            "market": codes_of(MARKETS),
            "currency": vocabulary,
            "term": terms,
        },
    )
    ids = np.array(connection.execute(select(OfferRow.id).order_by(OfferRow.key)).scalars().all(), np.int64)
    in_order = np.argsort(found["id"])[np.argsort(np.argsort(ids))]
    id_, kind, region, zone, market, currency, term = (column[in_order] for column in found.values())
    names_of_places, code_of_place = places.in_order()
    names_of_terms, code_of_term = terms.in_order()
    places_of_types = np.zeros(max(place_of, default=0) + 1, np.int64)
    places_of_types[list(place_of)] = list(place_of.values())
    columns = OfferColumns(
        instance_type=still(places_of_types[kind], np.int32),
        region=still(code_of_place[region], np.int32),
        zone=still(code_of_place[zone], np.int32),
        market=still(market, np.int8),
        places=names_of_places,
        term=still(code_of_term[term], np.int16),
        terms=names_of_terms,
    )
    return columns, id_, currency


def read_prices(
    connection: Connection, offer_ids: Numbers, currency_of: Numbers, vocabulary: PriceVocabulary
) -> PriceColumns:
    """Prices as columns, by offer and time; `offer_ids` and `currency_of` are of the offer at each place."""
    found = columns_of(
        connection,
        PriceRow,
        {
            "offer_id": None,
            "valid_from": Moments(UNKNOWN),
            "valid_to": Moments(FOREVER),
            "per_hour_micros": None,
            "observed_on": Days(),
            "dated": codes_of(DATED),
            "kind": codes_of(PRICE_KINDS),
            "source": vocabulary,
            "note": vocabulary,
        },
    )
    by_id = np.argsort(offer_ids)
    offer = found["offer_id"]
    place = by_id[np.searchsorted(offer_ids, offer, sorter=by_id)] if len(offer) else offer
    in_order = np.lexsort((found["valid_from"], place))
    place = place[in_order]
    _, begin, end, native, observed, dated, kind, source, note = (column[in_order] for column in found.values())
    currency = currency_of[place]
    words, code_of = vocabulary.in_order()
    return PriceColumns(
        offer=still(place, np.int32),
        valid_from=still(begin, np.int64),
        valid_to=still(end, np.int64),
        usd_micros=still(
            in_usd(native, currency, begin // SECONDS_A_DAY + EPOCH, vocabulary, read_rates(connection)), np.int64
        ),
        native_micros=still(native, np.int64),
        observed_day=still(observed, np.int32),
        currency=still(code_of[currency], np.int16),
        dated=still(dated, np.int8),
        kind=still(kind, np.int8),
        source=still(code_of[source], np.int32),
        note=still(code_of[note], np.int32),
        words=words,
    )


def columns_of(connection: Connection, table: type[Row], codes: Mapping[str, Codes | None]) -> dict[str, Numbers]:
    """The named columns, in no order but the same for all; of words their codes, of others the whole numbers.

    The database makes one text of many values, which takes a third of the time that a driver needs to make objects of
    them. Raises `DatabaseUnusable` where a word has the separator in it.
    """
    id_ = table.__table__.c.id
    texts, parts = texts_of(table, codes), {name: [np.zeros(0, np.int64)] for name in codes}
    first = connection.execute(select(func.min(id_))).scalar()
    while first is not None:
        beyond = first + READ_AT_ONCE
        rows, *found = connection.execute(texts.where(id_ >= first, id_ < beyond)).one()
        for (name, known), text in zip(codes.items(), found, strict=True):
            parts[name].append(numbers_in(text, known))
            if len(parts[name][-1]) != rows:
                raise DatabaseUnusable(f"A value of {table.__tablename__}.{name} holds the character U+001F.")
        first = connection.execute(select(func.min(id_)).where(id_ >= beyond)).scalar()
    return {name: np.concatenate(each) for name, each in parts.items()}


def texts_of(table: type[Row], codes: Mapping[str, Codes | None]) -> Select[Any]:
    """How many rows there are, and each column as a text."""

    def text(name: str, missing: str) -> ColumnElement[str]:
        known = func.coalesce(cast(table.__table__.c[name], String), verbatim(missing))
        return func.aggregate_strings(known, verbatim(SEPARATOR))  # type: ignore[arg-type]

    texts = [text(name, str(UNKNOWN) if known is None else "") for name, known in codes.items()]
    return select(func.count(), *texts)  # type: ignore[return-value]


def verbatim(text: str) -> ColumnElement[str]:
    """Written into the statement: SQLite takes twice as long for a parameter."""
    return literal(text, literal_execute=True)


def numbers_in(text: str, codes: Codes | None) -> Numbers:
    if codes is None:
        return np.fromstring(text, np.int64, sep=SEPARATOR)
    return np.fromiter(map(codes.__getitem__, text.split(SEPARATOR)), np.int64)


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


def in_usd(native: Numbers, currency: Numbers, day: Numbers, vocabulary: PriceVocabulary, rates: Rates) -> Numbers:
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
