"""Each caller of each version sees the public measurements and its own, as a plain list would give them."""

from dataclasses import replace
from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from service.domain.catalog.measurement_log import MeasurementLog, VisibleMeasurements
from service.domain.catalog.reference import Measurement

PLAIN = Measurement(
    id="",
    workload="nightly",
    framework=None,
    machine="aws/a",
    gpu_count=1,
    precision=None,
    batch_size=None,
    seconds_per_batch=None,
    samples_per_second=1.0,
    usd_per_hour=None,
    measured_on=date(2025, 1, 1),
    source="sent",
    note=None,
)
OWNERS, NAMES = (None, "us", "them"), ("a", "b")
DAYS = (date(2025, 1, 1), date(2025, 6, 1))
ROWS = st.builds(
    lambda owner, workload, machine, day: replace(
        PLAIN, owner=owner, workload=workload, machine=machine, measured_on=day
    ),
    *map(st.sampled_from, (OWNERS, NAMES, NAMES, DAYS)),
)


@given(st.lists(st.lists(ROWS, max_size=4), max_size=5), st.sampled_from(OWNERS), st.sampled_from(DAYS))
def test_a_version_sees_what_was_there_whatever_is_added_later(
    additions: list[list[Measurement]], owner: str | None, day: date
) -> None:
    log, everything, seen = MeasurementLog(), list[Measurement](), []
    for version, rows in enumerate(additions, start=1):
        added = [replace(row, id=f"{version}-{index}", since=version) for index, row in enumerate(rows)]
        log.add(added, version)
        everything += added
        expected = {row.id for row in everything if row.owner in (None, owner) and row.measured_on <= day}
        seen.append((VisibleMeasurements(log, version, day, owner), expected))
    by_id = {row.id: row for row in everything}
    for view, expected in seen:
        assert {row.id for row in view} == expected
        for name in NAMES:
            assert {row.id for row in view.under(name)} == {each for each in expected if by_id[each].workload == name}
            assert {row.id for row in view.on(name)} == {each for each in expected if by_id[each].machine == name}
