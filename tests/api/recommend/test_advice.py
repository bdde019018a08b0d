"""Advice, warnings about the host and the software, and requirements in the answers on the seed."""

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.recommend.sentences import with_text
from service.domain.jobs.loading import SampleLoading
from service.domain.layouts.host_warnings import too_few_cores
from tests.api.answers import full_name, post_recommend
from tests.builders.instance_types import instance_type

Answer = Any
AWS = {"provider": ["aws"]}
ONE_GPU = {"provider": ["aws"], "min_gpu_count": 1, "max_gpu_count": 1}
RESNET = {"model": "resnet-50", "global_batch_size": 256, "amount": {"samples": 1.2e8}}


OF_THE_QUESTION = ("objective", "previous_objective", "as_of", "current_instance", "limit", "managed_service")
"""Arguments that are fields of the question; the others are fields of its workload."""


def ask(client: TestClient, task: str = "training", constraints: Any = AWS, /, **parts: Any) -> Answer:
    top = {name: parts.pop(name) for name in OF_THE_QUESTION if name in parts}
    answer = client.post("/recommend", json={"workload": {"task": task, **parts}, "constraints": constraints, **top})
    assert answer.status_code == 200, answer.text
    return answer.json()


def advice(answer: Answer) -> dict[str, str]:
    return {each["code"]: each["text"] for each in answer["advice"]}


def warnings(choice: Answer) -> dict[str, str]:
    return {each["code"]: each["text"] for each in choice["warnings"]}


def notes(answer: Answer) -> dict[str, list[str]]:
    return {each["code"]: each["fields"] for each in answer["notes"]}


def families(answer: Answer) -> set[str]:
    return {choice["instance"].partition(".")[0] for choice in answer["choices"]}


# Advice


def test_fp32_on_ampere_gets_advice_on_tf32_and_16_bits(client: TestClient) -> None:
    asked = {"precision": ["fp32"], "as_of": "2023-06-07"}
    answer = advice(ask(client, "training", {"gpu": ["a100"]}, **asked, software={"framework": "pytorch==2.0"}))
    assert "156 TFLOPS, 8 times its fp32" in answer["tf32"]
    assert "1.12" in answer["tf32_off_by_default"]
    assert "fp16" in answer["mixed_precision"]
    assert "8 GPUs" in answer["code_change_required"]
    answer = advice(ask(client, "training", {"gpu": ["a100"]}, **asked, numerics={"fp16_overflows": True}))
    assert "At bf16 the" in answer["mixed_precision"]
    answer = advice(ask(client, "training", {"gpu": ["a100"]}, **asked, numerics={"min_bits": 32}))
    assert "mixed_precision" not in answer
    assert "tf32" in answer


def test_inference_at_fp32_gets_advice_on_fp16_and_int8(client: TestClient) -> None:
    answer = advice(ask(client, "inference", {"family": ["g4dn"]}, precision=["fp32"], as_of="2021-05-16"))
    assert "fp16" in answer["half_precision"]
    assert "int8" in answer["int8"]


@pytest.mark.parametrize(("gpu", "formats"), [("rtx-5090-32gb", "At fp8 the"), ("l40s-48gb", "At fp8 or int8 the")])
def test_advice_names_formats_in_which_the_engine_multiplies(client: TestClient, gpu: str, formats: str) -> None:
    """vLLM has no int8 kernels for Blackwell."""
    answer = ask(
        client, "inference", {"gpu": [gpu]}, model="llama-3.1-8b", precision="bf16", software={"engine": "vllm"}
    )
    assert formats in advice(answer)["int8"]


def test_g5_leads_to_p4(client: TestClient) -> None:
    answer = ask(client, "training", {"family": ["g5"], "max_gpu_count": 1}, as_of="2022-02-17")
    assert "aws/p4d.24xlarge" in advice(answer)["migration_path"]
    today = ask(client, "training", AWS, current_instance="g5.xlarge")
    assert "From aws/g5.xlarge" in advice(today)["migration_path"]


@pytest.mark.parametrize(
    ("rate", "platform", "advised"), [(1, "cuda", True), (1, "cpu", False), (20_000, "cuda", False)]
)
def test_a_part_of_a_card_is_no_advice_for_work_on_cpus_or_for_several_cards(
    client: TestClient, rate: float, platform: str, advised: bool
) -> None:
    load = {"requests_per_second": rate, "input_length": 128, "max_seconds_per_request": 0.5}
    parts = {"model": "all-minilm-l6-v2", "serving": load, "software": {"platforms": [platform]}}
    answer = ask(client, "inference", AWS, **parts)
    assert (answer["choices"][0]["instances"] > 1) is (rate > 1)
    assert ("fractional_gpu" in advice(answer)) is advised


def test_services_are_named_while_they_are_offered(client: TestClient) -> None:
    small = {**AWS, "min_gpu_count": 0.2}
    assert "Elastic Inference" in advice(ask(client, "inference", small, as_of="2022-02-17"))["fractional_gpu"]
    closed = advice(ask(client, "inference", {**AWS, "max_gpu_count": 0.2}, as_of="2023-06-07"))["fractional_gpu"]
    assert "eia2.medium (8 TFLOPS in fp16, 2 GB)" in closed
    assert "no new customers since 2023-04-15" in closed
    asked = {"as_of": "2022-02-17", "fault_tolerant": True}
    # The first choice is a G5g, on which SageMaker does not train.
    assert "managed_training" not in advice(ask(client, "training", ONE_GPU, **asked))
    answer = advice(ask(client, "training", {**ONE_GPU, "exclude": ["g5g"]}, **asked))
    assert "SageMaker" in answer["managed_training"]
    assert "spot" in answer["managed_spot"]
    assert "Deep Learning AMIs" in answer["image_advice"]
    assert "Containers" in answer["image_advice"]
    assert "managed_spot" not in advice(ask(client, "training", AWS, as_of="2017-08-01"))
    assert "image_advice" not in advice(ask(client, "training", AWS, as_of="2016-11-01"))


def test_the_machine_without_a_gpu_has_the_memory_that_is_required(client: TestClient) -> None:
    sentences = [
        advice(ask(client, "classical", AWS, host={"memory_gib": least}))["no_accelerator_needed"] for least in (1, 64)
    ]
    assert "aws/t3.medium has none" in sentences[0]  # 4 GiB
    assert "aws/r6i.2xlarge has none, and 8 vCPUs" in sentences[1]  # 64 GiB


