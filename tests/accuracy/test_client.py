"""`accuracy` asks the service, and `calibrate` asks the physics: both compare the same figure with a published run."""

import csv
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.accuracy.client import ask_table
from service.accuracy.direct import case_of
from service.accuracy.rows import Row, UnansweredRun, counted_rows, question_of
from service.files import SEED

PUBLISHED = SEED / "published_runs.csv"
TIMES = ("seconds_to_first_token", "seconds_per_output_token", "prefill_tokens_per_second")


def is_of_speech(row: Row) -> bool:
    return row["family"] == "speech" and row["kind"] == "infer_throughput"


def is_compared(row: Row) -> bool:
    try:
        return is_of_speech(row) or question_of(row).quantity in TIMES
    except UnansweredRun:
        return False


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The published runs of speech, and those of which the times of tokens were measured."""
    ids = {row["id"] for row in counted_rows(PUBLISHED) if is_compared(row)}
    with PUBLISHED.open(encoding="utf-8", newline="") as published:
        header, *rows = csv.reader(published)
    with (tmp_path / "runs.csv").open("w", encoding="utf-8", newline="") as table:
        csv.writer(table).writerows([header, *(row for row in rows if row[header.index("id")] in ids)])
    return tmp_path / "runs.csv"


def test_the_service_answers_times_of_tokens_and_rates_of_speech_as_the_fit_counts_them(
    runs: Path, client: TestClient, app: FastAPI
) -> None:
    catalog = app.state.live_catalog.on(None)
    calibration = catalog.reference.calibration
    compared, first_waves, of_speech = 0, 0, 0
    for answer in ask_table(runs, client).answers:
        row = answer.question.row
        case = case_of(answer.question, catalog).under(calibration.coefficients)
        assert answer.likely == pytest.approx(case.predicted(calibration.coefficients), rel=0.05), row["id"]
        compared, first_waves = compared + 1, first_waves + ("first_wave" in answer.question.extras)
        of_speech += is_of_speech(row)
    assert compared > 300
    assert of_speech == 70
    assert first_waves > 100
