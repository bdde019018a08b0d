"""Pairs of random questions whose answers have to agree, or of which one cannot have the better answer.

Sixty pairs of each kind by default. To ask more: `SELECTOR_TEST_QUESTIONS=10000 python3 dev.py test` with this path.
"""

import json
import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import price_ignored
from tests.builders.invariants import ROUNDED
from tests.builders.random_questions import RANGES, Questions, Vocabulary
from tests.builders.request_bodies import Body, changed

ASKED = int(os.environ.get("SELECTOR_TEST_QUESTIONS", "60"))
IN_ONE_BATCH = 50
DATA = ("storage", "transfer")


@pytest.fixture(scope="module")
def vocabulary(client: TestClient) -> Vocabulary:
    return Vocabulary.of(client)


def answers(client: TestClient, items: list[Body]) -> Iterator[Any]:
    for start in range(0, len(items), IN_ONE_BATCH):
        sent = client.post("/recommend/batch", json={"items": items[start : start + IN_ONE_BATCH]})
        assert sent.status_code == 200, sent.text
        yield from sent.json()["items"]


def any_question(questions: Questions) -> Body:
    """A question about a job with its bill, about a load, or of any other kind."""
    draw = questions.random.random()
    if draw < 0.3:
        return questions.load()
    return questions.question() if draw < 0.6 else questions.billed(questions.question_of_a_job())


# The same question in other words


def figures(answer: Body) -> Body:
    """The parts of an answer about machines: notes also say what the question left open."""
    rejections = [{**each, "relax": None} for each in answer["rejections"]]
    return {name: answer[name] for name in ("counts", "choices", "current", "advice")} | {"rejections": rejections}


def test_a_question_with_its_defaults_named_has_the_same_answer(client: TestClient, vocabulary: Vocabulary) -> None:
    questions = Questions(vocabulary, Random(1))
    asked = [any_question(questions) for _ in range(ASKED)]
    found = list(answers(client, asked))
    again = answers(client, [answer["question"] for answer in found])
    for question, answer, other in zip(asked, found, again, strict=True):
        assert figures(answer) == figures(other), json.dumps(question)


def test_a_tolerance_that_is_left_open_stays_open(client: TestClient) -> None:
    """Spot takes part where a market names it, unless the question says that the work cannot resume."""
    asked = {"workload": {"task": "training"}, "constraints": {"market": ["on_demand", "spot"], "provider": ["aws"]}}
    open_ = next(answers(client, [asked]))
    again = next(answers(client, [open_["question"]]))
    assert open_["question"]["workload"]["fault_tolerant"] is None
    refused = next(answers(client, [changed(asked, workload__fault_tolerant=False)]))
    assert again["counts"] == open_["counts"] != refused["counts"]


def test_the_order_of_names_and_repeated_names_change_nothing(client: TestClient, vocabulary: Vocabulary) -> None:
    questions = Questions(vocabulary, Random(2))
    asked = [any_question(questions) for _ in range(ASKED)]
    shuffled = []
    for question in asked:
        limits = question.get("constraints", {})
        words = {name: names for name, names in limits.items() if isinstance(names, list) and names}
        mixed = {name: [*questions.random.sample(names, len(names)), names[0]] for name, names in words.items()}
        shuffled.append({**question, "constraints": {**limits, **mixed}})
    for question, answer, other in zip(asked, answers(client, asked), answers(client, shuffled), strict=True):
        assert figures(answer) == figures(other), json.dumps(question)


def test_an_answer_in_a_batch_is_that_of_a_single_question_byte_for_byte(
    client: TestClient, vocabulary: Vocabulary
) -> None:
    questions = Questions(vocabulary, Random(3))
    for start in range(0, ASKED, IN_ONE_BATCH):
        asked = [any_question(questions) for _ in range(min(IN_ONE_BATCH, ASKED - start))]
        together = client.post("/recommend/batch", json={"items": asked}).text
        for question in asked:
            assert client.post("/recommend", json=question).text in together, json.dumps(question)


