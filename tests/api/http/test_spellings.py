"""Words of closed lists are read in any case and with any separators, as names of models and sellers are."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import get_json, post_estimate, post_recommend

QLORA = {
    "task": "training", "model": "llama-3.1-8b", "method": "qlora", "purpose": "dpo", "precision": ["bf16"],
    "precision_support": "native", "model_size": "very_large", "reads_from": "local", "growth": "distributed",
    "optimizer": "adamw", "software": {"framework": "pytorch"},
}  # fmt: skip
ON_AWS = {"provider": ["aws"], "market": ["on_demand"], "lifecycle": ["available"], "confidence": "safe"}


def in_capitals(value: Any) -> Any:
    """A question with the words of its values in capitals, and with dashes for underscores."""
    match value:
        case str():
            return value.upper().replace("_", "-")
        case list():
            return [in_capitals(each) for each in value]
        case dict():
            return {key: in_capitals(each) for key, each in value.items()}
    return value


def test_a_question_in_capitals_gets_the_same_recommendation(client: TestClient) -> None:
    body = {"workload": QLORA, "constraints": ON_AWS, "objective": "best_value", "per": "offer", "limit": 2}
    assert post_recommend(client, in_capitals(body))["choices"] == post_recommend(client, body)["choices"]


def test_a_question_in_capitals_gets_the_same_estimate(client: TestClient) -> None:
    machine = {"gpu": "h100-sxm5-80gb", "gpu_count": 8, "interconnect": "nvswitch"}
    layout = {"choose": "usual_if_it_fits", "activation_checkpointing": "full"}
    body = {"workload": QLORA, "machine": machine, "layout": layout}
    assert post_estimate(client, in_capitals(body)) == post_estimate(client, body)


@pytest.mark.parametrize("market", ["On-Demand", "ON_DEMAND", "ondemand"])
def test_a_market_of_own_prices_is_read_in_any_spelling(client: TestClient, market: str) -> None:
    body = {"hours": 1, "machine": "aws/g5.xlarge", "market": market, "usd_per_hour": {market: 3}}
    (bill,) = post_estimate(client, body)["cost"]
    assert (bill["market"], bill["usd"]["likely"]) == ("on_demand", 3)


@pytest.mark.parametrize(
    "target",
    [
        "/instances?sort=-usd_per_hour,name&precision=bf16&precision_support=native&market=spot&limit=3",
        "/gpus?sort=released_on&vendor=nvidia&limit=3",
        "/models?sort=-active_parameters&limit=3",
        "/prices?sort=-usd_per_hour&market=spot&limit=3",
        "/measurements?sort=-value&limit=3",
    ],
)
def test_a_list_takes_words_and_columns_in_capitals(client: TestClient, target: str) -> None:
    path, _, query = target.partition("?")
    loud = "&".join(f"{name}={value.upper()}" for name, value in pairs(query))
    assert get_json(client, f"{path}?{loud}")["items"] == get_json(client, target)["items"]


def pairs(query: str) -> Iterator[list[str]]:
    return (part.split("=") for part in query.split("&"))


def test_a_misspelt_word_is_still_refused_with_its_near_names(client: TestClient) -> None:
    answer = client.post("/recommend", json={"workload": {**QLORA, "method": "qlorra"}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0] == {
        "field": "workload.method",
        "message": "'workload.method' should be 'full', 'lora', 'qlora' or 'adapters'. Did you mean qlora or lora?",
        "near": ["qlora", "lora"],
    }
