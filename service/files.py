"""Where the files that are not code lie: `seed/` and `migrations/`, in a checkout and in an installed package."""

from pathlib import Path

SERVICE = Path(__file__).parent


def folder(name: str) -> Path:
    """A wheel has these folders inside the package (`force-include` in pyproject.toml), a checkout beside it."""
    packaged = SERVICE / "_files" / name
    return packaged if packaged.is_dir() else SERVICE.parent / name


SEED = folder("seed")
MIGRATIONS = folder("migrations")
