"""Codes with figures, in which the domain states reasons and warnings; the API turns them into sentences."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

Code = TypeVar("Code", bound=StrEnum)


class Statement(NamedTuple, Generic[Code]):
    """A code of a closed list with the figures of its sentence."""

    code: Code
    figures: Mapping[str, Any]


def statement(code: Code, **figures: Any) -> Statement[Code]:
    """Returns a statement, with its figures as keyword arguments."""
    return Statement(code, figures)
