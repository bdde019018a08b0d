"""A start that finds everything current does without Alembic, so the code finds the newest revision by itself."""

from service.db.engine import connect
from service.db.migrate import is_current, newest_revision, scripts, upgrade


def test_the_newest_revision_is_alembics_head(database_url: str) -> None:
    engine = connect(database_url)
    assert newest_revision() == scripts(engine).get_current_head()
    assert not is_current(engine)
    upgrade(engine)
    assert is_current(engine)
    engine.dispose()
