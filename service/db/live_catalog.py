"""Holds the current catalog, and replaces it as a whole when the version in the database changes."""

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
STOP_WITHIN_SECONDS = 1.0
"""The longest wait after which a watcher checks whether it has to stop."""

DAYS_KEPT = 16
"""Catalogs of past days are built on demand, and the most recently used ones are kept."""


def today() -> date:
    """Returns the day in UTC."""
    return datetime.now(UTC).date()


def _parts_of_wait(seconds: float) -> list[float]:
    count = math.ceil(seconds / STOP_WITHIN_SECONDS)
    return [seconds / count] * count


@dataclass(frozen=True, slots=True)
class Health:
    """When the database was last read, and the problem since then, or None."""

    checked_at: datetime
    problem: str | None


class LiveCatalog:
    """The catalog that answers requests.

    The constructor raises what `read_history` raises. Afterwards, the last good catalog stays whatever happens.
    """

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
        """Returns the catalogs of all days, as of the current version."""
        return self._history

    def on(self, day: date | None) -> Catalog:
        """Returns the catalog of a day, by default of today."""
        return self._catalog_of(self._history, day or self._today())

    def pinned(self) -> "PinnedCatalog":
        """Returns the catalogs of the current version, for work during which the version may change."""
        return PinnedCatalog(self._history, self._today(), self._catalog_of)

    def _catalog_of(self, history: CatalogHistory, day: date) -> Catalog:
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
        """Starts the thread that follows the database."""
        self._watcher.start()

    def stop_watching(self) -> None:
        """Stops that thread, and waits for it."""
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join(timeout=self._poll_seconds + 5)

    def add_measurements(self, measurements: Sequence[Measurement]) -> list[Measurement]:
        """Returns the measurements as stored; from then on, this process answers with them.

        Raises `DatabaseUnusable`; then none is stored.
        """
        stored = write_measurements(self._engine, measurements, datetime.now(UTC))
        self.refresh()
        return stored

    def refresh(self) -> None:
        """Checks the version once, and reads the new catalog if it has changed."""
        with self._refreshing:  # one at a time, so that an older state never replaces a newer one
            self._read_if_changed()

    def _read_if_changed(self) -> None:
        try:
            with self._engine.connect() as connection:
                version = read_version(connection)
            if version != self._history.version:
                self._replace(read_newer(self._engine, self._history))
            self.health = Health(datetime.now(UTC), None)
        except Exception as error:  # noqa: BLE001 – whatever the error, the last good catalog keeps answering
            if self.health.problem is None:
                log.warning(
                    "The catalog cannot be refreshed; version %s keeps answering: %s", self._history.version, error
                )
            self.health = Health(self.health.checked_at, f"The database cannot be read: {type(error).__name__}.")

    def _replace(self, history: CatalogHistory) -> None:
        self._catalog_of(history, self._today())  # before the swap, so that no request waits for it
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
        """Waits until Postgres announces a new version, at most as long as between two polls."""
        import psycopg  # imported here because a service on SQLite starts faster without it

        try:
            with self._engine.connect() as connection:
                driver = connection.connection.driver_connection
                assert isinstance(driver, psycopg.Connection)
                connection.exec_driver_sql("LISTEN catalog")
                connection.commit()
                for seconds in _parts_of_wait(self._poll_seconds):
                    if self._stopping.is_set() or any(driver.notifies(timeout=seconds, stop_after=1)):
                        break
                connection.exec_driver_sql("UNLISTEN catalog")
                connection.commit()
        except (SQLAlchemyError, psycopg.Error):
            self._wait()


@dataclass(frozen=True, slots=True)
class PinnedCatalog:
    """One version of the catalog and one current day, which do not change while work goes on."""

    history: CatalogHistory
    today: date
    catalog_of: Callable[[CatalogHistory, date], Catalog]

    def on(self, day: date | None) -> Catalog:
        """Returns the catalog of a day, by default of the day on which it was pinned."""
        return self.catalog_of(self.history, day or self.today)
