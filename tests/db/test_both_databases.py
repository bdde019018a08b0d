"""A seed gives the same catalog on SQLite and on Postgres."""

import dataclasses
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np

from service.db.engine import connect
from service.db.read_history import read_history
from service.db.write_catalog import write
from service.domain.calibration.calibration import calibration_of
from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.offer import OfferColumns, PriceColumns
from service.files import SEED
from service.importers.seed import read_seed


def test_both_give_the_same_history(seeded_file: Path, seeded_postgres: str) -> None:
    sqlite, postgres = connect(f"sqlite:///{seeded_file}"), connect(seeded_postgres)
    first, second = read_history(sqlite), read_history(postgres)
    assert first.version == second.version
    assert first.instance_types == second.instance_types
    assert same_columns(first, second)
    assert without_imports(first) == without_imports(second)
    assert coefficients(first) == coefficients(second)
    sqlite.dispose()
    postgres.dispose()


def same_columns(first: CatalogHistory, second: CatalogHistory) -> bool:
    names = [field.name for field in dataclasses.fields(OfferColumns)]
    pairs = [(getattr(first.offers, name), getattr(second.offers, name)) for name in names]
    names = [field.name for field in dataclasses.fields(PriceColumns)]
    pairs += [(getattr(first.prices, name), getattr(second.prices, name)) for name in names]
    return all(np.array_equal(here, there) for here, there in pairs)


NO_CALIBRATION = calibration_of([])


def without_imports(history: CatalogHistory) -> object:
    """Leaves out the calibration, which equals only itself."""
    return dataclasses.replace(history.reference, imports=(), calibration=NO_CALIBRATION)


def coefficients(history: CatalogHistory) -> object:
    calibration = history.reference.calibration
    return calibration.coefficients.values, calibration.bands


def test_values_come_back_as_they_went_in(tables_url: str) -> None:
    engine = connect(tables_url)
    write(engine, read_seed(SEED), datetime(2026, 11, 21, tzinfo=UTC))
    history = read_history(engine)
    catalog = history.on(date(2023, 6, 7))
    kind = catalog.instance_types[catalog.index_of["aws/p4d.24xlarge"]]
    assert (kind.gpu_count, kind.vcpus, kind.memory_gib, kind.rdma, kind.bare_metal) == (8, 96, 1152, True, False)
    assert kind.gpu is not None
    assert kind.gpu.usable_memory_gib is not None
    assert 39 < kind.gpu.usable_memory_gib < 40
    offers = [catalog.offers.offer(place) for place in catalog.offers_of(catalog.index_of["aws/p4d.24xlarge"])]
    virginia = next(offer for offer in offers if offer.region == "us-east-1" and offer.market == "on_demand")
    assert virginia.price.usd_micros_per_hour == 32_772_600
    assert virginia.price.observed_on == date(2022, 8, 23)
    engine.dispose()


def test_money_of_another_currency_is_converted_at_the_rate_of_its_day(seeded_file: Path) -> None:
    engine = connect(f"sqlite:///{seeded_file}")
    history = read_history(engine)
    engine.dispose()
    yuan = [row for row in range(len(history.prices)) if history.prices.price(row).currency == "CNY"]
    assert yuan
    for row in yuan:
        price = history.prices.price(row)
        if price.native_micros_per_hour is None:
            continue
        assert price.usd_micros_per_hour is not None
        assert 6 < price.native_micros_per_hour / price.usd_micros_per_hour < 8
