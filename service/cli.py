"""The command `instance-selector` with its commands, from `serve` to `openapi`."""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from tabulate import tabulate

from service.api.http import examples
from service.app import build_app, create_app, upstream_of
from service.db.engine import Engine, connect, parse_url, sqlite_path
from service.db.errors import DatabaseUnusable
from service.db.feeds.read_feeds import feed_statuses, unmapped_types
from service.db.keys import create_key, new_token, read_keys, revoke_key
from service.db.live_catalog import today
from service.db.migrate import require_current, upgrade
from service.db.operation.check import counts_of, faults_of
from service.db.read_history import read_history
from service.domain.catalog.resolution import Feed
from service.domain.keys import SCOPES, id_of
from service.feeds.folder import FolderUnusable, documents_in
from service.feeds.importing import import_documents, utc_now
from service.feeds.own_offers import OWN, documents_by_day
from service.feeds.refresh import fetch_to, refresh
from service.feeds.registry import SOURCES
from service.feeds.report import feeds_table, import_lines, unmapped_table
from service.files import SEED
from service.importers.checks import check_seed
from service.importers.load_seed import load_seed
from service.importers.seed import SeedBroken, read_seed
from service.server.process import serve as run_server
from service.settings import Settings, SettingsWrong, read_settings

PUBLISHED_RUNS = SEED / "published_runs.csv"
PATIENCE_SECONDS = 120

DEVELOPER = "development"
KEY_COLUMNS = ("id", "owner", "scopes", "state", "created (UTC)", "expires (UTC)", "last used (UTC)")

Command = Callable[[argparse.Namespace], int]
"""Runs with the parsed arguments and returns the exit code."""


class ServiceSilent(Exception):
    """A running service does not answer at its URL."""


class PortTaken(Exception):
    """Another process listens at the address already."""


USER_ERRORS = (DatabaseUnusable, FolderUnusable, SettingsWrong, SeedBroken, ServiceSilent, PortTaken)
"""Errors that the user can correct, which are printed as a sentence without a traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns 0 if it succeeds, 1 if it fails, and 2 if the arguments are wrong."""
    parsed = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        command: Command = parsed.command
        return command(parsed)
    except USER_ERRORS as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        # Python flushes the output at its end, and would print an error about the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    question = "Which machine should run this deep-learning job?"
    parser = argparse.ArgumentParser("instance-selector", description=question)
    commands = parser.add_subparsers(required=True, metavar="command")

    serve = _add(commands, "serve", _run_serve, "answer HTTP requests")
    serve.add_argument("--host")
    serve.add_argument("--port", type=int)
    serve.add_argument("--workers", type=int)
    absent = "create and seed the SQLite database if it does not exist"
    serve.add_argument("--seed-if-empty", action="store_true", help=absent)
    development = "create an API key with all scopes if there is none, or the one in SELECTOR_DEVELOPMENT_KEY"
    serve.add_argument("--development-key", action="store_true", help=development)

    seed = _add(commands, "seed", _run_seed, "create the tables and load the catalog that comes with the code")
    seed.add_argument("--check", action="store_true", help="check the seed without writing to the database")
    seed.add_argument("--folder", type=Path, default=SEED, help=argparse.SUPPRESS)

    _add(commands, "migrate", _run_migrate, "bring the tables of the database to this version")

    keys = commands.add_parser("keys", help="create, list and revoke API keys").add_subparsers(required=True)
    create = _add(keys, "create", _run_keys_create, "create an API key and print it, once")
    create.add_argument("owner", type=_owner, help="the caller; measurements belong to the owner of the key")
    create.add_argument("--scopes", type=_scopes, required=True, help=f"with commas, of: {', '.join(SCOPES)}")
    create.add_argument("--expires", type=_start_of, metavar="DATE", help="the day from which the key is not valid")
    _add(keys, "list", _run_keys_list, "list the API keys, without their tokens")
    revoke = _add(keys, "revoke", _run_keys_revoke, "make an API key invalid for ever")
    revoke.add_argument("id", help="the id of the key: the letters between sel_ and the next _")
    _add(commands, "check", _run_check, "prove that the database is whole, for example after a restore")

    recommend = _add(commands, "recommend", _run_recommend, "answer a question from a JSON file or standard input")
    body = "the body of POST /recommend; - for standard input"
    recommend.add_argument("file", type=_text_of, metavar="FILE", help=body)

    codes = "price a job: exit code 0 if its cost is allowed, 1 if not, 2 if unknown"
    estimate = _add(commands, "estimate", _run_estimate, codes)
    body = "the body of POST /estimate as YAML or JSON; - for standard input"
    estimate.add_argument("--file", required=True, help=body)
    estimate.add_argument("--url", help="URL of a running service; by default the configured database answers")
    estimate.add_argument("--baseline", type=float, metavar="USD", help="the previous cost of the job")
    estimate.add_argument("--fail-above", type=float, metavar="PERCENT", help="the allowed increase over the baseline")
    estimate.add_argument("--budget", type=float, metavar="USD", help="the highest allowed cost")
    estimate.add_argument("--format", choices=("table", "markdown", "json"), default="table")

    instances = _add(commands, "instances", _run_instances, "list instance types, with the filters of GET /instances")
    instances.add_argument("filter", nargs="*", help="for example: precision=bf16 sort=usd_per_hour limit=10")

    _add_feeds(commands)

    accuracy = _add(commands, "accuracy", _run_accuracy, "compare the estimates of a service with published runs")
    accuracy.add_argument("table", type=Path, nargs="?", default=PUBLISHED_RUNS, help="default: the runs of the seed")
    accuracy.add_argument("--url", help="URL of a running service; by default the command starts one on the seed")

    calibrate = _add(commands, "calibrate", _run_calibrate, "fit the coefficients of the physics on published runs")
    calibrate.add_argument("table", type=Path, nargs="?", default=PUBLISHED_RUNS, help="default: the runs of the seed")
    calibrate.add_argument("--write", type=Path, metavar="FILE", help="such as seed/coefficients.csv")

    openapi = _add(commands, "openapi", _run_openapi, "print the OpenAPI document")
    renew = "in a checkout: take the examples from a freshly seeded service"
    openapi.add_argument("--renew-examples", action="store_true", help=renew)
    return parser


