"""A code of a closed list with the figures of its sentence; the sentence itself is written where it is shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

Code = TypeVar("Code", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Statement(Generic[Code]):
    """A code of a closed list with the figures of its sentence."""

    code: Code
    figures: Mapping[str, Any]


def statement(code: Code, **figures: Any) -> Statement[Code]:
    """Returns the code with its figures."""
    return Statement(code, figures)
