"""A run before it is priced."""

from typing import Any

import pytest

from service.domain.band import Band
from service.domain.bill.run import LONGEST_HOURS, BilledRun, Run, RunAmount, StoredData, TransferredData, check
from service.domain.errors import ImpossibleRun
from service.domain.money import Unknown
from tests.builders.bills import hours, run


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"hours": hours(-1)}, "hours"),
        ({"hours": hours(1e9)}, "hours"),
        ({"hours": hours(float("nan"))}, "hours"),
        ({"hours": Band(3, 2, 1)}, "hours"),
        ({"nodes": 0}, "nodes"),
        ({"instances": 0}, "instances"),
        ({"idle_fraction": 1.0}, "idle_fraction"),
        ({"setup_minutes": -1}, "setup_minutes"),
        ({"setup_minutes": float("inf")}, "setup_minutes"),
        ({"stored": (StoredData("volume", -5, "gp3"),)}, "storage"),
        ({"sent": (TransferredData(-5),)}, "data_transfer_out_gb"),
    ],
)
def test_a_run_that_cannot_be_is_refused(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(ImpossibleRun) as caught:
        check(run(**wrong))
    assert caught.value.field == field


def test_machines_are_the_nodes_of_all_instances() -> None:
    assert run(nodes=4, instances=3).machines == 12


def test_a_run_of_a_century_is_not_billed() -> None:
    century = RunAmount(Band(1.0, 1.0, LONGEST_HOURS * 1.01), "modelled")
    assert isinstance(century.billable_hours, Unknown)
    assert RunAmount(hours(LONGEST_HOURS), "modelled").billable_hours == hours(LONGEST_HOURS)


def test_a_run_keeps_its_machines_and_charges_when_its_hours_become_known() -> None:
    plain = Run(nodes=2, instances=3, setup_minutes=5.0, commitments_held=("reserved",))
    billed = plain.lasting(hours(7.0), "measured")
    assert (billed.hours, billed.basis, billed.machines) == (hours(7.0), "measured", 6)
    assert billed == BilledRun(2, 3, 5.0, commitments_held=("reserved",), hours=hours(7.0), basis="measured")
