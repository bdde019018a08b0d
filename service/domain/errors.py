"""Errors of the domain. Each carries a sentence for the reader; the API chooses the status code."""

from typing import Self


class Unusable(Exception):
    """A setting, file or database that cannot be used as it is; the message says why, and how to correct it."""


class QuestionError(Exception):
    """A question that cannot be answered as it is.

    `sentence` says why, `field` is the path of the request field that is wrong, and `near` holds similar known names.
    """

    def __init__(self, sentence: str, *, field: str | None = None, near: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.field = field
        self.near = near

    def inside(self, field: str) -> Self:
        """Returns the same error with its field inside another one: `layers` inside `model` is `model.layers`."""
        return self.at(self.field and f"{field}.{self.field}")

    def at(self, field: str | None) -> Self:
        """Returns the same error about another field."""
        return type(self)(self.sentence, field=field, near=self.near)


class UnknownName(QuestionError):
    """A name that the catalog does not have."""


class NotFound(QuestionError):
    """An address of something that the catalog does not have."""


class CursorExpired(QuestionError):
    """A cursor that belongs to another question or another catalog."""


class NotYet(QuestionError):
    """A question that has to wait, because the service is still answering another one of this kind."""


class ImpossibleModel(QuestionError):
    """Dimensions that no model can have, or too few of them to compute with."""


class ImpossibleRun(QuestionError):
    """A run with a duration or an amount beyond any possible one."""
