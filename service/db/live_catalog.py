"""Holds the current catalog, and replaces it as a whole when the version in the database changes."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import lru_cache
from time import monotonic

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from service.db.errors import DatabaseFileLost
from service.db.feeds.read_feeds import FeedStatus, UnmappedType, feed_statuses, unmapped_types
from service.db.feeds.replay import history_known_on
from service.db.keys import KeyRing
from service.db.read_history import newer_history, read_history, read_version, snapshot
from service.db.write_measurements import write_measurements
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.measurement_log import Owner
from service.domain.catalog.reference import Measurement
from service.domain.errors import NotYet

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
STOP_WITHIN_SECONDS = 1.0
"""Interval at which a watcher checks whether it has to stop."""

SILENT_SECONDS = 15.0
"""How long a check of the database may take before it counts as a problem: longer than a broken connection stays
unnoticed."""

DAYS_KEPT = 16
"""Most catalogs of past days in memory. They are built on demand, and the least recently used one is dropped."""

REPLAYS_KEPT = 2
"""Most days of `known_at` in memory. Each takes as much memory as today's catalog."""

VIEWS_KEPT = 256
"""Most catalogs of single callers in memory. They share all facts and differ in measurements, so each is small."""


def today() -> date:
    """Returns the day in UTC."""
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class Health:
    """When the database was last read, and the problem since then, or None."""

    checked_at: datetime
    problem: str | None
    file_lost: bool = False
    """Whether the SQLite file was deleted or replaced, which only a restart of the service repairs."""


@dataclass(frozen=True, slots=True)
class PinnedCatalog:
    """One version of the catalog and one current day, which do not change while a request is answered."""

    history: CatalogHistory
    today: date
    facts_of: Callable[[date], Catalog]
    """Returns the catalog of a day in the first version with these facts; later ones differ in measurements only."""
    catalog_of: Callable[[date, Owner], Catalog]
    """Returns the catalog of a day in this version as an owner of keys sees it."""
    replay: Callable[[date], "PinnedCatalog"]
    """Returns the catalogs as they were known at the end of a day."""
    owner: Owner = None
    """The owner of the caller's key, whose own measurements count."""

    def on(self, day: date | None) -> Catalog:
        """Returns the catalog of a day, by default of the day on which it was pinned."""
        return self.catalog_of(day or self.today, self.owner)

    def known_on(self, day: date) -> "PinnedCatalog":
        """Returns the catalogs as they were known at the end of an earlier day, which becomes their current day.

        Raises `QuestionError` for a day before the first import, `NotYet` while another day is being read, and
        `DatabaseUnusable`.
        """
        return replace(self.replay(day), owner=self.owner)


