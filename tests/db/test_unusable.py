"""A database that cannot be used is reported in a sentence, by every command and endpoint."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, make_url, text

from service.cli.main import main
from service.db import engine as engines
from service.db.engine import connect, parse_url
from service.db.errors import DatabaseUnusable
from service.db.feeds.read_facts import read_facts
from service.db.migrate import downgrade, require_usable, upgrade
from service.db.read_history import read_history
from service.db.write_catalog import write
from tests.builders.rows import batch
from tests.server import free_port

NOW = datetime(2026, 11, 21, tzinfo=UTC)
SEED_IT = "The database is empty. Run: instance-selector seed"
MIGRATE_IT = "The database is older than this version of the service. Run: instance-selector migrate"
STRANGE = (
    "The database was not made by this version of the service: it is newer, or belongs to another program. "
    "Use the version that made it, or another database."
)


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(DatabaseUnusable) as answer:
        act()
    return str(answer.value)


def executed(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


# Whatever is there


def test_an_empty_database(database_url: str) -> None:
    engine = connect(database_url)
    with engine.connect():
        pass  # makes the file
    assert refusal(lambda: require_usable(engine)) == SEED_IT
    engine.dispose()


def test_a_database_whose_migrations_were_taken_back(engine: Engine) -> None:
    downgrade(engine, "base")
    assert refusal(lambda: require_usable(engine)) == SEED_IT


def test_an_older_database_is_brought_up(database_url: str) -> None:
    engine = connect(database_url)
    upgrade(engine, "0001")
    assert refusal(lambda: require_usable(engine)) == MIGRATE_IT
    upgrade(engine)
    require_usable(engine)
    engine.dispose()


def test_a_newer_database_is_left_alone(engine: Engine) -> None:
    executed(
        engine,
        "UPDATE alembic_version SET version_num = '9999'",
        "UPDATE catalog_version SET oldest_revision = '9999'",
    )
    assert refusal(lambda: require_usable(engine)) == STRANGE
    assert refusal(lambda: upgrade(engine)) == STRANGE


def test_another_programs_database_is_left_alone(database_url: str) -> None:
    engine = connect(database_url)
    executed(engine, "CREATE TABLE customer (id INTEGER)")
    assert refusal(lambda: require_usable(engine)) == STRANGE
    assert refusal(lambda: upgrade(engine)) == STRANGE
    executed(engine, "SELECT * FROM customer")
    engine.dispose()


# What cannot be reached


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "nothing.db"
    answer = refusal(lambda: require_usable(connect(f"sqlite:///{file}")))
    assert answer == f"There is no database at {file}. Run: instance-selector seed"
    assert not file.exists()


def test_a_file_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'no' / 'folder.db'}"
    assert (
        refusal(lambda: upgrade(connect(url))) == f"The database {url} cannot be reached: unable to open database file."
    )


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Good morning, all,\n" * 99)
    url = f"sqlite:///{tmp_path / 'letter.txt'}"
    sentence = f"{url} is not a database that this service can use: file is not a database."
    for act in (require_usable, upgrade):
        engine = connect(url)
        assert refusal(lambda act=act, engine=engine: act(engine)) == sentence  # type: ignore[misc]
        engine.dispose()
    assert (tmp_path / "letter.txt").read_text().startswith("Good morning")


@pytest.fixture
def locked(sqlite_tables: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Another process holds the file, and has done so for longer than anybody waits."""
    monkeypatch.setattr(engines, "SQLITE_BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(str(make_url(sqlite_tables).database), isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        holder.execute("UPDATE catalog_version SET version = 7")
        engine = connect(sqlite_tables)
        yield engine
        engine.dispose()


def test_a_locked_database(locked: Engine) -> None:
    sentence = f"The database {locked.url.database} is locked by another process. Stop that process and start again."
    assert refusal(lambda: require_usable(locked)) == sentence
    assert refusal(lambda: upgrade(locked)) == sentence
    assert refusal(lambda: write(locked, batch(), NOW)) == sentence
    assert refusal(lambda: read_history(locked)) == sentence
    assert refusal(lambda: read_facts(locked)) == sentence


def test_a_server_that_does_not_answer_and_a_password_that_stays_secret() -> None:
    engine = connect(f"postgres://me:secret@127.0.0.1:{free_port()}/catalog")
    for act in (require_usable, upgrade, read_history, read_facts):
        answer = refusal(lambda act=act: act(engine))  # type: ignore[misc]
        assert answer.startswith("The database postgresql+psycopg://me:***@127.0.0.1:")
        assert "Connection refused" in answer
        assert "secret" not in answer


def test_a_server_without_that_database(postgres_url: str) -> None:
    engine = connect(make_url(postgres_url).set(database="nobody_made_it").render_as_string(hide_password=False))
    assert refusal(lambda: require_usable(engine)).endswith('database "nobody_made_it" does not exist.')


def test_a_user_who_may_not_make_tables(postgres_url: str) -> None:
    owner = connect(postgres_url)
    name = f"reader_{make_url(postgres_url).database}"
    executed(owner, f"CREATE ROLE {name} LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    reader = connect(make_url(postgres_url).set(username=name).render_as_string(hide_password=False))
    try:
        assert "permission denied for schema public" in refusal(lambda: upgrade(reader))
    finally:
        reader.dispose()
        executed(owner, f"DROP ROLE {name}")
        owner.dispose()


# What is no address


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "The database URL cannot be read."),
        ("catalog.db", "The database URL cannot be read."),
        ("postgresql://host:port/catalog", "The database URL cannot be read."),
        ("mysql://host/catalog", "mysql is not supported. Use sqlite or postgresql."),
    ],
)
def test_what_is_no_address_of_a_database(url: str, sentence: str) -> None:
    assert refusal(lambda: parse_url(url)).startswith(sentence)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+psycopg2"])
def test_whatever_the_driver_asked_for_the_one_that_is_installed_is_used(scheme: str) -> None:
    assert parse_url(f"{scheme}://me@host/catalog").drivername == "postgresql+psycopg"


# On the command line


@pytest.mark.parametrize("command", [["serve"], ["seed"], ["migrate"], ["instances"]])
def test_the_command_line_prints_the_sentence_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE customer (id INTEGER)")
    monkeypatch.setenv("SELECTOR_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    assert main(command) == 1
    assert capsys.readouterr().err == f"{STRANGE}\n"


@pytest.mark.parametrize("command", [["serve"], ["seed"], ["migrate"], ["instances"]])
def test_the_command_line_on_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgres://me:secret@127.0.0.1:{free_port()}/catalog")
    assert main(command) == 1
    answer = capsys.readouterr().err
    assert answer.count("\n") == 1
    assert "Connection refused" in answer
    assert "secret" not in answer