# Questions about a part of the machines


def by_itself(choice: Body) -> Body:
    """A choice without what compares it with others."""
    compared = ("rank", "reasons", "warnings", "tied_with", "pareto")
    return {name: value for name, value in choice.items() if name not in compared}


def test_choices_do_not_depend_on_the_limit_or_on_machines_that_are_left_out(
    client: TestClient, vocabulary: Vocabulary
) -> None:
    questions = Questions(vocabulary, Random(4))
    asked = [{**any_question(questions), "limit": 3, "diversify": False, "per": "type"} for _ in range(ASKED)]
    pairs = [(body, answer["choices"]) for body, answer in zip(asked, answers(client, asked), strict=True)]
    pairs = [(body, choices) for body, choices in pairs if len(choices) == 3]
    names = [[f"{choice['provider']}/{choice['instance']}" for choice in choices] for _, choices in pairs]
    fewer = answers(client, [{**body, "limit": 1} for body, _ in pairs])
    without = answers(
        client,
        [
            changed(body, constraints__exclude=[*body.get("constraints", {}).get("exclude", []), second])
            for (body, _), (_, second, _) in zip(pairs, names, strict=True)
        ],
    )
    for (body, choices), first, rest in zip(pairs, fewer, without, strict=True):
        kept = [by_itself(choice) for choice in choices]
        assert [by_itself(choice) for choice in first["choices"]] == kept[:1], json.dumps(body)
        assert [by_itself(choice) for choice in rest["choices"][:2]] == [kept[0], kept[2]], json.dumps(body)
    assert len(pairs) > ASKED / 3


# Tighter questions


def tighter_limit(questions: Questions) -> tuple[Body, Body]:
    """A question about a job or a load, and the same with a limit, or with a tighter one."""
    draw = questions.random
    asked = questions.load() if questions.maybe() else questions.billed(questions.question_of_a_job())
    asked = {**asked, "objective": "cheapest", "limit": 1}
    # Fewer instances than runs take turns, which may cost less.
    of_loads = ("max_instances", "budget_usd") if "serving" in asked["workload"] else ("budget_usd", "deadline_hours")
    ranges = [f"min_{name}" for name in RANGES if name != "tflops"]
    name = draw.choice(
        ["max_usd_per_hour", "provider", "continent", "max_nodes", "exclude", "confidence", *of_loads, *ranges]
    )
    if name in ("provider", "continent"):
        few = questions.names(name)
        ends: Any = ([*few, *questions.names(name)], few)
    elif name in ("max_nodes", "max_instances"):
        ends = tuple(sorted((questions.whole(16), questions.whole(16)), reverse=True))
    elif name in ("exclude", "confidence"):
        ends = ("likely", "safe") if name == "confidence" else ([], questions.names("provider"))
    else:
        ends = (None, draw.choice(RANGES[name[4:]]) if name.startswith("min_") else questions.amount(0.05, 1e5))
    loose, tight = (changed(asked, **{f"constraints__{name}": end}) for end in ends)
    return loose, tight


LOADS: dict[str, Callable[[Questions], float]] = {
    "max_seconds_to_first_token": lambda questions: -questions.amount(0.01, 20),
    "max_seconds_per_output_token": lambda questions: -questions.amount(0.005, 0.5),
    "percentile": lambda questions: questions.random.choice((50, 95, 99)),
    "percentile_to_first_token": lambda questions: questions.random.choice((50, 95, 99)),
    "headroom": lambda questions: questions.random.uniform(0.0, 0.6),
    "min_replicas": lambda questions: questions.whole(16),
    "prefix_cache_hit_rate": lambda questions: -questions.random.uniform(0.0, 0.99),
}
"""Fields of a load, and values of which a greater one asks for more; the sign is not part of the value."""


