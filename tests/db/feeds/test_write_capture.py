"""Captures of feeds become prices: each change is stored once, and the order of imports does not matter."""

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import count as count_from
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, event, func, select

from service.db.engine import connect
from service.db.feeds.resolve_prices import captures_known_at, read_feeds, resolve_prices, resolved_offers
from service.db.feeds.write_capture import Capture, CaptureRefused, confirm_capture, write_capture
from service.db.tables import CATALOG_VERSION, DOCUMENT, IMPORT_RUN, OBSERVATION, OFFER, PRICE
from service.db.write_catalog import write
from tests.builders.captures import add_feeds, capture, day, feed_row, observed_row, with_feeds
from tests.builders.rows import batch, instance_type_row, offer_records, price_record

NOW = day(31)
TYPE = "p4d.24xlarge"
Prices = list[tuple[str, int | None, datetime, datetime | None]]


def prepared(url: str) -> Engine:
    """Three instance types without prices, and two daily feeds, the first of the better rank; `url` has the tables."""
    return with_feeds(url, feed_row("one"), feed_row("two", rank=5), written_at=NOW)


@pytest.fixture
def engine(tables_url: str) -> Iterator[Engine]:
    engine = prepared(tables_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def prepared_file(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = Path(shutil.copy(migrated_file, tmp_path_factory.mktemp("prepared") / "prepared.db"))
    prepared(f"sqlite:///{path}").dispose()
    return path


def prices(engine: Engine, type_: str = TYPE) -> Prices:
    """Dollars and interval of each price of the offers of a type."""
    query = select(OFFER.c.key, PRICE.c.per_hour_micros, PRICE.c.valid_from, PRICE.c.valid_to).join(OFFER)
    with engine.connect() as connection:
        rows = connection.execute(query.order_by(OFFER.c.key, PRICE.c.valid_from)).all()
    return [(row.key, row.per_hour_micros, row.valid_from, row.valid_to) for row in rows if type_ in row.key]


def spans(engine: Engine) -> list[tuple[int | None, datetime, datetime | None]]:
    return [price[1:] for price in prices(engine)]


def count(engine: Engine, table: type | object) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())  # type: ignore[arg-type]


def imported(engine: Engine, *captures: Capture) -> None:
    for each in captures:
        write_capture(engine, each, NOW)


def test_a_price_holds_from_the_first_capture_to_the_first_with_another(engine: Engine) -> None:
    imported(engine, *(capture(day(n), {TYPE: micros}) for n, micros in ((1, 30), (2, 30), (3, 32))))
    assert spans(engine) == [(30, day(1), day(3)), (32, day(3), None)]


def test_a_price_that_does_not_change_is_stored_once(engine: Engine) -> None:
    imported(engine, *(capture(day(n), {TYPE: 30}) for n in range(1, 6)))
    assert (count(engine, OBSERVATION), count(engine, DOCUMENT)) == (1, 6)  # with the document of the seed


def test_a_price_is_as_old_as_its_last_confirmation(engine: Engine) -> None:
    imported(engine, capture(day(1), {TYPE: 30}), capture(day(9), {TYPE: 30}))
    with engine.connect() as connection:
        assert connection.execute(select(PRICE.c.observed_on)).scalar_one() == day(9).date()


def test_the_same_capture_again_changes_nothing(engine: Engine) -> None:
    first = write_capture(engine, capture(day(1), {TYPE: 30}), NOW)
    again = write_capture(engine, capture(day(1), {TYPE: 30}), NOW)
    assert (first.state, again.state, again.version) == ("done", "unchanged", first.version)


def test_another_document_of_the_same_instant_is_refused(engine: Engine) -> None:
    imported(engine, capture(day(1), {TYPE: 30}))
    with pytest.raises(CaptureRefused, match="has another document of 2026-10-01"):
        imported(engine, capture(day(1), {TYPE: 31}))
    assert spans(engine) == [(30, day(1), None)]


def test_one_capture_without_an_offer_keeps_its_price_and_the_second_ends_it(engine: Engine) -> None:
    imported(engine, capture(day(1), {TYPE: 30, "g5.xlarge": 9}), capture(day(2), {"g5.xlarge": 9}))
    assert spans(engine) == [(30, day(1), None)]
    imported(engine, capture(day(3), {"g5.xlarge": 9}))
    assert spans(engine) == [(30, day(1), day(3))]
    imported(engine, capture(day(4), {TYPE: 30, "g5.xlarge": 9}))
    assert spans(engine) == [(30, day(1), day(3)), (30, day(4), None)]


def test_a_feed_that_lists_only_stock_never_ends_a_price(engine: Engine) -> None:
    with engine.begin() as connection:
        add_feeds(connection, feed_row("stock", stock_only=True))
    for n, shown in ((1, {TYPE: 30, "g5.xlarge": 9}), (2, {"g5.xlarge": 9}), (3, {"g5.xlarge": 9})):
        imported(engine, capture(day(n), shown, feed="stock"))
    assert spans(engine) == [(30, day(1), None)]


def test_an_incomplete_capture_neither_ends_nor_confirms_what_it_lacks(engine: Engine) -> None:
    imported(engine, capture(day(1), {TYPE: 30, "g5.xlarge": 9}))
    imported(engine, *(capture(day(n), {"g5.xlarge": n}, complete=False) for n in (9, 10, 11)))
    assert spans(engine) == [(30, day(1), None)]


def test_a_large_step_waits_for_a_second_capture(engine: Engine) -> None:
    imported(engine, capture(day(1), {TYPE: 30}), capture(day(2), {TYPE: 90}))
    assert spans(engine) == [(30, day(1), None)]
    with engine.connect() as connection:
        states = connection.execute(select(OBSERVATION.c.state).order_by(OBSERVATION.c.observed_at)).scalars().all()
    assert states == ["kept", "held"]
    imported(engine, capture(day(3), {TYPE: 90}))
    assert spans(engine) == [(30, day(1), day(2)), (90, day(2), None)]


def test_another_feed_admits_a_large_step(engine: Engine) -> None:
    imported(engine, capture(day(1), {TYPE: 30}), capture(day(2), {TYPE: 91}, feed="two"))
    imported(engine, capture(day(3), {TYPE: 90}))
    assert spans(engine)[-1] == (90, day(3), None)


def test_a_capture_in_which_a_third_of_the_prices_change_waits_for_a_second_one(engine: Engine) -> None:
    names = [f"made-up-{n}" for n in range(30)]
    before = {TYPE: 30, **dict.fromkeys(names, 100)}
    after = {TYPE: 31, **dict.fromkeys(names, 101)}
    imported(engine, capture(day(1), before), capture(day(2), after))
    assert spans(engine) == [(30, day(1), None)]
    imported(engine, capture(day(3), after))
    assert spans(engine) == [(30, day(1), day(2)), (31, day(2), None)]


def test_the_better_feed_counts_while_it_is_fresh(engine: Engine) -> None:
    spot = [observed_row(TYPE, micros, market="spot") for micros in (10, 11)]
    imported(engine, capture(day(1), {}, rows=[spot[0]]), capture(day(2), {}, rows=[spot[1]], feed="two", sha256="2"))
    imported(engine, capture(day(20), {}, rows=[spot[1]], feed="two", sha256="3"))
    # A daily feed confirms a spot price for three days.
    assert spans(engine) == [(10, day(1), day(4)), (11, day(4), None)]


def test_a_fresh_feed_takes_over_from_the_seed_and_the_seed_keeps_the_time_before(engine: Engine) -> None:
    (seeded,) = offer_records(TYPE, price_record(25_000_000, day(1)))
    write(engine, batch("with a price", [[{**seeded, "key": observed_row(TYPE, 1)["key"]}]]), NOW)
    imported(engine, capture(day(9), {TYPE: 30_000_000}))
    assert spans(engine) == [(25_000_000, day(1), day(9)), (30_000_000, day(9), None)]


def test_an_undated_price_never_displaces_a_dated_one_and_fills_a_gap(engine: Engine) -> None:
    imported(engine, capture(day(1), {}, rows=[observed_row(TYPE, 30, dated="unknown")], feed="two"))
    assert spans(engine) == [(30, day(1), None)]
    imported(engine, capture(day(2), {TYPE: 31}))
    imported(engine, capture(day(3), {}, rows=[observed_row(TYPE, 30, dated="unknown")], feed="two", sha256="3"))
    assert spans(engine) == [(31, day(2), None)]


def test_a_price_holds_from_the_day_that_the_seller_states(engine: Engine) -> None:
    rows = [
        observed_row(TYPE, 30, effective_from=day(1), ends_at=day(20)),
        observed_row(TYPE, 33, effective_from=day(25)),
    ]
    imported(engine, capture(day(10), {}, rows=rows))
    assert spans(engine) == [(30, day(1), day(20)), (33, day(25), None)]


def test_a_price_of_an_unknown_type_waits_until_the_type_is_known(engine: Engine) -> None:
    imported(engine, capture(day(1), {"p9.48xlarge": 70}))
    assert prices(engine, "p9") == []
    new = {"instance_type": [{**instance_type_row("p9.48xlarge", vcpus=4.0), "gpu_count": 1}]}
    imported(engine, capture(day(2), {TYPE: 30}, feed="two", new=new))
    assert [price[1:] for price in prices(engine, "p9")] == [(70, day(1), None)]


def test_knowledge_of_an_earlier_day_can_be_replayed(engine: Engine) -> None:
    write_capture(engine, capture(day(1), {TYPE: 30}), day(1))
    write_capture(engine, capture(day(5), {TYPE: 33}), day(5))
    write_capture(engine, capture(day(3), {TYPE: 32}), day(8))
    with engine.connect() as connection:
        known = {
            moment: [
                (interval.observed.per_hour_micros, interval.valid_from)
                for _, resolved in resolved_offers(
                    connection, None, read_feeds(connection), captures_known_at(connection, moment), moment
                )
                for interval in resolved.intervals
            ]
            for moment in (day(4), day(6), day(9))
        }
    assert known[day(4)] == [(30, day(1))]
    assert known[day(6)] == [(30, day(1)), (33, day(5))]
    assert known[day(9)] == [(30, day(1)), (32, day(3)), (33, day(5))]


def store_and_die(url: str, captured: Capture, statements: int) -> None:
    """Stores a capture in a process that kills itself after so many statements."""
    engine, executed = connect(url), count_from(1)

    @event.listens_for(engine, "after_cursor_execute")
    def _kill(*_: object) -> None:
        if next(executed) == statements:
            os.kill(os.getpid(), signal.SIGKILL)

    write_capture(engine, captured, NOW)


def test_an_import_that_is_killed_at_any_statement_changes_nothing_and_the_next_one_completes(
    engine: Engine, tables_url: str
) -> None:
    imported(engine, capture(day(1), {TYPE: 30}))
    changed = capture(day(2), {TYPE: 32, "g5.xlarge": 10})
    before = everything(engine)
    for statements in count_from(1):
        child = get_context("fork").Process(target=store_and_die, args=(tables_url, changed, statements))
        child.start()
        child.join()
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        assert everything(engine) == before
    assert statements > 10
    assert prices(engine)[-1] == (f"{TYPE} us-east-1 on_demand", 32, day(2), None)


def everything(engine: Engine) -> list[object]:
    """The rows of all tables that an import writes."""
    with engine.connect() as connection:
        tables = (CATALOG_VERSION, DOCUMENT, OBSERVATION, OFFER, PRICE, IMPORT_RUN)
        return [connection.execute(select(table).order_by(table.c.id)).all() for table in tables]


SHOWN = st.dictionaries(st.sampled_from([TYPE, "g5.xlarge"]), st.sampled_from([10, 11, 30]))
STEPS = st.lists(st.tuples(st.sampled_from(["one", "two"]), SHOWN), min_size=2, max_size=6)


def all_prices(file: Path, captures: Sequence[Capture]) -> tuple[object, object]:
    with TemporaryDirectory() as folder:
        engine = connect(f"sqlite:///{shutil.copy(file, Path(folder) / 'copy.db')}")
        imported(engine, *captures)
        with engine.connect() as connection:
            held = select(OBSERVATION.c.key, OBSERVATION.c.per_hour_micros).where(OBSERVATION.c.state == "held")
            held_rows = {tuple(row) for row in connection.execute(held)}
        resolved = prices(engine, "")
        engine.dispose()
    return resolved, held_rows


def stored(connection: Connection) -> list[object]:
    columns = (PRICE.c.per_hour_micros, PRICE.c.valid_from, PRICE.c.valid_to, PRICE.c.observed_on, PRICE.c.dated)
    query = select(OFFER.c.key, *columns).join(OFFER).order_by(OFFER.c.key, PRICE.c.valid_from)
    return [tuple(row) for row in connection.execute(query)]


@settings(max_examples=60)
@given(steps=st.lists(st.tuples(st.sampled_from(["one", "two"]), st.none() | SHOWN), min_size=2, max_size=8))
def test_prices_that_are_renewed_at_once_equal_prices_that_are_resolved(
    prepared_file: Path, steps: list[tuple[str, dict[str, int] | None]]
) -> None:
    with TemporaryDirectory() as folder:
        engine = connect(f"sqlite:///{shutil.copy(prepared_file, Path(folder) / 'copy.db')}")
        known = set[str]()
        for number, (feed, shown) in enumerate(steps, 1):
            if shown is not None:
                write_capture(engine, capture(day(number), shown, feed=feed, sha256=str(number)), NOW)
                known.add(feed)
            elif feed in known:  # without prices, the feed says that nothing has changed
                confirm_capture(engine, feed, "", day(number))
        with engine.begin() as connection:
            renewed = stored(connection)
            resolve_prices(connection, None, NOW)
            assert renewed == stored(connection)
        engine.dispose()


@settings(max_examples=60)
@given(steps=STEPS, data=st.data())
def test_imports_out_of_order_end_like_imports_in_order(
    prepared_file: Path, steps: list[tuple[str, dict[str, int]]], data: st.DataObject
) -> None:
    captures = [capture(day(n + 1), shown, feed=feed) for n, (feed, shown) in enumerate(steps)]
    shuffled = data.draw(st.permutations(captures))
    assert all_prices(prepared_file, shuffled) == all_prices(prepared_file, captures)
