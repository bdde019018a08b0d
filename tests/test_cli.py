"""The command line answers like the service, and reports a fault in a sentence."""

import gc
import io
import json
import socket
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.app import build_app
from service.cli.development import openapi_text
from service.cli.main import main
from service.cli.serve import provide_development_key
from service.db.engine import connect
from service.db.keys import read_keys, revoke_key
from service.db.migrate import is_empty
from service.db.write_catalog import write
from service.domain.keys import SCOPES, id_of
from service.domain.keys import TOKEN as TOKEN_OF_A_KEY
from service.settings import Settings, SettingsWrong
from tests.builders.rows import batch


@pytest.fixture(autouse=True)
def seeded(seeded_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_DATABASE_URL", f"sqlite:///{seeded_file}")


def test_recommend_answers_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = tmp_path / "question.json"
    body.write_text('{"workload": {"task": "training", "precision": ["bf16"]}, "limit": 2}')
    assert main(["recommend", str(body)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [choice["rank"] for choice in answer["choices"]] == [1, 2]


def test_recommend_answers_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"workload": {"task": "trainig"}}')))
    assert main(["recommend", "-"]) == 1
    assert json.loads(capsys.readouterr().out)["errors"][0]["near"] == ["training"]


def test_recommend_without_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", str(tmp_path / "nothing.json")]) == 2
    assert "nothing.json" in capsys.readouterr().err


def test_recommend_of_what_is_no_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = tmp_path / "question.json"
    body.write_text("workload: training")
    assert main(["recommend", str(body)]) == 1
    assert json.loads(capsys.readouterr().out)["detail"] == "The body is not valid JSON: see line 1, column 1."


def test_instances_are_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["instances", "precision=bf16", "provider=aws", "limit=2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["items"]) == 2
    assert {item["provider"] for item in answer["items"]} == {"aws"}


def test_a_wrong_filter_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["instances", "precision=fp7"]) == 1
    assert json.loads(capsys.readouterr().out)["status"] == 422


def test_openapi_needs_no_database(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SELECTOR_DATABASE_URL", "sqlite:////nowhere/at/all.db")
    assert main(["openapi"]) == 0
    assert capsys.readouterr().out == openapi_text(build_app())


def test_seeding_twice_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SELECTOR_DATABASE_URL", f"sqlite:///{tmp_path / 'new.db'}")
    assert main(["seed"]) == 0
    assert "is seeded" in capsys.readouterr().err
    assert main(["seed"]) == 0
    assert "holds the seed already" in capsys.readouterr().err
    with sqlite3.connect(tmp_path / "new.db") as database:
        assert database.execute("SELECT version FROM catalog_version").fetchone() == (1,)
    database.close()


def test_the_seed_is_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seed", "--check"]) == 0
    assert capsys.readouterr().out.startswith("The seed is sound")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"SELECTOR_PORT": "abc"}, "SELECTOR_PORT: "),
        ({"SELECTOR_DATABASE_URL": "what?"}, "The database URL cannot be read."),
        ({"SELECTOR_DATABASE_URL": "mysql://a/b"}, "mysql is not supported."),
        ({"SELECTOR_DATABASE_URL": "sqlite:////nowhere/at/all.db"}, ""),
    ],
)
@pytest.mark.parametrize("command", [["serve"], ["instances"], ["migrate"]])
def test_an_unusable_setting_is_reported_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, str],
    sentence: str,
    command: list[str],
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert main(command) == 1
    answer = capsys.readouterr().err
    assert answer.startswith(sentence)
    assert answer.count("\n") == 1
    assert "." in answer
    assert "Traceback" not in answer


def test_an_empty_database_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SELECTOR_DATABASE_URL", f"sqlite:///{tmp_path / 'empty.db'}")
    assert main(["instances"]) == 1
    assert "instance-selector" in capsys.readouterr().err


