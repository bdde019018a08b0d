"""A Postgres primary with a streaming standby, behind PgBouncer in transaction mode, all on loopback."""

import signal
import subprocess
from pathlib import Path
from typing import Any

from bench.load import HOST
from bench.servers import free_port
from bench.soak.programs import find_program, postgres_binaries
from tests.postgres import FRESH, copy_wheel, open_to_all, run, unprivileged_user

BEHIND_SECONDS = 10
PRIMARY = "synchronous_standby_names=walreceiver"
"""The primary waits until the standby has stored a commit. Without that, a failover would lose the newest writes."""

STANDBY = f"wal_retrieve_retry_interval=500ms -c recovery_min_apply_delay={BEHIND_SECONDS}s"
"""The standby shows a commit only after ten seconds, and everything that it has stored when it is promoted."""

BOUNCER = """\
[databases]
selector = host={host} port={database} dbname=postgres user=postgres
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
logfile = {log}
auth_type = any
pool_mode = transaction
max_client_conn = 500
server_login_retry = 1
server_connect_timeout = 3
; A write that waits longer for the database is refused, instead of holding a thread of the service.
query_wait_timeout = 10
"""


class Database:
    """The servers, of which only the bouncer is known to the replicas. Starting takes some seconds."""

    def __init__(self, folder: Path) -> None:
        binaries = postgres_binaries()
        assert binaries
        self._folder = folder
        self._user: dict[str, Any] = unprivileged_user(folder)
        self._binaries = copy_wheel(binaries, folder) if self._user and not open_to_all(binaries) else binaries
        self._primary, self._standby = folder / "primary", folder / "standby"
        self._port, self._standby_port, self.bouncer_port = free_port(), free_port(), free_port()
        self._bouncer: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Returns the URL for the replicas, through the bouncer."""
        return f"postgresql://postgres@{HOST}:{self.bouncer_port}/selector"

    @property
    def direct_address(self) -> str:
        """Returns the address of the present primary for psycopg."""
        return f"host={HOST} port={self._port} user=postgres dbname=postgres connect_timeout=2"

    @property
    def standby_url(self) -> str:
        """Returns the URL of the standby, which can only be read until it is promoted."""
        return f"postgresql://postgres@{HOST}:{self._standby_port}/postgres"

    def start(self) -> None:
        """Starts the primary, copies it to a standby, and starts that and the bouncer."""
        self._run("initdb", "--pgdata", str(self._primary), *FRESH)
        self._start(self._primary, self._port, PRIMARY)
        copy = ["--pgdata", str(self._standby), "--write-recovery-conf", "--checkpoint", "fast", "--no-sync"]
        self._run("pg_basebackup", *copy, "--host", HOST, "--port", str(self._port), "--username", "postgres")
        self._start(self._standby, self._standby_port, STANDBY)
        self._point_bouncer()
        command = [str(find_program("pgbouncer")), str(self._folder / "pgbouncer.ini")]
        self._bouncer = subprocess.Popen(  # noqa: S603
            command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._user
        )

    def crash_and_restart(self) -> None:
        """Stops the primary without a checkpoint, as a crash does, and starts it again."""
        self._control(self._primary, "restart", "--mode", "immediate")

    def cut_off(self) -> None:
        """Stops the bouncer without closing a connection, so that each query hangs."""
        self._signal(signal.SIGSTOP)

    def reconnect(self) -> None:
        """Lets the bouncer run again."""
        self._signal(signal.SIGCONT)

    def fail_over(self) -> None:
        """Crashes the primary for good, promotes the standby, and points the bouncer to it."""
        self._control(self._primary, "stop", "--mode", "immediate")
        self._control(self._standby, "promote")
        self._port = self._standby_port
        self._point_bouncer()
        self._signal(signal.SIGHUP)

    def stop(self) -> None:
        """Stops all parts that run, even if `start` failed before its end."""
        if self._bouncer:
            self.reconnect()
            self._bouncer.kill()
            self._bouncer.wait()
        for data in (self._standby, self._primary):
            if (data / "postmaster.pid").exists():  # it is running
                self._control(data, "stop", "--mode", "immediate")

    def _start(self, data: Path, port: int, settings: str) -> None:
        options = f"-p {port} -c listen_addresses={HOST} -c unix_socket_directories= -c {settings}"
        self._control(data, "start", "-o", options)

    def _control(self, data: Path, *command: str) -> None:
        log = str(self._folder / f"{data.name}.log")
        self._run("pg_ctl", "--pgdata", str(data), "--silent", "--wait", "--log", log, *command)

    def _run(self, program: str, *arguments: str) -> None:
        run([str(self._binaries / program), *arguments], self._user)

    def _point_bouncer(self) -> None:
        values = {"host": HOST, "database": self._port, "port": self.bouncer_port}
        path = self._folder / "pgbouncer.ini"
        path.write_text(BOUNCER.format(**values, log=self._folder / "pgbouncer.log"), encoding="utf-8")
        path.chmod(0o644)  # the bouncer runs as another user

    def _signal(self, number: signal.Signals) -> None:
        assert self._bouncer
        self._bouncer.send_signal(number)
