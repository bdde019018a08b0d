"""POST /estimate and /estimate/batch: arithmetic that adds up, sentences for what cannot be, one bad item alone."""

import math
import re

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_estimate
from tests.builders.request_bodies import HF_LLAMA, NETWORK, SERVING, TRAINING, Body, changed


@pytest.mark.parametrize("body", [TRAINING, SERVING, NETWORK], ids=["training", "serving", "network"])
def test_an_estimate_adds_up(client: TestClient, body: Body) -> None:
    answer = post_estimate(client, body)
    estimate = answer["estimate"]
    memory = estimate["memory"]
    assert answer["fits"] is True
    assert sum(memory["parts"].values()) == pytest.approx(memory["needed_gib_per_gpu"], rel=1e-4)
    assert memory["needed_gib_per_gpu"] <= memory["usable_gib_per_gpu"]
    rate = estimate["samples_per_second"]
    assert 0 < rate["low"] <= rate["likely"] <= rate["high"]
    assert all(seconds > 0 for seconds in estimate["step_seconds"].values())
    layout, machine = estimate["layout"], answer["machine"]
    gpus = layout["tensor"] * layout["pipeline"] * layout["data"] * layout["context"]
    assert gpus == machine["gpus_per_node"] * machine["nodes"]


def test_time_is_amount_over_rate_and_dollars_are_time_times_price(client: TestClient) -> None:
    answer = post_estimate(client, TRAINING)
    estimate = answer["estimate"]
    hours = estimate["hours"]["likely"]
    steps = 1e9 / estimate["tokens_per_second"]["likely"] / 3600
    assert hours == pytest.approx(steps * (1 + estimate["overhead_beyond_steps"]), rel=1e-3)
    for cost in answer["cost"]:
        machines = [part["usd"]["likely"] for part in cost["parts"] if part["name"] in ("compute", "management_fee")]
        assert sum(machines) == pytest.approx(hours * cost["usd_per_hour"], rel=1e-3)
    assert {cost["market"] for cost in answer["cost"]} >= {"on_demand", "spot"}


def test_twice_the_work_takes_twice_the_time(client: TestClient) -> None:
    once, twice = (
        post_estimate(client, changed(TRAINING, workload__amount={"tokens": t}))["estimate"] for t in (1e9, 2e9)
    )
    assert twice["hours"]["likely"] == pytest.approx(2 * once["hours"]["likely"], rel=1e-4)
    assert twice["samples_per_second"] == once["samples_per_second"]


def test_steps_are_optimizer_steps(client: TestClient) -> None:
    by_steps = post_estimate(client, changed(TRAINING, workload__amount={"steps": 100}))["estimate"]["hours"]
    by_samples = post_estimate(client, changed(TRAINING, workload__amount={"samples": 6400}))["estimate"]["hours"]
    assert by_steps["likely"] == pytest.approx(by_samples["likely"], rel=1e-4)


def test_a_model_may_be_named_pasted_or_described(client: TestClient) -> None:
    dimensions = {
        "parameters": 8.03e9, "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336,
        "vocabulary": 128256, "gated": True, "tied": False,
    }  # fmt: skip
    rates = [
        post_estimate(client, changed(TRAINING, workload__model=model))["estimate"]["samples_per_second"]["likely"]
        for model in ("llama-3-8b", "meta-llama/Meta-Llama-3-8B", {"huggingface_config": HF_LLAMA}, dimensions)
    ]
    assert rates == pytest.approx([rates[0]] * 4, rel=0.01)


def test_what_does_not_fit_says_what_it_needs(client: TestClient) -> None:
    answer = post_estimate(client, changed(TRAINING, workload__model="llama-3-70b", machine="aws/g5.xlarge"))
    assert answer["fits"] is False
    estimate = answer["estimate"]
    assert estimate["samples_per_second"] is None
    assert estimate["hours"] is None
    assert all(cost["usd"] is None for cost in answer["cost"])
    assert answer["nearest_changes"][-1]["code"] == "usable_memory_gib"
    assert all(change["text"].endswith(".") for change in answer["nearest_changes"])
    sentence = next(w["text"] for w in answer["warnings"] if w["code"] == "gpu_memory")
    assert f"{estimate['memory']['needed_gib_per_gpu']:.1f}" in sentence


def test_a_host_with_too_little_memory_is_what_an_estimate_names(client: TestClient) -> None:
    """States of 70 billion parameters do not fit in 1,152 GiB; the GPUs without them have room to spare."""
    asked = changed(TRAINING, workload__model="llama-3.1-70b", workload__method="full", machine="aws/p4de.24xlarge")
    answer = post_estimate(client, changed(asked, workload__offload_optimizer=True))
    texts = {warning["code"]: warning["text"] for warning in answer["warnings"]}
    assert "gpu_memory" not in texts
    assert texts["host_memory"].startswith("The host of a node has 1152.0 GiB of memory; the job needs 16")
    assert answer["fits"] is False
    changes = {change["code"]: change for change in answer["nearest_changes"]}
    assert changes["nodes"]["needed_gib"] < 1152 < changes["host_memory_gib"]["needed_gib"]
    assert all("host" in change["text"] for change in answer["nearest_changes"])


def test_an_estimate_on_a_retired_machine_says_since_when_it_is_not_offered(client: TestClient) -> None:
    on_p3 = changed(TRAINING, workload__precision=["fp16"], machine="aws/p3.16xlarge")
    later, before = (
        {warning["code"]: warning["text"] for warning in post_estimate(client, {**on_p3, "as_of": day})["warnings"]}
        for day in ("2026-01-01", "2023-06-07")
    )
    assert later["ended"] == "aws/p3.16xlarge has not been offered since 2025-12-20."
    assert "ended" not in before