@pytest.mark.parametrize("task", ["classical", "sequential", "development"])
@pytest.mark.parametrize("objective", ["cheapest", "best_value"])
def test_work_that_needs_no_gpu_gets_machines_without(client: TestClient, task: str, objective: str) -> None:
    answer = ask(client, task, AWS, objective=objective)
    assert answer["choices"][0]["gpu"] is None
    response = advice(answer)
    assert "needs no GPU: aws/" in response["no_accelerator_needed"]
    assert ("separate_dev_and_training" in response) is (task == "development")


@pytest.mark.parametrize("task", ["sequential", "development"])
def test_more_cores_do_not_speed_up_what_goes_step_by_step(client: TestClient, task: str) -> None:
    assert ask(client, task, AWS, objective="fastest")["choices"][0]["gpu"] is None


def test_graphics_and_double_precision_have_cards_of_their_own(client: TestClient) -> None:
    answer = ask(client, "graphics", AWS, as_of="2022-02-17", limit=100)
    assert "g4ad" in families(answer)
    assert "trn1" not in families(answer)
    assert "g4ad.xlarge" in advice(answer)["graphics"]
    assert "task" in {each["code"] for each in ask(client, "graphics", {"family": ["trn1"]})["rejections"]}
    hpc = ask(client, "hpc", {**AWS, "service": ["ec2"]}, as_of="2022-02-17", limit=100)
    assert families(hpc) == {"p2", "p3", "p3dn", "p4d"}
    assert hpc["advice"] == []


@pytest.mark.parametrize(
    ("framework", "advised"),
    [
        ("megatron-lm", False),
        ("torchtitan", False),
        ("torchtune", False),
        ("axolotl", False),
        ("llama-factory", False),
        ("trl", False),
        ("pytorch", True),
    ],
)
def test_software_that_trains_on_many_gpus_by_itself_needs_no_other_code(
    client: TestClient, framework: str, advised: bool
) -> None:
    job = {"model": "gpt2", "amount": {"steps": 1000}, "software": {"framework": framework}}
    answer = advice(ask(client, "training", {"instance": ["aws/p4d.24xlarge"]}, **job))
    assert ("code_change_required" in answer) == advised


def test_independent_runs_and_models_take_a_gpu_each(client: TestClient) -> None:
    limits = {"min_gpu_count": 8, "family": ["p3", "p4d"]}
    answer = advice(ask(client, "training", limits, as_of="2022-02-17", concurrent_runs=8))
    assert "8 runs take one of the 8 GPUs each" in answer["independent_runs"]
    assert "code_change_required" not in answer
    answer = advice(ask(client, "inference", {"instance": ["g5.12xlarge"]}, as_of="2022-02-17"))
    assert "Each of the 4 GPUs" in answer["one_model_per_gpu"]


def test_gpus_that_share_the_experts_of_a_model_are_not_offered_one_model_each(client: TestClient) -> None:
    limits = {"provider": ["gcp"], "gpu": ["a100-sxm4-80gb"], "min_gpu_count": 2, "max_gpu_count": 2}
    load = {"concurrency": 64, "input_length": 1000, "output_length": 250}
    work = {"model": "mixtral-8x7b", "precision": ["bf16"], "software": {"engine": "vllm"}, "serving": load}
    answer = ask(client, "inference", limits, as_of="2026-10-01", **work)
    assert answer["choices"][0]["estimate"]["layout"]["expert"] == 2
    assert "one_model_per_gpu" not in advice(answer)


def test_a_card_of_int8_alone_asks_for_a_quantised_model(client: TestClient) -> None:
    limits = {"provider": ["autodl"], "architecture": ["mluv02"], "max_price_age_days": None}
    answer = ask(client, "inference", limits, precision=["int8"], as_of="2022-03-04", objective="fastest")
    if answer["choices"]:
        assert "quantised" in advice(answer)["quantisation_required"]


def test_the_machine_to_measure_next_is_named(client: TestClient) -> None:
    assert "vendors' peak rates" in advice(ask(client, "training", AWS))["evaluate_next"]
    assert "a model of the job" in advice(ask(client, "training", AWS, **RESNET))["evaluate_next"]
    assert "evaluate_next" not in advice(ask(client, "training", {"instance": ["g5.xlarge"]}))


def test_an_answer_without_choices_may_still_advise(client: TestClient) -> None:
    answer = ask(client, "classical", {**AWS, "max_usd_per_hour": 0.0001})
    assert answer["choices"] == []
    assert "no_accelerator_needed" in advice(answer)


# Warnings and needs of the host


def test_g3_is_superseded_and_p4_was_not(client: TestClient) -> None:
    answer = ask(client, "training", {"family": ["g3", "g3s", "g4dn", "p4d"]}, as_of="2022-02-17", limit=100)
    response = {choice["instance"]: warnings(choice) for choice in answer["choices"]}
    superseded = {name for name, each in response.items() if "superseded" in each}
    assert superseded >= {name for name in response if name.startswith(("g3.", "g3s."))}
    assert "p4d.24xlarge" not in superseded
    assert "g4dn.xlarge is newer: 65 TFLOPS" in response["g3s.xlarge"]["superseded"]
    # The choice may be in a region that costs more than the lowest price of its type.
    assert "this type has 4.83, from $0.75." in response["g3s.xlarge"]["superseded"]


def test_a_choice_states_the_needs_of_its_host_as_far_as_they_are_known(client: TestClient) -> None:
    answer = ask(client, "training", {"instance": ["g5.12xlarge"]}, host={"memory_gib": 64})
    assert answer["choices"][0]["host"] == {"needed_vcpus": 16.0, "ideal_vcpus": 32.0, "needed_memory_gib": 64.0}
    assert answer["choices"][0]["availability"] == {"state": "unknown", "confidence": None, "observed_on": None}
    decoding = ask(client, "training", {"instance": ["g5.12xlarge"]}, host={"gpu_decoding": True})["choices"][0]
    assert decoding["host"] == {"needed_vcpus": 4.0, "ideal_vcpus": 16.0, "needed_memory_gib": None}
    cpu = ask(client, "classical", {"instance": ["m5.xlarge"]})["choices"][0]
    assert cpu["host"] == {"needed_vcpus": None, "ideal_vcpus": None, "needed_memory_gib": None}
    tokens = ask(client, "training", {"instance": ["p4d.24xlarge"]}, model="llama-3.1-8b", method="lora")["choices"][0]
    assert tokens["host"]["needed_vcpus"] == 8
    assert tokens["host"]["needed_memory_gib"] > 8


