"""Reads feeds from the internet: at once, on a schedule in the background, or into a folder for another machine."""

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from time import monotonic

from service.db.engine import Engine
from service.db.errors import DatabaseUnusable
from service.db.feeds.documents import Origin, free_instant, last_document, name_of_part
from service.db.feeds.read_feeds import feed_statuses
from service.db.feeds.write_capture import confirm_capture
from service.db.operation.leader import Leader
from service.db.write_catalog import record_failure
from service.domain.catalog.resolution import Feed
from service.feeds.aws_account import AwsAccount
from service.feeds.fetch import Fetcher, FetchFailed, FetchLimits, NotModified
from service.feeds.fetching import utc_now
from service.feeds.folder import ManifestEntry, manifest_entry, write_manifest
from service.feeds.importing import Documents, Imported, import_documents
from service.feeds.listing import DocumentRefused
from service.feeds.registry import SOURCES, FeedSource

log = logging.getLogger(__name__)

JITTER = 0.1
"""Random share that is added to waits, so that many installations do not send requests at the same second."""

FAILURES_IN_A_ROW = 2
"""After this many parts in a row that cannot be fetched, the rest of the feed waits for the next run."""

LOOK_SECONDS = 60.0
"""How often the leader checks which feeds are due."""

LEAD_SECONDS = 3.0
"""How often a process tries to become the leader. Postgres notices after 11 seconds that a machine is gone, so another
process takes over within 15 seconds."""