def test_a_recommender_trains_tables_of_which_a_step_reads_few_rows(client: TestClient) -> None:
    """Submissions to MLPerf Training took eight A100 2 to 3.3 minutes for most of an epoch of 4 billion samples."""
    body = {
        "workload": {"task": "training", "model": "dlrm", "amount": {"samples": 4e9}},
        "machine": "aws/p4de.24xlarge",
    }
    estimate = post_estimate(client, body)["estimate"]
    assert 2 < 60 * estimate["hours"]["likely"] < 10
    assert 24.1e9 * 4 / 8 / 2**30 < estimate["memory"]["parts"]["weights"] < 24.1e9 * 4 / 8 / 2**30 + 1


def test_rows_of_numbers_need_no_decoding(client: TestClient) -> None:
    network = {"parameters": 2e6, "forward_flops_per_sample": 4e6}
    work = {"task": "training", "model": network, "amount": {"samples": 1e8}}
    estimate = post_estimate(client, {"workload": work, "machine": "aws/g4dn.xlarge"})["estimate"]
    assert estimate["step_seconds"].get("input", 0.0) == 0.0
    assert estimate["bottleneck"] != "input"


def test_a_job_that_may_run_out_of_memory_says_how_likely_it_fits(client: TestClient) -> None:
    layout = {"tensor": 4, "pipeline": 2, "zero_stage": 3, "activation_checkpointing": "none", "micro_batch": 1}
    probabilities = []
    for length in (1024, 4096, 5120, 6144, 7168, 8192, 9216, 10240, 12288, 16384, 65536):
        answer = post_estimate(client, changed(TRAINING, layout=layout, workload__sequence_length=length))
        probability = answer["estimate"]["memory"]["fit_probability"]
        assert (probability >= 0.5) == answer["fits"]
        assert (probability < 0.9) == ("gpu_memory" in {warning["code"] for warning in answer["warnings"]})
        probabilities.append(probability)
    assert probabilities[0] > 0.9 > 0.1 > probabilities[-1]
    assert any(0.5 < probability < 0.9 for probability in probabilities)


def test_weights_that_are_larger_than_the_memory_leave_no_rate_and_no_chance(client: TestClient) -> None:
    """DeepSeek-V3 in fp8 has 671 GB of weights, and eight H100 have 640 GB."""
    work = {"task": "inference", "model": "deepseek-v3", "precision": ["fp8"], "software": {"engine": "vllm"}}
    asked = {**work, "concurrency": 1, "input_length": 1000, "output_length": 200}
    answer = post_estimate(client, {"workload": asked, "machine": "aws/p5.48xlarge"})
    memory = answer["estimate"]["memory"]
    assert memory["parts"]["weights"] > memory["usable_gib_per_gpu"]
    assert not answer["fits"]
    assert memory["fit_probability"] == 0.0
    assert answer["estimate"]["tokens_per_second"] is None
    assert answer["estimate"]["seconds_per_output_token"] is None


@pytest.mark.parametrize("confidence", [0.5, 0.7, 0.9, 0.99])
def test_a_layout_fits_with_the_confidence_that_is_asked_for(client: TestClient, confidence: float) -> None:
    answer = post_estimate(client, changed(TRAINING, workload__memory_confidence=confidence))
    assert answer["estimate"]["memory"]["fit_probability"] >= confidence
    assert answer["fits"]
    assert answer["nearest_changes"] is None


def test_the_lightest_layout_says_how_much_faster_one_with_less_confidence_is(client: TestClient) -> None:
    work = {"task": "training", "model": "llama-3.1-405b", "precision": "bf16", "sequence_length": 8192,
            "global_batch_size": 256, "software": {"framework": "maxtext"}}  # fmt: skip
    asked = {"workload": work, "machine": "gcp/ct6e-standard-4t", "nodes": 64}
    answer = post_estimate(client, asked)
    (sentence,) = [each["text"] for each in answer["warnings"] if each["code"] == "gpu_memory"]
    assert "needs the least memory, because none fits as asked" in sentence
    confidence, times = re.search(r"memory_confidence ([\d.]+), another one is ([\d.]+) times", sentence).groups()  # type: ignore[union-attr]
    other = post_estimate(client, changed(asked, workload__memory_confidence=float(confidence)))
    rates = [each["estimate"]["samples_per_second"]["likely"] for each in (answer, other)]
    assert rates[1] / rates[0] == pytest.approx(float(times), rel=0.01)
    assert not any("least memory" in each["text"] for each in other["warnings"])


def test_less_confidence_is_the_nearest_change_where_a_job_likely_fits(client: TestClient) -> None:
    layout = {"tensor": 4, "pipeline": 2, "zero_stage": 3, "activation_checkpointing": "none", "micro_batch": 1}
    asked = changed(TRAINING, layout=layout, workload__sequence_length=11264)
    answer = post_estimate(client, asked)
    (sentence,) = [each["text"] for each in answer["warnings"] if each["code"] == "gpu_memory"]
    assert "and not of 90% as asked" in sentence
    assert answer["fits"]
    nearest, *_, memory = answer["nearest_changes"]
    assert [nearest["code"], memory["code"]] == ["memory_confidence", "usable_memory_gib"]
    assert nearest["to"] == pytest.approx(answer["estimate"]["memory"]["fit_probability"], abs=0.011)
    changed_so = post_estimate(client, changed(asked, workload__memory_confidence=nearest["to"]))
    assert changed_so["nearest_changes"] is None


def test_a_layout_is_honoured(client: TestClient) -> None:
    fixed = {"tensor": 2, "pipeline": 2, "zero_stage": 1, "micro_batch": 1, "activation_checkpointing": "full"}
    layout = post_estimate(client, changed(TRAINING, layout=fixed))["estimate"]["layout"]
    assert {name: layout[name] for name in fixed} == fixed
    assert layout["data"] == 2


def test_tensor_parallelism_across_nodes_is_said(client: TestClient) -> None:
    answer = post_estimate(client, changed(TRAINING, nodes=2, layout={"tensor": 16}))
    assert any(w["code"] == "tensor_over_slow_links" for w in answer["warnings"])


