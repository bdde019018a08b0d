"""A code of a closed list with the figures of its sentence; the sentence itself is written where it is shown."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

Code = TypeVar("Code", bound=StrEnum)


class Statement(NamedTuple, Generic[Code]):
    """A code of a closed list with the figures of its sentence."""

    code: Code
    figures: Mapping[str, Any]


def statement(code: Code, **figures: Any) -> Statement[Code]:
    """Returns the code with its figures."""
    return Statement(code, figures)
