"""Scores a table of published runs through `POST /estimate/batch` of a running service, as any client would."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from service.accuracy.rows import Row, RunQuestion, UnansweredRun, counted_rows, question_of
from service.accuracy.scoring import ScoredAnswer
from service.domain.catalog.names import VARIANTS, fold_model

ITEMS_PER_BATCH = 200
BYTES_PER_GIB = 1024.0**3

Band = Mapping[str, float]


class AccuracyClient(Protocol):
    """A client that can ask the service: that of httpx, or one that calls it in process."""

    def get(self, url: str) -> Any: ...

    def post(self, url: str, *, json: Any) -> Any: ...


@dataclass(slots=True)
class AnsweredRuns:
    """The answers, and why some rows have none."""

    answers: list[ScoredAnswer] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    rows: int = 0


def ask_table(table: Path, client: AccuracyClient) -> AnsweredRuns:
    """The answers of the service to every row that counts."""
    asked = AnsweredRuns()
    known = names_known(client)
    pairs: list[tuple[Row, RunQuestion]] = []
    for row in counted_rows(table):
        asked.rows += 1
        try:
            pairs.append((row, question_of(row, known)))
        except UnansweredRun as why:
            asked.refused[str(why)] += 1
    for start in range(0, len(pairs), ITEMS_PER_BATCH):
        batch = pairs[start : start + ITEMS_PER_BATCH]
        response = client.post("/estimate/batch", json={"items": [question.body for _, question in batch]})
        response.raise_for_status()
        for (row, question), item in zip(batch, response.json()["items"], strict=True):
            if "problem" in item:
                asked.refused[item["problem"]["detail"]] += 1
            elif (band := _figure_of(item, question)) is None:
                asked.refused["It does not fit, by the estimate, and yet was run."] += 1
            else:
                asked.answers.append(ScoredAnswer(question, row, band["likely"], band["low"], band["high"]))
    return asked


def names_known(client: AccuracyClient) -> Callable[[str], bool]:
    """A function that says whether the service has a model of a name."""
    spellings = {
        fold_model(name) for model in _models(client) for name in (model["id"], model["name"], *model["aliases"])
    }

    def is_known(name: str) -> bool:
        folded = fold_model(name)
        ending = next((variant for variant in VARIANTS if folded.endswith(variant)), "")
        return folded in spellings or folded.removesuffix(ending) in spellings

    return is_known


def _models(client: AccuracyClient) -> Iterator[Mapping[str, Any]]:
    cursor: str | None = ""
    while cursor is not None:
        page = client.get(f"/models?limit=500{cursor and f'&cursor={cursor}'}").json()
        yield from page["items"]
        cursor = page["next_cursor"]


def _figure_of(item: Mapping[str, Any], question: RunQuestion) -> Band | None:
    """The figure of an answer that the row measured, in the row's units."""
    estimate = item["estimate"]
    match question.quantity:
        case "fits" | "max_context_tokens":
            fits = float(item["fits"])
            return {"low": fits, "likely": fits, "high": fits}
        case "memory_bytes_per_gpu":
            return _scaled(estimate["memory"]["band_gib_per_gpu"], BYTES_PER_GIB)
        case "seconds":
            return _scaled(estimate["hours"], 3600.0)
        case "model_flops_utilisation":
            return _with_band_of_rate(estimate, estimate["model_flops_utilisation"])
        case "flops_per_second_per_gpu":
            name = "hardware_tflops_per_gpu" if question.extras.get("hardware") else "model_tflops_per_gpu"
            return _with_band_of_rate(estimate, estimate[name], 1e12)
        case name:
            return _scaled(estimate[name], 1.0)


def _scaled(band: Band | None, factor: float) -> Band | None:
    return None if band is None else {name: value * factor for name, value in band.items()}


def _with_band_of_rate(estimate: Mapping[str, Any], likely: float | None, factor: float = 1.0) -> Band | None:
    """A figure that is proportional to the rate of tokens has the band of that rate."""
    rate = estimate["tokens_per_second"]
    return None if likely is None or rate is None else _scaled(rate, likely * factor / rate["likely"])
