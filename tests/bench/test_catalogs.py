"""Catalogs grown from the seed."""

from datetime import date
from pathlib import Path

import pytest

from bench.catalogs import instance_names, make_catalogs
from service.db.engine import connect
from service.db.read_history import read_history
from service.domain.catalog.catalog import Catalog

DAY = date(2026, 1, 1)
MORE = 6_000


def catalog_in(path: Path) -> Catalog:
    engine = connect(f"sqlite:///{path}")
    catalog = read_history(engine).on(DAY)
    engine.dispose()
    return catalog


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    return make_catalogs(tmp_path_factory.mktemp("catalogs"), [None, MORE])


def test_a_catalog_has_the_size_asked_for(databases: dict[int, Path]) -> None:
    engine = connect(f"sqlite:///{databases[MORE]}")
    assert len(read_history(engine).offers.instance_type) == MORE
    engine.dispose()


def test_it_has_the_same_types_in_more_places(databases: dict[int, Path]) -> None:
    own, grown = (catalog_in(path) for _, path in sorted(databases.items()))
    assert [kind.id for kind in grown.instance_types] == [kind.id for kind in own.instance_types]
    assert set(grown.offers.places) >= set(own.offers.places)
    assert set(grown.offers.market.tolist()) == {0, 1, 2}


def test_it_is_the_same_every_time(databases: dict[int, Path], tmp_path: Path) -> None:
    again = make_catalogs(tmp_path, [MORE])[MORE]
    one, other = catalog_in(databases[MORE]).offers, catalog_in(again).offers
    assert [one.offer(place) for place in range(0, len(one), 50)] == [
        other.offer(place) for place in range(0, len(other), 50)
    ]


def test_instances_are_named_as_in_addresses(databases: dict[int, Path]) -> None:
    assert "aws/p3.2xlarge" in instance_names(databases[MORE])
