"""A server of feeds, and the database into which they are read."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from service.db.engine import connect
from tests.feeds.feed_server import FeedServer, feed_server


@pytest.fixture
def feeds() -> Iterator[FeedServer]:
    with feed_server() as server:
        yield server


@pytest.fixture
def engine(seeded_copy: str) -> Iterator[Engine]:
    engine = connect(seeded_copy)
    yield engine
    engine.dispose()