def heavier_load(questions: Questions) -> tuple[Body, Body]:
    """A load, and one with more requests, or of which more is asked."""
    asked: Body = {"workload": {}}
    while "serving" not in asked["workload"]:
        asked = {**questions.load(), "objective": "cheapest", "limit": 1}
    name = questions.random.choice((*LOADS, "rate", "availability_zones"))
    if name == "rate":
        rates = ("requests_per_second", "output_tokens_per_second", "concurrency")
        name = next(rate for rate in rates if rate in asked["workload"]["serving"])
        light = asked["workload"]["serving"][name]
        ends = [light, light * questions.random.randint(2, 10)]
        # More tokens through the same instances cost less each: a limit of dollars per token is looser for them.
        asked = changed(asked, constraints__max_usd_per_million_tokens=None)
    elif name == "availability_zones":
        ends = [1, questions.random.choice((2, 3))]
    else:
        ends = [abs(value) for value in sorted(LOADS[name](questions) for _ in range(2))]
    light_one, heavy = (changed(asked, **{f"workload__serving__{name}": end}) for end in ends)
    return light_one, heavy


def ranked_usd(question: Body, choice: Body) -> tuple[bool, float] | None:
    """Whether charges are unknown, which rank last, and dollars with old prices at their high end."""
    price, bill = choice["price"], choice["cost"]
    if price is None or price["usd_per_hour"] is None:
        return None
    factor = price["usd_per_hour_high"] / price["usd_per_hour"] if price["old"] else 1.0
    if not question["workload"].get("amount"):
        # Where the premium of a managed service is unknown, an hour is unknown too, and ranks by the price without it.
        usd, without_premium = choice["usd_per_hour"], price["usd_per_hour"] * choice["nodes"] * choice["instances"]
        return usd is None, (without_premium if usd is None else usd) * factor
    parts = [(part["name"] in DATA, part["usd"]["likely"]) for part in bill["parts"] if part["usd"]]
    unknown = "cost_incomplete" in {warning["code"] for warning in choice["warnings"]}
    return unknown, sum(usd * (1.0 if of_data else factor) for of_data, usd in parts)


@pytest.mark.parametrize("pair", [tighter_limit, heavier_load])
def test_a_question_that_asks_for_more_never_has_the_cheaper_answer(
    pair: Callable[[Questions], tuple[Body, Body]], client: TestClient, vocabulary: Vocabulary
) -> None:
    questions, compared = Questions(vocabulary, Random(5)), 0
    pairs = [pair(questions) for _ in range(ASKED)]
    loose, tight = (answers(client, [each[place] for each in pairs]) for place in (0, 1))
    for (easy, hard), more, fewer in zip(pairs, loose, tight, strict=True):
        assert fewer["counts"]["admitted"] <= more["counts"]["admitted"] or price_ignored(more), json.dumps(hard)
        if not fewer["choices"] or price_ignored(more):
            continue
        low, high = ranked_usd(easy, more["choices"][0]), ranked_usd(hard, fewer["choices"][0])
        if low is not None and high is not None:
            compared += 1
            assert low[0] <= high[0], json.dumps(hard)
            assert low[0] < high[0] or low[1] <= high[1] * (1 + ROUNDED), f"{low} > {high}\n{json.dumps([easy, hard])}"
    assert compared > ASKED / 5


def test_a_question_about_a_day_is_answered_with_prices_of_that_day_or_before(
    client: TestClient, vocabulary: Vocabulary
) -> None:
    questions, compared = Questions(vocabulary, Random(6)), 0
    asked = []
    for _ in range(ASKED):
        day = f"{questions.random.randint(2017, 2026)}-0{questions.random.randint(1, 9)}-15"
        markets = {"market": questions.random.sample(("on_demand", "spot", "reserved"), 2)}
        asked.append({**questions.billed(questions.question_of_a_job()), "constraints": markets, "as_of": day})
    for question, answer in zip(asked, answers(client, asked), strict=True):
        for choice in answer.get("choices", ()):  # a storage class or a service may not be known on that day
            for price in (choice["price"], (choice["cost"] or {}).get("price")):
                if price is not None and price["observed_on"] is not None:
                    compared += 1
                    assert price["observed_on"] <= question["as_of"], json.dumps(question)
    assert compared > ASKED
