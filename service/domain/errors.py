"""What can be wrong with a question. Each error is a sentence; none knows a status code."""


class QuestionError(Exception):
    """The question cannot be answered as asked."""

    def __init__(self, sentence: str, *, field: str | None = None, near: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.field = field
        self.near = near


class UnknownName(QuestionError):
    """A field holds a name that the catalog does not have."""


class NotFound(QuestionError):
    """The thing asked for by its address is not in the catalog."""


class CursorExpired(QuestionError):
    """The cursor belongs to another question or another catalog."""


class ImpossibleModel(QuestionError):
    """No network can have these dimensions, or too few of them are told to compute with."""


class ImpossibleRun(QuestionError):
    """No run can last so long, or need so much."""
