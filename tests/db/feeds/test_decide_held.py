"""An operator releases or refuses the prices of a feed that wait for a confirmation."""

from collections.abc import Iterator
from datetime import datetime

import pytest
from sqlalchemy import Engine, select

from service.cli.main import main
from service.db.feeds.decide_held import decide_held, held_prices
from service.db.feeds.read_feeds import feed_statuses
from service.db.feeds.resolve_prices import captures_known_at, read_feeds, resolved_offers
from service.db.feeds.write_capture import confirm_capture, write_capture
from service.db.read_history import read_history
from service.db.tables import OFFER, PRICE
from tests.builders.captures import capture, day, feed_row, with_feeds

TYPE = "p4d.24xlarge"


@pytest.fixture
def engine(tables_url: str) -> Iterator[Engine]:
    """A database in which the price of an offer rises from 30 to 90 micros on the second day, which is held."""
    engine = with_feeds(tables_url, feed_row("gpuhunt"), feed_row("azure", rank=5))
    imported(engine, 1, {TYPE: 30, "g5.xlarge": 9})
    imported(engine, 2, {TYPE: 90, "g5.xlarge": 9})
    yield engine
    engine.dispose()


def imported(engine: Engine, number: int, prices: dict[str, int], feed: str = "gpuhunt") -> None:
    write_capture(engine, capture(day(number), prices, feed=feed), day(number))


def spans(engine: Engine) -> list[tuple[int | None, datetime, datetime | None]]:
    query = select(PRICE.c.per_hour_micros, PRICE.c.valid_from, PRICE.c.valid_to).join(OFFER)
    with engine.connect() as connection:
        rows = connection.execute(query.where(OFFER.c.key.contains(TYPE)).order_by(PRICE.c.valid_from))
        return [(row.per_hour_micros, row.valid_from, row.valid_to) for row in rows]


def counts(engine: Engine) -> tuple[int, int]:
    """The rows of the first feed that wait, and those that are refused."""
    (status,) = [each for each in feed_statuses(engine) if each.feed.id == "gpuhunt"]
    return status.held, status.refused


def test_a_held_price_is_listed_with_the_one_in_force(engine: Engine) -> None:
    (held,) = held_prices(engine)
    assert (held.name, held.per_hour_micros, held.in_force_micros, held.feed) == (TYPE, 90, 30, "gpuhunt")
    assert counts(engine) == (1, 0)


def test_a_released_price_counts_from_the_capture_that_showed_it(engine: Engine) -> None:
    version = read_history(engine).version
    assert len(decide_held(engine, "gpuhunt", "released", day(2, 12))) == 1
    assert spans(engine) == [(30, day(1), day(2)), (90, day(2), None)]
    assert (held_prices(engine), counts(engine)) == ([], (0, 0))
    assert read_history(engine).version == version + 1


def test_a_refused_price_never_counts_until_the_feed_shows_another_one(engine: Engine) -> None:
    decide_held(engine, "gpuhunt", "refused", day(2, 12))
    imported(engine, 3, {TYPE: 90, "g5.xlarge": 9})
    confirm_capture(engine, "gpuhunt", "", day(4))
    assert spans(engine) == [(30, day(1), None)]
    assert counts(engine) == (0, 1)
    imported(engine, 5, {TYPE: 33, "g5.xlarge": 9})
    assert spans(engine) == [(30, day(1), day(5)), (33, day(5), None)]


def test_a_refused_price_confirms_no_price_of_another_feed(engine: Engine) -> None:
    decide_held(engine, "gpuhunt", "refused", day(2, 12))
    imported(engine, 3, {TYPE: 31}, feed="azure")
    imported(engine, 4, {TYPE: 90}, feed="azure")
    assert [each.feed for each in held_prices(engine)] == ["azure"]


def test_a_decision_concerns_the_prices_of_its_feed_alone(engine: Engine) -> None:
    assert decide_held(engine, "azure", "released", day(2, 12)) == []
    assert counts(engine) == (1, 0)


def test_a_replay_of_the_time_before_a_decision_holds_the_price_back(engine: Engine) -> None:
    decide_held(engine, "gpuhunt", "released", day(3))
    assert known_prices(engine, day(2, 12)) == [30]
    assert known_prices(engine, day(4)) == [30, 90]


def known_prices(engine: Engine, moment: datetime) -> list[int | None]:
    """The prices of the offer over time, as they were known at a moment."""
    with engine.connect() as connection:
        feeds, captures = read_feeds(connection), captures_known_at(connection, moment)
        resolved = resolved_offers(connection, None, feeds, captures, moment)
        (intervals,) = [each.intervals for row, each in resolved if row.name == TYPE]
    return [interval.observed.per_hour_micros for interval in intervals]


def test_the_commands_list_release_and_refuse(
    engine: Engine, tables_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SELECTOR_DATABASE_URL", tables_url)
    assert main(["feeds", "held"]) == 0
    assert f"aws/{TYPE}" in capsys.readouterr().out
    assert main(["feeds", "refuse", "gpuhut"]) != 0
    assert main(["feeds", "release", "azure"]) == 0
    assert "azure: 0 prices released." in capsys.readouterr().out
    assert main(["feeds", "refuse", "gpuhunt"]) == 0
    assert "gpuhunt: 1 prices refused." in capsys.readouterr().out
    assert counts(engine) == (0, 1)