def test_few_cores_warn_by_the_rule_or_as_stated_and_less_with_decoding_on_the_gpu(client: TestClient) -> None:
    one = {"instance": ["g5.xlarge"]}
    assert "few_vcpus" not in warnings(ask(client, "training", one)["choices"][0])
    answer = ask(client, "training", one, host={"vcpus_per_gpu": 8})
    assert "asks for 8" in warnings(answer["choices"][0])["few_vcpus"]
    assert "4 vCPUs limit the speed" in advice(answer)["gpu_decoding"]


def test_the_rule_of_thumb_speaks_of_logical_cores() -> None:
    bare = instance_type(vcpus=24.0, gpu_count=8)
    assert (
        "It has 3 vCPUs per GPU; loading samples usually takes 4 to 8"
        in with_text(next(too_few_cores(bare, SampleLoading()))).text
    )
    assert not list(too_few_cores(bare, SampleLoading(gpu_decoding=True)))
    assert not list(too_few_cores(instance_type(vcpus=None), SampleLoading()))


def test_the_rate_of_a_job_decides_what_cores_and_network_let_through(client: TestClient) -> None:
    one = {"instance": ["p4d.24xlarge"]}
    slow = {"cpu_samples_per_second_per_vcpu": 100}
    choice = ask(client, "training", one, **RESNET, host=slow)["choices"][0]
    gpus = ask(client, "training", one, **RESNET)["choices"][0]["estimate"]["samples_per_second"]["likely"]
    assert choice["host"]["needed_vcpus"] == pytest.approx(gpus / 100, rel=1e-3)
    assert choice["estimate"]["samples_per_second"]["likely"] == pytest.approx(min(gpus, 9600))
    assert ("host_bound" in warnings(choice)) is (gpus > 9600)
    starved = ask(client, "training", one, **RESNET, host={"cpu_samples_per_second_per_vcpu": 10})
    assert "96 vCPUs prepare only 960" in warnings(starved["choices"][0])["host_bound"]
    assert "gpu_decoding" in advice(starved)
    assert "gpu_decoding" not in advice(
        ask(client, "training", one, **RESNET, host={"cpu_samples_per_second_per_vcpu": 10, "gpu_decoding": True})
    )
    wide = warnings(ask(client, "training", one, **RESNET, sample_mb=100, reads_from="network")["choices"][0])
    assert "a network of 400 Gbps delivers only 500 samples of 100 MB" in wide["slow_reads"]
    near = warnings(ask(client, "training", one, **RESNET, sample_mb=0.1, reads_from="network")["choices"][0])
    assert "slow_reads" not in near
    local = warnings(ask(client, "training", one, **RESNET, sample_mb=0.11, reads_from="local")["choices"][0])
    assert "13,200" in local["local_storage_small"].replace("1.32e+04", "13,200")


def test_nodes_without_a_fast_network_warn(client: TestClient) -> None:
    job = {"model": "llama-3.1-8b", "method": "lora", "as_of": "2024-06-01"}
    slow = ask(client, "training", {"instance": ["g5.4xlarge"], "min_nodes": 2, "max_nodes": 2}, **job)
    fast = ask(client, "training", {"instance": ["p4d.24xlarge"], "min_nodes": 2, "max_nodes": 2}, **job)
    assert "10 Gbps without RDMA" in warnings(slow["choices"][0])["slow_network"]
    assert "slow_network" not in warnings(fast["choices"][0])


def test_nodes_of_one_pod_do_not_warn_of_the_network(client: TestClient) -> None:
    job = {
        "model": "llama-3.1-8b",
        "sequence_length": 4096,
        "amount": {"tokens": 1e9},
        "software": {"framework": "jax"},
    }

    def network_warnings(instance: str) -> set[str]:
        nodes = {"instance": [instance], "min_nodes": 8, "max_nodes": 8}
        choice = ask(client, "training", nodes, **job)["choices"][0]
        return {"slow_network", "network_unknown"} & warnings(choice).keys()

    assert not network_warnings("ct6e-standard-4t")
    assert network_warnings("ct6e-standard-8t") == {"slow_network"}  # eight chips stand alone


def test_a_warning_of_the_network_states_the_speed_that_the_caller_assumes(client: TestClient) -> None:
    nodes = {"provider": ["lambda"], "gpu": ["h100"], "min_nodes": 2, "max_nodes": 2}
    job = {"model": "llama-3.1-8b", "amount": {"tokens": 1e9}}
    unknown = warnings(ask(client, "training", nodes, **job)["choices"][0])
    assumed = warnings(ask(client, "training", nodes, **job, assume_network_gbps=400)["choices"][0])
    assert "a network of unknown speed" in unknown["slow_network"]
    assert "network_unknown" in unknown
    assert "an assumed 400 Gbps for which RDMA is unknown" in assumed["slow_network"]
    assert "network_unknown" not in assumed


def test_spot_states_its_notice(client: TestClient) -> None:
    answer = ask(client, "training", {**AWS, "market": ["spot"]}, fault_tolerant=True)
    text = warnings(answer["choices"][0])["spot_can_be_interrupted"]
    assert text == "Spot machines can be taken away with 120 seconds' notice; the work must save and resume."


@pytest.mark.parametrize(
    ("load", "end"),
    [
        (
            {"requests_per_second": 0.5},
            "only instance is replaced, no request is answered: `min_replicas` asks for more.",
        ),
        ({"requests_per_second": 0.5, "min_replicas": 2}, "% of what 1 instance can do."),
        ({"requests_per_second": 60}, "% of what {others} instances can do."),
        (
            {"requests_per_second": 60, "headroom": 0.01},
            "% of what {others} instances can do, so that requests pile up.",
        ),
        ({"concurrency": 2, "min_replicas": 2}, "replaced, its clients share 1 other instance with theirs."),
    ],
)
def test_spot_says_who_serves_a_load_after_an_interruption(client: TestClient, load: dict[str, Any], end: str) -> None:
    """It used to say that the work must save and resume, which requests cannot."""
    serving = {**load, "input_length": 1000, "output_length": 300, "max_seconds_per_output_token": None}
    answer = ask(
        client, "inference", {**AWS, "market": ["spot"], "gpu": ["l40s"]}, model="llama-3.1-8b", serving=serving
    )
    choice = answer["choices"][0]
    assert warnings(choice)["spot_can_be_interrupted"].endswith(end.format(others=choice["instances"] - 1))


