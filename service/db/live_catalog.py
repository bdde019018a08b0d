"""Holds the current catalog, and swaps it whole when the database's version moves."""

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from service.db.read_history import read_history, read_newer, read_version
from service.db.write_measurements import write_measurements
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.reference import Measurement

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
DAYS_KEPT = 16
"""Catalogs of past days are cut on demand; the most recently asked ones are kept."""


def today() -> date:
    return datetime.now(UTC).date()


STOP_WITHIN_SECONDS = 1.0


def portions(seconds: float) -> list[float]:
    """A wait in parts, so that between them it can be given up."""
    count = math.ceil(seconds / STOP_WITHIN_SECONDS)
    return [seconds / count] * count


@dataclass(frozen=True, slots=True)
class Health:
    """How the catalog stands with its database: `problem` is null while the last look succeeded."""

    checked_at: datetime
    problem: str | None


class LiveCatalog:
    """The catalog that requests answer from. Loading raises; once loaded, the last good catalog stays."""

    def __init__(
        self, engine: Engine, *, today: Callable[[], date] = today, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._engine = engine
        self._today = today
        self._poll_seconds = poll_seconds
        self._history = read_history(engine)
        self._days: OrderedDict[tuple[int, date], Catalog] = OrderedDict()
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="catalog-watcher", daemon=True)
        self.health = Health(datetime.now(UTC), None)
        self.on(None)

    @property
    def history(self) -> CatalogHistory:
        return self._history

    def on(self, day: date | None) -> Catalog:
        """The catalog of a day, today's when none is named; one whole version, whatever happens meanwhile."""
        return self._cut(self._history, day or self._today())

    def pinned(self) -> "PinnedCatalog":
        """The catalogs of this moment, for work that takes longer than a change."""
        return PinnedCatalog(self._history, self._today(), self._cut)

    def _cut(self, history: CatalogHistory, day: date) -> Catalog:
        key = (history.version, day)
        with self._lock:
            catalog = self._days.get(key)
            if catalog:
                self._days.move_to_end(key)
                return catalog
        catalog = history.on(day)
        with self._lock:
            self._days[key] = catalog
            while len(self._days) > DAYS_KEPT:
                self._days.popitem(last=False)
        return catalog

    def start_watching(self) -> None:
        self._watcher.start()

    def stop_watching(self) -> None:
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join(timeout=self._poll_seconds + 5)

    def add_measurements(self, sent: Sequence[Measurement]) -> list[Measurement]:
        """The measurements as they are kept; once this returns, this process answers from them.

        Raises `DatabaseUnusable`, and then none is kept.
        """
        kept = write_measurements(self._engine, sent, datetime.now(UTC))
        self.refresh()
        return kept

    def refresh(self) -> None:
        """Look at the version once, and take the new catalog when it has moved."""
        with self._refreshing:  # one after the other, so that an older state never takes the place of a newer
            self._look()

    def _look(self) -> None:
        try:
            with self._engine.connect() as connection:
                version = read_version(connection)
            if version != self._history.version:
                self._take(read_newer(self._engine, self._history))
            self.health = Health(datetime.now(UTC), None)
        except Exception as error:  # noqa: BLE001 – whatever is wrong, the last good catalog keeps answering
            if self.health.problem is None:
                log.warning(
                    "The catalog cannot be refreshed; version %s keeps answering: %s", self._history.version, error
                )
            self.health = Health(self.health.checked_at, f"The database cannot be read: {type(error).__name__}.")

    def _take(self, history: CatalogHistory) -> None:
        self._cut(history, self._today())  # before the swap, so that no request waits for it
        self._history = history
        with self._lock:
            for key in [key for key in self._days if key[0] != history.version]:
                del self._days[key]
        log.info("The catalog is now version %s.", history.version)

    def _watch(self) -> None:
        wait = self._wait_for_notice if self._engine.dialect.name == "postgresql" else self._wait
        while not self._stopping.is_set():
            wait()
            if not self._stopping.is_set():
                self.refresh()

    def _wait(self) -> None:
        self._stopping.wait(self._poll_seconds)

    def _wait_for_notice(self) -> None:
        """Sleep until Postgres says that the version moved, but no longer than a poll."""
        import psycopg  # only here: on SQLite the service starts without it

        try:
            with self._engine.connect() as connection:
                driver = connection.connection.driver_connection
                assert isinstance(driver, psycopg.Connection)
                connection.exec_driver_sql("LISTEN catalog")
                connection.commit()
                for seconds in portions(self._poll_seconds):
                    if self._stopping.is_set() or any(driver.notifies(timeout=seconds, stop_after=1)):
                        break
                connection.exec_driver_sql("UNLISTEN catalog")
                connection.commit()
        except (SQLAlchemyError, psycopg.Error):
            self._wait()


@dataclass(frozen=True, slots=True)
class PinnedCatalog:
    """One version of the catalog, seen on one day, however long it is asked."""

    history: CatalogHistory
    today: date
    cut: Callable[[CatalogHistory, date], Catalog]

    def on(self, day: date | None) -> Catalog:
        """As it was on a day, on the one it was pinned when none is named."""
        return self.cut(self.history, day or self.today)
