"""Own runs in POST /estimate: a measured rate replaces the modelled one and scales it on the same GPU elsewhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.http import examples
from service.app import create_app
from service.settings import Settings
from tests.api.answers import get_json, post_estimate, post_recommend
from tests.api.keys import add_key, bearer
from tests.builders.request_bodies import TRAINING, Body, changed
from tests.databases import copied_database

MEASURED = "aws/p4de.24xlarge"
SAME_GPU = "gcp/a2-ultragpu-4g"
WORK = TRAINING["workload"] | {"name": "nightly"}
RATE = 6.0


@pytest.fixture(scope="module")
def client(seeded_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    database_url = copied_database(seeded_file, tmp_path_factory.mktemp("own-runs") / "catalog.db")
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


@pytest.mark.parametrize("framework", ["torchtitan", None])
def test_a_run_on_the_same_gpu_scales_the_estimate_and_never_widens_its_band(
    client: TestClient, framework: str | None
) -> None:
    software = {"workload__software__framework": framework}
    modelled, scaled = (on(client, SAME_GPU, workload__name=name, **software)["estimate"] for name in (None, "nightly"))
    there = on(client, MEASURED, workload__name=None, **software)["estimate"]["samples_per_second"]["likely"]
    rate, before = scaled["samples_per_second"], modelled["samples_per_second"]
    assert scaled["basis"] == "scaled"
    assert rate["likely"] == pytest.approx(before["likely"] * RATE / there, rel=1e-4)
    widths = rate["high"] / rate["low"], before["high"] / before["low"]
    # The band of a stack with published runs on the GPU may be as narrow as that of a run elsewhere.
    assert widths[0] < widths[1] if framework is None else widths[0] <= widths[1] * 1.001


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


# Runs on several machines

SEVERAL = changed(TRAINING, workload__name="on four", machine=MEASURED)


@pytest.fixture(scope="module")
def with_run_on_four(client: TestClient) -> TestClient:
    run = {"name": "on four", "machine": MEASURED, "nodes": 4, "samples_per_second": 20.0, "measured_at": "2026-01-01"}
    assert client.post("/measurements", json={"items": [run]}).status_code == 201
    return client


def test_a_run_on_several_machines_counts_on_as_many_and_scales_the_estimate_on_others(
    with_run_on_four: TestClient,
) -> None:
    def rate(nodes: int, **more: Any) -> Any:
        return post_estimate(with_run_on_four, changed(SEVERAL, nodes=nodes, **more))["estimate"]

    same = rate(4)
    assert (same["basis"], same["samples_per_second"]["likely"]) == ("measured", 20.0)
    times = 20.0 / rate(4, workload__name=None)["samples_per_second"]["likely"]
    for nodes, machine in ((2, MEASURED), (4, SAME_GPU)):
        scaled, modelled = (rate(nodes, workload__name=name, machine=machine) for name in ("on four", None))
        assert scaled["basis"] == "scaled"
        likely = modelled["samples_per_second"]["likely"]
        assert scaled["samples_per_second"]["likely"] == pytest.approx(times * likely, rel=1e-3)
    # One machine has no network to wait for.
    assert rate(1)["basis"] == "modelled"


def test_a_recommendation_has_the_rate_that_was_measured_on_several_machines(with_run_on_four: TestClient) -> None:
    asked = {"workload": SEVERAL["workload"], "constraints": {"instance": [MEASURED], "min_nodes": 2, "max_nodes": 4}}
    (choice,) = post_recommend(with_run_on_four, {**asked, "objective": "fastest"})["choices"]
    same = post_estimate(with_run_on_four, changed(SEVERAL, nodes=choice["nodes"]))["estimate"]
    assert (choice["nodes"], choice["estimate"]["basis"]) == (4, "measured")
    for figure in ("samples_per_second", "hours"):
        assert choice["estimate"][figure] == same[figure]
    two = post_recommend(with_run_on_four, changed(asked, constraints__max_nodes=2))["choices"][0]
    same = post_estimate(with_run_on_four, changed(SEVERAL, nodes=2))["estimate"]
    assert two["estimate"]["basis"] == "scaled"
    assert two["estimate"]["samples_per_second"] == same["samples_per_second"]


# Work that is known by its name alone

NAMED: Body = {"task": "training", "name": "nightly", "amount": {"samples": 1e6}}


def test_work_by_its_name_has_the_rate_hours_and_dollars_of_the_recommendation(client: TestClient) -> None:
    asked = {"workload": NAMED, "constraints": {"provider": ["aws"]}, "objective": "fastest", "limit": 40}
    bases = set()
    for choice in post_recommend(client, asked)["choices"]:
        place = {"market": ["on_demand"], "region": [choice["region"]]}
        same = post_estimate(client, {"workload": NAMED, "machine": f"aws/{choice['instance']}", **place})
        assert same["measured_per_second"] == choice["estimate"]["samples_per_second"]["likely"]
        assert same["estimate"] is None
        assert same["cost"][0]["usd"] == choice["cost"]["usd"]
        assert same["cost"][0]["hours"] == choice["cost"]["hours"]
        bases.add(same["evidence"][0]["nearness"])
    assert bases == {"same machine", "another machine"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"nodes": 2}, "nodes"),
        ({"machine": {"gpu": "h100-sxm5-80gb"}}, "machine"),
        ({"workload": {**NAMED, "name": "other"}}, "workload.model"),
    ],
)
def test_work_by_its_name_is_refused_where_its_runs_do_not_carry_over(
    client: TestClient, body: Body, field: str
) -> None:
    answer = client.post("/estimate", json={"workload": NAMED, "machine": MEASURED, **body})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


# A measured run proves that the work fits

TIGHT = changed(
    TRAINING, workload__software=None, workload__name="tight", workload__sequence_length=7168, machine="aws/g5.48xlarge"
)
"""Full training of an 8B model on 8 x 24 GB, which likely fits, but not with 90 %."""


@pytest.fixture(scope="module")
def with_tight_run(client: TestClient) -> TestClient:
    run = {"name": "tight", "machine": TIGHT["machine"], "samples_per_second": 1.5, "measured_at": "2026-01-01"}
    assert client.post("/measurements", json={"items": [run]}).status_code == 201
    return client


def test_a_run_faster_than_the_peak_was_other_work_and_proves_nothing(client: TestClient) -> None:
    run = {"name": "mixed up", "machine": TIGHT["machine"], "samples_per_second": 1e6, "measured_at": "2026-01-01"}
    assert client.post("/measurements", json={"items": [run]}).status_code == 201
    question = {"workload": TIGHT["workload"], "explain": [TIGHT["machine"]]}
    grounds = [
        post_recommend(client, changed(question, workload__name=name))["explained"][0]["grounds"]
        for name in (None, "mixed up")
    ]
    assert grounds[0] == grounds[1]
    assert {each["code"] for each in grounds[0]} == {"gpu_memory"}


def test_a_machine_with_a_run_of_the_work_is_not_rejected_for_its_memory(with_tight_run: TestClient) -> None:
    asked = {"workload": TIGHT["workload"], "constraints": {"instance": [TIGHT["machine"]]}}
    unproved = post_recommend(with_tight_run, changed(asked, workload__name=None))
    assert unproved["counts"]["admitted"] == 0
    (choice,) = post_recommend(with_tight_run, asked)["choices"]
    assert choice["estimate"]["basis"] == "measured"
    assert "gpu_memory" not in {each["code"] for each in choice["warnings"]}
    same = post_estimate(with_tight_run, TIGHT | {"market": ["on_demand"], "region": [choice["region"]]})
    assert same["fits"] is True
    assert same["nearest_changes"] is None
    assert "gpu_memory" not in {each["code"] for each in same["warnings"]}
    for figure in ("samples_per_second", "hours", "layout"):
        assert same["estimate"][figure] == choice["estimate"][figure]
    assert same["cost"][0]["usd"] == choice["cost"]["usd"]


def test_a_run_above_the_peak_was_of_other_work(client: TestClient) -> None:
    """AlexNet ran 749 images/s on a K80; YOLOv8l would need 85 times its peak for that."""
    work = {"task": "training", "model": "yolov8l"}
    modelled, named = (
        post_estimate(client, {"workload": {**work, "name": name}, "machine": "aws/p2.8xlarge"})["estimate"]
        for name in (None, "alexnet_train")
    )
    assert named["samples_per_second"] == modelled["samples_per_second"]
    assert 0 < modelled["model_flops_utilisation"] < 1


def test_a_run_is_not_scaled_from_a_machine_that_holds_fewer_requests_than_asked_for(client: TestClient) -> None:
    """One K80 holds 35 of 204 requests, so that its run of other work says nothing about eight of them."""
    work = {
        "task": "inference", "name": "alexnet_train", "model": "whisper-medium", "concurrency": 204,
        "output_length": 898, "amount": {"steps": 21_016},
    }  # fmt: skip
    body = {"workload": work, "machine": "aws/p2.8xlarge", "as_of": "2017-08-01"}
    assert post_estimate(client, body)["estimate"]["basis"] == "modelled"
    few = {**body, "workload": {**work, "concurrency": 1}}
    assert post_estimate(client, few)["estimate"]["basis"] == "scaled"


def test_hours_on_a_machine_count_at_the_rate_that_was_measured_there(client: TestClient) -> None:
    amount = {"hours_on": {"instance": MEASURED, "hours": 10}}
    by_model = on(client, MEASURED, workload__amount=amount)["estimate"]
    assert by_model["basis"] == "measured"
    assert by_model["hours"]["likely"] == pytest.approx(10)
    by_name = post_estimate(
        client, {"workload": {"task": "training", "name": "nightly", "amount": amount}, "machine": MEASURED}
    )
    assert by_name["cost"][0]["hours"]["likely"] == pytest.approx(10)


def test_a_sample_takes_the_power_that_was_measured_with_the_work(client: TestClient) -> None:
    run = {
        "name": "metered",
        "machine": MEASURED,
        "samples_per_second": RATE,
        "watts": 4000,
        "measured_at": "2026-01-01",
    }
    assert client.post("/measurements", json={"items": [run]}).status_code == 201
    work = WORK | {"name": "metered"}
    asked = {"workload": work, "constraints": {"instance": [MEASURED]}}
    (choice,) = post_recommend(client, {**asked, "limit": 1, "objective": "most_efficient"})["choices"]
    alone = on(client, MEASURED, workload=work)["estimate"]
    assert alone["joules_per_sample"] == choice["estimate"]["joules_per_sample"] == pytest.approx(4000 / RATE, rel=1e-4)
    (reason,) = [reason["text"] for reason in choice["reasons"] if reason["code"] == "objective"]
    assert f"{4000 / RATE:.4g} joules per sample" in reason


def test_power_that_was_measured_on_several_nodes_is_not_that_of_one(client: TestClient) -> None:
    runs = [
        {"name": "clustered", "machine": MEASURED, "nodes": nodes, "samples_per_second": nodes * RATE, "watts": watts,
         "measured_at": "2026-01-01"}
        for nodes, watts in ((1, 1000), (2, 6000))
    ]  # fmt: skip
    assert client.post("/measurements", json={"items": runs}).status_code == 201
    asked = {"workload": WORK | {"name": "clustered"}, "constraints": {"instance": [MEASURED], "max_nodes": 2}}
    (choice,) = post_recommend(client, {**asked, "limit": 1, "objective": "most_efficient"})["choices"]
    assert choice["nodes"] == 1
    assert choice["estimate"]["joules_per_sample"] == pytest.approx(1000 / RATE, rel=1e-4)


def test_every_market_of_a_comparison_has_the_measured_rate(client: TestClient) -> None:
    base: Body = {"workload": WORK, "machine": MEASURED, "region": "us-east-1"}
    answer = client.post("/estimate/batch", json={"base": base, "over": {"market": ["on_demand", "reserved"]}})
    answers = [row["answer"] for row in answer.json()["items"]]
    assert [each["estimate"]["basis"] for each in answers] == ["measured", "measured"]
    assert all(each["evidence"][0]["kind"] == "measurement" for each in answers)


def test_hours_at_a_rate_above_the_peak_are_those_of_the_estimate(client: TestClient) -> None:
    run = {"name": "impossible", "machine": MEASURED, "samples_per_second": 1e6, "measured_at": "2026-01-01"}
    assert client.post("/measurements", json={"items": [run]}).status_code == 201
    amount = {"hours_on": {"instance": MEASURED, "hours": 10}}
    work = WORK | {"name": "impossible", "amount": amount}
    assert on(client, MEASURED, workload=work)["estimate"]["hours"]["likely"] == pytest.approx(10)


@pytest.mark.parametrize(
    ("requested", "differs"),
    [
        ("pytorch==2.4", False),
        ("torch==2.4", False),
        ("PyTorch 2.4", False),
        ("pytorch>=2.0", False),
        ("pytorch", False),
        ("pytorch==2.5", True),
        ("pytorch-lightning", True),
        ("tensorflow", True),
    ],
)
def test_a_measurement_of_other_software_says_so(client: TestClient, requested: str, differs: bool) -> None:
    run = {"name": "releases", "machine": MEASURED, "samples_per_second": RATE, "measured_at": "2026-01-01"}
    stored = client.post("/measurements", json={"items": [{**run, "software": {"framework": "pytorch==2.4"}}]})
    assert stored.status_code == 201, stored.text
    work = {"task": "training", "name": "releases", "software": {"framework": requested}}
    (choice,) = post_recommend(client, {"workload": work, "constraints": {"instance": [MEASURED]}})["choices"]
    assert ("measurement_other_software" in {warning["code"] for warning in choice["warnings"]}) == differs


def test_of_several_batch_sizes_on_a_day_the_fastest_counts_everywhere(client: TestClient) -> None:
    runs = [
        {
            "name": "tuned",
            "machine": MEASURED,
            "samples_per_second": rate,
            "batch_size": size,
            "measured_at": "2026-01-01",
        }
        for rate, size in ((5.0, 8), (9.0, 32), (7.0, 16))
    ]
    assert client.post("/measurements", json={"items": runs}).status_code == 201
    asked = {"workload": {"task": "training", "name": "tuned"}, "constraints": {"instance": [MEASURED]}, "limit": 1}
    (choice,) = post_recommend(client, asked)["choices"]
    compared = get_json(client, f"/compare?instance={MEASURED}&workload=tuned")
    assert choice["estimate"]["samples_per_second"]["likely"] == compared["items"][0]["speed"] == 9.0