def test_an_unknown_stack_widens_the_band(client: TestClient) -> None:
    known = post_estimate(client, TRAINING)["estimate"]["samples_per_second"]
    unknown = post_estimate(client, changed(TRAINING, workload__software=None))["estimate"]
    band = unknown["samples_per_second"]
    assert "stack" in unknown["extrapolates"]
    assert band["high"] / band["low"] > known["high"] / known["low"]


@pytest.mark.parametrize(
    ("software", "reason"),
    [
        (None, "because no framework or engine is named."),
        ({"framework": "my own loop"}, "because no published run has this stack."),
    ],
)
def test_a_wider_band_gives_its_reason(client: TestClient, software: Body | None, reason: str) -> None:
    answer = post_estimate(client, changed(TRAINING, workload__software=software))
    (text,) = (warning["text"] for warning in answer["warnings"] if warning["code"] == "extrapolates")
    assert text == f"The estimate is less certain, {reason}"


def test_hours_alone_are_priced(client: TestClient) -> None:
    answer = post_estimate(client, {"hours": 10, "machine": "aws/p4d.24xlarge", "nodes": 2})
    assert answer["estimate"] is None
    assert answer["fits"] is None
    for cost in answer["cost"]:
        if cost["market"] == "on_demand" and cost["managed_service"] is None:
            assert cost["usd"]["likely"] == pytest.approx(10 * cost["usd_per_hour"], rel=1e-9)
        if cost["market"] == "reserved":  # the whole term is paid
            assert cost["usd"]["likely"] > 2 * 10 * cost["usd_per_hour"]


def test_a_served_model_has_a_latency_and_a_throughput(client: TestClient) -> None:
    one = post_estimate(client, changed(SERVING, workload__concurrency=1))["estimate"]
    most = post_estimate(client, SERVING)["estimate"]
    assert most["tokens_per_second"]["likely"] > 5 * one["tokens_per_second"]["likely"]
    assert most["seconds_per_output_token"]["likely"] > one["seconds_per_output_token"]["likely"]
    assert most["concurrency"] > 1
    assert one["seconds_to_first_token"]["likely"] > 0
    assert one["kv_cache_tokens"] > 10_000


