"""Observed prices become observations of the database."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import groupby, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.importers.prices import (
    MOST_TRUSTED_FIRST,
    QUARANTINE_REASONS,
    Catalogued,
    Observation,
    Record,
    usable,
)

KNOWN = Catalogued(
    instance_types={("aws", "p3.2xlarge"), ("vast", "a100")},
    priced_by_region={"aws"},
    retrieved_on={"a-test": date(2024, 6, 1), "another": date(2024, 7, 1)},
)


def observation(per_hour: str | None = "3.06", on: date | None = date(2022, 1, 1), **given: Any) -> Observation:
    plain = Observation(
        provider="aws",
        name="p3.2xlarge",
        region="us-east-1",
        zone=None,
        market="on_demand",
        term=None,
        operating_system="linux",
        currency="USD",
        per_hour=None if per_hour is None else Decimal(per_hour),
        observed_on=on,
        dated="day" if on else "unknown",
        kind="api",
        source="a-test",
        note=None,
    )
    return replace(plain, **given)


def chain(*observations: Observation) -> list[Record]:
    """The rows of the one offer that the observations speak of."""
    rows, _ = usable(observations, KNOWN)
    assert len({row["key"] for row in rows}) == 1
    return rows


def day(year: int, month: int = 1, day: int = 1) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


def test_prices_are_in_the_order_of_their_days() -> None:
    prices = chain(
        observation("3", date(2023, 1, 1)), observation("2", date(2022, 1, 1)), observation("4", date(2024, 1, 1))
    )
    assert [(each["per_hour_micros"], each["effective_from"], each["observed_at"]) for each in prices] == [
        (2_000_000, day(2022), day(2022)),
        (3_000_000, day(2023), day(2023)),
        (4_000_000, day(2024), day(2024)),
    ]


def test_millionths_of_a_dollar_are_kept() -> None:
    assert chain(observation("21.957642"))[0]["per_hour_micros"] == 21_957_642


def test_a_price_that_is_not_known_is_none() -> None:
    assert chain(observation(None, note="the page states none"))[0]["per_hour_micros"] is None


def test_an_observation_without_a_day_holds_from_the_day_its_source_was_retrieved() -> None:
    (price,) = chain(observation(on=None))
    assert (price["effective_from"], price["dated"]) == (day(2024, 6), "unknown")


def test_an_observation_without_a_day_gives_way_to_a_dated_one() -> None:
    rows, aside = usable([observation("9", on=None), observation("3.06")], KNOWN)
    assert [row["per_hour_micros"] for row in rows] == [3_060_000]
    assert aside == {"undated_beside_dated": 1}


def test_the_most_trusted_source_of_a_day_is_taken() -> None:
    for place, kind in enumerate(MOST_TRUSTED_FIRST):
        others = [observation("1", kind=less) for less in MOST_TRUSTED_FIRST[place + 1 :]]
        rows, aside = usable([*others, observation("7", kind=kind)], KNOWN)
        assert [row["per_hour_micros"] for row in rows] == [7_000_000]
        assert sum(aside.values()) == aside["another_source_for_the_same_day"] == len(others)


def test_the_less_trusted_source_still_counts_for_other_days() -> None:
    prices = chain(observation("1", kind="api"), observation("2", date(2022, 2, 1), kind="assumed"))
    assert [price["kind"] for price in prices] == ["api", "assumed"]


def test_markets_zones_and_currencies_are_offers_of_their_own() -> None:
    others: list[dict[str, Any]] = [
        {"market": "spot"},
        {"zone": "use1-az1"},
        {"currency": "CNY"},
        {"term": "1y"},
        {"operating_system": "windows"},
        {"region": "us-west-2"},
    ]
    rows, _ = usable([observation(), *(observation(**other) for other in others)], KNOWN)
    assert len(rows) == len({row["key"] for row in rows}) == 1 + len(others)


def test_a_price_without_a_region_does_not_count_where_prices_differ_by_region() -> None:
    assert usable([observation(region=None)], KNOWN) == ([], {"region_missing": 1})


def test_a_price_without_a_region_is_fine_where_there_are_no_regions() -> None:
    assert chain(observation(provider="vast", name="a100", region=None))


def test_that_there_is_no_price_may_be_said_without_a_region() -> None:
    assert chain(observation(None, region=None))[0]["per_hour_micros"] is None


def test_what_cannot_be_used_is_counted_with_its_reason() -> None:
    wrong = {
        "unknown_instance_type": observation(name="p3.3xlarge"),
        "unknown_source": observation(source="hearsay"),
        "region_missing": observation(region=None),
        "price_not_positive": observation("0"),
    }
    for reason, unusable in wrong.items():
        assert usable([unusable], KNOWN) == ([], {reason: 1})
        assert reason in QUARANTINE_REASONS


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    return observation(
        per_hour=draw(st.sampled_from([None, "0", "1", "2.5"])),
        on=draw(st.none() | st.dates(date(2022, 1, 1), date(2022, 1, 9))),
        name=draw(st.sampled_from(["p3.2xlarge", "p3.2xlarge", "unheard-of"])),
        region=draw(st.sampled_from(["us-east-1", "us-west-2", None])),
        kind=draw(st.sampled_from(MOST_TRUSTED_FIRST)),
        source=draw(st.sampled_from(sorted(KNOWN.retrieved_on))),
    )


@given(st.lists(observations(), max_size=12))
def test_every_observation_is_kept_or_counted_and_an_offer_has_one_for_each_day(given_: list[Observation]) -> None:
    rows, aside = usable(given_, KNOWN)
    assert len(rows) + sum(aside.values()) == len(given_)
    for _, prices in groupby(rows, key=lambda row: row["key"]):
        assert all(one["effective_from"] < next_["effective_from"] for one, next_ in pairwise(prices))
    assert len([*groupby(rows, key=lambda row: row["key"])]) == len({row["key"] for row in rows})


@given(st.lists(observations(), max_size=8), st.randoms())
def test_the_order_of_lines_matters_only_between_equally_trusted_ones(given_: list[Observation], random: Any) -> None:
    alone = list({(each.key, each.observed_on or each.source, each.kind): each for each in given_}.values())
    dated_apart = [each for each in alone if each.observed_on]
    shuffled = random.sample(dated_apart, len(dated_apart))
    one, other = (usable(each, KNOWN) for each in (dated_apart, shuffled))
    assert one[1] == other[1]
    assert sorted(one[0], key=lambda row: row["key"]) == sorted(other[0], key=lambda row: row["key"])