# Software


def test_cuda_code_does_not_land_on_amd(client: TestClient) -> None:
    limits = {"family": ["g4dn", "g4ad"]}
    for software in ({"cuda": "11.4"}, {"platforms": ["cuda"]}, {"custom_cuda_kernels": True}):
        answer = ask(client, "inference", limits, software=software, as_of="2021-05-16", limit=100)
        assert families(answer) == {"g4dn"}
        assert "software" in {each["ground"] for each in answer["rejections"]}


def test_nothing_trains_where_no_framework_runs(client: TestClient) -> None:
    answer = ask(client, "training", {"family": ["g4ad"]}, as_of="2022-02-17")
    assert answer["choices"] == []
    serving = ask(client, "inference", {"family": ["g4ad"]}, as_of="2022-02-17")
    assert serving["choices"] == []
    assert "task" in {rejection["code"] for rejection in serving["rejections"]}


def test_a_framework_that_an_accelerator_lacks_keeps_it_out(client: TestClient) -> None:
    limits = {"family": ["trn1", "g5"]}
    answer = ask(client, "training", limits, software={"framework": "mxnet"}, as_of="2023-06-07", limit=100)
    assert families(answer) == {"g5"}


def test_arm_hosts_have_fewer_packages(client: TestClient) -> None:
    answer = ask(client, "training", {"family": ["g5g"]}, software={"framework": "pytorch"}, as_of="2022-02-17")
    assert "pytorch (Arm host" in warnings(answer["choices"][0])["software_partly"]


def test_a_job_asks_for_its_software_too(client: TestClient) -> None:
    job = {"model": "llama-3.1-8b", "method": "lora", "precision": ["bf16"]}
    every = ask(client, "training", AWS, **job)
    kernels = ask(client, "training", AWS, **job, software={"custom_cuda_kernels": True})
    assert kernels["counts"]["admitted"] < every["counts"]["admitted"]
    found = next(each for each in kernels["rejections"] if each["code"] == "custom_cuda_kernels")
    assert found["relax"]["admits"] == every["counts"]["admitted"] - kernels["counts"]["admitted"]


def test_unknown_software_rejects_nothing_and_is_reported(client: TestClient) -> None:
    plain = ask(client, "training", AWS)
    answer = ask(client, "training", AWS, software={"framework": "pytorhc", "libraries": [{"name": "left-pad"}]})
    assert answer["counts"] == plain["counts"]
    assert notes(answer)["software_unknown"] == ["workload.software.framework", "workload.software.libraries"]
    assert "not_weighed" not in notes(answer)
    (text,) = [note["text"] for note in answer["notes"] if note["code"] == "software_unknown"]
    assert text.startswith("No rule says where pytorhc or left-pad runs, so it rejected nothing. Did you mean pytorch")


# Numbers


def test_a_job_runs_in_number_formats_that_it_tolerates(client: TestClient) -> None:
    job = {"model": "resnet-50", "global_batch_size": 256}
    answer = ask(client, "training", {"instance": ["p3.2xlarge"]}, **job, as_of="2023-06-07")
    assert answer["choices"][0]["estimate"]["precision"] == "fp16"
    safe = ask(
        client, "training", {"instance": ["p3.2xlarge"]}, **job, numerics={"fp16_overflows": True}, as_of="2023-06-07"
    )
    assert safe["choices"][0]["estimate"]["precision"] == "fp32"
    none = ask(client, "training", {"instance": ["p3.2xlarge"]}, **job, precision=["fp16"], numerics={"min_bits": 32})
    assert none["choices"] == []
    assert "numerics" in {each["code"] for each in none["rejections"]}


def test_wide_numbers_keep_tpus_out(client: TestClient) -> None:
    answer = ask(client, "training", {"provider": ["gcp", "aws"]}, numerics={"min_bits": 32}, limit=100)
    assert "tpu" not in {choice["specs"]["gpu"]["kind"] for choice in answer["choices"]}
    assert next(each for each in answer["rejections"] if each["code"] == "numerics")["ground"] == "hardware"


def test_work_with_an_amount_and_no_deadline_gets_a_note(client: TestClient) -> None:
    assert notes(ask(client, "training", AWS, **RESNET))["no_deadline"] == ["constraints.deadline_hours"]
    assert "no_deadline" not in notes(ask(client, "training", {**AWS, "deadline_hours": 24}, **RESNET))


def test_work_on_a_managed_service_gets_no_advice_to_use_one(client: TestClient) -> None:
    trained_there = {**AWS, "exclude": ["g5g"]}  # SageMaker does not train on G5g
    assert "managed_training" in advice(ask(client, "training", trained_there, **RESNET))
    managed = ask(client, "training", AWS, **RESNET, managed_service="sagemaker-training")
    assert managed["choices"][0]["cost"]["managed_service"] == "sagemaker-training"
    assert "managed_training" not in advice(managed)


def test_a_managed_service_without_a_premium_costs_as_much_as_its_machines(client: TestClient) -> None:
    answer = ask(client, "training", {"provider": ["azure"]}, **RESNET)
    (text,) = [each["text"] for each in answer["advice"] if each["code"] == "managed_training"]
    assert text.startswith("Azure Machine Learning starts a machine for the run")
    assert "; it adds nothing to the price of " in text


def test_a_batch_of_short_samples_is_a_power_of_two_that_gpus_divide(client: TestClient) -> None:
    answer = ask(client, "training", {"instance": ["p4d.24xlarge"]}, model="vit-base", amount={"samples": 1e6})
    assert "about 4,096 samples" in note_texts(answer)["batch_assumed"]
    layout = answer["choices"][0]["estimate"]["layout"]
    assert (layout["pipeline"], layout["data"]) == (1, 8)


