"""A version can use a database whose newer migrations only expand its tables."""

import shutil
from pathlib import Path

import pytest
from sqlalchemy import text

from service.db import migrate
from service.db.engine import connect
from service.db.errors import DatabaseUnusable
from service.db.migrate import downgrade, newest_revision, require_usable, upgrade
from service.files import MIGRATIONS

NEXT = """\
from alembic import op

revision, down_revision = "{revision}", "{before}"
{marker}


def upgrade():
    op.execute("ALTER TABLE measurement ADD COLUMN added_by_{revision} INTEGER")


def downgrade():
    op.drop_column("measurement", "added_by_{revision}")
"""


def newer_version(folder: Path, *markers: str) -> Path:
    """Writes the migrations of this version into a folder, with one more for each marker."""
    shutil.copytree(MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    before = newest_revision()
    for index, marker in enumerate(markers):
        text_ = NEXT.format(revision=f"9{index:03}", before=before, marker=marker)
        (folder / "versions" / f"9{index:03}_newer.py").write_text(text_, encoding="utf-8")
        before = f"9{index:03}"
    return folder


@pytest.mark.parametrize(
    ("markers", "usable"),
    [
        (("expands = True",), True),
        (("expands = True", "expands = True"), True),
        (("",), False),
        (("", "expands = True"), False),
        (("expands = True", ""), False),
    ],
)
def test_newer_tables_suit_this_version_where_every_migration_since_expands(
    markers: tuple[str, ...], usable: bool, tables_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = connect(tables_url)
    with monkeypatch.context() as newer:
        newer.setattr(migrate, "MIGRATIONS", newer_version(tmp_path / "newer", *markers))
        upgrade(engine)
    for use in (require_usable, upgrade):
        if usable:
            use(engine)
        else:
            with pytest.raises(DatabaseUnusable, match="not made by this version"):
                use(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == f"9{len(markers) - 1:03}"
    engine.dispose()


def test_a_newer_database_that_is_taken_back_is_usable_again(
    tables_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, before = connect(tables_url), newest_revision()
    with monkeypatch.context() as newer:
        newer.setattr(migrate, "MIGRATIONS", newer_version(tmp_path / "newer", ""))
        upgrade(engine)
        downgrade(engine, before)
    require_usable(engine)
    engine.dispose()
