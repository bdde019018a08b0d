"""Connections to Postgres work through a pooler."""

from sqlalchemy import text

from service.db.engine import connect


def test_a_session_of_postgres_holds_no_prepared_statements(postgres_url: str) -> None:
    """A pooler in transaction mode gives the session to other clients, where names of statements would clash."""
    engine = connect(postgres_url)
    with engine.begin() as connection:
        for number in range(20):
            connection.execute(text("SELECT CAST(:number AS INTEGER)"), {"number": number})
        prepared = connection.scalar(text("SELECT count(*) FROM pg_prepared_statements"))
    engine.dispose()
    assert prepared == 0