WRONG: dict[str, tuple[Body, str]] = {
    "nothing to estimate": ({"machine": "aws/p4d.24xlarge"}, "workload"),
    "both": (changed(TRAINING, hours=3), "hours"),
    "no model": (changed(TRAINING, workload__model=None), "workload.model"),
    "unknown model": (changed(TRAINING, workload__model="lama-3-8b"), "workload.model"),
    "unknown machine": (changed(TRAINING, machine="p4d.24xlarg"), "machine"),
    "two GPUs of one name": (changed(SERVING, machine={"gpu": "a100"}), "machine.gpu"),
    "precision of no CPU here": (changed(TRAINING, machine="aws/m5.large"), "workload.precision"),
    "precision of no GPU here": (changed(TRAINING, workload__precision=["fp8"]), "workload.precision"),
    "no number format": (changed(TRAINING, workload__precision=["fp7"]), "workload.precision"),
    "unknown optimizer": (changed(TRAINING, workload__optimizer="adamm"), "workload.optimizer"),
    "heads that do not divide": (
        changed(TRAINING, workload__model={"layers": 2, "hidden": 100, "heads": 7}),
        "workload.model.heads",
    ),
    "no layers": (changed(TRAINING, workload__model={"layers": 0, "hidden": 64, "heads": 4}), "workload.model.layers"),
    "parameters alone": (changed(TRAINING, workload__model={"parameters": 1e9}), "workload.model.layers"),
    "parameters of a larger model": (
        changed(TRAINING, workload__model={"parameters": 7e10, "layers": 32, "hidden": 4096, "heads": 32}),
        "workload.model.parameters",
    ),
    "a layout of other GPUs": (changed(TRAINING, layout={"tensor": 3}), "layout"),
    "a batch below the ranks": (
        changed(TRAINING, workload__global_batch_size=2, layout={"data": 8}),
        "workload.global_batch_size",
    ),
    "amount twice": (changed(TRAINING, workload__amount={"tokens": 1, "steps": 1}), "workload.amount.steps"),
    "a task of unknown length": (changed(TRAINING, workload__task="hpc"), "workload.task"),
    "NaN is no number": (changed(TRAINING, workload__amount={"tokens": "NaN"}), "workload.amount.tokens"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_a_sentence(client: TestClient, name: str) -> None:
    body, field = WRONG[name]
    answer = client.post("/estimate", json=body)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert field in [error["field"] for error in problem["errors"]], problem
    assert problem["detail"].endswith((".", "?"))


def test_a_batch_answers_in_order_and_one_bad_item_is_alone(client: TestClient) -> None:
    items = [TRAINING, {"machine": 5}, SERVING, changed(TRAINING, machine="nowhere")]
    answer = client.post("/estimate/batch", json={"items": items}).json()["items"]
    assert [("problem" in item) for item in answer] == [False, True, False, True]
    assert answer[0] == post_estimate(client, TRAINING)
    assert answer[2] == post_estimate(client, SERVING)
    assert answer[1]["problem"]["errors"][0]["field"] == "machine"


def test_a_batch_is_bounded(client: TestClient) -> None:
    answer = client.post("/estimate/batch", json={"items": [{}] * 1001})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "items"


def test_no_figure_is_infinite_or_nan(client: TestClient) -> None:
    for body in (TRAINING, SERVING, NETWORK):
        text = client.post("/estimate", json=body).text
        assert not any(word in text for word in ("NaN", "Infinity", "1e+3"))
        assert math.isfinite(post_estimate(client, body)["estimate"]["memory"]["needed_gib_per_gpu"])


def test_a_suggested_change_makes_it_fit(client: TestClient) -> None:
    body = changed(TRAINING, machine="aws/g5.12xlarge", workload__global_batch_size=64)
    answer = post_estimate(client, body)
    assert answer["fits"] is False
    codes = [change["code"] for change in answer["nearest_changes"]]
    assert {"nodes", "method"} <= set(codes)
    nodes = next(change["to"] for change in answer["nearest_changes"] if change["code"] == "nodes")
    assert post_estimate(client, {**body, "nodes": int(nodes)})["fits"] is True
    # One less may likely fit, and not with the confidence asked for.
    assert post_estimate(client, {**body, "nodes": int(nodes) - 1})["nearest_changes"]
    assert post_estimate(client, changed(body, workload__method="lora"))["fits"] is True


def test_the_nearest_published_runs_are_evidence(client: TestClient) -> None:
    answer = post_estimate(client, changed(TRAINING, machine="aws/g5.12xlarge", workload__method="lora"))
    assert answer["evidence"]
    assert answer["evidence"][0]["nearness"] == "same_model_and_gpu"
    listed = client.get("/measurements?gpu=a10g-24gb&limit=500").json()["items"]
    assert {each["id"] for each in answer["evidence"]} <= {item["id"] for item in listed}


def test_an_unknown_network_of_tpus_joins_their_slices(client: TestClient) -> None:
    work = {"task": "training", "model": "palm-540b", "sequence_length": 2048, "global_batch_size": 2048}
    asked = {"workload": work, "machine": {"gpu": "tpu-v4", "gpu_count": 4}}
    (pods, pod) = (
        [
            each["text"]
            for each in post_estimate(client, {**asked, "nodes": nodes})["warnings"]
            if "network" in each["code"]
        ]
        for nodes in (1536, 768)
    )
    assert pod == []
    assert pods[0].startswith("The network between groups of 3,072 linked GPUs is not stated: 10 Gbps of each machine")


def test_an_unknown_network_is_a_warning(client: TestClient) -> None:
    answer = post_estimate(client, changed(TRAINING, machine={"gpu": "h100-sxm5-80gb", "gpu_count": 8}, nodes=2))
    stated = changed(TRAINING, machine={"gpu": "h100-sxm5-80gb", "gpu_count": 8, "network_gbps": 3200}, nodes=2)
    assert [w["code"] for w in answer["warnings"]].count("network_unknown") == 1
    assert "network_unknown" not in [w["code"] for w in post_estimate(client, stated)["warnings"]]
    assert answer["estimate"]["layout"]["tensor"] * answer["estimate"]["layout"]["pipeline"] <= 8


def test_a_network_that_the_caller_assumes_joins_machines_whose_own_is_unknown(client: TestClient) -> None:
    unknown = changed(
        TRAINING, machine={"gpu": "h100-sxm5-80gb", "gpu_count": 8}, nodes=8, workload__model="llama-3-70b"
    )
    stated = changed(unknown, machine__network_gbps=400)
    assumed = post_estimate(client, changed(unknown, workload__assume_network_gbps=400))
    assert assumed["estimate"] == post_estimate(client, stated)["estimate"]
    assert assumed["machine"]["network_gbps"] == 400
    assert "network_unknown" not in [w["code"] for w in assumed["warnings"]]
    both = post_estimate(client, changed(stated, workload__assume_network_gbps=10))
    assert both["machine"]["network_gbps"] == 400
    rented = changed(unknown, machine="verda/8B200.240V", workload__assume_network_gbps=400)
    assert post_estimate(client, rented)["machine"]["network_gbps"] == 400


def test_single_cards_of_a_marketplace_are_no_cluster(client: TestClient) -> None:
    def codes(machine: str, nodes: int) -> list[str]:
        body = {"workload": {"task": "training", "model": "resnet-50"}, "machine": machine, "nodes": nodes}
        return [w["code"] for w in post_estimate(client, body)["warnings"]]

    assert "no_cluster_there" in codes("vast/rtx-3080", 4)
    assert "no_cluster_there" in codes("runpod/8x_RTX4090_COMMUNITY", 4)
    assert "no_cluster_there" not in codes("runpod/8x_RTX4090_SECURE", 4)
    assert "no_cluster_there" not in codes("vast/rtx-3080", 1)
    assert "no_cluster_there" not in codes("aws/g5.xlarge", 4)


def test_utilisation_counts_the_work_that_is_done(client: TestClient) -> None:
    """Frozen weights have no gradient of their own: LoRA does two thirds of the matrix work of full training."""
    lora = post_estimate(client, changed(TRAINING, workload__method="lora"))["estimate"]
    full = post_estimate(client, TRAINING)["estimate"]
    for estimate in (lora, full):
        assert 0 < estimate["model_flops_utilisation"] < 1
        # Papers count attention to the whole sequence, of which a causal kernel skips half.
        ratio = estimate["model_flops_utilisation"] / (
            estimate["model_tflops_per_gpu"] / estimate["peak_tflops_per_gpu"]
        )
        assert ratio == pytest.approx(0.95, abs=0.05)
    # By hand: 4 or 6 FLOPs of each of 7.5 billion parameters per token, and 6.4 billion FLOPs of attention.
    per_sample = [each["model_tflops_per_gpu"] / each["samples_per_second"]["likely"] for each in (lora, full)]
    assert per_sample[0] / per_sample[1] == pytest.approx((4 * 7.5 + 6.4) / (6 * 7.5 + 6.4), rel=0.01)


def test_gpus_are_no_faster_than_their_host_feeds_them(client: TestClient) -> None:
    """50 images per second and vCPU: the 4 vCPUs of a g5.xlarge prepare 200 of the 400 that its GPU could take."""
    one = {"workload": {"task": "training", "model": "resnet-50"}, "machine": "aws/g5.xlarge"}
    free = post_estimate(client, one)["estimate"]
    bound = post_estimate(client, changed(one, workload__host={"cpu_samples_per_second_per_vcpu": 50}))
    assert free["samples_per_second"]["likely"] > 200
    assert bound["estimate"]["samples_per_second"]["likely"] == 200
    assert bound["estimate"]["bottleneck"] == "host_cpu"
    # Two threads of a core bring up to 1.3 times one.
    assert bound["estimate"]["samples_per_second"]["low"] == pytest.approx(130, rel=1e-3)
    assert bound["estimate"]["samples_per_second"]["high"] == 200
    assert sum(bound["estimate"]["step_seconds"].values()) == pytest.approx(1024 / 200, rel=1e-3)
    assert [w["code"] for w in bound["warnings"]].count("host_bound") == 1
    decoded = changed(one, workload__host={"cpu_samples_per_second_per_vcpu": 50, "gpu_decoding": True})
    assert post_estimate(client, decoded)["estimate"]["samples_per_second"] == free["samples_per_second"]


def test_an_unknown_number_of_vcpus_is_said_where_they_may_bind(client: TestClient) -> None:
    work = {"task": "training", "model": "resnet-50", "host": {"cpu_samples_per_second_per_vcpu": 50}}
    body = {"workload": work, "machine": {"gpu": "rtx-3090-24gb"}}
    assert "vcpus_unknown" in [w["code"] for w in post_estimate(client, body)["warnings"]]
    for known in (changed(body, machine__vcpus=8), changed(body, workload__host={})):
        assert "vcpus_unknown" not in [w["code"] for w in post_estimate(client, known)["warnings"]]


def test_samples_are_read_no_faster_than_the_network_brings_them(client: TestClient) -> None:
    """A g5.xlarge has 10 Gbps for minutes, and 2.5 that last."""
    reads = {"task": "training", "model": "resnet-50", "sample_mb": 10}
    bound = post_estimate(client, {"workload": reads, "machine": "aws/g5.xlarge"})
    assert bound["estimate"]["samples_per_second"]["likely"] == pytest.approx(2.5e9 / 8 / 10e6)
    assert bound["estimate"]["bottleneck"] == "network_reads"
    local = post_estimate(client, {"workload": {**reads, "reads_from": "local"}, "machine": "aws/g5.xlarge"})
    assert local["estimate"]["samples_per_second"]["likely"] > 125
    assert "slow_reads" in [w["code"] for w in bound["warnings"]]


def test_a_host_that_binds_counts_in_recommendations_as_in_estimates(client: TestClient) -> None:
    work = {
        "task": "training", "model": "resnet-50", "amount": {"samples": 1e7},
        "host": {"cpu_samples_per_second_per_vcpu": 50},
    }  # fmt: skip
    asked = {"workload": work, "constraints": {"provider": ["aws"], "family": ["g5"]}, "limit": 20}
    bound_by_cpu = 0
    for choice in client.post("/recommend", json=asked).json()["choices"]:
        answer = post_estimate(client, {"workload": work, "machine": f"aws/{choice['instance']}"})["estimate"]
        assert choice["estimate"]["samples_per_second"] == answer["samples_per_second"]
        bound_by_cpu += answer["bottleneck"] == "host_cpu"
    assert bound_by_cpu


def test_a_stack_that_is_not_recognised_is_a_warning(client: TestClient) -> None:
    answer = post_estimate(client, changed(TRAINING, workload__software={"framework": "abacus"}))
    text = next(w["text"] for w in answer["warnings"] if w["code"] == "software_unrecognised")
    assert "abacus" in text
    known = post_estimate(client, TRAINING)
    assert "software_unrecognised" not in [w["code"] for w in known["warnings"]]


def test_activations_are_counted_from_the_operations(client: TestClient) -> None:
    """One sequence of 4,096 tokens of an 8B model keeps about 20 GiB (19.4 in the present fit); selective checkpointing
    halves that.
    """
    one = changed(
        TRAINING, workload__global_batch_size=1, workload__software={"framework": "pytorch"},
        machine={"gpu": "b200-sxm-180gb"}, layout={"micro_batch": 1},
    )  # fmt: skip
    kept, selected, none = (
        post_estimate(client, changed(one, layout__activation_checkpointing=how))["estimate"]["memory"]["parts"]
        for how in ("none", "selective", "full")
    )
    assert 19 < kept["activations"] < 25
    assert 1.5 < kept["activations"] / selected["activations"] < 2.6
    assert none["activations"] < selected["activations"] / 2


QWEN_WITH_LIGER: Body = {
    "workload": {
        "task": "training", "model": "qwen2.5-0.5b", "sequence_length": 1024, "batch_size": 128,
        "global_batch_size": 512, "mixed_precision": False, "software": {"framework": "llama-factory"},
    },
    "machine": {"gpu": "rtx-4090-24gb"},
}  # fmt: skip
"""LLaMA-Factory with Liger Kernel trains so on one RTX 4090 (IST-DASLab/llmq)."""


@pytest.mark.parametrize(
    ("library", "gib"), [("liger-kernel>=0.5", 1.2), ("Liger", 1.2), ("cut_cross_entropy", 0), ("foo-bar-xyz", 200)]
)
def test_a_library_whose_loss_keeps_few_logits_is_counted(client: TestClient, library: str, gib: float) -> None:
    answer = post_estimate(client, changed(QWEN_WITH_LIGER, workload__software__libraries=[library]))
    assert answer["fits"] is (gib < 2)
    assert answer["estimate"]["memory"]["parts"].get("logits", 0) == pytest.approx(gib, rel=0.03)
    unknown = [each["text"] for each in answer["warnings"] if each["code"] == "software_unknown"]
    assert bool(unknown) is (library == "foo-bar-xyz")
    assert all("foo-bar-xyz runs, so the figures assume that it runs here" in text for text in unknown)


def test_paged_and_offloaded_states_leave_the_gpu(client: TestClient) -> None:
    plain, paged, offloaded = (
        post_estimate(client, changed(TRAINING, layout__data=8, layout__zero_stage=1, **more))["estimate"]["memory"][
            "parts"
        ].get("optimizer", 0.0)
        for more in ({}, {"workload__optimizer": "paged_adamw"}, {"workload__offload_optimizer": True})
    )
    assert plain > paged > offloaded == 0


def test_the_largest_batch_is_the_last_that_fits(client: TestClient) -> None:
    workload = {"task": "training", "model": "bert-large", "sequence_length": 512}

    def on_g5(*, largest: bool = False, **more: int) -> Body:
        body = {"workload": {**workload, **more}, "machine": "aws/g5.xlarge", "largest_batch": largest}
        answer: Body = post_estimate(client, body)
        return answer

    largest = on_g5(largest=True)["largest_batch"]
    assert largest > 1
    codes = [{each["code"] for each in on_g5(batch_size=batch)["warnings"]} for batch in (largest, largest + 1)]
    assert ["gpu_memory" in of_batch for of_batch in codes] == [False, True]
    assert on_g5()["largest_batch"] is None


def test_the_largest_batch_is_of_the_layout_of_the_answer(client: TestClient) -> None:
    work = {"task": "training", "model": "llama-3.2-1b", "precision": "bf16", "sequence_length": 8192}
    body: Body = {"workload": work, "machine": "aws/p5.48xlarge", "largest_batch": True}
    free = post_estimate(client, body)
    layout = free["estimate"]["layout"]
    assert layout["tensor"] == 1
    degrees = {name: layout[name] for name in ("tensor", "pipeline", "context", "zero_stage")}
    assert post_estimate(client, {**body, "layout": degrees})["largest_batch"] == free["largest_batch"] < 10
    divided = post_estimate(client, {**body, "layout": {**degrees, "tensor": 8}})
    assert divided["largest_batch"] > 4 * free["largest_batch"]


def test_the_name_of_a_gpu_is_no_machine_although_a_seller_calls_one_so(client: TestClient) -> None:
    answer = client.post("/estimate", json={"hours": 1, "machine": "A100"})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == "machine"
    assert error["near"] == ["paperspace/A100"]
    assert client.post("/estimate", json={"hours": 1, "machine": "paperspace/A100"}).status_code == 200


def test_weights_in_8_bit_floats_are_stored_where_the_gpu_does_not_multiply_in_them(client: TestClient) -> None:
    asked = changed(SERVING, workload__precision=["fp8"], workload__model="llama-3.1-70b")
    stored, native = (
        post_estimate(client, changed(asked, machine=machine)) for machine in ("aws/p4d.24xlarge", "aws/p5.48xlarge")
    )
    assert (stored["estimate"]["precision"], native["estimate"]["precision"]) == ("bf16", "fp8")
    (sentence,) = [each["text"] for each in stored["warnings"] if each["code"] == "precision_stored"]
    assert "stored in it, and multiplied in bf16" in sentence
    assert "precision_stored" not in {each["code"] for each in native["warnings"]}


def test_int8_is_stored_where_the_engine_does_not_multiply_in_it(client: TestClient) -> None:
    asked = changed(SERVING, workload__precision=["int8"], machine="aws/p4d.24xlarge")
    multiplied, stored = (
        post_estimate(client, changed(asked, workload__software={"engine": engine})) for engine in ("vllm", "llama.cpp")
    )
    assert multiplied["estimate"]["precision"] == "int8"
    assert "precision_stored" not in {each["code"] for each in multiplied["warnings"]}
    (sentence,) = [each["text"] for each in stored["warnings"] if each["code"] == "precision_stored"]
    assert sentence.startswith("llama.cpp is not known to multiply in int8 on the NVIDIA A100")


def test_weights_in_int8_are_frozen_in_training_and_multiplied_at_16_bits(client: TestClient) -> None:
    """LoRA in int8 means base weights in 8 bits (bitsandbytes), which makes no step faster."""

    def estimate(**fields: object) -> tuple[Body, list[str]]:
        more = {f"workload__{name}": value for name, value in fields.items()}
        answer = post_estimate(client, changed(TRAINING, machine="aws/g5.12xlarge", **more))
        return answer, [each["text"] for each in answer["warnings"] if each["code"] == "precision_stored"]

    named, silent = estimate(method="lora", precision=["int8"])
    stored, _ = estimate(method="lora", precision=["bf16"], weight_precision="int8")
    assert named["estimate"] == stored["estimate"]
    assert named["estimate"]["precision"] == "bf16"
    assert not silent
    full, (sentence,) = estimate(method="full", precision=["int8"])
    assert full["estimate"]["precision"] == "bf16"
    assert sentence.startswith("Full training keeps its weights in bf16")


def test_tokens_are_selected_where_the_engine_has_kernels_for_it(client: TestClient) -> None:
    """The first token of 100,000 comes earlier than with attention to all tokens, which Transformers computes."""
    asked = changed(SERVING, workload__model="deepseek-v3.2", workload__precision=["fp8"], machine="aws/p5en.48xlarge")
    asked = changed(asked, workload__input_length=100_000, workload__concurrency=1)
    sparse, dense = (
        post_estimate(client, changed(asked, workload__software={"engine": "sglang"}, workload__model=name))
        for name in ("deepseek-v3.2", "deepseek-v3")
    )
    first = [answer["estimate"]["seconds_to_first_token"]["likely"] for answer in (sparse, dense)]
    assert first[0] < 0.6 * first[1]
    assert "attends_to_all" not in {each["code"] for each in sparse["warnings"]}
    masked = post_estimate(client, changed(asked, workload__software={"engine": "transformers"}))
    (sentence,) = [each["text"] for each in masked["warnings"] if each["code"] == "attends_to_all"]
    assert sentence.startswith("transformers is not known to have kernels on the NVIDIA H200")
    assert "2,048 tokens that DeepSeek-V3.2 671B selects" in sentence


def test_4_bit_floats_are_stored_where_the_gpu_does_not_multiply_in_them(client: TestClient) -> None:
    asked = changed(SERVING, workload__precision=["nvfp4"], workload__model="llama-3.1-70b")
    stored, native = (
        post_estimate(client, changed(asked, machine=machine))
        for machine in ("aws/p5.48xlarge", "aws/p6-b200.48xlarge")
    )
    assert (stored["estimate"]["precision"], native["estimate"]["precision"]) == ("bf16", "nvfp4")
    assert "precision_stored" in {each["code"] for each in stored["warnings"]}
    assert "precision_stored" not in {each["code"] for each in native["warnings"]}


def test_matrix_cores_of_amd_multiply_mxfp4_and_only_store_nvfp4(client: TestClient) -> None:
    """Their blocks have 32 values and a power of 2 as the scale; vLLM expands NVFP4 there (its pull request 35733)."""
    machine = {"gpu": "mi355x-288gb", "gpu_count": 8}
    asked = changed(SERVING, workload__model="llama-3.1-70b", machine=machine)
    of_nvidia, of_amd = (
        post_estimate(client, changed(asked, workload__precision=[name])) for name in ("nvfp4", "mxfp4")
    )
    assert (of_nvidia["estimate"]["precision"], of_amd["estimate"]["precision"]) == ("bf16", "mxfp4")
    assert "precision_stored" in {each["code"] for each in of_nvidia["warnings"]}
    assert "precision_stored" not in {each["code"] for each in of_amd["warnings"]}


def test_a_model_that_is_too_large_for_cpus_is_stated_without_gpus(client: TestClient) -> None:
    answer = post_estimate(client, changed(SERVING, workload__model="llama-3.1-70b", machine="aws/c5.9xlarge"))
    texts = [each["text"] for each in (*answer["warnings"], *answer["nearest_changes"])]
    memory = [text for text in texts if "GiB" in text]
    assert answer["fits"] is False
    assert len(memory) > 1
    assert not [text for text in memory if "GPU" in text]


def test_checkpoints_of_spot_are_stated_only_with_a_price_that_rests_on_them(client: TestClient) -> None:
    rented = changed(SERVING, machine="aws/p5.48xlarge")
    work = changed(rented, workload__amount={"samples": 1e6})
    billed, open_ended = (post_estimate(client, body)["notes"] for body in (work, rented))
    assert any("checkpoint" in note for note in billed)
    assert not any("checkpoint" in note for note in open_ended)


@pytest.mark.parametrize(("concurrency", "waits"), [(16, False), (100_000, True)])
def test_requests_that_wait_for_a_place_are_stated(client: TestClient, concurrency: int, waits: bool) -> None:
    answer = post_estimate(client, changed(SERVING, workload__concurrency=concurrency))
    texts = [each["text"] for each in answer["warnings"] if each["code"] == "requests_wait"]
    running = answer["estimate"]["concurrency"]
    assert (running < concurrency) is waits
    assert texts == ([text for text in texts if f"{running:,.0f} of 100,000 requests" in text] if waits else [])
    assert len(texts) == waits


def test_an_encoder_holds_the_activations_of_the_batch_that_is_asked_for(client: TestClient) -> None:
    """A token of BGE large takes 8 x 1024 + 6 x 4096 bytes at once: 32 kB, so 4,096 sequences of 512 take 64 GiB."""
    work = {"task": "inference", "model": "bge-large-en-v1.5", "input_length": 512, "precision": ["fp16"]}
    small, large, more = (
        post_estimate(client, {"workload": {**work, "batch_size": batch}, "machine": machine})
        for batch, machine in ((64, "aws/g6.xlarge"), (4096, "aws/g6.xlarge"), (4096, "aws/p5en.48xlarge"))
    )
    held = [each["estimate"]["memory"]["parts"]["activations"] for each in (small, large)]
    assert held == pytest.approx([1.0, 64.0], rel=0.2)
    assert (small["fits"], large["fits"], more["fits"]) == (True, False, True)


@pytest.mark.parametrize(
    ("machine", "unknown"),
    [
        ("aws/dl1.24xlarge", "The peak of the Intel Gaudi"),
        ("aws/g6f.large", "The peak and the memory bandwidth of the"),
        ({"gpu": "gaudi-32gb", "gpu_count": 8}, "The peak of the Intel Gaudi"),
    ],
)
def test_no_job_is_estimated_on_a_gpu_whose_figures_are_unknown(
    client: TestClient, machine: str | Body, unknown: str
) -> None:
    answer = client.post("/estimate", json=changed(NETWORK, machine=machine))
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(unknown)
    assert "give hours or a measured rate instead" in answer.json()["detail"]


def test_a_task_that_no_software_does_on_the_machine_is_a_warning(client: TestClient) -> None:
    """Inferentia runs trained networks alone, and no framework runs on the Radeon Pro V520."""
    for machine in ("aws/inf1.xlarge", "aws/g4ad.xlarge"):
        warnings = post_estimate(client, changed(NETWORK, machine=machine))["warnings"]
        texts = [each["text"] for each in warnings if each["code"] == "task_unsupported"]
        assert texts == [f"No software is known to do training on {machine}: the figures assume that some does."]
    codes = [each["code"] for each in post_estimate(client, NETWORK)["warnings"]]
    assert "task_unsupported" not in codes


def test_a_language_model_known_by_its_parameters_trains_like_one_of_its_size(client: TestClient) -> None:
    """It used to train at the work of one token for each sample of any length."""
    known = changed(TRAINING, workload__model="llama-3-8b")
    alike = changed(TRAINING, workload__model={"parameters": 8.03e9, "family": "llm"})
    of_known, of_alike = (post_estimate(client, body) for body in (known, alike))
    likely = of_known["estimate"]["hours"]["likely"]
    assert of_alike["estimate"]["hours"]["likely"] == pytest.approx(likely, rel=0.25)
    assert of_alike["estimate"]["sample"] == of_known["estimate"]["sample"]
    codes = {each["code"] for each in of_alike["warnings"]} - {each["code"] for each in of_known["warnings"]}
    assert "dimensions_assumed" in codes


@pytest.mark.parametrize("model", ["tacotron2", {"parameters": 9e13, "family": "llm"}])
def test_training_is_not_estimated_where_the_work_of_a_sample_is_unknown(client: TestClient, model: str | Body) -> None:
    answer = client.post("/estimate", json=changed(NETWORK, workload__model=model))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith("workload.model")


def test_a_sample_of_a_recurrent_network_is_a_token(client: TestClient) -> None:
    bodies = [
        changed(NETWORK, workload__model="lstm-large", workload__amount={unit: 1e9}) for unit in ("samples", "tokens")
    ]
    by_samples, by_tokens = (post_estimate(client, body)["estimate"] for body in bodies)
    assert by_samples["sample"] == "token"
    assert by_tokens["hours"] == by_samples["hours"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"workload__sequence_length": 512}, "workload.sequence_length"),
        ({"workload__mean_length": 100}, "workload.mean_length"),
        ({"workload__batch_size": 8, "workload__global_batch_size": 4}, "workload.batch_size"),
    ],
)
def test_a_length_or_batch_that_cannot_count_is_refused(client: TestClient, changes: Body, field: str) -> None:
    """They used to be ignored without a word."""
    answer = client.post("/estimate", json=changed(NETWORK, **changes))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_a_training_sample_has_at_least_one_token(client: TestClient) -> None:
    answer = client.post("/estimate", json=changed(TRAINING, workload__sequence_length=0))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "workload.sequence_length"


