"""What a seed must satisfy before it replaces the last good one; each failing is a sentence that names the row."""

from pathlib import Path

from service.db.write_catalog import Batch


def check_seed(batch: Batch, folder: Path) -> list[str]:
    return []
