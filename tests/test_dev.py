"""dev.py says in a sentence what is missing, and builds the environment no more often than needed."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import dev

PYPROJECT = """
[build-system]
requires = ["hatchling"]
[project]
dependencies = ["fastapi"]
[tool.hatch]
[tool.ruff]
line-length = 120
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in a folder of its own, whose environment takes no packages."""
    root = tmp_path / "a folder"
    root.mkdir()
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "requirements.lock").write_text("fastapi==1\n")
    for name in ("VENV", "BIN", "PYTHON", "STAMP", "LOCK"):
        monkeypatch.setattr(dev, name, root / getattr(dev, name).relative_to(dev.ROOT))
    monkeypatch.setattr(dev, "ROOT", root)
    monkeypatch.setattr(dev, "install_packages", lambda: None)
    return root


def builds_again(capfd: pytest.CaptureFixture[str]) -> bool:
    capfd.readouterr()
    dev.make_environment()
    return "Creating the environment" in capfd.readouterr().err


def test_an_old_python_gets_a_sentence() -> None:
    pretend = f"import runpy, sys; sys.version_info = (3, 10, 4); runpy.run_path({dev.__file__!r})"
    answer = subprocess.run([sys.executable, "-c", pretend], capture_output=True, text=True)
    assert answer.stderr == "dev.py needs Python 3.11 or later; this one is 3.10.\n"


@pytest.mark.usefixtures("project")
def test_a_python_without_venv_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "venv", None)
    with pytest.raises(dev.Refusal, match="no venv module"):
        dev.make_environment()


def test_an_environment_that_cannot_be_made_gets_a_sentence(project: Path) -> None:
    (project / ".venv").write_text("a file where a folder should be")
    with pytest.raises(dev.Refusal, match="cannot be created in"):
        dev.make_environment()


def test_packages_that_cannot_be_had_get_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "installers", lambda: [[sys.executable, "-c", "raise SystemExit(1)"]])
    with pytest.raises(dev.Refusal, match="could not be installed"):
        dev.install_packages()


def test_the_next_installer_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "installers", lambda: [[sys.executable, "-c", f"raise SystemExit({n})"] for n in (1, 0)])
    dev.install_packages()


def test_a_taken_port_gets_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        with pytest.raises(dev.Refusal, match=f"Port {port} is taken"):
            dev.refuse_taken_port(["--port", port])
    dev.refuse_taken_port(["--port", port])


def test_an_unknown_check_gets_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert dev.main(["check", "spelling"]) == 1
    assert capsys.readouterr().err == "No check is called spelling.\n"


def test_the_environment_is_built_once(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert builds_again(capfd)
    assert not builds_again(capfd)
    (project / "pyproject.toml").write_text(PYPROJECT.replace("120", "100"))
    assert not builds_again(capfd)


@pytest.mark.parametrize(
    ("file", "content"),
    [("requirements.lock", "fastapi==2\n"), ("pyproject.toml", PYPROJECT.replace("fastapi", "flask"))],
)
def test_the_environment_is_built_again_when_packages_change(
    project: Path, capfd: pytest.CaptureFixture[str], file: str, content: str
) -> None:
    dev.make_environment()
    (project / file).write_text(content)
    assert builds_again(capfd)


@pytest.mark.usefixtures("project")
def test_a_broken_environment_is_built_again(capfd: pytest.CaptureFixture[str]) -> None:
    dev.make_environment()
    dev.PYTHON.unlink()
    assert builds_again(capfd)


@pytest.mark.usefixtures("project")
def test_an_unfinished_environment_is_built_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise dev.Refusal

    with monkeypatch.context() as failing:
        failing.setattr(dev, "install_packages", fail)
        with pytest.raises(dev.Refusal):
            dev.make_environment()
    assert builds_again(capfd)


def test_locked_lines_are_those_of_one_package() -> None:
    first, *hashes = dev.locked_lines("fastapi").splitlines()
    assert first.startswith("fastapi==")
    assert hashes
    assert all(line.strip().startswith("--hash=sha256:") for line in hashes)


def test_a_command_is_called_by_its_whole_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python finds its environment by that name; `python` alone would find another one."""
    called: list[tuple[object, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: called.append((path, arguments)))
    monkeypatch.setattr(dev, "call", lambda *_command: 0)
    monkeypatch.chdir(dev.ROOT)
    dev.become("python", "-m", "bench")
    assert called == [(dev.BIN / "python", [str(dev.BIN / "python"), "-m", "bench"])]


def test_the_processes_of_the_tests_share_their_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(dev, "make_environment", lambda: None)
    monkeypatch.setattr(dev, "become", lambda *_command: "PYTHONDONTWRITEBYTECODE" in os.environ)
    assert not dev.test([])
