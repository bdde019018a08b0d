"""Creates the environment and runs a task in it: `python3 dev.py run`. Needs only Python 3.11 or later."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - an older Python gets a sentence, not a traceback
    sys.exit("dev.py needs Python 3.11 or later; this one is {}.{}.".format(*sys.version_info[:2]))

import argparse
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / "built-from"
LOCK = ROOT / "requirements.lock"
IMAGE_LOCK = ROOT / "requirements-image.lock"

CHECKS = [
    ["ruff", "check"],
    ["ruff", "format", "--check"],
    ["mypy"],
    ["lint-imports"],
    ["deptry", "."],
    ["hadolint", "Dockerfile"],
]


class Refusal(Exception):
    """A task cannot run; the message says why."""


def run(args: list[str]) -> int:
    """Serve on 127.0.0.1:8000; create and seed the database if it does not exist, and create a development key."""
    refuse_taken_port(args)
    make_environment()
    return become("instance-selector", "serve", "--seed-if-empty", "--development-key", *args)


def test(args: list[str]) -> int:
    """Run the tests on all cores; arguments go to pytest."""
    make_environment()
    # Tests start dozens of processes, each of which would compile all packages again if their bytecode was not written.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Each worker takes tests that follow each other, so that fewer fixtures of a module are made by several workers.
    return become("pytest", "-n", "auto", "--dist", "worksteal", *args)


def check(args: list[str]) -> int:
    """Run all linters and the type checker, or only the named ones, and list the failures."""
    unknown = set(args) - {command[0] for command in CHECKS}
    if unknown:
        raise Refusal(f"No check is called {', '.join(sorted(unknown))}.")
    make_environment()
    failed = []
    for command in CHECKS:
        if args and command[0] not in args:
            continue
        print("$", *command, flush=True)
        if call(*command):
            failed.append(" ".join(command))
    print("Failed: " + "; ".join(failed) if failed else "All checks pass.")
    return 1 if failed else 0


def bench(args: list[str]) -> int:
    """Measure how fast the service answers."""
    make_environment()
    return become("python", "-m", "bench", *args)


def soak(args: list[str]) -> int:
    """Let replicas, Postgres and the network fail under load for ten minutes, and count failed and lost requests."""
    make_environment()
    return become("python", "-m", "bench.soak", *args)


def accuracy(args: list[str]) -> int:
    """Compare the estimates of a service with published runs."""
    make_environment()
    return become("instance-selector", "accuracy", *args)


def openapi(args: list[str]) -> int:
    """Write openapi/openapi.json from the code, with fresh examples."""
    make_environment()
    command = [str(BIN / "instance-selector"), "openapi", "--renew-examples", *args]
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE)
    if result.returncode == 0:
        (ROOT / "openapi" / "openapi.json").write_bytes(result.stdout)
    return result.returncode


def scenarios(args: list[str]) -> int:
    """Write docs/scenarios.md and docs/systems.md from tests/scenarios."""
    make_environment()
    result = subprocess.run([str(PYTHON), "-m", "tests.scenarios.render", *args], cwd=ROOT, stdout=subprocess.PIPE)
    if result.returncode == 0:
        (ROOT / "docs" / "scenarios.md").write_bytes(result.stdout)
    return result.returncode


def lock(args: list[str]) -> int:
    """Write the lock files from pyproject.toml; --upgrade takes newer releases."""
    uv = shutil.which("uv")
    if uv is None:
        make_environment()
        uv = str(BIN / "uv")
    oldest = ["--python-version", "3.11"]  # without it the lock would start at the Python that writes it
    command = [uv, "pip", "compile", "pyproject.toml", "--quiet", "--universal", *oldest, "--generate-hashes"]
    command += ["--custom-compile-command", "python3 dev.py lock", *args]
    everything = ["--group", "dev", "--output-file", LOCK.name]
    image = ["--group", "build", "--constraint", LOCK.name, "--no-annotate", "--output-file", IMAGE_LOCK.name]
    return subprocess.call([*command, *everything], cwd=ROOT) or subprocess.call([*command, *image], cwd=ROOT)


TASKS: dict[str, Callable[[list[str]], int]] = {
    "run": run,
    "test": test,
    "check": check,
    "bench": bench,
    "soak": soak,
    "accuracy": accuracy,
    "openapi": openapi,
    "scenarios": scenarios,
    "lock": lock,
}


def make_environment() -> None:
    """Creates .venv, unless this Python has created it from this lock."""
    wanted = fingerprint()
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text() == wanted:
        return
    print("Creating the environment in .venv, once. This takes a minute or two.", file=sys.stderr, flush=True)
    try:
        import venv

        venv.create(VENV, clear=True, symlinks=os.name != "nt")
    except ImportError:
        raise Refusal("This Python has no venv module. On Debian and Ubuntu: apt install python3-venv") from None
    except (OSError, ValueError) as error:
        raise Refusal(f"The environment cannot be created in {VENV}: {error}") from error
    install_packages()
    STAMP.write_text(wanted)


def fingerprint() -> str:
    """Returns a digest that changes with the lock, the project's packaging, the Python and the folder."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    installed_as = json.dumps([pyproject["build-system"], pyproject["project"], pyproject["tool"]["hatch"]])
    parts = [LOCK.read_text(), installed_as, sys.version, sys.base_prefix, str(ROOT)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def install_packages() -> None:
    locked = ["--require-hashes", "--requirement", str(LOCK)]
    # The lock has the build backend, so that installing the project downloads only locked packages.
    project = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    for installer in installers():
        if all(subprocess.call([*installer, *wanted], cwd=ROOT) == 0 for wanted in (locked, project)):
            return
    raise Refusal(
        "The packages could not be installed; the lines above say why. "
        "If the package index is not reachable, set another one in UV_DEFAULT_INDEX or PIP_INDEX_URL."
    )


def installers() -> Iterator[list[str]]:
    """Yields commands that install into .venv, fastest first: uv takes seconds, pip a minute."""
    uv = [shutil.which("uv") or "", "pip", "install", "--quiet", "--python", str(PYTHON)]
    if uv[0]:
        yield uv
    if subprocess.run([PYTHON, "-m", "ensurepip"], capture_output=True).returncode != 0:
        if uv[0]:
            return
        raise Refusal(
            "This Python has no ensurepip, and there is no uv. On Debian and Ubuntu: apt install python3-venv"
        )
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-user", "--disable-pip-version-check"]
    if not uv[0]:
        only_uv = VENV / "only-uv.lock"
        only_uv.write_text(locked_lines("uv"))
        if subprocess.call([*pip, "--require-hashes", "--requirement", str(only_uv)]) == 0:
            yield [str(BIN / "uv"), *uv[1:]]
    yield pip


def locked_lines(package: str) -> str:
    """Returns the lines of the lock for one package: its version and its hashes."""
    entry = re.search(rf"^{re.escape(package)}==(.*\\\n)*.*\n", LOCK.read_text(), re.MULTILINE)
    return entry[0] if entry else ""


def refuse_taken_port(args: list[str]) -> None:
    """Raises `Refusal` if the port is taken, before the environment is created, which may take a minute."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--host", default=os.environ.get("SELECTOR_HOST", "127.0.0.1"))
    parser.add_argument("--port", default=os.environ.get("SELECTOR_PORT", "8000"))
    address, _ = parser.parse_known_args(args)
    try:
        socket.create_connection((address.host, int(address.port)), timeout=1).close()
    except (OSError, OverflowError, ValueError):
        return  # the port is free; the service itself refuses an invalid address
    raise Refusal(f"Port {address.port} is taken. Choose another: python3 dev.py run --port {int(address.port) + 1}")


def call(command: str, *args: str) -> int:
    return subprocess.call([BIN / command, *args], cwd=ROOT)


def become(command: str, *args: str) -> int:
    """Replaces this process by a command, so that Ctrl-C and other signals reach the command."""
    if os.name == "posix":
        os.chdir(ROOT)
        # The full path, because Python finds its environment by the path under which it is called.
        os.execv(BIN / command, [str(BIN / command), *args])
    return call(command, *args)


def main(argv: list[str]) -> int:
    if not argv or argv[0] not in TASKS:
        print("Usage: python3 dev.py TASK [ARGUMENT ...]\n")
        for name, task in TASKS.items():
            print(f"  {name:8} {task.__doc__}")
        return 0 if argv in ([], ["-h"], ["--help"]) else 2
    try:
        return TASKS[argv[0]](argv[1:])
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
