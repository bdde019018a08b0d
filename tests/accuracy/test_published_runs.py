"""The published runs of the seed can be put as questions, and mean the same to the catalog."""

import csv
from collections import Counter

import pytest

from service.accuracy.rows import Row, RunQuestion, UnansweredRun, gpu_of, question_of, software_of
from service.accuracy.scoring import SPLITS, subset_of
from service.domain.jobs.stacks import software_called
from service.files import SEED


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    with (SEED / "published_runs.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def question_or_reason(row: Row) -> RunQuestion | str:
    try:
        return question_of(row, lambda _name: True)
    except UnansweredRun as refused:
        return str(refused)


def test_nearly_all_can_be_put_as_questions_and_the_others_say_why(rows: list[Row]) -> None:
    told = [question_or_reason(row) for row in rows]
    assert Counter(each for each in told if isinstance(each, str)) == {
        "The amount of work is not given.": 14,
        "The number of accelerators is not given.": 4,
        "The unit 'scaling efficiency % vs 1 GPU' is not one the answer has.": 1,
    }


def test_each_is_scored_and_can_be_left_out(rows: list[Row]) -> None:
    for row in rows:
        question = question_or_reason(row)
        if isinstance(question, RunQuestion):
            assert subset_of(question, row)
            assert all(split(question) for split in SPLITS.values())


def test_cards_and_stacks_are_the_same_to_both_readers(rows: list[Row]) -> None:
    assert [gpu_of(row) for row in rows] == [row["gpu_id"] for row in rows]
    assert [stack_of(row) for row in rows] == [row["stack"] for row in rows]


def stack_of(row: Row) -> str:
    told = software_of(row)
    return software_called(told.get("engine") or told.get("framework")).line.replace("unknown", "")


def test_rows_are_sorted_and_of_good_quality(rows: list[Row]) -> None:
    ids = [row["id"] for row in rows]
    assert ids == sorted(set(ids))
    assert {row["quality"] for row in rows} == {"A", "B"}
    assert len(rows) > 1800