def test_a_burstable_machine_is_estimated_at_the_speed_that_it_sustains(client: TestClient) -> None:
    """The CPUs of t3.large are as fast as those of t3.medium, and sustain 30 in place of 20 % of it."""
    medium, large = (post_estimate(client, changed(NETWORK, machine=f"aws/t3.{size}")) for size in ("medium", "large"))
    texts = [each["text"] for each in medium["warnings"] if each["code"] == "burstable"]
    assert texts == ["Its CPUs sustain 20 % of their speed: a higher speed uses up saved credits or costs extra."]
    faster = large["estimate"]["samples_per_second"]["likely"] / medium["estimate"]["samples_per_second"]["likely"]
    assert faster == pytest.approx(1.5, rel=0.05)


def test_pytorch_on_trainium_trains_a_language_model_as_fast_as_the_library_it_is_trained_with(
    client: TestClient,
) -> None:
    def hours(framework: str) -> float:
        work = {
            "task": "training", "model": "llama-3-8b", "precision": ["bf16"], "sequence_length": 4096,
            "global_batch_size": 256, "amount": {"tokens": 1e9}, "software": {"framework": framework},
        }  # fmt: skip
        likely: float = post_estimate(client, {"workload": work, "machine": "aws/trn1.32xlarge"})["estimate"]["hours"][
            "likely"
        ]
        return likely

    assert hours("pytorch") == hours("neuronx-distributed")