def _add_feeds(commands: Any) -> None:
    """Adds `feeds` with its own commands, of which the list is the default."""
    feeds = _add(commands, "feeds", _run_feeds, "list the feeds of prices with their health, or read them")
    actions = feeds.add_subparsers(metavar="action")
    read = _add(actions, "import", _run_feeds_import, "import a folder, a file or a zip of fetched documents")
    read.add_argument("path", type=Path)
    read.add_argument("--feed", choices=sorted(SOURCES), help="the feed of files that do not show it")
    read.add_argument("--fetched-at", type=_instant, metavar="TIME", help="when files without a manifest were fetched")
    read.add_argument("--rows", action="store_true", help="print the outcome of every row, and not only of few")
    refresh_now = _add(actions, "refresh", _run_feeds_refresh, "read feeds from the internet once")
    refresh_now.add_argument("feed", nargs="*", help="names of feeds; by default all that are on")
    fetch = _add(actions, "fetch", _run_feeds_fetch, "fetch documents into a folder, for a machine without internet")
    fetch.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    fetch.add_argument("feed", nargs="*", help="names of feeds; by default all that are on")
    offers = _add(commands, "offers", _run_feeds, "enter own offers").add_subparsers(required=True, metavar="action")
    own = _add(offers, "import", _run_offers_import, "import a CSV of own offers, which count before those of feeds")
    own.add_argument("file", type=Path)
    _add(actions, "unmapped", _run_feeds_unmapped, "list instance types that are sold and not in the catalog")