def test_an_assumed_batch_is_stated(client: TestClient) -> None:
    lora = {"model": "sdxl", "method": "lora", "precision": "bf16", "amount": {"steps": 2000}}
    answer = ask(client, "training", {"instance": ["g5.xlarge"]}, **lora)
    assert "about 4 samples" in note_texts(answer)["batch_assumed"]
    estimate = answer["choices"][0]["estimate"]
    seconds = estimate["hours"]["likely"] * 3600
    assert seconds == pytest.approx(4 * 2000 / estimate["samples_per_second"]["likely"], rel=0.02)
    given = ask(client, "training", {"instance": ["g5.xlarge"]}, **lora, global_batch_size=1)
    assert "batch_assumed" not in notes(given)
    assert given["choices"][0]["estimate"]["hours"]["likely"] < estimate["hours"]["likely"] / 2
    full = ask(client, "training", {"instance": ["p4d.24xlarge"]}, **lora | {"method": "full"})
    assert "about 32 samples" in note_texts(full)["batch_assumed"]


def note_texts(answer: Any) -> dict[str, str]:
    return {each["code"]: each["text"] for each in answer["notes"]}


def test_tf32_is_on_by_default_before_pytorch_1_12_and_off_from_then_on(client: TestClient) -> None:
    def default(framework: str, day: str) -> set[str]:
        answer = ask(
            client, "training", {"family": ["p4d"]}, precision=["fp32"], software={"framework": framework}, as_of=day
        )
        return {code for code in advice(answer) if code.startswith("tf32_o")}

    assert default("pytorch==1.10", "2022-02-17") == {"tf32_on_by_default"}
    assert default("pytorch", "2022-02-17") == {"tf32_on_by_default"}
    assert default("pytorch==2.0", "2023-06-07") == {"tf32_off_by_default"}
    assert default("pytorch", "2023-06-07") == {"tf32_off_by_default"}
    assert default("tensorflow", "2022-02-17") == set()


def test_independent_runs_take_a_gpu_each_on_as_many_machines_as_that_needs(client: TestClient) -> None:
    limits = {"family": ["p3"], "service": ["ec2"]}
    choices = ask(client, "training", limits, concurrent_runs=8, as_of="2022-02-17")["choices"]
    assert [(each["instance"], each["instances"]) for each in choices] == [
        ("p3.16xlarge", 1),
        ("p3.8xlarge", 2),
        ("p3.2xlarge", 8),
    ]
    assert {each["usd_per_hour"] for each in choices} == {24.48}
    one = ask(client, "training", {**limits, "max_instances": 1}, concurrent_runs=8, as_of="2022-02-17")
    assert one["choices"][0]["instance"] == "p3.2xlarge"
    assert "8 runs share 1 GPU" in advice(one)["independent_runs"]
    five = ask(client, "training", limits, concurrent_runs=5, as_of="2022-02-17", objective="best_value")
    assert (five["choices"][0]["instance"], five["choices"][0]["instances"]) == ("p3.2xlarge", 5)


def test_spot_without_a_known_price_is_missing_data(client: TestClient) -> None:
    spot = ask(client, "training", {**AWS, "market": ["spot"]}, fault_tolerant=True, as_of="2021-12-15")
    unknown = next(each for each in spot["rejections"] if each["code"] == "spot_price_unknown")
    assert (unknown["ground"], unknown["relax"]["to"]) == ("data", {"market": ["spot", "on_demand"]})
    allowed = ask(client, "training", AWS, fault_tolerant=True, as_of="2021-12-15")
    assert "spot_price_unknown" in note_texts(allowed)
    assert "spot_price_unknown" not in note_texts(ask(client, "training", AWS, fault_tolerant=True))
    nowhere = ask(client, "training", {"provider": ["autodl"], "market": ["spot"]}, as_of="2022-03-04")
    assert "market" in {each["code"] for each in nowhere["rejections"]}


def test_a_type_that_only_lacks_a_published_peak_is_named(client: TestClient) -> None:
    software = {"platforms": ["cuda", "synapse"]}
    answer = ask(
        client, "training", {**AWS, "min_gpu_count": 8}, software=software, objective="best_value", as_of="2022-02-17"
    )
    assert "admit aws/dl1.24xlarge, but no peak" in note_texts(answer)["unranked"]


def test_a_preview_without_a_price_is_a_choice_where_previews_are_allowed(client: TestClient) -> None:
    limits = {"family": ["trn1"], "allow_preview": True}
    answer = ask(client, "training", limits, objective="fastest", as_of="2022-02-17")
    assert answer["choices"][0]["instance"] == "trn1.32xlarge"
    assert "preview" in {each["code"] for each in answer["choices"][0]["warnings"]}
    assert not ask(client, "training", {"family": ["trn1"]}, objective="fastest", as_of="2022-02-17")["choices"]


def test_the_first_choice_under_an_earlier_objective_is_the_one_that_it_had(client: TestClient) -> None:
    """Energy leaves out machines of unknown power, of which one was the cheapest."""
    asked = {
        "workload": {"task": "training", "model": "llama-3.1-8b", "method": "lora", "amount": {"tokens": 1e8}},
        "constraints": {"provider": ["aws", "gcp"]},
    }
    (cheapest, *_) = post_recommend(client, {**asked, "objective": "cheapest"})["choices"]
    later = post_recommend(client, {**asked, "objective": "most_efficient", "previous_objective": "cheapest"})
    (text,) = (note["text"] for note in later["notes"] if note["code"] == "objective_changed")
    assert f" replaces {cheapest['provider']}/{cheapest['instance']}: $" in text
    assert cheapest["gpu"]["id"].startswith("tpu")  # whose power is unknown


def test_the_objective_of_an_earlier_question_is_compared(client: TestClient) -> None:
    answer = ask(client, "training", AWS, previous_objective="fastest", as_of="2022-02-17")
    assert note_texts(answer)["objective_changed"].startswith(
        "aws/g5g.xlarge replaces aws/p4d.24xlarge: $0.42 instead of $32.77 an hour, at 0.0"
    )
    same = ask(client, "training", AWS, previous_objective={"usd": 2}, as_of="2022-02-17")
    assert "is first under the earlier objective, too" in note_texts(same)["objective_changed"]


