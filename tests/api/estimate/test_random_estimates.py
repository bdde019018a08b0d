"""Random estimates on the real seed: no answer contradicts itself.

A few hundred by default. To ask more: `SELECTOR_TEST_QUESTIONS=10000 python3 dev.py test` with the path of this file.
"""

import json
import os
from random import Random

import pytest
from fastapi.testclient import TestClient

from tests.builders.invariants import contradictions_in_estimate
from tests.builders.random_questions import Questions, Vocabulary
from tests.builders.request_bodies import Body

ASKED = int(os.environ.get("SELECTOR_TEST_QUESTIONS", "300"))
SHARES = 4
IN_ONE_BATCH = 50


@pytest.fixture(scope="module")
def vocabulary(client: TestClient) -> Vocabulary:
    return Vocabulary.of(client)


def random_estimate(questions: Questions) -> Body:
    """A job on nodes of an instance type, or on a machine that is described."""
    random = questions.random
    machine = questions.names("instance")[0]
    described = {"gpu": questions.names("gpu")[0], "gpu_count": random.choice((1, 2, 4, 8)), "usd_per_hour": 2.0}
    work = {**questions.workload(), **questions.model(), "task": random.choice(("training", "training", "inference"))}
    return {
        "workload": work,
        "machine": machine if questions.maybe(0.7) else described,
        "nodes": random.choice((1, 1, 2, 8)),
    }


@pytest.mark.parametrize("share", range(SHARES))
def test_a_random_estimate_does_not_contradict_itself(share: int, client: TestClient, vocabulary: Vocabulary) -> None:
    questions = Questions(vocabulary, Random(share))
    answered = 0
    for start in range(0, ASKED // SHARES, IN_ONE_BATCH):
        items = [random_estimate(questions) for _ in range(min(IN_ONE_BATCH, ASKED // SHARES - start))]
        answers = client.post("/estimate/batch", json={"items": items}).json()["items"]
        for body, answer in zip(items, answers, strict=True):
            if "problem" not in answer:  # such as a machine without a GPU, or a precision that its GPU does not run
                answered += 1
                found = list(contradictions_in_estimate(body["workload"], answer["estimate"]))
                assert not found, f"{found}\n{json.dumps(body)}"
    assert answered > ASKED / SHARES / 4
