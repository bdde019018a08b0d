"""A question on a catalog always gives the same bytes: on both databases, after a restart, in any order."""

from pathlib import Path
from random import Random, SystemRandom

from fastapi.testclient import TestClient

from service.api.http import examples
from service.app import create_app
from service.settings import Settings
from tests.builders.random_questions import Questions, Vocabulary

GETS = (
    "/instances?precision=bf16&sort=-tflops,usd_per_hour&facets=family,gpu_memory_gb&limit=200",
    "/instances/aws/p4d.24xlarge",
    "/gpus/a100",
    "/regions?limit=200",
    "/compare?instance=g2.2xlarge,p2.xlarge&workload=alexnet_train&as_of=2017-08-01",
)
ASKED = 40


def answers(client: TestClient) -> list[bytes]:
    """The answers to the questions in a shuffled order: earlier questions must not matter."""
    questions = Questions(Vocabulary.of(client), Random(ASKED))
    bodies = [questions.question() for _ in range(ASKED)]
    order = SystemRandom().sample(range(ASKED), ASKED)
    response = {place: client.post("/recommend", json=bodies[place]) for place in order}
    assert {answer.status_code for answer in response.values()} == {200}
    return [*(response[place].content for place in range(ASKED)), *(client.get(target).content for target in GETS)]


def served(url: str) -> TestClient:
    return TestClient(create_app(Settings(database_url=url), today=lambda: examples.DAY))


def test_another_start_and_the_other_database_give_the_same_answers(seeded_file: Path, seeded_postgres: str) -> None:
    with served(f"sqlite:///{seeded_file}") as client:
        answer = answers(client)
    for url in (f"sqlite:///{seeded_file}", seeded_postgres):
        with served(url) as client:
            assert answers(client) == answer
