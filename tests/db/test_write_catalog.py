"""A batch replaces the last one whole, or changes nothing."""

import dataclasses
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Engine, Table, select, text
from sqlalchemy.exc import IntegrityError

from service.db.read_history import read_history
from service.db.tables import IMPORT_RUN, OFFER, PRICE
from service.db.write_catalog import Batch, write
from service.files import SEED
from service.importers.seed import read_seed

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def seed() -> Batch:
    return read_seed(SEED)


def small(seed: Batch, *, hash_: str, offers: int) -> Batch:
    """The seed with only its first offers."""
    first = list(dict.fromkeys(row["key"] for row in seed.observations))[:offers]
    kept = [row for row in seed.observations if row["key"] in first]
    return dataclasses.replace(seed, content_hash=hash_, observations=kept)


def count(engine: Engine, table: Table) -> int:
    with engine.connect() as connection:
        return len(connection.execute(select(table)).all())


def test_the_whole_seed_goes_in_and_raises_the_version_once(engine: Engine, seed: Batch) -> None:
    written = write(engine, seed, NOW)
    assert (written.state, written.version) == ("done", 1)
    assert count(engine, OFFER) == len({row["key"] for row in seed.observations})
    assert count(engine, PRICE) == len(seed.observations)


def test_the_same_batch_again_changes_nothing(engine: Engine, seed: Batch) -> None:
    write(engine, small(seed, hash_="a", offers=5), NOW)
    again = write(engine, small(seed, hash_="a", offers=5), NOW)
    assert (again.state, again.version) == ("unchanged", 1)


def test_a_new_batch_takes_the_place_of_the_last_one(engine: Engine, seed: Batch) -> None:
    write(engine, small(seed, hash_="a", offers=50), NOW)
    written = write(engine, small(seed, hash_="b", offers=7), NOW)
    assert written.version == 2
    assert count(engine, OFFER) == 7


def test_rows_that_a_new_batch_no_longer_has_are_gone_and_changed_ones_are_changed(engine: Engine, seed: Batch) -> None:
    write(engine, small(seed, hash_="a", offers=5), NOW)
    gpus = [dict(gpu) for gpu in seed.tables["gpu"]]
    gpus[0]["note"] = "Looked at again."
    extra: dict[str, Any] = {**gpus[0], "id": "made-up-gpu", "partition_of": None, "fraction": 1.0}
    tables: dict[str, Sequence[dict[str, Any]]] = {**seed.tables, "gpu": [*gpus, extra]}
    write(engine, dataclasses.replace(small(seed, hash_="b", offers=5), tables=tables), NOW)
    found = read_history(engine).reference.gpus
    assert found[gpus[0]["id"]].note == "Looked at again."
    assert "made-up-gpu" in found
    write(engine, small(seed, hash_="c", offers=5), NOW)
    assert "made-up-gpu" not in read_history(engine).reference.gpus


def test_a_batch_that_breaks_a_rule_leaves_the_last_good_one(engine: Engine, seed: Batch) -> None:
    write(engine, small(seed, hash_="a", offers=5), NOW)
    *others, last = small(seed, hash_="b", offers=9).observations
    broken = [*others, {**last, "per_hour_micros": 0}]
    with pytest.raises(IntegrityError):
        write(engine, dataclasses.replace(seed, content_hash="b", observations=broken), NOW)
    assert count(engine, OFFER) == 5
    with engine.connect() as connection:
        row = connection.execute(text("SELECT version, importing FROM catalog_version")).one()
    assert (row.version, bool(row.importing)) == (1, False)


def test_two_imports_at_once_wait_for_each_other(engine: Engine, seed: Batch) -> None:
    batches = [small(seed, hash_=name, offers=20) for name in "abcd"]
    threads = [threading.Thread(target=write, args=(engine, batch, NOW)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(engine, OFFER) == 20
    with engine.connect() as connection:
        runs = connection.execute(select(IMPORT_RUN.c.state)).scalars().all()
        version = connection.execute(text("SELECT version FROM catalog_version")).scalar_one()
    assert list(runs) == ["done"] * 4
    assert version == 4
