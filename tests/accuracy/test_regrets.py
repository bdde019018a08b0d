"""The regret of a choice is what its machine costs beyond the cheapest one, over published workloads."""

import pytest

from service.accuracy.rows import RunQuestion
from service.accuracy.scoring import SAME_WORKLOAD, RentedGpu, ScoredAnswer, pairs_in_order, regrets

RENTED = {"small": RentedGpu(1.0, 100.0), "large": RentedGpu(3.0, 400.0)}


def scored_answer(
    gpu: str, model: str, published: float, likely: float, quantity: str = "samples_per_second", **more: str
) -> ScoredAnswer:
    row = (
        dict.fromkeys((*SAME_WORKLOAD, "family", "source"), "")
        | {
            "kind": "train_throughput",
            "model": model,
            "accelerator": gpu,
            "gpu_id": gpu,
        }
        | more
    )
    return ScoredAnswer(RunQuestion(row, {}, quantity, published, {}), likely, likely, likely)


def test_each_way_of_choosing_pays_for_its_own_choice() -> None:
    answers = [
        # The large GPU does four times the work for three times the price, and the estimate says so.
        scored_answer("small", "net", 10.0, 11.0),
        scored_answer("large", "net", 40.0, 38.0),
        # Here it does twice the work, but the estimate and its peak promise more.
        scored_answer("small", "other", 10.0, 10.0),
        scored_answer("large", "other", 20.0, 31.0),
    ]
    by_way = regrets(answers, RENTED)
    assert by_way["by the estimates"].mean == pytest.approx(0.25)
    assert by_way["by peak FLOPS per dollar"].mean == pytest.approx(0.25)
    assert by_way["by the cheapest hour"].mean == pytest.approx((1 / 3) / 2)
    assert {regret.cheapest for regret in by_way.values()} == {0.5}
    assert {regret.workloads for regret in by_way.values()} == {2}


def test_times_machines_without_a_price_and_single_machines_do_not_count() -> None:
    answers = [
        scored_answer("small", "net", 10.0, 11.0),
        scored_answer("unpriced", "net", 40.0, 38.0),
        scored_answer("small", "other", 1.0, 1.0, "seconds_to_first_token"),
        scored_answer("large", "other", 2.0, 2.0, "seconds_to_first_token"),
    ]
    assert regrets(answers, RENTED) == {}


def test_machines_that_transcribed_different_recordings_are_not_put_in_order() -> None:
    speeds = {"small": 10.0, "medium": 20.0, "large": 30.0}
    one_recording = [scored_answer(gpu, "net", speed, speed, family="speech") for gpu, speed in speeds.items()]
    assert pairs_in_order(one_recording) == (3, 3)
    of_sources = [scored_answer(gpu, "net", 1.0, 1.0, family="speech", source=gpu) for gpu in speeds]
    assert pairs_in_order(of_sources) == (0, 0)
    of_sources = [scored_answer(gpu, "net", speed, speed, family="cnn", source=gpu) for gpu, speed in speeds.items()]
    assert pairs_in_order(of_sources) == (3, 3)
