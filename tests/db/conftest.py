"""An engine on tables without rows."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from service.db.engine import connect


@pytest.fixture
def engine(tables_url: str) -> Iterator[Engine]:
    """A database with tables; a test that takes it runs once on SQLite and once on Postgres."""
    made = connect(tables_url)
    yield made
    made.dispose()
