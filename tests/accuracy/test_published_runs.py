"""The published runs of the seed can be put as questions, and mean the same to the catalog."""

import csv
from collections import Counter

import pytest

from service.accuracy.rows import Row, RunQuestion, UnansweredRun, question_of, software_of
from service.accuracy.scoring import SPLITS, subset_of
from service.domain.jobs.stacks import software_called
from service.files import SEED


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    with (SEED / "published_runs.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def question_or_reason(row: Row) -> RunQuestion | str:
    try:
        return question_of(row)
    except UnansweredRun as refused:
        return str(refused)


def test_nearly_all_can_be_put_as_questions_and_the_others_say_why(rows: list[Row]) -> None:
    answers = [question_or_reason(row) for row in rows]
    assert Counter(answer for answer in answers if isinstance(answer, str)) == {
        "The amount of work is not given.": 14,
        "The number of accelerators is not given.": 4,
        "The unit 'scaling efficiency % vs 1 GPU' is not one the answer has.": 1,
    }


def test_each_is_scored_and_can_be_left_out(rows: list[Row]) -> None:
    for row in rows:
        question = question_or_reason(row)
        if isinstance(question, RunQuestion):
            assert subset_of(question)
            assert all(split(row) for split in SPLITS.values())


def test_stacks_keep_their_name_with_a_release(rows: list[Row]) -> None:
    """NVIDIA's tuned examples and PyTorch before 2.0 are stacks of their own; their rows say `pytorch`."""
    renamed = [(row, stack_of(row)) for row in rows if stack_of(row) != row["stack"]]
    assert Counter((row["stack"], stack) for row, stack in renamed) == {
        ("pytorch", "deeplearningexamples"): 106,
        ("pytorch", "pytorch-1"): 93,
    }
    assert all(("DeepLearningExamples" in row["source"]) == (stack == "deeplearningexamples") for row, stack in renamed)


def stack_of(row: Row) -> str:
    return software_called(software_of(row).get("framework")).line.replace("unknown", "")


def test_rows_are_sorted_and_of_good_quality(rows: list[Row]) -> None:
    ids = [row["id"] for row in rows]
    assert ids == sorted(set(ids))
    assert {row["quality"] for row in rows} == {"A", "B"}
    assert len(rows) > 1800
