"""The catalog of a day holds the prices and instance types of that day, and of no other."""

from datetime import UTC, date, datetime

import pytest

from service.domain.catalog.history import day_of, end_of_day, start_of_day
from tests.builders.catalogs import history
from tests.builders.instance_types import event, instance_type
from tests.builders.offers import priced

MARCH, APRIL, MAY = date(2024, 3, 1), date(2024, 4, 1), date(2024, 5, 1)
CHANGING = history(
    priced(usd_per_hour=4.0, valid_from=MARCH, valid_to=APRIL, observed_on=MARCH),
    priced(usd_per_hour=5.0, valid_from=APRIL, valid_to=MAY, observed_on=APRIL),
)


@pytest.mark.parametrize(
    ("day", "prices"),
    [
        (date(2024, 2, 29), []),
        (MARCH, [4.0]),
        (date(2024, 3, 31), [4.0]),
        (APRIL, [5.0]),
        (date(2024, 4, 30), [5.0]),
        (MAY, []),
    ],
)
def test_a_price_holds_from_its_first_day_until_the_day_before_the_next(day: date, prices: list[float]) -> None:
    assert CHANGING.on(day).offers.usd_per_hour.tolist() == prices


def test_the_age_of_a_price_counts_days_since_its_observation() -> None:
    assert CHANGING.on(date(2024, 4, 11)).offers.age_days.tolist() == [10.0]
    undated = history(priced(observed_on=None)).on(date(2024, 6, 1))
    assert undated.offers.age_days.tolist() == pytest.approx([float("nan")], nan_ok=True)


def test_a_type_is_in_the_catalog_from_its_first_event_and_its_offers_with_it() -> None:
    new = instance_type("p5.48xlarge", lifecycle=(event("announced", APRIL), event("available", MAY)))
    old = instance_type("p4d.24xlarge")
    whole = history(priced(new, valid_from=MARCH), priced(old, valid_from=MARCH))
    before, after = whole.on(MARCH), whole.on(APRIL)
    assert [each.name for each in before.instance_types] == ["p4d.24xlarge"]
    assert before.offers.instance_type.tolist() == [0]
    assert (before.later, after.later) == ({new.id: APRIL}, {})
    assert [each.name for each in after.instance_types] == ["p4d.24xlarge", "p5.48xlarge"]
    assert after.offers.instance_type.tolist() == [0, 1]
    assert after.columns.words["lifecycle"].among(["announced"]).tolist() == [False, True]


def test_days_begin_and_end_in_utc() -> None:
    assert start_of_day(MARCH) == datetime(2024, 3, 1, tzinfo=UTC).timestamp()
    assert end_of_day(MARCH) == start_of_day(date(2024, 3, 2)) - 1
    assert day_of(start_of_day(MARCH)) == day_of(end_of_day(MARCH)) == MARCH