def test_a_rate_that_the_input_must_keep_up_with_is_compared_with_cpus_and_network(client: TestClient) -> None:
    def slow(host: dict[str, float], sample_mb: float) -> set[str]:
        answer = ask(client, "training", {"instance": ["g4dn.xlarge"]}, host=host, sample_mb=sample_mb)
        return {each["code"] for each in answer["choices"][0]["warnings"]} & {"host_bound", "slow_reads"}

    assert slow({"samples_per_second": 1000, "cpu_samples_per_second_per_vcpu": 300}, 0.1) == set()
    assert slow({"samples_per_second": 1000, "cpu_samples_per_second_per_vcpu": 200}, 0.1) == {"host_bound"}
    assert slow({"samples_per_second": 1000}, 10) == {"slow_reads"}


def test_a_host_that_is_too_slow_has_one_warning_with_the_rate_that_is_meant(client: TestClient) -> None:
    host = {"samples_per_second": 50_000, "cpu_samples_per_second_per_vcpu": 50}
    machine = {"instance": ["g6.16xlarge"]}

    def host_bound(**workload: Any) -> list[str]:
        (choice, *_) = ask(client, "training", machine, host=host, **workload)["choices"]
        return [each["text"] for each in choice["warnings"] if each["code"] == "host_bound"]

    (of_peaks,) = host_bound()
    assert of_peaks.startswith("The workload asks for 50,000 samples per second on a machine, but its 64 vCPUs prepare")
    (of_job,) = host_bound(model={"parameters": 5e6, "forward_flops_per_sample": 1e7})
    assert of_job.startswith("The GPUs of a node could take ")
    assert "50,000" not in of_job


def test_decoding_on_the_gpu_is_no_advice_for_text(client: TestClient) -> None:
    slow = {"cpu_samples_per_second_per_vcpu": 0.01}
    answer = ask(client, "training", {"instance": ["g6e.xlarge"]}, model="llama-3.1-8b", method="lora", host=slow)
    assert "host_bound" in warnings(answer["choices"][0])
    assert "gpu_decoding" not in advice(answer)


def test_an_unknown_host_memory_is_to_be_watched(client: TestClient) -> None:
    cards = {"provider": ["autodl"], "gpu": ["RTX 3090"]}
    assert "watch" in advice(ask(client, "training", cards, as_of="2022-03-04"))["monitor_memory"]
    assert "monitor_memory" not in advice(ask(client, "training", {"family": ["g5"]}, as_of="2022-02-17"))


def test_fp64_work_is_not_sent_to_a_card_that_runs_it_at_a_token_rate(client: TestClient) -> None:
    (p2,) = ask(client, "hpc", {"instance": ["p2.xlarge"]}, precision=["fp64"], as_of="2022-02-17")["choices"]
    assert "superseded" not in {each["code"] for each in p2["warnings"]}
    (training,) = ask(client, "training", {"instance": ["p2.xlarge"]}, as_of="2022-02-17")["choices"]
    assert "superseded" in {each["code"] for each in training["warnings"]}


@pytest.mark.parametrize(
    ("constraints", "software"),
    [
        ({**AWS, "max_gpu_count": 0}, {}),
        ({"family": ["c5"]}, {}),
        ({"instance": ["aws/c5.xlarge", "g4dn.xlarge"]}, {}),
        (AWS, {"platforms": ["cuda", "cpu"]}),
        (AWS, {"framework": "pytorch-lightning"}),
    ],
)
def test_machines_without_a_gpu_rank_where_the_question_asks_for_them(
    client: TestClient, constraints: Any, software: Any
) -> None:
    answer = ask(client, "inference", constraints, software=software, objective="best_value", limit=100)
    host = next(each for each in answer["choices"] if each["instance"] == "c5.xlarge")
    assert host["estimate"]["peak_tflops"] == 0.4352  # 2 cores x 3.4 GHz x 64 operations
    assert "0.435 TFLOPS in fp32" in warnings(host)["without_gpu"]


@pytest.mark.parametrize("task", ["training", "inference"])
def test_machines_without_a_gpu_are_left_out_where_the_question_does_not_ask_for_them(
    client: TestClient, task: str
) -> None:
    answer = ask(client, task, AWS, limit=100)
    assert all(choice["specs"]["gpu"] for choice in answer["choices"])
    (left_out,) = (each for each in answer["rejections"] if each["code"] == "without_gpu")
    platforms = left_out["relax"]["to"]["workload.software.platforms"]
    asked = ask(client, task, AWS, software={"platforms": platforms})
    assert asked["counts"]["admitted"] - answer["counts"]["admitted"] == left_out["relax"]["admits"]


def test_work_that_grows_starts_on_an_architecture_with_fast_links(client: TestClient) -> None:
    one_gpu = {**AWS, "min_gpu_count": 1, "max_gpu_count": 1}
    asked = {"objective": "best_value", "as_of": "2022-02-17", "limit": 100}
    answer = ask(client, "training", one_gpu, growth="distributed", **asked)
    assert families(answer) == {"g5", "p3"}
    (growth,) = (each for each in answer["rejections"] if each["code"] == "growth")
    assert growth["relax"]["to"] == {"workload.growth": None}
    assert "p4d.24xlarge" in advice(answer)["migration_path"]
    assert {"g4dn", "g5g"} <= families(ask(client, "training", one_gpu, **asked))


def test_without_prices_the_weaker_card_is_taken_as_the_cheaper_one(client: TestClient) -> None:
    cards = {"provider": ["autodl"], "max_gpu_count": 1}
    answer = ask(client, "training", cards, objective="cheapest", as_of="2022-03-04")
    assert [each["gpu"]["id"] for each in answer["choices"][:2]] == ["gtx-1080-ti-11gb", "titan-xp-12gb"]
    assert "weaker GPUs" in note_texts(answer)["price_ignored"]
    value = ask(client, "training", {"provider": ["autodl"]}, objective="best_value", as_of="2022-03-04")
    assert value["choices"][0]["gpu"]["id"] == "a100-sxm4-40gb"
    assert "weaker ones" not in note_texts(value)["price_ignored"]
    # Who names no objective gets the stronger one.
    assert ask(client, "training", cards, as_of="2022-03-04")["choices"][0]["gpu"]["id"] == "a100-sxm4-40gb"


