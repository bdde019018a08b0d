"""Rows are read as they were written: values, instants in UTC, money at the rate of its day, lifecycles in order."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from sqlalchemy import Engine, text

from service.db.bulk_columns import READ_AT_ONCE
from service.db.engine import connect
from service.db.errors import DatabaseUnusable
from service.db.read_history import read_history
from service.db.write_catalog import write
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.history import CatalogHistory, day_of
from service.domain.catalog.offer import Price
from tests.builders.rows import (
    Tables,
    batch,
    event_row,
    gpu_row,
    instance_type_row,
    offer_records,
    price_record,
    small_tables,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CHINA = timezone(timedelta(hours=8))


def kind_of(history: CatalogHistory, name: str) -> InstanceType:
    return next(kind for kind in history.instance_types if kind.name == name)


def prices_of(history: CatalogHistory) -> list[Price]:
    return [history.prices.price(row) for row in range(len(history.prices))]


def day(year: int, month: int = 1) -> datetime:
    return datetime(year, month, 1, tzinfo=UTC)


def test_a_database_without_rows_is_an_empty_catalog(engine: Engine) -> None:
    history = read_history(engine)
    assert (history.version, history.instance_types, len(history.prices)) == (0, (), 0)
    assert len(history.on(date(2026, 1, 1)).offers) == 0


def test_no_and_unknown_are_not_the_same(engine: Engine) -> None:
    write(engine, batch(), NOW)
    history = read_history(engine)
    assert [kind_of(history, name).rdma for name in ("p4d.24xlarge", "g5.xlarge", "g5.2xlarge")] == [True, False, None]
    rates = history.reference.gpus["a10g-24gb-1of2"].rates["bf16"]
    assert (rates.support, rates.dense_tflops) == (None, None)


def test_types_are_read_in_the_order_of_their_names(engine: Engine) -> None:
    write(engine, batch(), NOW)
    assert [kind.name for kind in read_history(engine).instance_types] == ["g5.2xlarge", "g5.xlarge", "p4d.24xlarge"]


def test_a_part_is_written_before_its_card_and_goes_with_it(engine: Engine) -> None:
    write(engine, batch(), NOW)
    part = read_history(engine).reference.gpus["a10g-24gb-1of2"]
    assert (part.fraction, part.partition_of) == (0.5, "z10g-24gb")
    other: Tables = {
        "gpu": [gpu_row("a10g-24gb")],
        "gpu_precision": [],
        "instance_type": [{**kind, "gpu": "a10g-24gb"} for kind in small_tables()["instance_type"]],
    }
    write(engine, batch("another card", tables=other), NOW)
    assert list(read_history(engine).reference.gpus) == ["a10g-24gb"]


def test_a_types_own_day_stands_before_its_familys(engine: Engine) -> None:
    events = [
        event_row("g5", date(2021, 11, 11)),
        event_row("g5", date(2026, 1, 1), "retired"),
        event_row("g5", date(2022, 5, 5), name="g5.2xlarge"),
        event_row("p4d", date(2020, 11, 2)),
    ]
    write(engine, batch(tables={"lifecycle": events}), NOW)
    history = read_history(engine)
    lives = {kind.name: [(each.state, each.starts_on) for each in kind.lifecycle] for kind in history.instance_types}
    assert lives["g5.xlarge"] == [("available", date(2021, 11, 11)), ("retired", date(2026, 1, 1))]
    assert lives["g5.2xlarge"] == [("available", date(2022, 5, 5)), ("retired", date(2026, 1, 1))]
    assert lives["p4d.24xlarge"] == [("available", date(2020, 11, 2))]


def test_states_of_one_day_are_read_in_the_order_of_life(engine: Engine) -> None:
    same = date(2022, 1, 1)
    events = [event_row("g5", same, state) for state in ("available", "preview", "announced")] + [
        event_row("p4d", same)
    ]
    write(engine, batch(tables={"lifecycle": events}), NOW)
    assert kind_of(read_history(engine), "g5.xlarge").state_on(same) == "available"


def test_instants_come_back_in_utc(engine: Engine) -> None:
    in_china = datetime(2022, 1, 1, 8, tzinfo=CHINA)  # midnight in UTC
    write(engine, batch(offers=[offer_records("g5.xlarge", price_record(1, in_china))]), NOW)
    (found,) = prices_of(read_history(engine))
    assert datetime.fromtimestamp(found.valid_from, UTC) == datetime(2022, 1, 1, tzinfo=UTC)
    (run,) = read_history(engine).reference.imports
    assert run.finished_at == datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_an_interval_holds_its_first_day_and_not_its_last(engine: Engine) -> None:
    write(
        engine,
        batch(offers=[offer_records("g5.xlarge", price_record(1, day(2022)), price_record(2, day(2023)))]),
        NOW,
    )
    history = read_history(engine)

    def cost(on: date) -> list[float]:
        return [float(usd) for usd in history.on(on).offers.usd_per_hour]

    assert cost(date(2021, 12, 31)) == []
    assert cost(date(2022, 1, 1)) == cost(date(2022, 12, 31)) == [0.000001]
    assert cost(date(2023, 1, 1)) == [0.000002]


def test_money_is_shown_in_dollars_at_the_rate_of_its_day(engine: Engine) -> None:
    chain = [
        price_record(10_000_000, day(2021)),
        price_record(10_000_000, day(2022)),
        price_record(10_000_000, day(2022, 7)),
        price_record(10_000_000, day(2023, 7)),
    ]
    write(engine, batch(offers=[offer_records("g5.xlarge", *chain, currency="CNY")]), NOW)
    found = prices_of(read_history(engine))
    assert [each.usd_micros_per_hour for each in found] == [None, 1_500_000, 1_500_000, 1_400_000]
    assert {(each.native_micros_per_hour, each.currency) for each in found} == {(10_000_000, "CNY")}


def test_a_currency_without_a_rate_has_no_price_in_dollars(engine: Engine) -> None:
    write(engine, batch(offers=[offer_records("g5.xlarge", currency="EUR"), offer_records("g5.2xlarge")]), NOW)
    found = {each.currency: each for each in prices_of(read_history(engine))}
    assert (found["EUR"].usd_micros_per_hour, found["EUR"].native_micros_per_hour) == (None, 1_000_000)
    assert found["USD"].usd_micros_per_hour == 1_000_000


def test_a_price_that_is_not_known_stays_so_and_keeps_its_reason(engine: Engine) -> None:
    unknown = price_record(None, note="the page states none", dated="unknown", kind="entered")
    write(engine, batch(offers=[offer_records("g5.xlarge", unknown, currency="CNY")]), NOW)
    (found,) = prices_of(read_history(engine))
    assert (found.usd_micros_per_hour, found.native_micros_per_hour, found.observed_on) == (None, None, None)
    assert (found.note, found.dated, found.kind) == ("the page states none", "unknown", "entered")


def test_an_import_that_failed_or_changed_nothing_is_not_the_last_one(engine: Engine) -> None:
    write(engine, batch(), NOW)
    write(engine, batch(), NOW + timedelta(days=1))
    (run,) = read_history(engine).reference.imports
    assert (run.feed, run.finished_at, run.rows_seen) == ("seed", datetime(2026, 11, 21, 12, tzinfo=UTC), 20)


def test_a_change_in_the_midst_of_reading_is_not_half_read(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process changes the database after the first SELECT: all that is read is of before."""
    write(engine, batch(), NOW)
    from service.db import read_history as module

    read_version = module.read_version

    def read_version_then_change(connection: object) -> object:
        version = read_version(connection)  # type: ignore[arg-type]
        with engine.begin() as other:
            other.execute(text("UPDATE instance_type SET vcpus = 97 WHERE name = 'p4d.24xlarge'"))
        return version

    monkeypatch.setattr(module, "read_version", read_version_then_change)
    history = read_history(engine)
    assert (history.version, kind_of(history, "p4d.24xlarge").vcpus) == (1, 96)
    monkeypatch.undo()
    assert (read_history(engine).version, kind_of(read_history(engine), "p4d.24xlarge").vcpus) == (2, 97)


