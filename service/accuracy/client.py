"""Scores a table of published runs through `POST /estimate/batch` of a running service, as any client would ask it."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from service.accuracy.rows import Row, RunQuestion, UnansweredRun, question_of
from service.accuracy.scoring import ScoredAnswer
from service.domain.catalog.names import VARIANTS, fold_model

AT_ONCE = 200
BYTES_PER_GIB = 1024.0**3
SCORED = "AB"
"""Qualities of rows that count; the others are rounded, recalled or inconsistent."""


class AccuracyClient(Protocol):
    """What can ask the service: httpx's client, or one that calls it in process."""

    def get(self, url: str) -> Any: ...

    def post(self, url: str, *, json: Any) -> Any: ...


@dataclass(slots=True)
class AnsweredRuns:
    """What was answered, and why rows were not."""

    answers: list[ScoredAnswer] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    rows: int = 0


def ask_table(table: Path, client: AccuracyClient, qualities: str = SCORED) -> AnsweredRuns:
    """Every row that counts, asked of the service."""
    asked = AnsweredRuns()
    known = names_known(client)
    pairs: list[tuple[Row, RunQuestion]] = []
    with table.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["quality"] not in qualities:
                continue
            asked.rows += 1
            try:
                pairs.append((row, question_of(row, known)))
            except UnansweredRun as why:
                asked.refused[str(why)] += 1
    for start in range(0, len(pairs), AT_ONCE):
        part = pairs[start : start + AT_ONCE]
        told = client.post("/estimate/batch", json={"items": [question.body for _, question in part]})
        told.raise_for_status()
        for (row, question), item in zip(part, told.json()["items"], strict=True):
            if "problem" in item:
                asked.refused[item["problem"]["detail"]] += 1
            elif (band := figure_of(item, question)) is None:
                asked.refused["It does not fit, by the estimate, and yet was run."] += 1
            else:
                asked.answers.append(ScoredAnswer(question, row, band["likely"], band["low"], band["high"]))
    return asked


def names_known(client: AccuracyClient) -> Callable[[str], bool]:
    """Whether the service has a model of a name."""
    spellings = {
        fold_model(name) for model in models(client) for name in (model["id"], model["name"], *model["aliases"])
    }

    def known(name: str) -> bool:
        folded = fold_model(name)
        ending = next((each for each in VARIANTS if folded.endswith(each)), "")
        return folded in spellings or folded.removesuffix(ending) in spellings

    return known


def models(client: AccuracyClient) -> Iterator[Mapping[str, Any]]:
    cursor = ""
    while True:
        page = client.get(f"/models?limit=500{cursor}").json()
        yield from page["items"]
        if not page["next_cursor"]:
            return
        cursor = f"&cursor={page['next_cursor']}"


Band = Mapping[str, float]


def figure_of(item: Mapping[str, Any], question: RunQuestion) -> Band | None:
    """The figure that the row tells, as the service has it, in the row's units."""
    estimate = item["estimate"]
    match question.quantity:
        case "fits" | "max_context_tokens":
            fits = float(item["fits"])
            return {"low": fits, "likely": fits, "high": fits}
        case "memory_bytes_per_gpu":
            return scaled(estimate["memory"]["band_gib_per_gpu"], BYTES_PER_GIB)
        case "seconds":
            return scaled(estimate["hours"], 3600.0)
        case "model_flops_utilisation":
            return shaped(estimate["tokens_per_second"], estimate["model_flops_utilisation"])
        case "flops_per_second_per_gpu":
            name = "hardware_tflops_per_gpu" if question.extras.get("hardware") else "model_tflops_per_gpu"
            return shaped(estimate["tokens_per_second"], estimate[name], 1e12)
        case name:
            return scaled(estimate[name], 1.0)


def scaled(band: Band | None, factor: float) -> Band | None:
    return None if band is None else {name: value * factor for name, value in band.items()}


def shaped(band: Band | None, likely: float | None, factor: float = 1.0) -> Band | None:
    """A figure that goes with a rate has the rate's band."""
    if band is None or likely is None:
        return None
    return scaled(band, likely * factor / band["likely"])


def refusals(asked: AnsweredRuns, most: int = 12) -> Sequence[str]:
    told = [f"  {count:4} {why}" for why, count in asked.refused.most_common(most)]
    rest = sum(asked.refused.values()) - sum(count for _, count in asked.refused.most_common(most))
    return [*told, *([f"  {rest:4} for other reasons"] if rest else [])]
