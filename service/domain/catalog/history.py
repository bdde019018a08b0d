"""All prices ever recorded, as columns, from which the catalog of any day is made."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import numpy as np

from service.domain.arrays import Floats, Indices
from service.domain.calibration.price_belief import LEAST_PULL, Beliefs, ListedPrices, beliefs
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.columns import Category
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.measurement_log import MeasurementLog, VisibleMeasurements
from service.domain.catalog.offer import MARKETS, ON_DEMAND, UNKNOWN, OfferColumns, Offers, PriceColumns
from service.domain.catalog.reference import SELLER_CLASSES, Reference
from service.domain.catalog.tariffs import BY_THE_DAY, commitment_in
from service.domain.money import MICRO
from service.domain.units import SECONDS_A_DAY

EPOCH = date(1970, 1, 1).toordinal()

FAR_SECONDS = np.int64(2**36)
"""More seconds than any instant has since the epoch: place * FAR_SECONDS + instant sorts by place, then by instant."""

PRICED_LIKE = (*SELLER_CLASSES, "")
"""Classes of sellers, each with coefficients of prices of its own; the empty one is for an unknown class."""


@dataclass(frozen=True, slots=True)
class CatalogHistory:
    """The instance types, offers and prices of all days, in one version of the catalog."""

    version: int
    instance_types: tuple[InstanceType, ...]
    offers: OfferColumns
    prices: PriceColumns
    reference: Reference
    facts_version: int = 0
    """The latest version that changed anything but measurements."""
    measurements: MeasurementLog = field(default_factory=MeasurementLog)
    known_at: date | None = None
    """Only prices that were known at the end of this day are included; None: all prices."""

    def on(self, day: date) -> Catalog:
        """Returns the catalog at the end of a day (UTC): the types announced by then, and the prices in force then."""
        announced = [index for index, type_ in enumerate(self.instance_types) if type_.state_on(day) is not None]
        index_of = np.full(len(self.instance_types), UNKNOWN, np.int32)
        index_of[announced] = np.arange(len(announced), dtype=np.int32)

        # At the end of the day, a price that changed at noon is already the new one, as people expect.
        rows = np.flatnonzero(self.prices.in_force_at(end_of_day(day)))
        types = index_of[self.offers.instance_type[self.prices.offer[rows]]]
        rows, types = rows[types != UNKNOWN], types[types != UNKNOWN]  # no types announced later
        offer, observed = self.prices.offer[rows], self.prices.observed_day[rows]
        believed = self.believed(rows, day)
        listed, undated = self.prices.usd_micros[rows], observed == UNKNOWN
        offers = Offers(
            instance_type=types,
            region=self.offers.region[offer],
            zone=self.offers.zone[offer],
            market=self.offers.market[offer],
            usd_per_hour=np.where(listed == UNKNOWN, np.nan, np.round(listed * believed.likely) / MICRO),
            low=believed.low,
            likely=believed.likely,
            high=believed.high,
            suspect=believed.suspect,
            old=believed.old,
            age_days=np.where(undated, np.nan, day.toordinal() - observed),
            price_row=rows.astype(np.int32),
            term=self.offers.term[offer],
            terms=self.offers.terms,
            places=self.offers.places,
            prices=self.prices,
        ).sorted_by_type()
        types_of_day = tuple(self.instance_types[index] for index in announced)
        measurements = VisibleMeasurements(self.measurements, self.version, day)
        first_day = min((event.starts_on for type_ in self.instance_types for event in type_.lifecycle), default=None)
        later = {
            type_.id: min(event.starts_on for event in type_.lifecycle)
            for type_ in self.instance_types
            if type_.lifecycle and type_.state_on(day) is None
        }
        return Catalog.of(
            self.version, day, types_of_day, offers, self.reference, measurements, self.known_at, first_day, later
        )

    def believed(self, rows: Indices, day: date) -> Beliefs:
        """Returns the believed prices on a day for some rows of `prices`."""
        movement = self.reference.price_movement
        return beliefs(self.listed(rows, day), movement, MARKETS, PRICED_LIKE)

    def listed(self, rows: Indices, day: date) -> ListedPrices:
        """Returns some rows of `prices` as their sellers listed them, with their ages on a day."""
        prices, offer, types = self.prices, self.prices.offer[rows], self.instance_types
        gpus = Category.of([type_.gpu.id if type_.gpu else None for type_ in types])
        sellers = Category.of([type_.provider for type_ in types])
        classes = [PRICED_LIKE.index(self.reference.seller_class_of(type_.provider) or "") for type_ in types]
        gpus_of_machine = np.array([type_.whole_gpus or 1.0 for type_ in types])
        micros, observed = prices.usd_micros[rows], prices.observed_day[rows]
        type_, market = self.offers.instance_type[offer], self.offers.market[offer].astype(np.int64)
        gpu, terms = gpus.codes.astype(np.int64)[type_], len(self.offers.terms) + 1
        return ListedPrices(
            usd_per_gpu=np.where(micros > 0, micros / MICRO / gpus_of_machine[type_], np.nan),
            age_days=np.where(observed == UNKNOWN, np.nan, day.toordinal() - observed),
            kind=np.where(gpu < 0, -1, (gpu * len(MARKETS) + market) * terms + self.offers.term[offer] + 1),
            seller=sellers.codes.astype(np.int64)[type_],
            market=market,
            seller_class=np.array(classes, np.int64)[type_],
            source=prices.source[rows].astype(np.int64),
            recaptured=observed > prices.valid_from[rows] // SECONDS_A_DAY + EPOCH,
            list_price_ratio=self._list_price_ratio(rows, day),
        )

    def _list_price_ratio(self, rows: Indices, day: date) -> Floats:
        """Returns `ListedPrices.list_price_ratio`; NaN also for terms sold by the day, which have no fixed discount."""
        offers, prices, ratio = self.offers, self.prices, np.full(len(rows), np.nan)
        discounted = np.array([commitment_in(term) is not None and term not in BY_THE_DAY for term in offers.terms])
        committed = np.flatnonzero(np.append(discounted, False)[offers.term[prices.offer[rows]]])  # -1 is no term
        committed = committed[prices.observed_day[rows[committed]] != UNKNOWN]
        place = offers.instance_type * np.int64(len(offers.places) + 1) + offers.region + 1
        place_of_committed = place[prices.offer[rows[committed]]]
        on_demand = (offers.market == ON_DEMAND) & np.isin(place, place_of_committed)
        listed = np.flatnonzero(on_demand[prices.offer] & (prices.usd_micros > 0))
        if not len(listed):
            return ratio
        since = place[prices.offer[listed]] * FAR_SECONDS + prices.valid_from[listed]
        listed, since = listed[np.argsort(since, kind="stable")], np.sort(since)

        def list_price(moments: Indices) -> Floats:
            last = np.searchsorted(since, place_of_committed * FAR_SECONDS + moments, side="right") - 1
            known = (last >= 0) & (since[last] // FAR_SECONDS == place_of_committed)
            return np.where(known, prices.usd_micros[listed[last]], np.nan)

        observed = (prices.observed_day[rows[committed]] - EPOCH + np.int64(1)) * SECONDS_A_DAY - 1
        exact = list_price(np.full(len(committed), end_of_day(day))) / list_price(observed)
        ratio[committed] = np.where(exact > 1 - LEAST_PULL, 1.0, exact)
        return ratio


def start_of_day(day: date) -> int:
    """Returns the first second of a day (UTC), in epoch seconds."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def end_of_day(day: date) -> int:
    """Returns the last second of a day (UTC), in epoch seconds."""
    return start_of_day(day) + SECONDS_A_DAY - 1


def day_of(moment: int) -> date:
    """Returns the day (UTC) of an instant in epoch seconds."""
    return date.fromordinal(EPOCH + moment // SECONDS_A_DAY)
