"""All prices ever recorded, as columns, from which the catalog of any day is made."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import numpy as np

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.measurement_log import MeasurementLog, VisibleMeasurements
from service.domain.catalog.offer import UNKNOWN, OfferColumns, Offers, PriceColumns
from service.domain.catalog.reference import Reference

SECONDS_A_DAY = 86_400
EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class CatalogHistory:
    """All instance types, offers and prices of one version of the catalog, whatever day they belong to."""

    version: int
    instance_types: tuple[InstanceType, ...]
    offers: OfferColumns
    prices: PriceColumns
    reference: Reference
    facts_version: int = 0
    """Stays the same in a version that only adds measurements."""
    measurements: MeasurementLog = field(default_factory=MeasurementLog)

    def on(self, day: date) -> Catalog:
        """Returns the catalog at the end of a day (UTC): types announced by then, and prices valid then."""
        announced = [index for index, type_ in enumerate(self.instance_types) if type_.state_on(day) is not None]
        index_of = np.full(len(self.instance_types), UNKNOWN, np.int32)
        index_of[announced] = np.arange(len(announced), dtype=np.int32)

        # The end of the day: a price that changed at noon is then the new one, as people expect.
        rows = np.flatnonzero(self.prices.in_force_at(end_of_day(day)))
        types = index_of[self.offers.instance_type[self.prices.offer[rows]]]
        rows, types = rows[types != UNKNOWN], types[types != UNKNOWN]  # without offers of types announced later
        offer = self.prices.offer[rows]
        micros = self.prices.usd_micros[rows]
        observed = self.prices.observed_day[rows].astype(np.float64)
        offers = Offers(
            instance_type=types,
            region=self.offers.region[offer],
            zone=self.offers.zone[offer],
            market=self.offers.market[offer],
            usd_per_hour=np.where(micros == UNKNOWN, np.nan, micros / 1_000_000),
            age_days=np.where(observed == UNKNOWN, np.nan, day.toordinal() - observed),
            price_row=rows.astype(np.int32),
            term=self.offers.term[offer],
            terms=self.offers.terms,
            places=self.offers.places,
            prices=self.prices,
        ).sorted_by_type()
        types_of_day = tuple(self.instance_types[index] for index in announced)
        measurements = VisibleMeasurements(self.measurements, self.version, day)
        return Catalog.of(self.version, day, types_of_day, offers, self.reference, measurements)


def start_of_day(day: date) -> int:
    """Returns the first second of a day (UTC), in epoch seconds."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def end_of_day(day: date) -> int:
    """Returns the last second of a day (UTC), in epoch seconds."""
    return start_of_day(day) + SECONDS_A_DAY - 1


def day_of(moment: int) -> date:
    """Returns the day (UTC) of an instant in epoch seconds."""
    return date.fromordinal(EPOCH + moment // SECONDS_A_DAY)
