"""Finds the folders `seed/` and `migrations/`, in a checkout and in an installed package."""

from pathlib import Path

SERVICE = Path(__file__).parent


def _folder(name: str) -> Path:
    """Returns a folder: in a wheel it is inside the package (`force-include` in pyproject.toml), else next to it."""
    packaged = SERVICE / "_files" / name
    return packaged if packaged.is_dir() else SERVICE.parent / name


SEED = _folder("seed")
MIGRATIONS = _folder("migrations")
