"""How prices change is fitted to the recorded prices, and judged on those that came later."""

from collections.abc import Iterator
from datetime import date, timedelta
from math import exp
from pathlib import Path

import pytest

from service.accuracy.calibrate import write_coefficients
from service.accuracy.price_changes import calibrate_prices, fitted_movement
from service.domain.calibration.coefficients import Coefficient
from service.domain.catalog.history import CatalogHistory
from tests.builders.catalogs import history, provider
from tests.builders.gpus import gpu
from tests.builders.instance_types import instance_type
from tests.builders.offers import Priced, priced

START = date(2024, 1, 1)
GPU = gpu("h100")


def yearly(seller: str, *changes: float) -> Iterator[Priced]:
    """A price for each year, each an exponential of its change from the one before."""
    usd, machine = 4.0, instance_type("h100", provider=seller, gpu=GPU, gpu_count=1)
    for year, change in enumerate((0.0, *changes)):
        usd *= exp(change)
        first = START + timedelta(days=365 * year)
        last = first + timedelta(days=365) if year < len(changes) else None
        yield priced(machine, usd, region=None, valid_from=first, valid_to=last, observed_on=first)


def recorded(**changes: tuple[float, ...]) -> CatalogHistory:
    sellers = {name: provider(name, seller_class="neocloud") for name in changes}
    return history(*(price for name, each in changes.items() for price in yearly(name, *each)), providers=sellers)


def fitted(known: CatalogHistory, day: date) -> dict[tuple[str, str], float]:
    return {(each.name, each.scope): each.value for each in fitted_movement(known, day)}


def test_each_seller_counts_once_for_the_change_of_a_year() -> None:
    known = recorded(a=(0.0,) * 10, b=(0.4,))
    assert fitted(known, date(2040, 1, 1))["price.change", ""] == pytest.approx((0.16 / 2) ** 0.5, rel=0.01)


def test_prices_after_the_day_are_left_out() -> None:
    known = recorded(a=(0.0, 0.8), b=(0.0, 0.8))
    assert fitted(known, START + timedelta(days=400))["price.change", ""] == 0.0
    assert fitted(known, START + timedelta(days=800))["price.change", ""] > 0.5


def test_a_group_with_few_changes_has_no_figure_of_its_own() -> None:
    scope = "market=on_demand|seller_class=neocloud"
    assert ("price.change", scope) not in fitted(recorded(a=(0.1,) * 9), date(2040, 1, 1))
    assert ("price.change", scope) in fitted(recorded(a=(0.1,) * 10), date(2040, 1, 1))


def test_the_report_compares_the_last_price_with_the_believed_one() -> None:
    report = calibrate_prices(recorded(a=(0.0, 0.5), b=(0.0, 0.5), c=(0.0, 0.5)), date(2026, 6, 1), None)
    assert "720 days on_demand neocloud" in report
    assert "9 pairs: last 0.333, believed 0.333, in band 33%" in report


def test_writing_replaces_the_rows_of_the_same_source_alone(tmp_path: Path) -> None:
    path = tmp_path / "coefficients.csv"
    path.write_text("name,scope,value,source,fitted_on,n\nband.a,,1.0,calibrate,work,3\nprice.old,,2.0,mine,prices,4\n")
    write_coefficients(path, [Coefficient("price.change", "", 0.5, "mine", "prices", 5)])
    assert path.read_text().splitlines()[1:] == [
        "band.a,,1.0,calibrate,work,3",
        "price.change,,0.5,mine,prices,5",
    ]
