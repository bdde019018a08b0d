"""Limits on a job and on a load change by the field of the question."""

from service.domain.jobs.serving import Serving
from service.domain.recommend.answer import Limits


def test_a_limit_of_a_load_changes_in_the_load_and_others_in_those_of_the_job() -> None:
    limits = Limits(budget_usd=10.0, load=Serving(max_seconds_per_request=2.0, max_instances=3))
    changed = limits.changed({"max_seconds_per_request": 4.0, "budget_usd": 20.0})
    assert changed == Limits(budget_usd=20.0, load=Serving(max_seconds_per_request=4.0, max_instances=3))
    assert limits.changed({"max_instances": 5}).load == Serving(max_seconds_per_request=2.0, max_instances=5)


def test_without_a_load_the_number_of_instances_is_a_limit_of_the_job() -> None:
    assert Limits(deadline_hours=1.0).changed({"max_instances": 5}) == Limits(deadline_hours=1.0, max_instances=5)
