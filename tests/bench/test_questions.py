"""The questions as they go over the wire."""

import pytest

from bench.questions import MOST_A_SPELL, QUESTIONS, Question

INSTANCES = ("aws/p3.2xlarge", "gcp/a2-highgpu-1g")


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_question_is_a_whole_request(question: Question) -> None:
    head, _, body = question.ask(7, INSTANCES).partition(b"\r\n\r\n")
    assert head.startswith((b"GET /", b"POST /"))
    assert (f"Content-Length: {len(body)}".encode() in head) == bool(body)


@pytest.mark.parametrize("name", ["the same, new each time", "POST /recommend, GPU named", "POST /recommend, broadest"])
def test_no_question_comes_twice_in_a_spell(name: str) -> None:
    question = next(question for question in QUESTIONS if question.name == name)
    assert len(set(question.requests(0, INSTANCES))) == MOST_A_SPELL