@pytest.mark.parametrize(
    ("model", "machine", "sequence_length"),
    [
        ("llama-3.1-70b", "aws/g6e.xlarge", 2048), ("llama-3.1-8b", "aws/g6.xlarge", 16384),
        ("llama-3.1-70b", "vast/rtx-a6000", 12_106),
        ("llama-3.1-8b", {"gpu": "rtx-4090-24gb", "memory_gib": 128}, 70_000),
    ],
)  # fmt: skip
def test_unsloth_fits_the_sequences_that_its_authors_fit(
    client: TestClient, model: str, machine: str | Body, sequence_length: int
) -> None:
    """They publish 12,106 tokens of 70B in 48 GB and 78,475 tokens of 8B in 24 GB, with QLoRA and a batch of one."""
    work = {
        "task": "training", "model": model, "method": "qlora", "precision": ["bf16"], "batch_size": 1,
        "sequence_length": sequence_length, "software": {"framework": "unsloth"},
    }  # fmt: skip
    assert post_estimate(client, {"workload": work, "machine": machine})["fits"]


@pytest.mark.parametrize(
    ("model", "more"), [("llama-3.1-8b", {"sequence_length": 8192}), ("llama-3.1-70b", {"sequence_length": 4096})]
)
def test_two_changes_that_help_only_together_are_named_as_a_pair(client: TestClient, model: str, more: Body) -> None:
    work: Body = {"task": "training", "model": model, "method": "full", "amount": {"samples": 1000}, **more}
    body = {"workload": work, "machine": "aws/g5.xlarge"}
    pair = next(each for each in post_estimate(client, body)["nearest_changes"] if each["also"])
    assert pair["also"]["code"] in pair["text"]

    def fits(*changes: Body) -> bool:
        over = {f"workload__{each['code']}": each["to"] for each in changes if each["code"] != "nodes"}
        nodes = next((each["to"] for each in changes if each["code"] == "nodes"), 1)
        answer = post_estimate(client, {**changed(body, **over), "nodes": int(nodes)})
        return bool(answer["nearest_changes"] is None)

    assert fits(pair, pair["also"])
    assert not fits(pair)
    assert not fits(pair["also"])


