"""Commands for the development of the service: its accuracy, its coefficients and its OpenAPI document."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import httpx2
import uvicorn
from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder

from service.accuracy.calibrate import calibrate as calibration_text
from service.accuracy.client import ask_table
from service.accuracy.price_changes import calibrate_prices
from service.accuracy.report import accuracy_text
from service.accuracy.rows import counted_rows
from service.api.http import examples
from service.app import build_app, create_app
from service.cli.questions import PATIENCE_SECONDS
from service.db.engine import connect
from service.db.keys import create_key, new_token
from service.db.live_catalog import today
from service.db.read_history import read_history
from service.domain.keys import SCOPES
from service.files import SEED
from service.importers.load_seed import load_seed
from service.settings import Settings

PUBLISHED_RUNS = SEED / "published_runs.csv"
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("table", type=FILE, default=PUBLISHED_RUNS)
@click.option("--url", help="URL of a running service; by default the command starts one on the seed.")
def accuracy(table: Path, url: str | None) -> None:
    """Compare estimates with published runs.

    TABLE holds the runs; by default, they are those of the seed.
    """
    with contextlib.ExitStack() as stack:
        base_url = url or stack.enter_context(_serving_seed())
        client = stack.enter_context(httpx2.Client(base_url=base_url, timeout=PATIENCE_SECONDS))
        print(accuracy_text(ask_table(table, client)))


@click.command()
@click.argument("table", type=FILE, default=PUBLISHED_RUNS)
@click.option("--prices", is_flag=True, help="Fit the coefficients of price changes to the recorded prices instead.")
@click.option("--write", type=FILE, metavar="FILE", help="The file to write, such as seed/coefficients.csv.")
def calibrate(table: Path, *, prices: bool, write: Path | None) -> None:
    """Fit the coefficients of the physics.

    TABLE holds published runs; by default, they are those of the seed.
    """
    runs = () if prices else tuple(counted_rows(table))
    with _seeded() as settings:
        engine = connect(settings.database_url)
        history = read_history(engine)
        engine.dispose()
    if prices:
        print(calibrate_prices(history, today(), write))
    else:
        print(calibration_text(runs, history.on(today()), write))


@click.command()
@click.option("--renew-examples", is_flag=True, help="In a checkout: take the examples from a freshly seeded service.")
def openapi(renew_examples: bool) -> None:
    """Print the OpenAPI document."""
    if renew_examples:
        _renew_examples()
    print(openapi_text(build_app()), end="")


def openapi_text(app: FastAPI) -> str:
    """Returns the OpenAPI document as openapi/openapi.json holds it."""
    return json.dumps(jsonable_encoder(app.openapi()), indent=2, sort_keys=True) + "\n"


def _renew_examples() -> None:
    from fastapi.testclient import TestClient  # needs a package of the development group

    token = new_token()
    with _seeded() as settings:
        engine = connect(settings.database_url)
        create_key(engine, token, "examples", SCOPES, datetime.now(UTC))
        engine.dispose()
        headers = {"Authorization": f"Bearer {token}"}
        with TestClient(create_app(settings, today=lambda: examples.DAY), headers=headers) as client:
            examples.renew(client)


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
