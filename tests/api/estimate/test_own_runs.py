"""Own runs in POST /estimate: a measured rate replaces the modelled one and scales it on the same GPU elsewhere."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.http import examples
from service.app import create_app
from service.db.engine import connect
from service.files import SEED
from service.importers.load_seed import load_seed
from service.settings import Settings
from tests.api.answers import post_estimate, post_recommend
from tests.api.keys import add_key, bearer
from tests.builders.request_bodies import TRAINING, Body, changed

MEASURED = "aws/p4de.24xlarge"
SAME_GPU = "gcp/a2-ultragpu-4g"
WORK = TRAINING["workload"] | {"name": "nightly"}
RATE = 6.0


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    database_url = f"sqlite:///{tmp_path_factory.mktemp('own-runs')}/catalog.db"
    engine = connect(database_url)
    load_seed(engine, SEED)
    engine.dispose()
    token = add_key(database_url, "us", ("measurements",))
    app = create_app(Settings(database_url=database_url), today=lambda: examples.DAY)
    client = TestClient(app, headers=bearer(token))
    run = {"name": "nightly", "machine": MEASURED, "samples_per_second": RATE, "measured_at": "2026-01-01"}
    assert client.post("/measurements", json={"items": [run]}).status_code == 201
    yield client
    app.state.live_catalog._engine.dispose()


def on(client: TestClient, machine: str, **more: Any) -> Any:
    body: Body = {"workload": WORK, "machine": machine}
    return post_estimate(client, changed(body, **more))


def test_a_measured_rate_replaces_the_modelled_one_and_all_that_follows_from_it(client: TestClient) -> None:
    modelled, measured = on(client, MEASURED, workload__name=None), on(client, MEASURED)
    before, after = modelled["estimate"], measured["estimate"]
    assert after["basis"] == "measured"
    assert after["samples_per_second"]["likely"] == RATE
    times = RATE / before["samples_per_second"]["likely"]
    assert after["tokens_per_second"]["likely"] == pytest.approx(4096 * RATE)
    assert after["hours"]["likely"] == pytest.approx(before["hours"]["likely"] / times, rel=1e-4)
    for figure in ("model_tflops_per_gpu", "model_flops_utilisation"):
        assert after[figure] == pytest.approx(before[figure] * times, rel=1e-4)
    assert sum(after["step_seconds"].values()) == pytest.approx(64 / RATE, rel=1e-3)
    assert measured["evidence"][0]["nearness"] == "same machine"
    assert measured["notes"][0].startswith(f"Measured on {MEASURED} on 2026-01-01")


def test_a_run_on_the_same_gpu_scales_the_estimate_and_narrows_its_band(client: TestClient) -> None:
    modelled, scaled = (on(client, SAME_GPU, workload__name=name)["estimate"] for name in (None, "nightly"))
    there = on(client, MEASURED, workload__name=None)["estimate"]["samples_per_second"]["likely"]
    rate, before = scaled["samples_per_second"], modelled["samples_per_second"]
    assert scaled["basis"] == "scaled"
    assert rate["likely"] == pytest.approx(before["likely"] * RATE / there, rel=1e-4)
    assert rate["high"] / rate["low"] < before["high"] / before["low"]


@pytest.mark.parametrize(("machine", "nodes"), [("aws/p5.48xlarge", 1), (MEASURED, 2)])
def test_another_gpu_and_several_nodes_are_modelled(client: TestClient, machine: str, nodes: int) -> None:
    answer = on(client, machine, nodes=nodes)
    assert answer["estimate"]["basis"] == "modelled"
    assert {each["kind"] for each in answer["evidence"]} == {"published_run"}


def test_a_recommendation_has_the_rates_hours_and_dollars_of_the_estimate(client: TestClient) -> None:
    answer = post_recommend(client, {"workload": WORK, "constraints": {"gpu": ["a100-sxm4-80gb"]}, "limit": 30})
    bases = set()
    for choice in answer["choices"]:
        estimate, place = choice["estimate"], {"region": [choice["region"]]} if choice["region"] else {}
        same = on(client, f"{choice['provider']}/{choice['instance']}", market=["on_demand"], **place)
        for figure in ("basis", "samples_per_second", "tokens_per_second", "hours", "model_flops_utilisation"):
            assert estimate[figure] == same["estimate"][figure], (choice["instance"], figure)
        assert estimate["usd"]["likely"] in [cost["usd"] and cost["usd"]["likely"] for cost in same["cost"]]
        bases.add(estimate["basis"])
    assert bases == {"measured", "scaled"}
