"""The questions as they go over the wire."""

import json

import pytest
from fastapi.testclient import TestClient

from bench.questions import (
    BROADEST,
    GPU_NAMED,
    IN_A_BATCH,
    LOADED,
    LOADED_AGAIN,
    MOST_A_SPELL,
    QUESTIONS,
    SERVED,
    TRAINED,
    TRAINED_AGAIN,
    WORKLOADS_IN_IT,
    Question,
    batch_of,
    one_of_a_batch,
    singles_of,
)
from tests.api.answers import post_recommend

INSTANCES = ("aws/p3.2xlarge", "gcp/a2-highgpu-1g")


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_question_is_a_whole_request(question: Question) -> None:
    head, _, body = question.ask(7, INSTANCES).partition(b"\r\n\r\n")
    assert head.startswith((b"GET /", b"POST /"))
    assert (f"Content-Length: {len(body)}".encode() in head) == bool(body)


NEW = [question for question in QUESTIONS if "new" in question.name or question in (GPU_NAMED, BROADEST)]


@pytest.mark.parametrize("question", NEW, ids=lambda question: question.name)
def test_no_question_comes_twice_in_a_spell(question: Question) -> None:
    assert len(set(question.requests(0, INSTANCES))) == MOST_A_SPELL


def test_new_questions_differ_in_more_than_the_amount_of_work() -> None:
    works = [json.loads(request.partition(b"\r\n\r\n")[2])["workload"] for request in TRAINED.requests(0, ())]
    assert len({(work["sequence_length"], work["global_batch_size"]) for work in works}) == MOST_A_SPELL


def test_a_batch_is_its_questions_one_by_one_and_no_other_batch_has_its_workloads() -> None:
    items = json.loads(batch_of(3).partition(b"\r\n\r\n")[2])["items"]
    assert items == [json.loads(single.partition(b"\r\n\r\n")[2]) for single in singles_of(3)]
    assert len({json.dumps(item) for item in items}) == IN_A_BATCH
    workloads = [
        {json.dumps(one_of_a_batch(batch, place)["workload"]) for place in range(IN_A_BATCH)} for batch in (3, 4)
    ]
    assert [len(each) for each in workloads] == [WORKLOADS_IN_IT, WORKLOADS_IN_IT]
    assert not workloads[0] & workloads[1]


@pytest.mark.parametrize(("again", "new"), [(TRAINED_AGAIN, TRAINED), (LOADED_AGAIN, LOADED)])
def test_a_repeated_question_is_one_question(again: Question, new: Question) -> None:
    assert len(again.requests(7, ())) == 1
    assert again.ask(7, ()) == new.ask(0, ())


def test_the_questions_of_a_spell_are_answered_with_choices(client: TestClient) -> None:
    """A load whose lengths contradict each other would measure how fast it is refused."""
    for question in (TRAINED, SERVED, LOADED):
        for turn in (0, 1, 508, 7680, 9972):
            body = json.loads(question.ask(turn, ()).partition(b"\r\n\r\n")[2])
            assert post_recommend(client, {**body, "limit": 1})["choices"]
