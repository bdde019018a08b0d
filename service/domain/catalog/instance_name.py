"""What the name of an instance type tells of it, where its seller builds names by a rule."""

import re
from functools import cache
from typing import NamedTuple

RULES = {"aws": re.compile(r"(?:ml\.)?(?P<letters>[a-z]+?)(?P<generation>\d+)(?P<attributes>[a-z]*)\.(?P<size>[\w-]+)")}
"""By provider. AWS: the letters and the number are a series, the letters after it variants of it (d local disk,
n network, g Graviton), and what follows the point is the size."""


class NameParts(NamedTuple):
    """`p3dn.24xlarge` is p, 3, d and n, 24xlarge."""

    letters: str
    generation: int
    attributes: tuple[str, ...]
    size: str

    @property
    def series(self) -> str:
        return f"{self.letters}{self.generation}"


@cache
def name_parts(provider: str, name: str) -> NameParts | None:
    """Nothing where the seller has no rule, or the name does not follow it."""
    rule = RULES.get(provider)
    found = rule.fullmatch(name) if rule else None
    if found is None:
        return None
    return NameParts(found["letters"], int(found["generation"]), tuple(found["attributes"]), found["size"])
