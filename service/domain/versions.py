"""Versions of software: which ones a requirement such as `>=11.8,<13` speaks of, as one half-open range."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from service.domain.errors import QuestionError

Version = tuple[int, ...]
"""Without zeros at the end: 12.0 is 12. What follows at once after a version is the same with a zero added."""

CLAUSE = re.compile(r"(===|==|~=|>=|<=|!=|[<>@])?\s*v?(\d+(?:\.\d+)*)(?:\.\*|[-+.]?[a-z][\w.+-]*|\+[\w.]+)?", re.ASCII)
NAME = r"[a-z][\w.+-]*(?: [a-z][\w.+-]*)*?"
REQUIREMENT = re.compile(rf"\s*({NAME})\s*(?:\[[^\]]*\])?(?:\s*([<>=!~@].*)|\s+v?(\d.*))?", re.ASCII)
MOST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Versions:
    """From `low` on and before `before`; open above where that is None."""

    low: Version = ()
    before: Version | None = None

    def meets(self, other: "Versions") -> bool:
        """Whether some version is in both."""
        return (self.before is None or other.low < self.before) and (other.before is None or self.low < other.before)

    def reaching(self, other: "Versions") -> "Versions":
        """The least that holds all of this and something of the other, which it does not meet."""
        if self.before is not None and other.low >= self.before:
            return Versions(self.low, after(other.low))
        return Versions(other.low, self.before)

    def __str__(self) -> str:
        told = [f">={written(self.low)}"] if self.low else []
        if self.before is not None:
            told.append(f"<={written(self.before[:-1])}" if self.before[-1:] == (0,) else f"<{written(self.before)}")
        return ",".join(told)


EVERY = Versions()


def after(version: Version) -> Version:
    return (*version, 0)


def written(version: Version) -> str:
    return ".".join(map(str, version if len(version) > 1 else (*version, 0)))


def plain(version: Version) -> Version:
    end = len(version)
    while end and not version[end - 1]:
        end -= 1
    return version[:end]


def next_sibling(version: Version) -> Version:
    return (*version[:-1], version[-1] + 1)


@cache
def known_versions(specifier: str | None) -> Versions:
    """The same of a specifier of the seed, which was checked when it came in."""
    return EVERY if not specifier else versions_of(specifier, "versions")


def versions_of(specifier: str, field: str) -> Versions:
    """What all clauses hold together; a bare or an equal version stands for its patches too. Raises `QuestionError`."""
    low, before = EVERY.low, EVERY.before
    for clause in specifier.split(","):
        read = CLAUSE.fullmatch(clause.strip())
        if read is None or len(read[2]) > MOST_DIGITS:
            raise QuestionError(f"'{clause.strip()}' tells no version; write >=2.3, ==12.1 or 12.1.", field=field)
        found = tuple(map(int, read[2].split(".")))
        least, end = RANGES[read[1] or "=="](found)
        low = max(low, least)
        before = min((each for each in (before, end) if each is not None), default=None)
    if before is not None and low >= before:
        raise QuestionError(f"No version is {specifier}.", field=field)
    return Versions(low, before)


RANGES: dict[str, Callable[[Version], tuple[Version, Version | None]]] = {
    "==": lambda version: (plain(version), next_sibling(version)),
    "===": lambda version: (plain(version), next_sibling(version)),
    "@": lambda version: (plain(version), next_sibling(version)),
    "~=": lambda version: (plain(version), next_sibling(version[:-1] or version)),
    ">=": lambda version: (plain(version), None),
    ">": lambda version: (after(plain(version)), None),
    "<=": lambda version: ((), after(plain(version))),
    "<": lambda version: ((), plain(version)),
    "!=": lambda _: ((), None),
}
"""What a clause leaves: from which version on, and before which."""


def split_requirement(text: str, field: str) -> tuple[str, Versions]:
    """`pytorch>=2.3` → its name and versions; every version where none is told. Raises `QuestionError`."""
    read = REQUIREMENT.fullmatch(text.lower())
    if read is None:
        return text.strip().lower(), EVERY
    specifier = read[2] or read[3]
    return read[1], EVERY if specifier is None else versions_of(specifier, field)
