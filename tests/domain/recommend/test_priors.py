"""Rules of thumb compared with an answer: followed or overruled, with the offers that decide."""

from datetime import date

import pytest

from service.domain.catalog.reference import Prior
from service.domain.recommend.answer import CitedPrior
from service.domain.recommend.priors import in_conflict


def prior(name: str, ranking: str | None, until: date | None = None) -> Prior:
    none = dict.fromkeys(("gpus", "objective", "subject", "min_gpus", "max_gpus", "deadline_hours"))
    return Prior(
        name, "training", **none, ranking=ranking, says="So it is.", valid_from=date(2016, 1, 1),
        valid_to=until, source="guide",
    )  # fmt: skip


def cited(*rankings: str | None) -> list[CitedPrior]:
    return [CitedPrior(prior(f"prior-{index}", ranking), "followed", ()) for index, ranking in enumerate(rankings)]


@pytest.mark.parametrize(
    ("rankings", "conflicting"),
    [
        (("g5 > g4dn", "g4dn > g5"), ("prior-0", "prior-1")),
        (("p3,p3dn > g4dn > p2", "p2 > p3dn"), ("prior-0", "prior-1")),
        (("p3 > g4dn", "p3 > p2"), ()),
        (("p3 > g4dn", None), ()),
    ],
)
def test_priors_conflict_that_rank_two_families_in_opposite_orders(
    rankings: tuple[str | None, ...], conflicting: tuple[str, ...]
) -> None:
    assert in_conflict(cited(*rankings)) == conflicting


def test_a_prior_ends_on_the_day_that_it_names() -> None:
    ending = prior("a", "p2 > g3", until=date(2019, 9, 20))
    days = (date(2015, 12, 31), date(2019, 9, 19), date(2019, 9, 20))
    assert [ending.is_in_force_on(day) for day in days] == [False, True, False]
