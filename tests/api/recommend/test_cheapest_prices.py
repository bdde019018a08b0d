"""The price of the cheapest choice: a plain question is never won by a price that is old, undated or suspect."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.settings import Settings

TODAY = date(2026, 11, 22)
"""The day after the last capture of the seed."""

OLD_DAYS = 180
"""Prices older than this rank at their high end (docs/prices.md)."""

TOKENS = {"precision": ["bf16"], "sequence_length": 2048, "amount": {"tokens": 1e8}}
SAMPLES = {"amount": {"samples": 1e6}}
TRAINING: list[dict[str, Any]] = [
    {"model": "llama-3.1-8b", "method": "full", **TOKENS},
    {"model": "llama-3.1-8b", "method": "lora", **TOKENS},
    {"model": "llama-3.1-8b", "method": "qlora", **TOKENS},
    {"model": "llama-3.1-70b", "method": "full", **TOKENS},
    {"model": "llama-3.1-70b", "method": "lora", **TOKENS},
    {"model": "llama-3.1-70b", "method": "qlora", **TOKENS},
    {"model": "llama-3.2-1b", **TOKENS},
    {"model": "gpt2", **TOKENS, "sequence_length": 1024},
    {"model": "resnet-50", **SAMPLES},
    {"model": "bert-large", "sequence_length": 512, **SAMPLES},
    {"model": "vit-b-16", **SAMPLES},
    {"model": "yolov8m", **SAMPLES},
    {"model": "sdxl", **SAMPLES},
    {"model": "sdxl", "method": "lora", **SAMPLES},
    {},
]
SERVED = ("llama-3.1-8b", "llama-3.1-70b", "mistral-7b", "bge-large", "whisper-large-v3", "sdxl", "resnet-50")
WORKLOADS = [
    *({"task": "training", **each} for each in TRAINING),
    *({"task": "inference", "model": model} for model in SERVED),
    {"task": "inference"},
]


@pytest.fixture(scope="module")
def service(seeded_file: Path) -> Iterator[TestClient]:
    """A service over the seed on the day after its last capture."""
    client = TestClient(create_app(Settings(database_url=f"sqlite:///{seeded_file}"), today=lambda: TODAY))
    yield client
    client.close()


def name(workload: dict[str, Any]) -> str:
    return "-".join(workload[key] for key in ("task", "model", "method") if key in workload)


@pytest.mark.parametrize("workload", WORKLOADS, ids=name)
def test_the_cheapest_choice_has_a_recent_price(service: TestClient, workload: dict[str, Any]) -> None:
    answer = service.post("/recommend", json={"workload": workload, "objective": "cheapest", "limit": 1})
    assert answer.status_code == 200, answer.text
    price = answer.json()["choices"][0]["price"]
    assert not price["suspect"]
    assert price["dated"] != "unknown"
    assert (TODAY - date.fromisoformat(price["observed_on"])).days <= OLD_DAYS
