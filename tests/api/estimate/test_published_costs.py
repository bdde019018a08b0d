"""Runs whose length was published cost, at list prices, what the estimate says they cost."""

import csv
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.accuracy.rows import RunQuestion, UnansweredRun, question_of
from service.files import SEED

INSIDE = 0.8
"""A band holds eight of ten cases."""


def questions() -> Iterator[RunQuestion]:
    with (SEED / "published_runs.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            try:
                question = question_of(row)
            except UnansweredRun:
                continue
            if question.quantity == "seconds":
                yield question


def list_price(client: TestClient, gpu: str) -> float | None:
    """Dollars of an hour of one GPU on the cheapest machine that has it."""
    answer = client.get(f"/instances?gpu={gpu}&market=on_demand&sort=usd_per_hour&limit=1").json()
    item = next(iter(answer.get("items", [])), None)
    if item is None or item["price"] is None or item["price"]["usd_per_hour"] is None:
        return None
    return float(item["price"]["usd_per_hour"]) / float(item["gpu"]["count"])


def test_published_runs_cost_what_the_band_says(client: TestClient) -> None:
    bodies: list[tuple[Any, float]] = []
    for question in questions():
        machine = question.body["machine"]
        price = list_price(client, machine["gpu"])
        if price is None:
            continue
        per_node = round(price * machine["gpu_count"], 6)
        body = {**question.body, "machine": {**machine, "usd_per_hour": per_node}}
        bodies.append((body, question.value / 3600 * per_node * body.get("nodes", 1)))
    assert len(bodies) >= 40
    answers = client.post("/estimate/batch", json={"items": [body for body, _ in bodies]}).json()["items"]
    bands = [(each["cost"][0]["usd"], usd) for each, (_, usd) in zip(answers, bodies, strict=True) if "cost" in each]
    inside = [band["low"] <= usd <= band["high"] for band, usd in bands if band is not None]
    assert len(inside) >= 40
    assert sum(inside) / len(inside) >= INSIDE


def test_a_known_run_costs_its_gpu_hours(client: TestClient) -> None:
    """Llama 2 7B took 184,320 GPU-hours of A100 80 GB (Touvron et al. 2023, table 2)."""
    answer = client.post(
        "/estimate",
        json={
            "workload": {
                "task": "training",
                "model": "llama-2-7b",
                "precision": ["bf16"],
                "sequence_length": 4096,
                "global_batch_size": 1024,
                "amount": {"tokens": 2e12},
            },
            "machine": {"gpu": "a100-sxm4-80gb", "gpu_count": 8, "network_gbps": 1600, "usd_per_hour": 16.0},
            "nodes": 128,
        },
    ).json()
    usd = answer["cost"][0]["usd"]
    assert usd["low"] <= 184_320 * 2.0 <= usd["high"], usd


@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "h100-sxm5-80gb"])
def test_there_are_list_prices(client: TestClient, gpu: str) -> None:
    assert list_price(client, gpu)