@pytest.mark.parametrize(
    ("subject", "prior", "gpus"),
    [
        ({"dataset": "Pascal VOC"}, "pascal-voc", 1),
        ({"dataset": "MS-COCO"}, "ms-coco", 4),
        ({"dataset": "coco"}, "ms-coco", 4),
        ({"goal": "Reproduce paper"}, "papers", 8),
        ({"goal": "hyperparameter search"}, "very-large-models", 8),  # no machine has nine
    ],
)
def test_a_rule_of_thumb_decides_how_many_gpus_where_no_price_is_known(
    client: TestClient, subject: dict[str, str], prior: str, gpus: int
) -> None:
    cards = {"provider": ["autodl"]}
    for objective in ({}, {"objective": "best_value"}):
        answer = ask(client, "training", cards, **subject, **objective, as_of="2022-03-04")
        assert answer["choices"][0]["gpu"]["per_node"] == gpus
        (cited,) = answer["priors"]
        assert cited["id"] == prior
        assert cited["verdict"] == ("overridden" if gpus < cited["min_gpus"] else "followed")
        said = f"rule of thumb names {cited['min_gpus']} GPUs" if cited["min_gpus"] > 1 else "fewer GPUs count"
        assert said in note_texts(answer)["price_ignored"]
    # Who asks for the cheapest hour gets it, and figures of a job overrule the rule.
    cheapest = ask(client, "training", cards, **subject, objective="cheapest", as_of="2022-03-04")
    estimated = ask(client, "training", cards, **subject, model="resnet-50", as_of="2022-03-04")
    assert [each["choices"][0]["gpu"]["per_node"] for each in (cheapest, estimated)] == [1, 1]


def test_the_guide_s_first_choice_for_the_price_is_cited(client: TestClient) -> None:
    one = {"provider": ["autodl"], "min_gpu_count": 1, "max_gpu_count": 1}
    verdicts = {
        objective: {each["id"]: each["verdict"] for each in answer["priors"]}
        for objective in ("best_value", "cheapest")
        for answer in [ask(client, "training", one, objective=objective, as_of="2022-03-04")]
    }
    assert verdicts == {
        "best_value": {"rtx-3090-for-value": "overridden"},
        "cheapest": {"pascal-to-learn-on": "followed"},
    }


def test_vcpus_that_are_asked_for_and_unknown_are_a_warning(client: TestClient) -> None:
    card = {"provider": ["autodl"], "gpu": ["RTX 3090"], "max_gpu_count": 1}
    wanted = ask(client, "training", card, host={"vcpus_per_gpu": 8}, as_of="2022-03-04")["choices"][0]
    assert "vcpus_unknown" in warnings(wanted)
    assert "vcpus_unknown" not in warnings(ask(client, "training", card, as_of="2022-03-04")["choices"][0])


def test_who_admits_previews_is_not_held_to_software_that_runs_in_full(client: TestClient) -> None:
    fastest = {"objective": "fastest", "as_of": "2022-02-17", "limit": 100}
    choice = ask(client, "training", {**AWS, "allow_preview": True}, **fastest)["choices"][0]
    assert choice["instance"] == "trn1.32xlarge"
    assert "preview" in warnings(choice)
    assert "torch-neuronx" in choice["code_change_required"]
    assert "trn1" not in families(ask(client, "training", AWS, **fastest))
    # Other machines on which the framework runs in part stay out.
    elsewhere = ask(client, "training", {"provider": ["autodl"], "allow_preview": True}, as_of="2022-03-04", limit=100)
    assert "ascend-910" not in families(elsewhere)


def test_an_end_within_a_year_is_a_warning_with_the_days_until_it(client: TestClient) -> None:
    def ends(day: str) -> str | None:
        (choice,) = ask(client, "training", {"instance": ["dl1.24xlarge"]}, as_of=day)["choices"]
        return warnings(choice).get("ends")

    assert ends("2026-06-01") == "It is retired from 2026-08-22 on, in 82 days."
    assert ends("2024-06-01") is None


def test_a_gpu_for_development_also_trains(client: TestClient) -> None:
    answer = ask(client, "development", {**AWS, "min_gpu_count": 1}, as_of="2022-02-17", limit=100)
    assert "inf1" not in families(answer)
    assert "aws/g5g.xlarge" in advice(answer)["separate_dev_and_training"]


def test_a_format_that_is_no_faster_is_not_advised(client: TestClient) -> None:
    cards = {"provider": ["autodl"], "gpu": ["RTX 3090"]}
    answer = advice(ask(client, "training", cards, precision=["fp32"], as_of="2022-03-04"))
    assert "tf32" not in answer
    assert "mixed_precision" in answer


def test_a_superseded_machine_is_no_step_up(client: TestClient) -> None:
    old = advice(ask(client, "training", AWS, current_instance="g3.4xlarge", as_of="2022-02-17"))
    assert "g3.16xlarge" not in old.get("migration_path", "")


def test_a_data_set_without_a_rule_of_thumb_is_not_weighed(client: TestClient) -> None:
    unknown = ask(client, "training", AWS, dataset="cifar10")
    assert notes(unknown)["not_weighed"] == ["workload.dataset"]
    assert "not_weighed" not in notes(ask(client, "training", AWS, dataset="ms_coco"))


def test_the_next_cards_of_a_seller_have_more_memory_or_more_speed(client: TestClient) -> None:
    def step(gpu: str) -> str:
        cards = {"provider": ["autodl"], "gpu": [gpu], "max_gpu_count": 1}
        answer = ask(client, "training", cards, precision=["fp16"], as_of="2022-03-04")
        return advice(answer)["upgrade_path"]

    assert "memory on autodl/rtx-a4000x1 (16 GB) and more speed on autodl/v100-16gbx1" in step("RTX 3080 Ti")
    assert "memory on autodl/v100-32gbx1 (32 GB)" in step("RTX A5000")
    assert "speed" not in step("A100 SXM4 40GB")
    t4 = advice(ask(client, "training", {"instance": ["g4dn.xlarge"]}, as_of="2022-02-17"))["upgrade_path"]
    assert "memory on aws/g5.xlarge (24 GB) and more speed on aws/p3.2xlarge (1.92 times" in t4
    assert "money" not in t4


