"""The whole service on the seed, in this process, on a day that does not move."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.api import examples
from service.app import create_app
from service.settings import Settings


@pytest.fixture(scope="session")
def app(seeded_file: Path) -> FastAPI:
    return create_app(Settings(database_url=f"sqlite:///{seeded_file}"), today=lambda: examples.DAY)


@pytest.fixture(scope="session")
def client(app: FastAPI) -> Iterator[TestClient]:
    """Asks without a lifespan, so that the catalog's watcher is not started twice."""
    client = TestClient(app)
    yield client
    client.close()
