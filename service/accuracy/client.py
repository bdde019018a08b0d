"""Scores a table of published runs through `POST /estimate/batch` of a running service, as any client would."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from service.accuracy.rows import RunQuestion, UnansweredRun, counted_rows, question_of
from service.accuracy.scoring import RentedGpu, ScoredAnswer
from service.domain.jobs.config import USUAL_CONFIDENCE
from service.domain.units import GIB

ITEMS_PER_BATCH = 200
MOST_INSTANCES = 200

Band = Mapping[str, float]


class AccuracyClient(Protocol):
    """A client that can ask the service: that of httpx, or one that calls it in process."""

    def post(self, url: str, *, json: Any) -> Any:
        """Sends a JSON body and returns the response."""

    def get(self, url: str, *, params: Any = None) -> Any:
        """Sends a query and returns the response."""


@dataclass(slots=True)
class AnsweredRuns:
    """Answers of a service to questions about published runs, and how many runs have none for which reason."""

    answers: list[ScoredAnswer] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    rented: dict[str, RentedGpu] = field(default_factory=dict)
    """GPUs of the answers that can be rented on demand, by id."""


def ask_table(table: Path, client: AccuracyClient) -> AnsweredRuns:
    """Returns the answers of the service to every row that counts."""
    runs = AnsweredRuns()
    questions: list[RunQuestion] = []
    for row in counted_rows(table):
        runs.rows += 1
        try:
            questions.append(question_of(row))
        except UnansweredRun as why:
            runs.refused[str(why)] += 1
    # With fewer items than the service allows, no batch takes longer than the client waits.
    for start in range(0, len(questions), ITEMS_PER_BATCH):
        batch = questions[start : start + ITEMS_PER_BATCH]
        response = client.post("/estimate/batch", json={"items": [question.body for question in batch]})
        response.raise_for_status()
        for question, item in zip(batch, response.json()["items"], strict=True):
            if "problem" in item:
                runs.refused[item["problem"]["detail"]] += 1
            elif (band := _figure_of(item, question)) is None:
                runs.refused["The run does not fit by the estimate, although it was run."] += 1
            else:
                runs.answers.append(ScoredAnswer(question, band["likely"], band["low"], band["high"]))
    for gpu in sorted({answer.question.row["gpu_id"] for answer in runs.answers}):
        if (offer := _cheapest_hour(client, gpu)) is not None:
            runs.rented[gpu] = offer
    return runs


def _cheapest_hour(client: AccuracyClient, gpu: str) -> RentedGpu | None:
    """Returns the cheapest on-demand hour of a GPU in any region; None if the catalog has no price or no peak."""
    response = client.get("/instances", params={"gpu": gpu, "market": "on_demand", "limit": MOST_INSTANCES})
    response.raise_for_status()
    sold = [item for item in response.json()["items"] if item["price"]]
    hours = [item["price"]["usd_per_hour"] / item["gpu"]["count"] for item in sold if item["price"]["usd_per_hour"]]
    rates = [item["gpu"]["precisions"].get(name, {}).get("tflops") for item in sold for name in ("fp16", "fp32")]
    tflops = next((rate for rate in rates if rate), None)
    return RentedGpu(min(hours), tflops) if hours and tflops else None


def _figure_of(item: Mapping[str, Any], question: RunQuestion) -> Band | None:
    """Returns the figure of an answer that the row measured, in the units of the row."""
    estimate = item["estimate"]
    match question.quantity:
        case "fits" | "max_context_tokens":
            fits, sure = item["fits"], estimate["memory"]["fit_probability"] >= USUAL_CONFIDENCE
            return {"low": float(fits and sure), "likely": float(fits), "high": float(fits)}
        case "memory_bytes_per_gpu":
            return _scaled(estimate["memory"]["band_gib_per_gpu"], GIB)
        case "seconds":
            return _scaled(estimate["hours"], 3600.0)
        case "model_flops_utilisation":
            # Published utilisation counts FLOPs as papers do.
            model = estimate["model_tflops_per_gpu"]
            return _with_band_of_rate(estimate, None if model is None else model / estimate["peak_tflops_per_gpu"])
        case "flops_per_second_per_gpu":
            name = "hardware_tflops_per_gpu" if question.extras["hardware"] else "model_tflops_per_gpu"
            return _with_band_of_rate(estimate, estimate[name], 1e12)
        case "decoded_tokens_per_second":
            # Without the time of prompts: each running request gets a token in the time between two tokens.
            between = estimate["seconds_per_output_token"]
            ends = {"low": "high", "likely": "likely", "high": "low"}
            return between and {name: estimate["concurrency"] / between[end] for name, end in ends.items()}
        case "seconds_to_first_token" if "first_wave" in question.extras:
            return _with_first_wave(estimate, question)
        case name:
            return _scaled(estimate[name], 1.0)


def _with_first_wave(estimate: Mapping[str, Any], question: RunQuestion) -> Band | None:
    """Returns the mean time to the first token over a benchmark whose clients all start at once."""
    first, rate = estimate["seconds_to_first_token"], estimate["prefill_tokens_per_second"]
    if first is None or rate is None:
        return None
    # On average, a prompt of the first wave waits for half of the others; an answer is that of the steady state.
    prompts = question.extras["first_wave"] * estimate["concurrency"] / 2.0
    wait = prompts * max(1.0, question.body["workload"]["input_length"]) / rate["likely"]
    return _scaled(first, 1.0 + wait / first["likely"])


def _scaled(band: Band | None, factor: float) -> Band | None:
    return None if band is None else {name: value * factor for name, value in band.items()}


def _with_band_of_rate(estimate: Mapping[str, Any], likely: float | None, factor: float = 1.0) -> Band | None:
    """Returns a figure that is proportional to the rate of tokens, with the relative band of that rate."""
    rate = estimate["tokens_per_second"]
    return None if likely is None or rate is None else _scaled(rate, likely * factor / rate["likely"])
