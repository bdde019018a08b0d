"""The command `instance-selector`: serve · seed · migrate · recommend · estimate · instances · accuracy · openapi."""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from sqlalchemy import Engine

from service.api.http import examples
from service.app import build_app, create_app
from service.db.engine import connect, sqlite_path
from service.db.errors import DatabaseUnusable
from service.db.migrate import require_current, upgrade
from service.db.read_history import read_history
from service.db.write_catalog import Written, record_failure, write
from service.files import SEED
from service.importers.checks import check_seed
from service.importers.seed import FEED, SeedBroken, read_seed
from service.settings import Settings, SettingsWrong, read_settings

PUBLISHED_RUNS = SEED / "published_runs.csv"
PATIENCE_SECONDS = 120


class ServiceSilent(Exception):
    """A running service that was named does not answer."""


SENTENCES = (DatabaseUnusable, SettingsWrong, SeedBroken, ServiceSilent)
"""What a person can mend: told as a sentence, without a traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it worked, 1 when it did not, 2 when it was not understood."""
    asked = parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        command: Callable[[argparse.Namespace], int] = asked.command
        return command(asked)
    except SENTENCES as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="instance-selector", description="Which machine should run this deep-learning job?"
    )
    commands = whole.add_subparsers(required=True, metavar="command")

    serve = add(commands, "serve", run_serve, "answer HTTP requests")
    serve.add_argument("--host")
    serve.add_argument("--port", type=int)
    serve.add_argument("--workers", type=int)
    serve.add_argument(
        "--seed-if-empty", action="store_true", help="make and seed a SQLite database that is not there yet"
    )

    seed = add(commands, "seed", run_seed, "make the tables and load the catalog that comes with the code")
    seed.add_argument("--check", action="store_true", help="prove the seed's integrity; write nothing")
    seed.add_argument("--folder", type=Path, default=SEED, help=argparse.SUPPRESS)

    add(commands, "migrate", run_migrate, "bring the database to the tables of this version")

    recommend = add(commands, "recommend", run_recommend, "answer a question from a JSON file, or from standard input")
    recommend.add_argument(
        "file", type=text_of, metavar="FILE", help="the body of POST /recommend; - for standard input"
    )

    estimate = add(
        commands, "estimate", run_estimate, "what a job costs: exits 0 when it may, 1 when not, 2 unanswered"
    )
    estimate.add_argument(
        "--file", required=True, help="the body of POST /estimate as YAML or JSON; - for standard input"
    )
    estimate.add_argument("--url", help="of a running service; without it the database of the settings is asked")
    estimate.add_argument("--baseline", type=float, metavar="USD", help="what the job cost before")
    estimate.add_argument(
        "--fail-above", type=float, metavar="PERCENT", help="how much more than the baseline is allowed"
    )
    estimate.add_argument("--budget", type=float, metavar="USD", help="what the job may cost")
    estimate.add_argument("--format", choices=("table", "markdown", "json"), default="table")

    instances = add(commands, "instances", run_instances, "list instance types, filtered as in GET /instances")
    instances.add_argument("filter", nargs="*", help="for example: precision=bf16 sort=usd_per_hour limit=10")

    accuracy = add(commands, "accuracy", run_accuracy, "ask a service about published runs, and tell how right it is")
    accuracy.add_argument("table", type=Path, nargs="?", default=PUBLISHED_RUNS, help="default: the runs of the seed")
    accuracy.add_argument("--url", help="of a running service; without it one is started on the seed")

    calibrate = add(commands, "calibrate", run_calibrate, "fit the coefficients of the physics on published runs")
    calibrate.add_argument("table", type=Path, nargs="?", default=PUBLISHED_RUNS, help="default: the runs of the seed")
    calibrate.add_argument("--write", type=Path, metavar="FILE", help="such as seed/coefficients.csv")

    openapi = add(commands, "openapi", run_openapi, "print the OpenAPI document")
    openapi.add_argument(
        "--renew-examples", action="store_true", help="in a checkout: ask a freshly seeded service for its examples"
    )
    return whole


def add(
    commands: Any, name: str, command: Callable[[argparse.Namespace], int], help_text: str
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=help_text, description=help_text)
    made.set_defaults(command=command)
    return made


