"""Versions of software: a requirement such as `>=11.8,<13` as a half-open interval of versions."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from service.domain.errors import QuestionError

Version = tuple[int, ...]
"""A version without zeros at the end: 12.0 is (12,). No version lies between it and the same one with a zero added."""

CLAUSE = re.compile(r"(===|==|~=|>=|<=|!=|[<>@])?\s*v?(\d+(?:\.\d+)*)(?:\.\*|[-+.]?[a-z][\w.+-]*|\+[\w.]+)?", re.ASCII)
NAME = r"[a-z][\w.+-]*(?: [a-z][\w.+-]*)*?"
REQUIREMENT = re.compile(rf"\s*({NAME})\s*(?:\[[^\]]*\])?(?:\s*([<>=!~@].*)|\s+v?(\d.*))?", re.ASCII)
LONGEST_VERSION = 12
"""Longest version number that is accepted, in characters."""


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions from `low` on that are before `before`; all from `low` on if `before` is None."""

    low: Version = ()
    before: Version | None = None

    def overlaps(self, other: "Versions") -> bool:
        """Returns whether a version is in both ranges."""
        return (self.before is None or other.low < self.before) and (other.before is None or self.low < other.before)

    def extended_to(self, other: "Versions") -> "Versions":
        """Returns the smallest range that contains this one and overlaps another, which this one does not overlap."""
        if self.before is not None and other.low >= self.before:
            return Versions(self.low, (*other.low, 0))
        return Versions(other.low, self.before)

    def __str__(self) -> str:
        clauses = [f">={written(self.low)}"] if self.low else []
        if self.before is not None:
            upper = f"<={written(self.before[:-1])}" if self.before[-1:] == (0,) else f"<{written(self.before)}"
            clauses.append(upper)
        return ",".join(clauses)


EVERY = Versions()


def written(version: Version) -> str:
    """Returns a version as text, with at least two parts."""
    return ".".join(map(str, version if len(version) > 1 else (*version, 0)))


def _without_trailing_zeros(version: Version) -> Version:
    end = len(version)
    while end and not version[end - 1]:
        end -= 1
    return version[:end]


def _next_sibling(version: Version) -> Version:
    return (*version[:-1], version[-1] + 1)


def known_versions(specifier: str | None) -> Versions:
    """Returns the versions that a specifier in the catalog allows, which the import has checked; None allows all."""
    return EVERY if not specifier else versions_of(specifier, "versions")


def versions_of(specifier: str, field: str) -> Versions:
    """Returns the versions that satisfy all clauses of a specifier; `==12.1` and `12.1` include patches.

    Raises `QuestionError` about the field if a clause cannot be read, or if no version satisfies all of them.
    """
    low, before = EVERY.low, EVERY.before
    for clause in specifier.split(","):
        match = CLAUSE.fullmatch(clause.strip())
        if match is None or len(match[2]) > LONGEST_VERSION:
            raise QuestionError(
                f"'{clause.strip()}' is not a version specifier. Examples: >=2.3, ==12.1 or 12.1.", field=field
            )
        start, end = RANGES[match[1] or "=="](tuple(map(int, match[2].split("."))))
        low = max(low, start)
        before = min((bound for bound in (before, end) if bound is not None), default=None)
    if before is not None and low >= before:
        raise QuestionError(f"No version satisfies {specifier}.", field=field)
    return Versions(low, before)


RANGES: dict[str, Callable[[Version], tuple[Version, Version | None]]] = {
    "==": lambda version: (_without_trailing_zeros(version), _next_sibling(version)),
    "===": lambda version: (_without_trailing_zeros(version), _next_sibling(version)),
    "@": lambda version: (_without_trailing_zeros(version), _next_sibling(version)),
    "~=": lambda version: (_without_trailing_zeros(version), _next_sibling(version[:-1] or version)),
    ">=": lambda version: (_without_trailing_zeros(version), None),
    ">": lambda version: ((*_without_trailing_zeros(version), 0), None),
    "<=": lambda version: ((), (*_without_trailing_zeros(version), 0)),
    "<": lambda version: ((), _without_trailing_zeros(version)),
    # One interval cannot leave out a version in its middle, so an exclusion admits everything.
    "!=": lambda _: ((), None),
}
"""For each operator of a clause: the first version that satisfies it, and the first later one that does not."""


def split_requirement(text: str, field: str) -> tuple[str, Versions]:
    """Returns name and versions of a requirement, such as `pytorch>=2.3` or `pytorch`. Raises `QuestionError`."""
    match = REQUIREMENT.fullmatch(text.lower())
    if match is None:
        return text.strip().lower(), EVERY
    specifier = match[2] or match[3]
    return match[1], EVERY if specifier is None else versions_of(specifier, field)