def served_on(client: TestClient, gpu: str, **lengths: int) -> Body:
    work = {"task": "inference", "model": "llama-3.1-8b", "concurrency": 1, "software": {"engine": "vllm"}, **lengths}
    answer: Body = post_estimate(client, {"workload": work, "machine": {"gpu": gpu, "gpu_count": 1}})["estimate"]
    return answer


def test_the_bottleneck_of_a_request_is_that_of_its_prompt_where_the_prompt_takes_most_of_its_time(
    client: TestClient,
) -> None:
    long_prompt = served_on(client, "h100-sxm5-80gb", input_length=131_072, output_length=1)
    assert long_prompt["bottleneck"] == "gpu_compute"
    long_answer = served_on(client, "h100-sxm5-80gb", input_length=16, output_length=2000)
    assert long_answer["bottleneck"] == "gpu_memory_bandwidth"


def test_a_gpu_of_an_architecture_without_runs_has_a_wider_band(client: TestClient) -> None:
    known, new = (
        served_on(client, gpu, input_length=512, output_length=128) for gpu in ("h100-sxm5-80gb", "gaudi-3-128gb")
    )
    assert "architecture" not in known["extrapolates"]
    assert {"architecture", "gpu"} <= set(new["extrapolates"])
    of_known, of_new = (each["tokens_per_second"] for each in (known, new))
    assert of_new["low"] / of_new["likely"] < of_known["low"] / of_known["likely"]
