"""The workflows of docs/ci.md: their commands are run against a running server, and exit as the document says."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.server import Server

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "ci.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(DOCUMENT.read_text(encoding="utf-8")) if name == language]


def commands() -> list[str]:
    """Returns the commands of this project in the workflows, and the command with curl."""
    _, github, gitlab = (YAML(typ="safe", pure=True).load(block) for block in blocks("yaml"))
    steps: list[Any] = [step.get("run", "") for step in github["jobs"]["cost"]["steps"]] + gitlab["cost"]["script"]
    return [step for step in steps if step.startswith("instance-selector")] + blocks("sh")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a folder with the job, and with a command that runs this checkout under its usual name."""
    (tmp_path / "job.yaml").write_text(blocks("yaml")[0])
    command = tmp_path / "instance-selector"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m service "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IEXEC)
    return tmp_path


def run(command: str, folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "INSTANCE_SELECTOR_URL": url,
    }
    return subprocess.run(
        ["bash", "-e", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_document_has_commands_for_github_gitlab_and_curl() -> None:
    assert len(commands()) == 4


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_document_passes(server: Server, folder: Path, command: str) -> None:
    done = run(command, folder, server.url)
    assert done.returncode == 0, done.stderr + done.stdout


def test_the_gate_fails_for_a_job_that_costs_more_and_the_comment_says_so(server: Server, folder: Path) -> None:
    job = folder / "job.yaml"
    job.write_text(job.read_text().replace("tokens: 1e9", "tokens: 2e9"))
    done = run(commands()[0], folder, server.url)
    assert done.returncode == 1, done.stderr
    assert "❌ fail" in (folder / "cost.md").read_text(encoding="utf-8")


def test_a_service_that_does_not_answer_has_an_exit_code_of_its_own(folder: Path) -> None:
    assert run(commands()[0], folder, "http://127.0.0.1:9").returncode == 2