def _instant(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-11-20T18:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _add(commands: Any, name: str, command: Command, help_text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_text, description=help_text)
    parser.set_defaults(command=command)
    return parser


def _text_of(file: str) -> str:
    """The content of a file; `-` is standard input."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{file} cannot be read: {error}") from None


def _owner(text: str) -> str:
    if not re.fullmatch(r"[\w.@ -]{1,100}", text):
        raise argparse.ArgumentTypeError("An owner has up to 100 letters, digits, spaces and . @ - _.")
    return text


def _scopes(text: str) -> tuple[str, ...]:
    scopes = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for scope in scopes:
        if scope not in SCOPES:
            raise argparse.ArgumentTypeError(f"No scope is called '{scope}'. Known: {', '.join(SCOPES)}.")
    return scopes


def _start_of(text: str) -> datetime:
    """The first instant of a day in UTC, which must not be over."""
    try:
        instant = datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a day. Write it as YYYY-MM-DD.") from None
    if instant <= datetime.now(UTC):
        raise argparse.ArgumentTypeError(f"{text} is not in the future.")
    return instant


def _run_serve(arguments: argparse.Namespace) -> int:
    settings = read_settings(host=arguments.host, port=arguments.port, workers=arguments.workers)
    if arguments.seed_if_empty:
        _seed_if_absent(settings)
    engine = connect(settings.database_url)
    require_current(engine)
    _require_free_port(settings)
    if arguments.development_key:
        _provide_development_key(engine, settings)
    engine.dispose()
    run_server(settings)
    return 0


def _provide_development_key(engine: Engine, settings: Settings) -> None:
    """Creates the chosen key or, if there is none yet, one that it prints."""
    now, token = datetime.now(UTC), settings.development_key
    keys = {key.id: key.state_at(now) for key in read_keys(engine) if token or key.owner == DEVELOPER}
    if token and keys.get(id_of(token), "active") != "active":
        raise SettingsWrong("SELECTOR_DEVELOPMENT_KEY: this key is not valid any more. Choose another.")
    if not token and "active" in keys.values():
        another = f"instance-selector keys create {DEVELOPER} --scopes {','.join(SCOPES)}"
        print(f"The development key was shown when it was created. Another one: {another}", file=sys.stderr)
    elif not token:
        token = new_token()
        create_key(engine, token, DEVELOPER, SCOPES, now)
        print(f"The development key, which is shown only once:\n{token}", file=sys.stderr)
    elif id_of(token) not in keys:
        create_key(engine, token, DEVELOPER, SCOPES, now)


def _require_free_port(settings: Settings) -> None:
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as probe:
        # Otherwise a port stays taken for a minute after a restart, although the server could listen on it.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            address = f"{settings.host}:{settings.port}"
            raise PortTaken(f"Cannot listen on {address}: {error.strerror}. Choose another with --port.") from None


def _seed_if_absent(settings: Settings) -> None:
    path = sqlite_path(parse_url(settings.database_url))
    if path is None or not path.exists():
        _load(settings, SEED)


def _run_seed(arguments: argparse.Namespace) -> int:
    if arguments.check:
        return _check_seed(arguments.folder)
    _load(read_settings(), arguments.folder)
    return 0


def _check_seed(folder: Path) -> int:
    batch = read_seed(folder)
    problems = check_seed(batch, folder)
    for problem in problems:
        print(problem, file=sys.stderr)
    rows, kept = batch.rows_seen, batch.rows_kept
    if problems:
        print(f"{rows:,} rows, {len(problems)} problems.")
        return 1
    quarantined = f"{rows - kept:,} are quarantined with a reason"
    print(f"The seed is sound: of {rows:,} rows {kept:,} enter the catalog; {quarantined}.")
    return 0


def _load(settings: Settings, folder: Path) -> None:
    engine = connect(settings.database_url)
    written = load_seed(engine, folder)
    engine.dispose()
    state = "is seeded" if written.state == "done" else "holds the seed already"
    print(f"{engine.url.render_as_string()} {state}; the catalog is version {written.version}.", file=sys.stderr)


def _run_migrate(_arguments: argparse.Namespace) -> int:
    engine = connect(read_settings().database_url)
    upgrade(engine)
    print(f"{engine.url.render_as_string()} has the tables of this version.", file=sys.stderr)
    engine.dispose()
    return 0


def _run_check(_arguments: argparse.Namespace) -> int:
    engine = connect(read_settings().database_url)
    faults = faults_of(engine)
    for fault in faults:
        print(fault, file=sys.stderr)
    for name, count in counts_of(engine).items():
        print(f"{count:>12,} {name}")
    print(f"{engine.url.render_as_string()} {'is not whole.' if faults else 'is whole.'}")
    engine.dispose()
    return 1 if faults else 0


@contextlib.contextmanager
def _database() -> Iterator[Engine]:
    """Gives the configured database, which must have the tables of this version."""
    engine = connect(read_settings().database_url)
    require_current(engine)
    try:
        yield engine
    finally:
        engine.dispose()


def _run_feeds(_arguments: argparse.Namespace) -> int:
    with _database() as engine:
        print(feeds_table(feed_statuses(engine), utc_now(), upstream_of(read_settings()).off))
    return 0


def _asked_feeds(engine: Engine, names: Sequence[str]) -> list[Feed]:
    """The feeds of these names, or all that are on. Raises `SettingsWrong` for a name that is no feed."""
    off = upstream_of(read_settings()).off
    if unknown := [name for name in names if name not in SOURCES]:
        raise SettingsWrong(f"No feed is called {unknown[0]!r}. Known: {', '.join(sorted(SOURCES))}.")
    feeds = [status.feed for status in feed_statuses(engine) if status.feed.id in SOURCES]
    return [feed for feed in feeds if (feed.id in names if names else feed.id not in off)]


def _run_feeds_refresh(arguments: argparse.Namespace) -> int:
    """Exit code 1 says that a part failed or was refused; the others are imported nevertheless."""
    problems = 0
    with _database() as engine:
        for feed in _asked_feeds(engine, arguments.feed):
            for imported in refresh(engine, feed, upstream_of(read_settings())):
                problems += imported.problem is not None
                print(next(import_lines(imported, rows=False)), flush=True)
    return 1 if problems else 0


def _run_feeds_fetch(arguments: argparse.Namespace) -> int:
    with _database() as engine:
        for line in fetch_to(arguments.to, _asked_feeds(engine, arguments.feed), upstream_of(read_settings())):
            print(line, flush=True)
    return 0


def _run_feeds_import(arguments: argparse.Namespace) -> int:
    """Exit code 1 says that a document was refused; the others are imported nevertheless."""
    now = utc_now()
    refused = 0
    with _database() as engine:
        for file in documents_in(arguments.path, arguments.fetched_at or now, arguments.feed):
            if file.source is None or file.documents is None:
                print(f"{file.name}: refused. {file.problem}")
                refused += 1
                continue
            imported = import_documents(engine, file.source, file.documents, now)
            refused += imported.problem is not None
            print("\n".join(import_lines(imported, rows=arguments.rows)), flush=True)
    return 1 if refused else 0


def _run_offers_import(arguments: argparse.Namespace) -> int:
    """Exit code 1 says that a line was set aside or a day refused; the others are imported nevertheless."""
    problems = 0
    with _database() as engine:
        for documents in documents_by_day(arguments.file):
            imported = import_documents(engine, OWN, documents, utc_now())
            problems += imported.problem is not None or bool(imported.counts.keys() - {"kept", "unmapped", "repeated"})
            print("\n".join(import_lines(imported, rows=True)))
    return 1 if problems else 0


def _run_feeds_unmapped(_arguments: argparse.Namespace) -> int:
    with _database() as engine:
        print(unmapped_table(unmapped_types(engine)))
    return 0


def _run_keys_create(arguments: argparse.Namespace) -> int:
    token = new_token()
    with _database() as engine:
        create_key(engine, token, arguments.owner, arguments.scopes, datetime.now(UTC), arguments.expires)
    print("The key, which is shown only once:", file=sys.stderr)
    print(token)
    return 0


def _run_keys_list(_arguments: argparse.Namespace) -> int:
    now = datetime.now(UTC)
    with _database() as engine:
        keys = read_keys(engine)
    rows = [
        (
            *(key.id, key.owner, ",".join(key.scopes), key.state_at(now)),
            *(_minute(instant) for instant in (key.created_at, key.expires_at, key.last_used_at)),
        )
        for key in keys
    ]
    print(tabulate(rows, KEY_COLUMNS, "simple", disable_numparse=True))
    return 0


def _minute(instant: datetime | None) -> str:
    return instant.strftime("%Y-%m-%d %H:%M") if instant else ""


def _run_keys_revoke(arguments: argparse.Namespace) -> int:
    with _database() as engine:
        if revoke_key(engine, arguments.id, datetime.now(UTC)):
            print(f"The key {arguments.id} is revoked; running services refuse it within seconds.", file=sys.stderr)
            return 0
    print(f"There is no key {arguments.id} that is not revoked.", file=sys.stderr)
    return 1


def _run_recommend(arguments: argparse.Namespace) -> int:
    return _ask("POST", "/recommend", content=arguments.file, headers={"Content-Type": "application/json"})


def _run_instances(arguments: argparse.Namespace) -> int:
    return _ask("GET", "/instances", params=[text.partition("=")[::2] for text in arguments.filter])


def _run_estimate(arguments: argparse.Namespace) -> int:
    """Exit code 2 separates a question without an answer from a job that is too expensive."""
    # Imported here, as in the commands below: `serve` should not load what only one other command needs.
    from service.ci.job_file import JobFileWrong, read_job, with_limits
    from service.ci.report import FORMATS, UNANSWERED, exit_code

    try:
        body = read_job(_text_of(arguments.file))
        body = with_limits(body, arguments.baseline, arguments.fail_above, arguments.budget)
        answer = _estimate_at(arguments.url, body)
    except (JobFileWrong, argparse.ArgumentTypeError, *USER_ERRORS) as error:
        print(error, file=sys.stderr)
        return UNANSWERED
    if not answer.is_success:
        print(_problem_of(answer), file=sys.stderr)
        return UNANSWERED
    print(FORMATS[arguments.format](answer.json()))
    return exit_code(answer.json())


def _estimate_at(url: str | None, body: dict[str, Any]) -> Any:
    """The answer of a running service, or of the service in this process. Raises `ServiceSilent`."""
    import httpx2

    try:
        if url is None:
            return asyncio.run(_answer_to("POST", "/estimate", json=body))
        return httpx2.post(f"{url.rstrip('/')}/estimate", json=body, timeout=PATIENCE_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise ServiceSilent(f"{url or 'The service'} does not answer: {error}") from None


def _problem_of(answer: Any) -> str:
    """The detail of a problem answer, or a sentence with the status of any other answer."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"The service answered with status {answer.status_code} and without a reason."


def _ask(method: str, path: str, **request: Any) -> int:
    """Asks the service in this process, without a server, and prints the answer."""
    answer = asyncio.run(_answer_to(method, path, **request))
    print(json.dumps(answer.json(), indent=2))
    return 0 if answer.is_success else 1


async def _answer_to(method: str, path: str, **request: Any) -> Any:
    import httpx2  # imported here because only these commands need a client, and a server starts faster without

    settings = read_settings(open_reads=True)  # anyone who can open the database can read it
    within = httpx2.ASGITransport(app=create_app(settings), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=within, base_url="http://in-process") as client:
        return await client.request(method, path, **request)


def _run_accuracy(arguments: argparse.Namespace) -> int:
    import httpx2

    from service.accuracy.client import ask_table
    from service.accuracy.report import accuracy_text

    with contextlib.ExitStack() as stack:
        url = arguments.url or stack.enter_context(_serving_seed())
        client = stack.enter_context(httpx2.Client(base_url=url, timeout=PATIENCE_SECONDS))
        print(accuracy_text(ask_table(arguments.table, client)))
    return 0


@contextlib.contextmanager
def _seeded() -> Iterator[Settings]:
    """Gives the settings of a database that holds the seed until the block ends."""
    with TemporaryDirectory() as folder:
        settings = Settings(database_url=f"sqlite:///{folder}/seed.db", feeds="off")
        engine = connect(settings.database_url)
        load_seed(engine, SEED)
        engine.dispose()
        yield settings


@contextlib.contextmanager
def _serving_seed() -> Iterator[str]:
    """Runs a service with the seed on a free port of the loopback interface until the block ends."""
    # The socket listens before the server starts, so its port is known and no other process can take it.
    with _seeded() as settings, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(settings), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _run_calibrate(arguments: argparse.Namespace) -> int:
    from service.accuracy.calibrate import calibrate

    with _seeded() as settings:
        engine = connect(settings.database_url)
        catalog = read_history(engine).on(today())
        engine.dispose()
    print(calibrate(arguments.table, catalog, arguments.write))
    return 0


def _run_openapi(arguments: argparse.Namespace) -> int:
    if arguments.renew_examples:
        _renew_examples()
    print(openapi_text(build_app()), end="")
    return 0


def _renew_examples() -> None:
    from fastapi.testclient import TestClient

    token = new_token()
    with _seeded() as settings:
        engine = connect(settings.database_url)
        create_key(engine, token, "examples", SCOPES, datetime.now(UTC))
        engine.dispose()
        headers = {"Authorization": f"Bearer {token}"}
        with TestClient(create_app(settings, today=lambda: examples.DAY), headers=headers) as client:
            examples.renew(client)


def openapi_text(app: FastAPI) -> str:
    """Returns the OpenAPI document as it is committed."""
    return json.dumps(jsonable_encoder(app.openapi()), indent=2, sort_keys=True) + "\n"
