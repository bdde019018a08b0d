"""Commands that read feeds of prices, and import own offers."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from service.app import upstream_of
from service.cli.database import current_database
from service.db.engine import Engine
from service.db.feeds.decide_held import decide_held, held_prices
from service.db.feeds.read_feeds import feed_statuses, unmapped_types
from service.db.write_catalog import record_failure
from service.domain.catalog.resolution import Decision, Feed
from service.feeds.fetching import utc_now
from service.feeds.folder import documents_in
from service.feeds.importing import import_documents
from service.feeds.own_offers import OWN, documents_by_day
from service.feeds.refresh import Upstream, fetch_to
from service.feeds.refresh import refresh as refresh_feed
from service.feeds.registry import SOURCES
from service.feeds.report import feeds_table, held_table, import_lines, unmapped_table
from service.settings import SettingsWrong, read_settings

PATH = click.Path(path_type=Path)


@click.group(invoke_without_command=True)
@click.pass_context
def feeds(context: click.Context) -> None:
    """List the feeds of prices, or read them."""
    if context.invoked_subcommand is None:
        with current_database() as engine:
            print(feeds_table(feed_statuses(engine), utc_now(), upstream_of(read_settings()).why_off))


def _known_feeds(engine: Engine, names: Sequence[str]) -> list[Feed]:
    """Returns the feeds with these names, or all. Raises `SettingsWrong` for an unknown name."""
    if unknown := [name for name in names if name not in SOURCES]:
        raise SettingsWrong(f"No feed is called {unknown[0]!r}. Known: {', '.join(sorted(SOURCES))}.")
    readable = [status.feed for status in feed_statuses(engine) if status.feed.id in SOURCES]
    return [feed for feed in readable if not names or feed.id in names]


def _feeds_to_read(engine: Engine, names: Sequence[str], upstream: Upstream) -> list[Feed]:
    """Returns the feeds with these names, or all that are on. Raises `SettingsWrong` for a feed without its key."""
    feeds = {feed: upstream.why_off(feed) for feed in _known_feeds(engine, names)}
    if not names:
        return [feed for feed, why_off in feeds.items() if not why_off]
    for feed, why_off in feeds.items():
        if why_off not in (None, "off"):
            raise SettingsWrong(f"The feed {feed.id} {why_off}: an environment variable with the key of its seller.")
    return list(feeds)


@feeds.command("refresh")
@click.argument("names", nargs=-1, metavar="[FEED]...")
def refresh(names: tuple[str, ...]) -> int:
    """Read feeds from the internet once; by default all that are on.

    The exit code is 1 if a part failed or was refused; the other parts are imported.
    """
    problems = 0
    with current_database() as engine:
        upstream = upstream_of(read_settings())
        for feed in _feeds_to_read(engine, names, upstream):
            for imported in refresh_feed(engine, feed, upstream):
                problems += imported.problem is not None
                print(next(import_lines(imported, rows=False)), flush=True)
    return 1 if problems else 0


@feeds.command("fetch")
@click.option("--to", "folder", type=PATH, required=True, metavar="FOLDER")
@click.argument("names", nargs=-1, metavar="[FEED]...")
def fetch(folder: Path, names: tuple[str, ...]) -> None:
    """Fetch documents into a folder, for a machine without internet; by default of all feeds that are on."""
    with current_database() as engine:
        upstream = upstream_of(read_settings())
        for line in fetch_to(folder, _feeds_to_read(engine, names, upstream), upstream):
            print(line, flush=True)


@feeds.command("import")
@click.argument("path", type=PATH)
@click.option("--feed", type=click.Choice(sorted(SOURCES)), help="The feed of files that cannot be recognised.")
@click.option(
    "--fetched-at",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%MZ", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S%z"]),
    metavar="TIME",
    help="When files without a manifest were fetched, in UTC unless a zone is given. Default: now.",
)
@click.option("--rows", is_flag=True, help="Print the outcome of every row even if there are many.")
def import_(path: Path, feed: str | None, fetched_at: datetime | None, rows: bool) -> int:
    """Import a folder, a file or a zip of fetched documents.

    The exit code is 1 if a document was refused; the other documents are imported.
    """
    now = utc_now()
    if fetched_at and fetched_at.tzinfo is None:
        fetched_at = fetched_at.replace(tzinfo=UTC)
    refused = 0
    with current_database() as engine:
        for file in documents_in(path, fetched_at or now, feed):
            if file.source is None or file.documents is None:
                print(f"{file.name}: refused. {file.problem}")
                if file.source:
                    record_failure(engine, file.source.id, now, "refused", f"{file.name}: {file.problem}")
                refused += 1
                continue
            imported = import_documents(engine, file.source, file.documents, now)
            refused += imported.problem is not None
            print("\n".join(import_lines(imported, rows=rows)), flush=True)
    return 1 if refused else 0


@feeds.command("held")
def held() -> None:
    """List the held prices, which wait for a second capture, another feed, or a decision."""
    with current_database() as engine:
        print(held_table(held_prices(engine)))


@feeds.command("release")
@click.argument("name", metavar="FEED")
def release(name: str) -> None:
    """Let the held prices of a feed count."""
    _decide(name, "released")


@feeds.command("refuse")
@click.argument("name", metavar="FEED")
def refuse(name: str) -> None:
    """Refuse the held prices of a feed: none counts until the feed shows another price for the offer."""
    _decide(name, "refused")


def _decide(name: str, decision: Decision) -> None:
    with current_database() as engine:
        (feed,) = _known_feeds(engine, [name])
        decided = decide_held(engine, feed.id, decision, utc_now())
        print(held_table(decided))
        print(f"{feed.id}: {len(decided):,} prices {decision}.")


@feeds.command("unmapped")
def unmapped() -> None:
    """List instance types in feeds that the catalog lacks."""
    with current_database() as engine:
        print(unmapped_table(unmapped_types(engine)))


@click.group()
def offers() -> None:
    """Enter your own offers, which take precedence over feeds."""


@offers.command("import")
@click.argument("file", type=PATH)
def import_offers(file: Path) -> int:
    """Import a CSV of your own offers.

    The exit code is 1 if a line was set aside or a day was refused; the other lines are imported.
    """
    problems = 0
    with current_database() as engine:
        now = utc_now()
        for documents in documents_by_day(file, now):
            imported = import_documents(engine, OWN, documents, now)
            problems += imported.problem is not None or bool(imported.counts.keys() - {"kept", "unmapped", "repeated"})
            print("\n".join(import_lines(imported, rows=True)))
    return 1 if problems else 0
