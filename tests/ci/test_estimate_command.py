"""`instance-selector estimate`: what it prints, and how it exits."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.ci.job_file import JobFileWrong, read_job, with_limits
from service.cli.main import main
from service.settings import Settings
from tests.api.keys import TOKEN
from tests.server import Server

JOB = """
hours: 10
machine: aws/p4d.24xlarge
region: us-east-1
market: on_demand
as_of: 2026-10-01
"""
USD = 219.57642


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ([], 0),
        (["--budget", "220"], 0),
        (["--budget", "219"], 1),
        (["--baseline", "200", "--fail-above", "10"], 0),
        (["--baseline", "200", "--fail-above", "9"], 1),
        (["--baseline", "200"], 1),
        (["--fail-above", "10"], 2),
        (["--budget", "nan"], 2),
        (["--budget", "-1"], 2),
    ],
)
def test_the_exit_code_is_the_verdict(server: Server, job: Path, limits: list[str], code: int) -> None:
    assert main(["estimate", "--file", str(job), "--url", server.url, *limits]) == code


def test_in_process_it_answers_the_same(
    server: Server, job: Path, seeded_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", "--file", str(job), "--url", server.url, "--format", "json"]) == 0
    there = json.loads(capsys.readouterr().out)
    monkeypatch.setenv("SELECTOR_DATABASE_URL", f"sqlite:///{seeded_file}")
    assert main(["estimate", "--file", str(job), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == there
    assert there["cost"][0]["usd"]["likely"] == USD


def test_a_service_with_closed_reads_is_asked_with_the_key_of_the_environment(
    job: Path, seeded_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(database_url=f"sqlite:///{seeded_file}", open_reads=False)
    closed = TestClient(create_app(settings), base_url="https://selector.example.org")

    def post(url: str, *, timeout: float, **sent: Any) -> Any:
        assert timeout > 0
        return closed.post(url, **sent)

    monkeypatch.setattr("service.cli.questions.httpx2.post", post)
    asked = ["estimate", "--file", str(job), "--url", "https://selector.example.org"]
    assert main(asked) == 2
    assert "API key" in capsys.readouterr().err
    monkeypatch.setenv("SELECTOR_KEY", TOKEN)
    assert main(asked) == 0
    closed.close()


def test_in_process_it_answers_whatever_hosts_a_server_is_for(
    job: Path, seeded_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELECTOR_DATABASE_URL", f"sqlite:///{seeded_file}")
    monkeypatch.setenv("SELECTOR_ALLOWED_HOSTS", "selector.example.org")
    assert main(["estimate", "--file", str(job)]) == 0


@pytest.mark.parametrize("shape", ["table", "markdown"])
def test_people_read_the_total_the_verdict_and_the_parts(
    server: Server, job: Path, capsys: pytest.CaptureFixture[str], shape: str
) -> None:
    assert main(["estimate", "--file", str(job), "--url", server.url, "--budget", "1", "--format", shape]) == 1
    answer = capsys.readouterr().out
    assert "fail: The run costs $219.58, which is over the budget of $1.00." in answer
    assert "10 h x 1 machine at 21.957642 USD an hour" in answer
    assert "Catalog of 2026-10-01" in answer
    assert ("| on_demand | us-east-1 | 10 | 219.58 |" in " ".join(answer.split())) == (shape == "markdown")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hours: [", "neither YAML nor JSON"),
        ("- 1", "must hold the fields"),
        ("hours: 1\nhours: 2", 'repeats a name: found duplicate key "hours"'),
        ("hours: 1\nmachine: aws/p4d.24xlarg", "Did you mean"),
        ("hours: 1\nmachine: aws/p4d.24xlarge\nmarket: spott", "Did you mean spot?"),
        ("a: &a [*a]", "YAML"),
        (b"hours: \xff", "neither YAML nor JSON"),
    ],
)
def test_what_cannot_be_answered_exits_with_2_and_a_sentence(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, sentence: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    assert main(["estimate", "--file", str(path), "--url", server.url]) == 2
    answer = capsys.readouterr().err
    assert sentence in answer
    assert "Traceback" not in answer


@pytest.mark.parametrize("option", ["--budget", "--baseline", "--fail-above"])
def test_a_limit_that_is_no_number_is_refused_by_its_name(
    job: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert main(["estimate", "--file", str(job), option, "nan"]) == 2
    answer = capsys.readouterr().err
    assert option in answer
    assert "finite" in answer


def test_a_silent_service_and_a_missing_file_exit_with_2(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--file", str(job), "--url", "http://127.0.0.1:9"]) == 2
    assert "http://127.0.0.1:9 does not answer" in capsys.readouterr().err
    assert main(["estimate", "--file", f"{job}.not", "--url", "http://127.0.0.1:9"]) == 2
    assert f"{job}.not" in capsys.readouterr().err
    assert main(["estimate", "--file", str(job), "--url", "what"]) == 2


def test_an_unknown_cost_is_no_answer(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text('{"hours": 1, "machine": {"gpu": "h100-sxm5-80gb"}, "budget_usd": 5}')
    assert main(["estimate", "--file", str(path), "--url", server.url]) == 2
    path.write_text('{"hours": 1, "machine": {"gpu": "h100-sxm5-80gb"}}')
    assert main(["estimate", "--file", str(path), "--url", server.url]) == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [("2e9", 2e9), ("1.5e3", 1500.0), ("-3E-2", -0.03), ("2026-10-01", "2026-10-01"), ("'2e9'", "2e9"), ("7", 7)],
)
def test_numbers_and_days_are_read_as_people_mean_them(text: str, value: Any) -> None:
    found = read_job(f"amount: {text}")["amount"]
    assert found == value
    assert type(found) is type(value)


def test_limits_of_the_command_line_go_first() -> None:
    body = {"baseline": {"usd": 5, "fail_above_percent": 3}, "budget_usd": 7}
    assert with_limits(body, baseline=6, fail_above=None, budget=8) == {
        "baseline": {"usd": 6, "fail_above_percent": 3},
        "budget_usd": 8,
    }
    with pytest.raises(JobFileWrong, match="needs a baseline"):
        with_limits({}, fail_above=3)
