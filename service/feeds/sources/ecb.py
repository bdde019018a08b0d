"""Euro reference rates of the European Central Bank: one day in XML or SDMX CSV, or the history in CSV."""

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from itertools import groupby, pairwise
from operator import attrgetter

from service.feeds.fetching import documents_at
from service.feeds.listing import Content, DocumentRefused, EuroRate, price_in
from service.feeds.reading import table_of, text_of, xml_of

PLAUSIBLE = {"USD": (Decimal("0.7"), Decimal("1.8")), "CNY": (Decimal(5), Decimal(12))}
"""For each currency that is needed: bounds of the units for one euro, somewhat wider than the rates of twenty years."""

LARGEST_STEP = Decimal("0.05")


fetch = documents_at("/stats/eurofxref/eurofxref-hist-90d.xml")
"""The rates of the last 90 days, which include days on which the service did not run."""


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the rates of dollars and yuan. Raises `DocumentRefused` if a rate has no day or is impossible."""
    rates = [rate for body in bodies for rate in _rates(body) if rate.currency in PLAUSIBLE]
    if not rates:
        raise DocumentRefused("There is no rate of the dollar or the yuan with a day.")
    for rate in rates:
        low, high = PLAUSIBLE[rate.currency]
        if not low <= rate.per_euro <= high:
            raise DocumentRefused(f"{rate.per_euro} {rate.currency} for a euro is impossible.")
    rates.sort(key=attrgetter("currency", "on"))
    for _, of_currency in groupby(rates, key=attrgetter("currency")):
        for former, later in pairwise(of_currency):
            if (later.on - former.on).days <= 4 and abs(later.per_euro / former.per_euro - 1) > LARGEST_STEP:
                raise DocumentRefused(f"The rate of {later.currency} moves by more than 5 % on {later.on}.")
    return Content(rates=tuple(rates))


def _rates(body: bytes) -> Iterator[EuroRate]:
    start = text_of(body).lstrip()[:200]
    if start.startswith("<"):
        for day in xml_of(body).iter():
            for cube in day if "time" in day.attrib else ():
                yield _rate(cube.attrib.get("currency", ""), day.attrib["time"], cube.attrib.get("rate"))
    elif start.startswith("Date,"):
        for cells in table_of(body, "Date"):
            for currency in PLAUSIBLE.keys() & (cells or {}).keys():
                assert cells is not None
                if cells[currency] not in ("", "N/A"):
                    yield _rate(currency, cells["Date"], cells[currency])
    else:
        for cells in table_of(body, "CURRENCY", "TIME_PERIOD", "OBS_VALUE"):
            if cells:
                yield _rate(cells["CURRENCY"], cells["TIME_PERIOD"], cells["OBS_VALUE"])


def _rate(currency: str, day: str, value: object) -> EuroRate:
    per_euro, reason = price_in(value)
    try:
        on = date.fromisoformat(day)
    except ValueError:
        raise DocumentRefused(f"{day!r} is not a day.") from None
    if per_euro is None:
        raise DocumentRefused(f"{value!r} is not a rate of {currency}: {reason}.")
    return EuroRate(currency=currency, on=on, per_euro=per_euro)