class LiveCatalog:
    """The catalog that answers requests.

    The constructor raises the same as `read_history`. Afterwards, the last good catalog stays in use if reading fails.
    """

    def __init__(
        self, engine: Engine, *, today: Callable[[], date] = today, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._engine = engine
        self._today = today
        self._poll_seconds = poll_seconds
        self._refreshing = threading.Lock()
        self._replaying = threading.Lock()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="catalog-watcher", daemon=True)
        self._current = self._built(read_history(engine))
        self.keys = KeyRing(engine)
        self._health = Health(datetime.now(UTC), None)

    @property
    def health(self) -> Health:
        """Returns when the database last answered, and the problem since then; long silence is a problem, too.

        A thread that should follow the database and has ended is silent as well.
        """
        is_watching = self._watcher.ident is not None and not self._stopping.is_set()
        silent_seconds = (datetime.now(UTC) - self._health.checked_at).total_seconds()
        if self._health.problem or not is_watching or silent_seconds < self._poll_seconds + SILENT_SECONDS:
            return self._health
        return replace(self._health, problem=f"The database has not answered for {silent_seconds:.0f} seconds.")

    def _built(self, history: CatalogHistory, same_facts: PinnedCatalog | None = None) -> PinnedCatalog:
        """Returns a pinned version. The catalog of its newest day is built here, so that no request waits for it."""
        # Versions with the same facts share their caches of days.
        facts_of = same_facts.facts_of if same_facts else lru_cache(DAYS_KEPT)(history.on)
        replay = same_facts.replay if same_facts else lru_cache(REPLAYS_KEPT)(self._replayed)

        @lru_cache(VIEWS_KEPT)
        def catalog_of(day: date, owner: Owner) -> Catalog:
            facts = facts_of(day)
            is_visible = owner is None and facts.version == history.version
            return facts if is_visible else facts.visible_to(owner, history.version)

        current = PinnedCatalog(history, history.known_at or self._today(), facts_of, catalog_of, replay)
        current.on(None)
        return current

    def _replayed(self, day: date) -> PinnedCatalog:
        # One replay at a time, because it takes a core: 40 s with 400,000 observations.
        if not self._replaying.acquire(blocking=False):
            sentence = "The prices of an earlier day are being read for another question. Ask again in some seconds."
            raise NotYet(sentence, field="known_at")
        try:
            return self._built(history_known_on(self._engine, day))
        finally:
            self._replaying.release()

    @property
    def history(self) -> CatalogHistory:
        """Returns the catalogs of all days, as of the current version."""
        return self._current.history

    def on(self, day: date | None) -> Catalog:
        """Returns the catalog of a day, by default of today."""
        return self._current.on(day or self._today())

    def visible_to(self, owner: Owner) -> PinnedCatalog:
        """Returns the catalogs of the current version as the owner of a key sees them."""
        current, day = self._current, self._today()
        return current if (current.today, current.owner) == (day, owner) else replace(current, today=day, owner=owner)

    def feeds(self) -> tuple[datetime, list[FeedStatus]]:
        """Returns the status of every feed and the present instant. Raises `DatabaseUnusable`."""
        return datetime.now(UTC), feed_statuses(self._engine)

    def unmapped(self) -> list[UnmappedType]:
        """Returns the instance types in feeds that the catalog lacks. Raises `DatabaseUnusable`."""
        return unmapped_types(self._engine)

    def start_watching(self) -> None:
        """Starts the thread that follows the database."""
        self._watcher.start()

    def stop_watching(self) -> None:
        """Stops the thread that follows the database, and waits for it."""
        self._stopping.set()
        if self._watcher.is_alive():
            # With a timeout, because a database that hangs must not keep the process from ending.
            self._watcher.join(timeout=self._poll_seconds + 5)

    def add_measurements(
        self, measurements: Sequence[Measurement], *, key: str | None = None, most: int | None = None
    ) -> list[Measurement]:
        """Stores measurements and returns them as stored; from then on, this process answers with them.

        Raises the same as `write_measurements`, and stores nothing then.
        """
        stored = write_measurements(self._engine, measurements, datetime.now(UTC), key=key, most=most)
        self.refresh()
        return stored

    def refresh(self) -> None:
        """Reads the keys, checks the version once, and reads the new catalog if it has changed."""
        with self._refreshing:  # one at a time, so that an older state never replaces a newer one
            try:
                self.keys.refresh()
                self._read_if_changed()
                self._health = Health(datetime.now(UTC), None)
            except Exception as error:  # noqa: BLE001 – whatever the error, the last good catalog keeps answering
                if self._health.problem is None:
                    version = self.history.version
                    log.warning("The catalog cannot be refreshed; version %s keeps answering: %s", version, error)
                file_lost, cause = isinstance(error, DatabaseFileLost), error.__cause__ or error
                problem = str(error) if file_lost else f"The database cannot be read: {type(cause).__name__}."
                self._health = Health(self._health.checked_at, problem, file_lost)

    def _read_if_changed(self) -> None:
        with snapshot(self._engine) as connection:
            version = read_version(connection)
            # Noted before the rows are read, which may take long.
            self._health = replace(self._health, checked_at=datetime.now(UTC))
            if version.number == self.history.version:
                return
            newer = newer_history(connection, version, self.history)
        same_facts = newer.measurements is self.history.measurements  # the log has grown, and nothing else changed
        self._current = self._built(newer, self._current if same_facts else None)
        log.info("The catalog is now version %s.", self.history.version)

    def _watch(self) -> None:
        wait = self._wait_for_notice if self._engine.dialect.name == "postgresql" else self._wait
        while not self._stopping.is_set():
            try:
                self.refresh()
                self.keys.write_uses()
                wait()
            except Exception:
                log.exception("The thread that follows the database has met a fault, and goes on.")
                self._wait()

    def _wait(self) -> None:
        self._stopping.wait(self._poll_seconds)

    def _wait_for_notice(self) -> None:
        """Waits for any notice on the channel `catalog`, at most as long as between two polls.

        Every role of the database may send notices, so a notice says only that it is time to check the version.
        """
        import psycopg  # imported here because a service on SQLite starts faster without it

        until = monotonic() + self._poll_seconds
        try:
            with self._engine.connect() as connection:
                driver = connection.connection.driver_connection
                assert isinstance(driver, psycopg.Connection)
                connection.exec_driver_sql("LISTEN catalog")
                connection.commit()
                while not self._stopping.is_set() and (left := until - monotonic()) > 0:
                    # A list, because a generator that is not exhausted keeps the connection locked.
                    if list(driver.notifies(timeout=min(left, STOP_WITHIN_SECONDS), stop_after=1)):
                        break
                connection.exec_driver_sql("UNLISTEN catalog")
                connection.commit()
        except (SQLAlchemyError, psycopg.Error):
            self._wait()