def test_a_smaller_host_with_the_same_card_is_no_step_up(client: TestClient) -> None:
    larger = advice(ask(client, "training", {"instance": ["g5g.2xlarge"]}, precision=["fp16"]))["upgrade_path"]
    assert "g5g.xlarge" not in larger


def test_the_next_card_runs_the_precision_of_the_work(client: TestClient) -> None:
    """A V100 has a higher peak at fp16 than an RTX 3090, but no bf16."""

    def step(precision: str) -> str:
        return advice(ask(client, "training", {"instance": ["vast/rtx-3090"]}, precision=[precision]))["upgrade_path"]

    assert "more speed on vast/v100" in step("fp16")
    assert "v100" not in step("bf16")


def test_the_next_card_may_bring_more_for_the_money(client: TestClient) -> None:
    p2 = advice(ask(client, "training", {"instance": ["p2.xlarge"]}, as_of="2022-02-17"))["upgrade_path"]
    assert "more speed per dollar on aws/g4dn.xlarge (25.5 times)" in p2
    unpriced = ask(client, "training", {"provider": ["autodl"], "gpu": ["RTX 3060"]}, as_of="2022-03-04")
    assert "money" not in advice(unpriced)["upgrade_path"]


RESNET_IN_FP16 = {
    "model": "resnet-50", "precision": ["fp16"], "batch_size": 128, "software": {"framework": "pytorch"},
}  # fmt: skip
LORA = {"model": "llama-3.1-8b", "method": "lora", "precision": ["bf16"], "software": {"framework": "pytorch"}}


def machines_in(text: str) -> set[str]:
    """The instance types that a text names, as `provider/name`."""
    return set(re.findall(r"\b[a-z]+/[\w.-]*\w", text))


def test_a_step_up_keeps_the_constraints_that_do_not_choose_the_hardware(client: TestClient) -> None:
    excluded = ["g6", "g6e", "g6f", "g7e"]
    in_china = {"provider": ["aws"], "country": ["CN"], "exclude": excluded}
    answer = ask(client, "training", in_china, **RESNET_IN_FP16, limit=1)
    allowed = ask(client, "training", in_china, **RESNET_IN_FP16, limit=100)["choices"]
    named = machines_in(advice(answer)["upgrade_path"])
    assert len(named) > 1
    assert named <= {full_name(choice) for choice in allowed}


@pytest.mark.parametrize("constraints", [{"gpu": ["RTX 3090"]}, {"gpu": ["RTX 3090", "V100"]}])
def test_the_speed_of_a_step_up_is_that_of_the_job(client: TestClient, constraints: dict[str, list[str]]) -> None:
    """A V100 has 1.76 times the peak of an RTX 3090 at fp16, and trains ResNet-50 no faster."""
    answer = ask(client, "training", {"provider": ["vast"], **constraints}, **RESNET_IN_FP16, limit=1)
    (choice,) = answer["choices"]
    step = advice(answer)["upgrade_path"]
    faster = re.search(r"more speed on (\S+) \(([\d.]+) times the estimated speed\)", step)
    assert faster is not None, step
    (card,) = ask(client, "training", {"instance": [faster[1]]}, **RESNET_IN_FP16)["choices"]
    rates = [each["estimate"]["samples_per_second"]["likely"] for each in (card, choice)]
    assert rates[0] / rates[1] == pytest.approx(float(faster[2]), rel=0.01)
    assert rates[0] > rates[1]


def test_a_path_to_a_larger_machine_keeps_the_constraints_that_do_not_choose_the_hardware(client: TestClient) -> None:
    g5 = {"provider": ["aws"], "region": ["us-east-1"], "family": ["g5"]}
    assert "to aws/p4d.24xlarge" in advice(ask(client, "training", g5, **LORA))["migration_path"]
    without = advice(ask(client, "training", {**g5, "exclude": ["p4d"]}, **LORA))
    assert "to aws/p4de.24xlarge" in without["migration_path"]
    in_europe = {"provider": ["azure"], "region": ["westeurope"]}
    path = advice(ask(client, "training", {**in_europe, "gpu": ["h100-nvl-94gb"]}, **LORA))["migration_path"]
    new = re.search(r" to (azure/\S+) of", path)
    assert new is not None
    offered = ask(client, "training", {**in_europe, "instance": [new[1]]}, **LORA)["choices"]
    assert [full_name(choice) for choice in offered] == [new[1]]


def test_code_for_one_compute_capability_does_not_carry_over_to_another_major_one(client: TestClient) -> None:
    """Blackwell is 12.0 on cards for workstations and 10.0 on the B200."""
    g7e = {"provider": ["aws"], "region": ["us-east-1"], "instance": ["g7e.2xlarge"]}
    assert "p6" not in advice(ask(client, "training", g7e, **LORA))["migration_path"]


def test_vcpus_that_do_not_limit_the_job_lead_to_no_advice_on_decoding(client: TestClient) -> None:
    g5 = {"instance": ["g5.xlarge"]}
    answer = ask(client, "training", g5, **RESNET_IN_FP16, host={"vcpus_per_gpu": 16})
    (choice,) = answer["choices"]
    assert choice["estimate"]["bottleneck"] != "host_cpu"
    assert "few_vcpus" in warnings(choice)
    assert "gpu_decoding" not in advice(answer)
    slow = ask(client, "training", g5, **RESNET_IN_FP16, host={"cpu_samples_per_second_per_vcpu": 20})
    assert "gpu_decoding" in advice(slow)


def test_the_best_type_of_a_relaxation_has_the_price_of_the_choice_that_it_becomes(client: TestClient) -> None:
    load = {"requests_per_second": 20, "input_length": 2000, "output_length": 300}
    work = {"model": "llama-3.1-70b", "precision": ["fp8"], "software": {"engine": "vllm"}, "serving": load}
    one = {"gpu": ["h100-sxm5-80gb"], "provider": ["aws"], "max_instances": 1}
    rejections = {each["code"]: each for each in ask(client, "inference", one, **work)["rejections"]}
    relax = rejections["max_instances"]["relax"]
    choice = ask(client, "inference", {**one, **relax["to"]}, **work)["choices"][0]
    assert choice["instances"] > 1
    assert (relax["best"]["instance"], relax["best"]["usd_per_hour"]) == (full_name(choice), choice["usd_per_hour"])