def text_of(file: str) -> str:
    """What a file holds; `-` is standard input."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{file} cannot be read: {error}") from None


def run_serve(asked: argparse.Namespace) -> int:
    settings = read_settings(host=asked.host, port=asked.port, workers=asked.workers)
    if asked.seed_if_empty:
        seed_if_absent(settings)
    engine = connect(settings.database_url)
    require_current(engine)
    engine.dispose()
    if (taken := port_taken(settings)) is not None:
        print(taken, file=sys.stderr)
        return 1
    uvicorn.run(
        "service.app:create_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level=settings.log_level,
        access_log=False,
    )
    return 0


def port_taken(settings: Settings) -> str | None:
    """A sentence when something else listens there already."""
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            return f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}. Choose another with --port."
    return None


def seed_if_absent(settings: Settings) -> None:
    engine = connect(settings.database_url)
    path = sqlite_path(engine.url)
    if path is None or not path.exists():
        tell_seeding(engine, load_seed(engine, SEED))
    engine.dispose()


def run_seed(asked: argparse.Namespace) -> int:
    if asked.check:
        return tell_whether_sound(asked.folder)
    engine = connect(read_settings().database_url)
    tell_seeding(engine, load_seed(engine, asked.folder))
    engine.dispose()
    return 0


def tell_whether_sound(folder: Path) -> int:
    batch = read_seed(folder)
    problems = check_seed(batch, folder)
    for problem in problems:
        print(problem, file=sys.stderr)
    seen, kept = batch.rows_seen, batch.rows_kept
    print(
        f"{seen:,} rows, {len(problems)} problems."
        if problems
        else f"The seed is sound: of {seen:,} rows {kept:,} enter the catalog; "
        f"{seen - kept:,} are set aside with a reason."
    )
    return 1 if problems else 0


def load_seed(engine: Engine, folder: Path) -> Written:
    """Make the tables and load the seed. Raises `SeedBroken` or `DatabaseUnusable`; then nothing has changed."""
    now = datetime.now(UTC)
    batch = read_seed(folder)
    problems = check_seed(batch, folder)
    if problems:
        record_failure(engine, FEED, now, "refused", problems[0])
        raise SeedBroken("\n".join(problems))
    upgrade(engine)
    return write(engine, batch, now)


def tell_seeding(engine: Engine, written: Written) -> None:
    state = "is seeded" if written.state == "done" else "holds the seed already"
    print(f"{engine.url.render_as_string()} {state}; the catalog is version {written.version}.", file=sys.stderr)


def run_migrate(_asked: argparse.Namespace) -> int:
    engine = connect(read_settings().database_url)
    upgrade(engine)
    print(f"{engine.url.render_as_string()} has the tables of this version.", file=sys.stderr)
    engine.dispose()
    return 0


def run_recommend(asked: argparse.Namespace) -> int:
    return ask("POST", "/recommend", content=asked.file, headers={"Content-Type": "application/json"})


def run_instances(asked: argparse.Namespace) -> int:
    return ask("GET", "/instances", params=[each.partition("=")[::2] for each in asked.filter])


def run_estimate(asked: argparse.Namespace) -> int:
    """0: the cost passes; 1: it does not; 2: there is no answer, so that a broken gate is not taken for a dear job."""
    from service.ci.job_file import JobFileWrong, read_job, with_limits
    from service.ci.report import FORMATS, UNANSWERED, exit_code

    limits = {"baseline": asked.baseline, "fail_above": asked.fail_above, "budget": asked.budget}
    try:
        body = with_limits(read_job(text_of(asked.file)), **limits)
        answer = estimate_at(asked.url, body)
    except (JobFileWrong, argparse.ArgumentTypeError, *SENTENCES) as error:
        print(error, file=sys.stderr)
        return UNANSWERED
    if not answer.is_success:
        print(problem_of(answer), file=sys.stderr)
        return UNANSWERED
    print(FORMATS[asked.format](answer.json()))
    return exit_code(answer.json())


def estimate_at(url: str | None, body: dict[str, Any]) -> Any:
    """The answer of a running service, or of this process. Raises `ServiceSilent`."""
    import httpx2

    try:
        if url is None:
            return asyncio.run(answer_to("POST", "/estimate", json=body))
        return httpx2.post(f"{url.rstrip('/')}/estimate", json=body, timeout=PATIENCE_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise ServiceSilent(f"{url or 'The service'} does not answer: {error}") from None


def problem_of(answer: Any) -> str:
    """The sentence of a problem; of what is none, its status."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"The service answered with status {answer.status_code} and without a reason."


def ask(method: str, path: str, **request: Any) -> int:
    """Ask the service in this process, without a server, and print what it answers."""
    answer = asyncio.run(answer_to(method, path, **request))
    print(json.dumps(answer.json(), indent=2))
    return 0 if answer.is_success else 1


async def answer_to(method: str, path: str, **request: Any) -> Any:
    import httpx2  # only these commands need a client; a server starts sooner without

    within = httpx2.ASGITransport(app=create_app(), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=within, base_url="http://in-process") as client:
        return await client.request(method, path, **request)


def run_accuracy(asked: argparse.Namespace) -> int:
    import httpx2

    from service.accuracy.client import ask_table
    from service.accuracy.report import accuracy_text

    with contextlib.ExitStack() as stack:
        url = asked.url or stack.enter_context(serving_seed())
        client = stack.enter_context(httpx2.Client(base_url=url, timeout=PATIENCE_SECONDS))
        print(accuracy_text(ask_table(asked.table, client)))
    return 0


@contextlib.contextmanager
def serving_seed() -> Iterator[str]:
    """A service on the seed and a free port of the loopback, until the block ends."""
    with TemporaryDirectory() as folder, socket.socket() as listening:
        settings = Settings(database_url=f"sqlite:///{folder}/seed.db")
        engine = connect(settings.database_url)
        load_seed(engine, SEED)
        engine.dispose()
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(settings), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def run_calibrate(asked: argparse.Namespace) -> int:
    from service.accuracy.calibrate import calibrate

    with TemporaryDirectory() as folder:
        engine = connect(f"sqlite:///{folder}/seed.db")
        load_seed(engine, SEED)
        catalog = read_history(engine).on(datetime.now(UTC).date())
        engine.dispose()
    print(calibrate(asked.table, catalog, asked.write))
    return 0


def run_openapi(asked: argparse.Namespace) -> int:
    if asked.renew_examples:
        renew_examples()
    print(openapi_text(build_app()), end="")
    return 0


def renew_examples() -> None:
    from fastapi.testclient import TestClient

    with TemporaryDirectory() as folder:
        settings = Settings(database_url=f"sqlite:///{folder}/examples.db")
        engine = connect(settings.database_url)
        load_seed(engine, SEED)
        engine.dispose()
        with TestClient(create_app(settings, today=lambda: examples.DAY)) as client:
            examples.renew(client)


def openapi_text(app: FastAPI) -> str:
    """The OpenAPI document as it is committed."""
    return json.dumps(jsonable_encoder(app.openapi()), indent=2, sort_keys=True) + "\n"
