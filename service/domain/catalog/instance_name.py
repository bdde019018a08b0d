"""Parts of the name of an instance type, for providers that build names by a rule."""

import re
from functools import cache
from typing import NamedTuple

RULES = {"aws": re.compile(r"(?:ml\.)?(?P<letters>[a-z]+?)(?P<generation>\d+)(?P<attributes>[a-z]*)\.(?P<size>[\w-]+)")}
"""The rule of each provider. AWS: letters and a number are the series, the letters after it are its variants (d local
disk, n network, g Graviton), and the size follows the point."""


class NameParts(NamedTuple):
    """The parts of a name: those of `p3dn.24xlarge` are p, 3, d and n, and 24xlarge."""

    letters: str
    generation: int
    attributes: tuple[str, ...]
    size: str

    @property
    def series(self) -> str:
        """Letters and generation, such as `p3`."""
        return f"{self.letters}{self.generation}"


@cache
def name_parts(provider: str, name: str) -> NameParts | None:
    """Returns the parts of a name; None if the provider has no rule or the name does not follow it."""
    rule = RULES.get(provider)
    found = rule.fullmatch(name) if rule else None
    if found is None:
        return None
    return NameParts(found["letters"], int(found["generation"]), tuple(found["attributes"]), found["size"])
