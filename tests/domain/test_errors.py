"""Errors in a question."""

from service.domain.errors import QuestionError, UnknownName


def test_an_error_inside_a_part_names_the_whole_path_and_stays_what_it_is() -> None:
    error = UnknownName("No GPU is called 'a1000'.", field="gpu", near=("a100",)).inside("machine")
    assert isinstance(error, UnknownName)
    assert (error.sentence, error.field, error.near) == ("No GPU is called 'a1000'.", "machine.gpu", ("a100",))


def test_an_error_without_a_field_stays_without() -> None:
    assert QuestionError("No layout is possible.").inside("layout").field is None
