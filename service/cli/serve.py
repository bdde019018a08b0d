"""The command that serves HTTP, and what it prepares before it listens."""

import socket
import sys
from datetime import UTC, datetime

import click

from service.db.engine import Engine, connect
from service.db.keys import create_key, new_token, read_keys
from service.db.migrate import is_empty, require_usable
from service.domain.keys import SCOPES, id_of
from service.files import SEED
from service.server.process import serve as run_server
from service.settings import Settings, SettingsWrong, read_settings

DEVELOPER = "development"


@click.command()
@click.option("--host")
@click.option("--port", type=int)
@click.option("--workers", type=int)
@click.option("--seed-if-empty", is_flag=True, help="Create the tables and load the seed if the database is empty.")
@click.option(
    "--development-key",
    is_flag=True,
    help="Create an API key with all scopes if there is none, or the one in SELECTOR_DEVELOPMENT_KEY.",
)
def serve(host: str | None, port: int | None, workers: int | None, seed_if_empty: bool, development_key: bool) -> None:
    """Answer HTTP requests."""
    settings = read_settings(host=host, port=port, workers=workers)
    engine = connect(settings.database_url)
    if seed_if_empty and is_empty(engine):
        from service.cli.database import load  # with the checks of the seed, which a server does not need otherwise

        load(engine, SEED)
    require_usable(engine)
    _require_free_port(settings)
    if development_key:
        provide_development_key(engine, settings)
    engine.dispose()
    run_server(settings)


def provide_development_key(engine: Engine, settings: Settings) -> None:
    """Creates the API key that the developer chose, or else a random one, which is printed once."""
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
            message = f"Cannot listen on {address}: {error.strerror}. Choose another with --port."
            raise click.ClickException(message) from None
