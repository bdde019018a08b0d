"""Kinds of a change of a price, and the cost of a run before and after it."""

from datetime import date

import numpy as np
import pytest

from service.domain.bill.price_changes import PriceChange, price_changes
from tests.builders.catalogs import history
from tests.builders.instance_types import instance_type
from tests.builders.offers import Priced, priced

MARCH, APRIL, MAY = date(2024, 3, 1), date(2024, 4, 1), date(2024, 5, 1)
P4D = instance_type("p4d.24xlarge")


def change(*prices: Priced, hours: float | None = None) -> PriceChange:
    """The only change between March and May of one offer with these prices."""
    recorded = history(*prices)
    changes = price_changes(recorded, np.ones(1, np.bool_), (MARCH, MAY), hours, 2)
    (rows,) = changes.rows.tolist()
    return changes.at(rows)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [(30.0, 40.0, "more_expensive"), (40.0, 30.0, "cheaper"), (None, 30.0, "known"), (30.0, None, "unknown")],
)
def test_an_offer_that_stays_has_a_kind_of_change(before: float | None, after: float | None, kind: str) -> None:
    moved = change(priced(P4D, before, valid_from=MARCH, valid_to=APRIL), priced(P4D, after, valid_from=APRIL))
    assert moved.kind == kind


def test_an_offer_without_a_price_on_one_day_is_new_or_gone() -> None:
    assert change(priced(P4D, None, valid_from=APRIL)).kind == "new"
    assert change(priced(P4D, 30.0, valid_from=MARCH, valid_to=APRIL)).kind == "gone"


def test_a_run_costs_the_price_of_each_day() -> None:
    prices = priced(P4D, 40.0, valid_from=MARCH, valid_to=APRIL), priced(P4D, 30.0, valid_from=APRIL)
    run = change(*prices, hours=10).run
    assert run is not None
    assert (run.before, run.after, run.micros, run.percent) == (800_000_000, 600_000_000, -200_000_000, -25.0)
    assert change(*prices).run is None
    gone = change(priced(P4D, 40.0, valid_from=MARCH, valid_to=APRIL), hours=10).run
    assert gone is not None
    assert (gone.before, gone.after, gone.micros) == (800_000_000, None, None)
