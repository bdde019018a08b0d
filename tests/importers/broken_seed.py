"""A copy of the seed with one thing broken in it."""

import csv
import shutil
from functools import cache
from pathlib import Path

from service.db.write_catalog import Record
from service.files import SEED
from service.importers.checks import check_seed
from service.importers.prices import Observation
from service.importers.seed import TABLE_OF, batch_of, observations_in, records


@cache
def whole_tables() -> dict[str, list[Record]]:
    return {row: records(SEED / f"{name}.csv", row) for name, row in TABLE_OF.items()}


@cache
def whole_observations() -> list[Observation]:
    return observations_in(SEED / "prices.csv")


class SeedCopy:
    """The seed's files, to be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changed: set[str] = set()
        shutil.copytree(SEED, folder)

    def change(self, file: str, where: dict[str, str], **cells: str) -> None:
        """Change cells of the one row that is meant."""
        rows, row = self._find(file, where)
        row.update(cells)
        self._write(file, rows)

    def add(self, file: str, where: dict[str, str], **cells: str) -> None:
        """Add a row like the one that is meant, but for some cells."""
        rows, row = self._find(file, where)
        self._write(file, [*rows, {**row, **cells}])

    def remove(self, file: str, **where: str) -> None:
        """Take out every row that is meant."""
        rows = self._read(file)
        kept = [row for row in rows if not where.items() <= row.items()]
        assert len(kept) < len(rows)
        self._write(file, kept)

    def write_text(self, file: str, text: str) -> None:
        self.changed.add(file)
        (self.folder / f"{file}.csv").write_text(text, encoding="utf-8")

    def problems(self) -> list[str]:
        """The faults of the copy; only the files that were changed are read again."""
        again = {
            row: records(self.folder / f"{name}.csv", row) for name, row in TABLE_OF.items() if name in self.changed
        }
        prices = observations_in(self.folder / "prices.csv") if "prices" in self.changed else whole_observations()
        return check_seed(batch_of({**whole_tables(), **again}, prices, "a copy"), self.folder)

    def _find(self, file: str, where: dict[str, str]) -> tuple[list[dict[str, str]], dict[str, str]]:
        rows = self._read(file)
        found = [row for row in rows if where.items() <= row.items()]
        assert len(found) == 1, f"{len(found)} rows of {file}.csv have {where}."
        return rows, found[0]

    def _read(self, file: str) -> list[dict[str, str]]:
        with (self.folder / f"{file}.csv").open(encoding="utf-8", newline="") as opened:
            return list(csv.DictReader(opened))

    def _write(self, file: str, rows: list[dict[str, str]]) -> None:
        self.changed.add(file)
        with (self.folder / f"{file}.csv").open("w", encoding="utf-8", newline="") as opened:
            writer = csv.DictWriter(opened, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