def test_a_machine_without_a_gpu_has_none(engine: Engine) -> None:
    plain = instance_type_row("c5.large", gpu=None, gpu_count=0)
    tables: Tables = {"instance_type": [*small_tables()["instance_type"], plain]}
    write(engine, batch(tables=tables), NOW)
    kind = kind_of(read_history(engine), "c5.large")
    assert (kind.gpu, kind.whole_gpus, kind.total_gpu_memory_gb) == (None, 0, None)


# Columns as text


def test_numbers_of_rows_may_lie_far_apart(engine: Engine) -> None:
    write(engine, batch(), NOW)
    before = read_history(engine)
    with engine.begin() as connection:
        connection.execute(
            text(f"UPDATE price SET id = id + {10 * READ_AT_ONCE} WHERE id = (SELECT max(id) FROM price)")
        )
        connection.execute(text(f"UPDATE price SET id = -{READ_AT_ONCE} WHERE id = (SELECT min(id) FROM price)"))
    assert prices_of(read_history(engine)) == prices_of(before)
    assert len(prices_of(before)) == 3


def test_codes_do_not_depend_on_which_row_came_first(engine: Engine) -> None:
    prices = [
        offer_records(name, price_record(1_000_000, note=note))
        for name, note in (("g5.xlarge", "z"), ("g5.2xlarge", "a"))
    ]
    write(engine, batch(offers=prices), NOW)
    assert [word for word in read_history(engine).prices.words if word in "az"] == ["a", "z"]


def test_a_word_with_the_separator_in_it_is_named(engine: Engine) -> None:
    write(engine, batch(offers=[offer_records("g5.xlarge", price_record(1_000_000, note="one\x1ftwo"))]), NOW)
    with pytest.raises(DatabaseUnusable, match=r"price\.note holds the character U\+001F"):
        read_history(engine)


def test_instants_are_the_same_whatever_a_server_writes_them_like(postgres_tables: str) -> None:
    engine = connect(postgres_tables)
    write(engine, batch(offers=[offer_records("g5.xlarge", price_record(1_000_000, day(2026)))]), NOW)
    before = prices_of(read_history(engine))
    with engine.begin() as connection:
        database = connection.execute(text("SELECT current_database()")).scalar_one()
        connection.execute(text(f"ALTER DATABASE \"{database}\" SET timezone TO 'Asia/Kolkata'"))
        connection.execute(text(f"ALTER DATABASE \"{database}\" SET datestyle TO 'SQL, DMY'"))
    engine.dispose()
    assert prices_of(read_history(engine)) == before
    assert day_of(before[0].valid_from) == date(2026, 1, 1)
    engine.dispose()
