"""The whole service on the seed, in this process, on a day that does not move."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.api.http import examples
from service.app import create_app
from service.settings import Settings
from tests.conftest import copied


@pytest.fixture(scope="session")
def app(seeded_file: Path) -> FastAPI:
    return create_app(Settings(database_url=f"sqlite:///{seeded_file}"), today=lambda: examples.DAY)


@pytest.fixture(scope="session")
def app_to_write(seeded_file: Path, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The same on a copy that requests may change."""
    url = copied(seeded_file, tmp_path_factory.mktemp("written") / "catalog.db")
    return create_app(Settings(database_url=url), today=lambda: examples.DAY)


@pytest.fixture
def client_to_write(seeded_copy: str) -> Iterator[TestClient]:
    """Asks a service of its own, which nobody has written to before."""
    client = TestClient(create_app(Settings(database_url=seeded_copy), today=lambda: examples.DAY))
    yield client
    client.close()


@pytest.fixture(scope="session")
def client(app: FastAPI) -> Iterator[TestClient]:
    """Asks without a lifespan, so that the catalog's watcher is not started twice."""
    client = TestClient(app)
    yield client
    client.close()
