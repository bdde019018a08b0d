"""`accuracy` asks the service, and `calibrate` asks the physics: both compare the same figure with a published run."""

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.accuracy.client import ask_table
from service.accuracy.direct import case_of
from service.files import SEED

PUBLISHED = SEED / "published_runs.csv"
TIMES = ("seconds_to_first_token", "seconds_per_output_token", "prefill_tokens_per_second")


def test_the_service_answers_times_of_tokens_and_rates_of_speech_as_the_fit_counts_them(
    client: TestClient, app: FastAPI
) -> None:
    catalog = app.state.live_catalog.on(None)
    calibration = catalog.reference.calibration
    compared, first_waves, of_speech = 0, 0, 0
    for answer in ask_table(PUBLISHED, client).answers:
        row = answer.question.row
        speech = row["family"] == "speech" and row["kind"] == "infer_throughput"
        if answer.question.quantity not in TIMES and not speech:
            continue
        case = case_of(answer.question, catalog).under(calibration.coefficients)
        assert answer.likely == pytest.approx(case.predicted(calibration.coefficients), rel=0.05), row["id"]
        compared, first_waves = compared + 1, first_waves + ("first_wave" in answer.question.extras)
        of_speech += speech
    assert compared > 300
    assert of_speech == 70
    assert first_waves > 100