STOP_WITHIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Upstream:
    """Which feeds are on, where they are fetched from, and with which keys."""

    off: Collection[str] = ()
    urls: Mapping[str, str] = field(default_factory=dict)
    """Addresses of mirrors by feed, which replace the address in the catalog."""
    limits: FetchLimits = field(default_factory=FetchLimits)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The keys of feeds that need one."""

    def why_off(self, feed: Feed) -> str | None:
        """Returns the reason why a feed is not read, in a few words; None if it is read."""
        if feed.id in self.off:
            return "off"
        return f"needs {feed.setting}" if feed.setting and feed.id not in self.keys else None

    def fetcher(self, feed: Feed, last: Origin | None = None) -> Fetcher | AwsAccount:
        """Returns a fetcher for the documents of a feed, from its own address or its mirror."""
        if SOURCES[feed.id].by_aws_account:
            return AwsAccount(self.keys[feed.id], self.urls.get(feed.id))
        header, value = SOURCES[feed.id].key_header or ("", "")
        key = {header: value.format(self.keys[feed.id])} if header and feed.id in self.keys else {}
        mirror = self.urls.get(feed.id)
        return Fetcher(mirror or feed.url or "", last, bool(mirror), self.limits, key=key)


def refresh(engine: Engine, feed: Feed, upstream: Upstream, parts: Sequence[str] | None = None) -> Iterator[Imported]:
    """Fetches and imports parts of a feed, by default all, and yields a result for each.

    A part that fails keeps its prices.
    """
    source = SOURCES[feed.id]
    failures = 0
    for part in source.parts if parts is None else parts:
        imported = _refresh_part(engine, feed, source, part, upstream)
        yield imported
        failures = failures + 1 if imported.state == "failed" else 0
        if failures >= FAILURES_IN_A_ROW:
            return


def _refresh_part(engine: Engine, feed: Feed, source: FeedSource, part: str, upstream: Upstream) -> Imported:
    last, state = last_document(engine, feed.id, part), "failed"
    fetcher = upstream.fetcher(feed, last.origin if last else None)
    last_at = last.origin.fetched_at if last else None
    try:
        bodies = source.documents(fetcher, part)
    except NotModified:
        confirm_capture(engine, feed.id, part, free_instant(last_at, utc_now()))
        return Imported(feed.id, part, "unchanged", None)
    except FetchFailed as error:
        problem = str(error)
    except DocumentRefused as error:
        state, problem = "refused", str(error)
    else:
        origin = fetcher.answers[-1].origin
        origin = replace(origin, fetched_at=free_instant(last_at, origin.fetched_at))
        documents = Documents(part=part, origin=origin, bodies=bodies, shown_when_fetched=True)
        return import_documents(engine, source, documents, utc_now())
    record_failure(engine, feed.id, utc_now(), state, f"{name_of_part(feed.id, part)}: {problem}", part)
    return Imported(feed.id, part, state, problem)


def fetch_to(folder: Path, feeds: Collection[Feed], upstream: Upstream) -> Iterator[str]:
    """Writes the documents of feeds into a folder with a manifest, and yields a line of text for each part.

    Whatever ends it, the manifest names all documents that were written.
    """
    entries: list[ManifestEntry] = []
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for feed in feeds:
            for part in SOURCES[feed.id].parts:
                yield f"{name_of_part(feed.id, part)}: {_fetch_part_to(folder, feed, part, upstream, entries)}"
    finally:
        write_manifest(folder, entries)


def _fetch_part_to(folder: Path, feed: Feed, part: str, upstream: Upstream, entries: list[ManifestEntry]) -> str:
    """Writes the documents of a part, adds their entries, and returns what became of them in a few words."""
    fetcher = upstream.fetcher(feed)
    try:
        bodies = SOURCES[feed.id].documents(fetcher, part)
    except (FetchFailed, DocumentRefused) as error:
        return f"failed. {error}"
    for answer in fetcher.answers:
        name = f"{feed.id}/{len(entries):04d}"
        (folder / feed.id).mkdir(exist_ok=True)
        (folder / name).write_bytes(answer.body)
        entries.append(manifest_entry(feed.id, part, answer, name))
    return f"{sum(map(len, bodies)):,} bytes"


class Refresher:
    """Reads the feeds that are due in a thread of the leader, one of the processes that share a database.

    `on_lead` is called every few seconds: with 1 if this process is the leader, with 0 if not.
    """

    def __init__(self, engine: Engine, upstream: Upstream, on_lead: Callable[[int], object] = int) -> None:
        self._engine = engine
        self._upstream = upstream
        self._leader = Leader(engine, "feeds")
        self._on_lead = on_lead
        self._next_look = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeds", daemon=True)
        self._random = random.Random()  # noqa: S311 - spreads requests, nothing secret
        self._reachable = True

    def start(self) -> None:
        """Starts the thread. The first run begins at once, and no request waits for it."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread and waits for it some seconds; a fetch that takes longer ends with the process."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_WITHIN_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            leads = self._leader.leads()
            self._on_lead(int(leads))
            if leads and monotonic() >= self._next_look:
                self._look()
                self._next_look = monotonic() + LOOK_SECONDS * (1 + JITTER * self._random.random())
            self._stopping.wait(LEAD_SECONDS)
        self._leader.release()
        self._on_lead(0)

    def _look(self) -> None:
        try:
            self._refresh_due()
        except DatabaseUnusable as error:
            log.warning("Feeds wait: %s", error)
        except Exception:  # whatever the error, the service keeps answering from its last good catalog
            log.exception("A feed could not be read.")

    def _refresh_due(self) -> None:
        for status in feed_statuses(self._engine):
            feed = status.feed
            if self._stopping.is_set():
                return
            early = timedelta(seconds=LOOK_SECONDS) * self._random.random()
            if feed.id not in SOURCES or self._upstream.why_off(feed):
                continue
            if parts := status.due_parts(SOURCES[feed.id].parts, utc_now() + early):
                self._report(feed, list(refresh(self._engine, feed, self._upstream, parts)))

    def _report(self, feed: Feed, imports: Collection[Imported]) -> None:
        """Logs one line about a run; while no feed can be reached, only about the first."""
        failed = [imported for imported in imports if imported.state == "failed"]
        if len(failed) == len(imports):
            if self._reachable:
                log.warning("Feeds cannot be fetched; prices keep their age: %s", failed[0].problem)
            self._reachable = False
            return
        self._reachable = True
        refused = [imported for imported in imports if imported.state == "refused"]
        kept = sum(imported.counts["kept"] for imported in imports)
        log.info("Feed %s: %s prices kept, %s of %s parts refused.", feed.id, kept, len(refused), len(imports))