def test_only_an_empty_database_is_seeded_by_serve(tables_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica of the version before, which starts again after an upgrade, must not replace the new seed."""
    seeded: list[str] = []
    monkeypatch.setenv("SELECTOR_DATABASE_URL", tables_url)
    monkeypatch.setattr("service.cli.serve.run_server", lambda _settings: None)
    monkeypatch.setattr("service.cli.serve._require_free_port", lambda _settings: None)
    monkeypatch.setattr("service.cli.database.load", lambda engine, _folder: seeded.append(str(engine.url)))
    assert main(["serve", "--seed-if-empty"]) == 0
    assert len(seeded) == 1, "tables without rows are empty"
    engine = connect(tables_url)
    write(engine, batch(), datetime(2026, 11, 21, tzinfo=UTC))
    engine.dispose()
    assert main(["serve", "--seed-if-empty"]) == 0
    assert len(seeded) == 1


def test_a_database_without_tables_is_empty_and_that_of_another_program_is_not(database_url: str) -> None:
    engine = connect(database_url)
    assert is_empty(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE invoice (id INTEGER)")
    assert not is_empty(engine)
    engine.dispose()


def test_a_taken_port_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 1
    assert "Cannot listen on 127.0.0.1:" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["dance"], ["serve", "--port", "abc"]])
def test_what_is_not_a_command_is_not_understood(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage: instance-selector" in capsys.readouterr().err


def test_a_key_is_created_listed_and_revoked(
    seeded_copy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SELECTOR_DATABASE_URL", seeded_copy)
    assert main(["keys", "create", "team a", "--scopes", "measurements, admin", "--expires", "2999-01-01"]) == 0
    token = capsys.readouterr().out.strip()
    assert TOKEN_OF_A_KEY.fullmatch(token)
    assert main(["keys", "list"]) == 0
    listed = capsys.readouterr().out
    assert token not in listed
    (line,) = [line for line in listed.splitlines() if "team a" in line]
    assert [id_of(token), "measurements,admin", "active"] == [line.split()[index] for index in (0, 3, 4)]
    assert "2999-01-01 00:00" in line
    assert main(["keys", "revoke", id_of(token)]) == 0
    assert main(["keys", "revoke", id_of(token)]) == 1
    assert main(["keys", "list"]) == 0
    assert "revoked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a", "--scopes", "measurement"], "No scope is called 'measurement'."),
        (["a", "--scopes", "admin", "--expires", "2020-01-01"], "2020-01-01 is not in the future."),
        (["a", "--scopes", "admin", "--expires", "soon"], "'soon' does not match the format '%Y-%m-%d'"),
        (["a\nb", "--scopes", "admin"], "An owner has up to 100"),
        (["a"], "--scopes"),
    ],
)
def test_a_key_that_means_nothing_is_not_created(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "create", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_development_key_is_created_once_and_printed_once(
    seeded_copy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, settings = connect(seeded_copy), Settings(database_url=seeded_copy)
    before = read_keys(engine)
    provide_development_key(engine, settings)
    token = capsys.readouterr().err.splitlines()[-1]
    (key,) = set(read_keys(engine)) - set(before)
    assert key.has_token(token)
    assert key.scopes == SCOPES
    provide_development_key(engine, settings)
    assert "was shown when it was created" in capsys.readouterr().err
    chosen = Settings(database_url=seeded_copy, development_key="chosen-by-a-developer")
    for _ in range(2):
        provide_development_key(engine, chosen)
    assert capsys.readouterr().err == ""
    (added,) = set(read_keys(engine)) - {*before, key}
    assert added.has_token("chosen-by-a-developer")
    revoke_key(engine, added.id, added.created_at)
    with pytest.raises(SettingsWrong, match="is not valid any more"):
        provide_development_key(engine, chosen)
    engine.dispose()


def test_a_server_loads_and_builds_only_what_its_start_needs() -> None:
    program = (
        "import sys, service.cli.serve, service.app; from service.api.recommend.encoded import CHOICES, RESPONSE; "
        "print('service.importers' in sys.modules, CHOICES.pydantic_complete, RESPONSE.pydantic_complete)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "False False False\n"


def test_a_command_that_serves_nothing_collects_garbage(capsys: pytest.CaptureFixture[str]) -> None:
    gc.disable()  # as `service.__main__` does
    try:
        assert main(["check"]) == 0
        assert gc.isenabled()
    finally:
        gc.enable()
    assert "is whole" in capsys.readouterr().out
