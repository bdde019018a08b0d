"""Commands that create, list and revoke API keys."""

import re
import sys
from datetime import UTC, datetime, time

import click
from tabulate import tabulate

from service.cli.database import current_database
from service.db.keys import create_key, new_token, read_keys, revoke_key
from service.domain.keys import SCOPES

COLUMNS = ("id", "owner", "scopes", "state", "created (UTC)", "expires (UTC)", "last used (UTC)")


@click.group()
def keys() -> None:
    """Create, list and revoke API keys."""


def _owner(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if not re.fullmatch(r"[\w.@ -]{1,100}", text):
        raise click.BadParameter("An owner has up to 100 letters, digits, spaces and . @ - _.")
    return text


def _scopes(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
    scopes = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for scope in scopes:
        if scope not in SCOPES:
            raise click.BadParameter(f"No scope is called '{scope}'. Known: {', '.join(SCOPES)}.")
    return scopes


def _start_of_day(_context: click.Context, _parameter: click.Parameter, day: datetime | None) -> datetime | None:
    """Returns the first instant of a day in UTC. Raises `BadParameter` for a day that is not in the future."""
    instant = day and datetime.combine(day, time(), UTC)
    if instant and instant <= datetime.now(UTC):
        raise click.BadParameter(f"{instant.date()} is not in the future.")
    return instant


@keys.command("create")
@click.argument("owner", callback=_owner)
@click.option("--scopes", callback=_scopes, required=True, help=f"Separated by commas; known: {', '.join(SCOPES)}.")
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    callback=_start_of_day,
    metavar="YYYY-MM-DD",
    help="The first day (UTC) on which the key is no longer valid. Default: never.",
)
def create(owner: str, scopes: tuple[str, ...], expires: datetime | None) -> None:
    """Create an API key and print it, once. Measurements belong to the OWNER of the key."""
    token = new_token()
    with current_database() as engine:
        create_key(engine, token, owner, scopes, datetime.now(UTC), expires)
    print("The key, which is shown only once:", file=sys.stderr)
    print(token)


@keys.command("list")
def list_keys() -> None:
    """List the API keys, without their tokens."""
    now = datetime.now(UTC)
    with current_database() as engine:
        rows = [
            (
                *(key.id, key.owner, ",".join(key.scopes), key.state_at(now)),
                *(_minute(instant) for instant in (key.created_at, key.expires_at, key.last_used_at)),
            )
            for key in read_keys(engine)
        ]
    print(tabulate(rows, COLUMNS, "simple", disable_numparse=True))


def _minute(instant: datetime | None) -> str:
    return instant.strftime("%Y-%m-%d %H:%M") if instant else ""


@keys.command("revoke")
@click.argument("key", metavar="ID")
def revoke(key: str) -> None:
    """Make an API key invalid for ever. Its ID is the part between sel_ and the next _."""
    with current_database() as engine:
        if not revoke_key(engine, key, datetime.now(UTC)):
            raise click.ClickException(f"There is no key {key} that is not revoked.")
    print(f"The key {key} is revoked; running services refuse it within seconds.", file=sys.stderr)
