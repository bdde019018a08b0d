"""Platforms on the seed: which software runs on them, which take part in a question, and what code has to change."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.domain.jobs.stacks import STACKS
from tests.api.answers import all_items

Answer = Any
STACKS_OF_BENCHMARKS = {
    "mlperf-training",
    "mlperf-serving",
    "hai-llm",
    "early-pytorch-ngc",
    "pytorch-1",
    "paddle",
    "early-vllm",
    "torchscript",
}
"""Code that only its publisher runs, and stacks whose rules have the name of the framework or engine."""


def post(client: TestClient, path: str, **body: Any) -> Answer:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def rejected(answer: Answer) -> dict[str, Answer]:
    return {each["code"]: each for each in answer["rejections"]}


def platforms(answer: Answer) -> set[str]:
    return {choice["platform"] for choice in answer["choices"]}


@pytest.mark.parametrize("framework", ["unsloth", {"name": "Unsloth"}, {"name": "unsloth", "versions": ">=2025.1"}])
def test_software_is_offered_only_where_it_runs(client: TestClient, framework: Any) -> None:
    ask = {"workload": {"task": "training", "software": {"framework": framework}}, "objective": "fastest", "limit": 100}
    answer = post(client, "/recommend", **ask)
    assert platforms(answer) <= {"cuda", "rocm", "oneapi"}
    refused = rejected(answer)["software_framework"]
    assert refused["count"] > 50
    assert refused["relax"]["admits"] > 0
    again = post(client, "/recommend", **{**ask, "workload": {"task": "training"}})
    assert {"neuron", "xla"} <= platforms(again)


@pytest.mark.parametrize("task", ["training", "inference"])
def test_a_question_without_software_is_answered_with_gpus_that_run_the_mainstream_in_full(
    client: TestClient, task: str
) -> None:
    everyone = {"task": task, "precision": ["fp16", "bf16"]}
    answer = post(client, "/recommend", workload=everyone, objective="fastest", limit=100)
    vendors = {choice["gpu"]["id"].split("-")[0] for choice in answer["choices"]}
    assert "ascend" not in vendors
    refused = rejected(answer)["mainstream"]
    named = {**everyone, "software": {"platforms": refused["relax"]["to"]["workload.software.platforms"]}}
    again = post(client, "/recommend", workload=named, objective="fastest", limit=100)
    assert again["counts"]["admitted"] == answer["counts"]["admitted"] + refused["relax"]["admits"]


def test_code_for_tpus_admits_no_trainium(client: TestClient) -> None:
    """XLA compiles for both, and code for one of them does not run on the other."""
    work = {"task": "training", "model": "fcn-resnet50", "method": "qlora"}
    answer = post(client, "/recommend", workload=work)
    promised = rejected(answer)["mainstream"]["relax"]
    named = promised["to"]["workload.software.platforms"]
    assert "xla" in named
    assert "neuron" not in named
    written = {**work, "software": {"platforms": named}}
    again = post(client, "/recommend", workload=written, explain=["aws/trn1.2xlarge"])
    assert again["counts"]["admitted"] == answer["counts"]["admitted"] + promised["admits"]
    assert "software_platforms" in [each["code"] for each in again["explained"][0]["grounds"]]


def test_a_platform_that_admits_nothing_more_is_not_named(client: TestClient) -> None:
    """QLoRA of 70B on one GPU lacks nothing but code for ROCm on an MI350X."""
    work = {"task": "training", "model": "llama-3.3-70b", "method": "qlora", "amount": {"samples": 1000}}
    ask = {"workload": work, "constraints": {"max_gpu_count": 1}, "limit": 1}
    answer = post(client, "/recommend", **ask)
    relax = rejected(answer)["mainstream"]["relax"]
    names = relax["to"]["workload.software.platforms"]
    assert "cann" not in names
    again = post(client, "/recommend", **{**ask, "workload": {**work, "software": {"platforms": names}}})
    assert again["counts"]["admitted"] == answer["counts"]["admitted"] + relax["admits"]


@pytest.mark.parametrize(("versions", "partly"), [("==1.15", True), ("==2.3", True), (">=2.10", False)])
def test_tensorflow_without_cuda_11_runs_on_ampere_in_part(client: TestClient, versions: str, partly: bool) -> None:
    """Only builds of NVIDIA's own have code for it."""
    work = {"task": "training", "model": "resnet-50", "software": {"framework": f"tensorflow{versions}"}}
    answer = post(client, "/recommend", workload=work, constraints={"instance": ["p4d.24xlarge"]})
    assert ("software_partly" in {each["code"] for each in answer["choices"][0]["warnings"]}) is partly


@pytest.mark.parametrize(("name", "release"), [("torchvision", "0.22"), ("trl", "0.12"), ("pytorch-lightning", "1.9")])
def test_the_release_of_a_library_is_none_of_the_framework_that_it_runs_in(
    client: TestClient, name: str, release: str
) -> None:
    """torchvision 0.22 was taken for a PyTorch of before 1.0, which newer GPUs do not run."""
    work = {"task": "training", "model": "llama-3.1-8b", "method": "lora"}
    named, released = (
        post(client, "/recommend", workload={**work, "software": {"framework": text}})["counts"]
        for text in (name, f"{name}=={release}")
    )
    assert released == named


@pytest.mark.parametrize("framework", ["kohya", "onetrainer", "simpletuner", "ai-toolkit", "detectron2", "mmdet"])
def test_trainers_of_images_run_on_no_trainium(client: TestClient, framework: str) -> None:
    work = {"task": "training", "model": "sdxl", "method": "lora", "software": {"framework": framework}}
    limits = {"provider": ["aws"], "market": ["on_demand"]}
    answer = post(client, "/recommend", workload=work, constraints=limits, limit=100)
    assert platforms(answer) == {"cuda"}
    assert all("software_unrecognised" not in {each["code"] for each in c["warnings"]} for c in answer["choices"])


@pytest.mark.parametrize(("machine", "runs"), [("v3-8", False), ("ct5lp-hightpu-8t", True)])
def test_vllm_runs_on_the_tpus_that_its_documentation_lists(client: TestClient, machine: str, runs: bool) -> None:
    """A TPU v3 was the first choice for Gemma 3 27B in vLLM, and known to run it."""
    work = {"task": "inference", "model": "gemma-3-27b", "software": {"engine": "vllm"}, "concurrency": 8}
    answer = post(client, "/recommend", workload=work, constraints={"gpu_kind": ["tpu"]}, explain=[f"gcp/{machine}"])
    (explained,) = answer["explained"]
    assert ("software_engine" not in {each["code"] for each in explained["grounds"]}) is runs


@pytest.mark.parametrize("named", [{"gpu": ["ascend-910"]}, {"gpu_vendor": ["huawei"]}, {"platform": ["cann"]}])
def test_naming_hardware_names_its_platform(client: TestClient, named: Any) -> None:
    ask = {"workload": {"task": "training"}, "constraints": named}
    assert "mainstream" not in rejected(post(client, "/recommend", **ask))


def test_qlora_without_software_runs_where_its_library_does(client: TestClient) -> None:
    """The nf4 weights of PyTorch code need the kernels of bitsandbytes, which TPUs and Neuron devices lack."""
    work = {"task": "training", "model": "llama-2-13b", "sequence_length": 1024}
    ask = {"constraints": {"provider": ["gcp", "aws"]}, "objective": "fastest", "limit": 100}
    lora, qlora = (post(client, "/recommend", workload={**work, "method": each}, **ask) for each in ("lora", "qlora"))
    assert {"xla", "neuron"} <= platforms(lora)
    assert platforms(qlora) == {"cuda"}
    software = {"framework": "jax"}
    named = post(client, "/recommend", workload={**work, "method": "qlora", "software": software}, **ask)
    assert "xla" in platforms(named)


@pytest.mark.parametrize("framework", ["trl", "transformers", "pytorch"])
def test_qlora_in_a_trainer_of_pytorch_runs_where_its_library_does(client: TestClient, framework: str) -> None:
    """Trainium was the first choice for QLoRA in TRL, whose 4-bit weights are those of bitsandbytes."""
    work = {"task": "training", "model": "llama-3.1-8b", "method": "qlora", "software": {"framework": framework}}
    ask = {"constraints": {"provider": ["aws"]}, "limit": 100}
    answer = post(client, "/recommend", workload=work, **ask)
    assert platforms(answer) == {"cuda"}
    assert "neuron" in platforms(post(client, "/recommend", workload=work | {"method": "lora"}, **ask))
    # A caller who names the platform or the hardware knows of a way.
    for_neuron = work | {"software": {"framework": framework, "platforms": ["neuron"]}}
    on_trn1 = {"constraints": {"instance": ["trn1.2xlarge"]}}
    assert platforms(post(client, "/recommend", workload=for_neuron, **ask)) == {"neuron"}
    assert platforms(post(client, "/recommend", workload=work, **on_trn1)) == {"neuron"}


@pytest.mark.parametrize("model", ["mask-rcnn", "retinanet", "yolov8x"])
def test_detectors_train_in_pytorch_where_shapes_may_change(client: TestClient, model: str) -> None:
    """Trainium was the first choice for Mask R-CNN in PyTorch, whose regions differ in number from image to image."""
    work = {"task": "training", "model": model, "global_batch_size": 16}
    ask = {"constraints": {"provider": ["aws", "gcp"]}, "limit": 100}
    for software in ({}, {"software": {"framework": "torch==2.3"}}):
        assert platforms(post(client, "/recommend", workload=work | software, **ask)) == {"cuda"}
    in_jax = work | {"software": {"framework": "jax"}}
    assert "xla" in platforms(post(client, "/recommend", workload=in_jax, **ask))
    classifier = work | {"model": "resnet-50", "software": {"framework": "torch==2.3"}}
    assert "neuron" in platforms(post(client, "/recommend", workload=classifier, **ask))
    estimate = post(client, "/estimate", workload=work, machine="aws/trn1.2xlarge")
    (text,) = [each["text"] for each in estimate["warnings"] if "dynamic-shapes" in each["text"]]
    assert "each new shape of a batch is compiled for minutes" in text


def test_the_library_of_a_job_has_its_warning_whether_or_not_software_is_named(client: TestClient) -> None:
    """Only questions that named their software got the warning, and `POST /estimate` always had it."""
    work = {"task": "training", "model": "mask-rcnn", "global_batch_size": 16}
    ask = {"constraints": {"instance": ["ct5lp-hightpu-1t"]}}
    (plain,) = post(client, "/recommend", workload=work, **ask)["choices"]
    estimate = post(client, "/estimate", workload=work, machine="gcp/ct5lp-hightpu-1t")
    texts = [[each["text"] for each in answer["warnings"] if "dynamic-shapes" in each["text"]]
             for answer in (plain, estimate)]  # fmt: skip
    assert texts[0] == texts[1] != []


def test_weights_in_nf4_are_served_where_their_library_runs(client: TestClient) -> None:
    """vLLM calls bitsandbytes for them, which Neuron devices lack: they were offered without a word."""
    work = {"task": "inference", "model": "llama-3.1-8b", "concurrency": 8}
    ask = {"constraints": {"provider": ["gcp", "aws"]}, "limit": 100}
    int4, nf4 = (post(client, "/recommend", workload={**work, "precision": [each]}, **ask) for each in ("int4", "nf4"))
    assert "neuron" in platforms(int4)
    assert platforms(nf4) == {"cuda"}
    named = {**work, "weight_precision": "nf4", "software": {"engine": "vllm"}}
    ask = {"workload": named, "constraints": {"instance": ["aws/inf2.xlarge"]}}
    (choice,) = post(client, "/recommend", **ask)["choices"]
    estimate = post(client, "/estimate", workload=named, machine="aws/inf2.xlarge")
    for answer in (choice, estimate):
        (text,) = [each["text"] for each in answer["warnings"] if "bitsandbytes" in each["text"]]
        assert text == "bitsandbytes is not known to run on the AWS Inferentia2 32GB: the figures assume that it does."


def test_each_choice_says_its_platform_and_what_code_has_to_change(client: TestClient) -> None:
    ask = {"workload": {"task": "training"}, "objective": "fastest", "limit": 100}
    changes = {each["platform"]: each["code_change_required"] for each in post(client, "/recommend", **ask)["choices"]}
    assert changes["cuda"] is None
    assert "PyTorch/XLA" in changes["xla"]
    assert "HIP" in changes["rocm"]
    written_for_xla = {"task": "training", "software": {"platforms": ["xla", "cuda"]}}
    answer = post(client, "/recommend", workload=written_for_xla, constraints={"gpu_kind": ["tpu"]})
    assert {(each["platform"], each["code_change_required"]) for each in answer["choices"]} == {("xla", None)}


@pytest.mark.parametrize(
    ("task", "software", "expected"),
    [
        ("training", {}, {"xla"}),
        ("training", {"framework": "pytorch"}, {"xla"}),
        ("training", {"framework": "torchtune"}, set()),
        ("training", {"framework": "jax"}, {"xla", "cuda"}),
        ("inference", {"engine": "vllm"}, {"xla"}),
    ],
)
def test_code_for_xla_runs_on_cuda_only_if_its_framework_needs_no_other_code_there(
    client: TestClient, task: str, software: Answer, expected: set[str]
) -> None:
    """PyTorch/XLA, which is also meant without a framework, is for TPUs; JAX compiles the same code for both.

    An engine has a build for each platform, and torchtune none for XLA.
    """
    work: Answer = {"task": task, "model": "bert-large" if task == "training" else "llama-3.1-8b"}
    work["software"] = {**software, "platforms": ["xla"]}
    ask: Answer = {"workload": work, "constraints": {"provider": ["gcp"]}, "limit": 100}
    answer = post(client, "/recommend", **ask)
    assert platforms(answer) == expected
    if "cuda" not in expected:
        relax = rejected(answer)["software_platforms"]["relax"]
        assert relax["to"] == {"workload.software.platforms": ["xla", "cuda"]}
        work["software"]["platforms"] = ["xla", "cuda"]
        again = post(client, "/recommend", **ask)
        assert again["counts"]["admitted"] == answer["counts"]["admitted"] + relax["admits"]


@pytest.mark.parametrize("software", [{}, {"framework": "jax"}, {"engine": "vllm"}, {"platforms": ["xla"]}])
def test_an_estimate_asks_for_the_same_change_of_code_as_a_choice(client: TestClient, software: Any) -> None:
    work = {"task": "inference", "model": "llama-3.1-8b", "software": software}
    choice = post(client, "/recommend", workload=work, constraints={"gpu": ["tpu-v5e-16gb"]})["choices"][0]
    machine = f"{choice['provider']}/{choice['instance']}"
    estimate = post(client, "/estimate", workload=work, machine=machine, nodes=choice["nodes"])
    assert estimate["machine"]["platform"] == choice["platform"] == "xla"
    assert estimate["code_change_required"] == choice["code_change_required"]


@pytest.mark.parametrize(
    ("framework", "code"),
    [
        ("unsloth", "software_unsupported"),
        ("jax", "software_partly"),
        ("pytorch", None),
        ("pytorch<1.5", "software_unsupported"),
    ],
)
def test_an_estimate_warns_of_software_that_does_not_run_there_in_full(
    client: TestClient, framework: str, code: str | None
) -> None:
    work = {"task": "training", "model": "llama-3.1-8b", "software": {"framework": framework}}
    answer = post(client, "/estimate", workload=work, machine="aws/trn1.32xlarge")
    codes = {each["code"] for each in answer["warnings"]} & {"software_unsupported", "software_partly"}
    assert codes == ({code} if code else set())


def test_every_stack_lists_its_other_names_and_the_platforms_on_which_it_runs(client: TestClient) -> None:
    listed = {each["id"]: each for each in all_items(client, "/frameworks")}
    assert {stack.id for stack in STACKS} - listed.keys() == STACKS_OF_BENCHMARKS
    for stack in STACKS:
        if stack.id in listed:
            assert set(stack.aliases) <= set(listed[stack.id]["aliases"])
            assert any(each["supported"] == "yes" and each["sources"] for each in listed[stack.id]["platforms"])
    assert [each["id"] for each in all_items(client, "/frameworks?software=trtllm,SDPA")] == [
        "scaled-dot-product-attention",
        "tensorrt-llm",
    ]


def test_formats_that_store_blocks_say_their_bits_and_at_which_rate_they_are_multiplied(client: TestClient) -> None:
    formats = {each["id"]: each for each in all_items(client, "/precisions")}
    bits = {name: (formats[name]["bits"], formats[name]["stored_bits"], formats[name]["runs_as"]) for name in formats}
    assert bits["mxfp8"] == (8, 8.25, "fp8")
    assert bits["mxfp4"] == (4, 4.25, "fp4")
    assert bits["nvfp4"] == (4, 4.5, "fp4")
    assert bits["nf4"] == (4, 4.5, "bf16")
    assert bits["nf4-dq"] == (4, 4.127, "bf16")
    gpus = {gpu["id"] for gpu in all_items(client, "/gpus?precision=nvfp4")}
    assert "b200-sxm-180gb" in gpus
    assert not gpus & {"mi355x-288gb", "h100-sxm5-80gb"}  # MX formats alone, and no format of 4 bits


def test_only_gpus_with_a_rate_in_mxfp8_run_it(client: TestClient) -> None:
    gpus = all_items(client, "/gpus?precision=mxfp8")
    assert {gpu["architecture"] for gpu in gpus} == {"blackwell", "blackwell-ultra", "cdna-4", "neuroncore-v4"}
    assert not {gpu["id"] for gpu in gpus} & {"rtx-5090-32gb", "rtx-pro-6000-server-96gb"}  # compute capability 12.0
    work = {"task": "training", "model": "llama-3.1-8b", "precision": ["mxfp8"], "amount": {"tokens": 1e9}}
    answer = post(client, "/recommend", workload=work, objective="cheapest", limit=20)
    assert {choice["gpu"]["id"] for choice in answer["choices"]} <= {gpu["id"] for gpu in gpus}
    serves = {"task": "inference", "model": "llama-3.1-8b", "precision": ["mxfp8"], "software": {"engine": "vllm"}}
    stored = post(client, "/estimate", workload=serves, machine="aws/p5.48xlarge")
    assert "precision_stored" in {each["code"] for each in stored["warnings"]}


@pytest.mark.parametrize("framework", [{}, {"versions": "2.3"}, {"name": 3}, {"name": "pytorch", "version": "2.3"}])
def test_software_as_an_object_needs_its_name_and_no_other_fields(client: TestClient, framework: Any) -> None:
    work = {"task": "training", "software": {"framework": framework}}
    answer = client.post("/recommend", json={"workload": work})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "workload.software.framework"


# CPUs

SMALL = {"task": "inference", "model": "resnet-50", "amount": {"samples": 1e6}}


@pytest.mark.parametrize(
    "ask",
    [
        {"workload": {**SMALL, "software": {"platforms": ["cpu"]}}, "constraints": {"provider": ["aws"]}},
        {"workload": SMALL, "constraints": {"family": ["c5", "c6i"]}},
        {"workload": SMALL, "constraints": {"provider": ["aws"], "max_gpu_count": 0}},
        {"workload": SMALL, "constraints": {"provider": ["aws"], "platform": ["CPU"]}},
    ],
)
def test_a_job_on_cpus_is_estimated_within_their_peak(client: TestClient, ask: Any) -> None:
    answer = post(client, "/recommend", **ask)
    assert platforms(answer) == {"cpu"}
    for choice in answer["choices"]:
        estimate = choice["estimate"]
        flops = estimate["samples_per_second"]["likely"] * 8.178e9  # operations of an image (models.csv)
        assert 0 < flops <= choice["specs"]["cpu_fp32_tflops"] * 1e12
        assert estimate["precision"] == "fp32"
        assert estimate["usd"]["likely"] > 0
        assert "without_gpu" in {warning["code"] for warning in choice["warnings"]}
        assert "the machine can use" in next(each["text"] for each in choice["reasons"] if each["code"] == "fits")


def test_twice_the_cpus_do_about_twice_the_work(client: TestClient) -> None:
    answer = post(client, "/recommend", workload=SMALL, constraints={"family": ["c5"]}, objective="fastest")
    rates = {each["instance"]: each["estimate"]["samples_per_second"]["likely"] for each in answer["choices"]}
    assert list(rates) == ["c5.9xlarge", "c5.4xlarge", "c5.2xlarge", "c5.xlarge"]
    assert rates["c5.4xlarge"] == pytest.approx(2 * rates["c5.2xlarge"], rel=0.1)


def test_an_estimate_and_a_choice_on_cpus_are_the_same(client: TestClient) -> None:
    choice = post(client, "/recommend", workload=SMALL, constraints={"instance": ["c5.4xlarge"]})["choices"][0]
    estimate = post(client, "/estimate", workload=SMALL, machine="aws/c5.4xlarge")
    assert estimate["machine"]["gpu"] is None
    assert estimate["machine"]["platform"] == "cpu"
    assert estimate["estimate"]["samples_per_second"] == choice["estimate"]["samples_per_second"]
    assert estimate["code_change_required"] == choice["code_change_required"]


def test_cpus_are_left_out_of_a_job_unless_they_are_asked_for(client: TestClient) -> None:
    answer = post(client, "/recommend", workload=SMALL, constraints={"provider": ["aws"]})
    assert "cpu" not in platforms(answer)
    # Naming the platform cpu would admit the CPUs and leave out every GPU.
    assert rejected(answer)["without_gpu"]["relax"] is None


@pytest.mark.parametrize(("engine", "of_cpus"), [("openvino", True), ("onnxruntime", False), ("llama.cpp", False)])
def test_an_engine_of_cpus_asks_for_them(client: TestClient, engine: str, of_cpus: bool) -> None:
    work = {"task": "inference", "model": "bge-small-en-v1.5", "software": {"engine": engine}}
    answer = post(client, "/recommend", workload=work, constraints={"provider": ["aws"]})
    assert platforms(answer) == ({"cpu"} if of_cpus else {"cuda"})


def test_a_model_that_is_too_large_for_the_memory_of_cpus_is_rejected_there(client: TestClient) -> None:
    work = {"task": "inference", "model": "llama-3.1-70b", "software": {"platforms": ["cpu"]}}
    answer = post(client, "/recommend", workload=work, constraints={"provider": ["aws"]})
    assert not answer["choices"]
    assert rejected(answer)["gpu_memory"]["count"] >= 20


@pytest.mark.parametrize("engine", [None, "abacus"])
def test_dropping_software_admits_what_it_promised_whatever_else_is_named(
    client: TestClient, engine: str | None
) -> None:
    """An unknown name too says that the code is not of the mainstream framework."""
    software = {"framework": "tensorrt-llm", "engine": engine}
    ask = {"workload": {"task": "inference", "software": software}, "limit": 1}
    before = post(client, "/recommend", **ask)
    relax = rejected(before)["software_framework"]["relax"]
    changed = {**software, "framework": relax["to"]["workload.software.framework"]}
    after = post(client, "/recommend", **{**ask, "workload": {"task": "inference", "software": changed}})
    assert after["counts"]["admitted"] - before["counts"]["admitted"] == relax["admits"]


@pytest.mark.parametrize("library", ["flash-attn", {"name": "flash_attn", "versions": ">=2"}, "flash-attention>=2.3"])
def test_a_library_is_known_by_its_common_names_and_written_as_a_text_or_an_object(
    client: TestClient, library: Any
) -> None:
    work = {"task": "training", "software": {"libraries": [library]}}
    types = {"instance": ["p3.16xlarge", "p4d.24xlarge"]}
    answer = post(client, "/recommend", workload=work, constraints=types, as_of="2023-06-07")
    assert [choice["instance"] for choice in answer["choices"]] == ["p4d.24xlarge"]


def test_a_library_without_a_name_is_refused(client: TestClient) -> None:
    body = {"workload": {"task": "training", "software": {"libraries": [{"nme": "dali"}]}}}
    answer = client.post("/recommend", json=body)
    assert answer.status_code == 422
    assert "Did you mean workload.software.libraries.0.name?" in answer.text


@pytest.mark.parametrize("platform", ["synapse", "rocm"])
def test_code_that_runs_nowhere_is_best_written_for_the_platform_of_most_gpus(
    client: TestClient, platform: str
) -> None:
    """XLA also compiles for GPUs of other platforms, so it runs on more types than CUDA does."""
    ask = {"workload": {"task": "training", "software": {"platforms": [platform]}}}
    relax = rejected(post(client, "/recommend", **ask))["software_platforms"]["relax"]
    assert relax["to"] == {"workload.software.platforms": [platform, "cuda"]}
    workload = {"task": "training", "software": {"platforms": [platform, "cuda"]}}
    before, after = (
        post(client, "/recommend", workload=work)["counts"]["admitted"] for work in (ask["workload"], workload)
    )
    assert after - before == relax["admits"]


# Families of models and formats of weights


def gpus(answer: Answer) -> set[str]:
    return {choice["gpu"]["id"] for choice in answer["choices"]}


def warned(answer: Answer) -> set[str]:
    return {warning["code"] for warning in answer["warnings"]}


@pytest.mark.parametrize("model", ["resnet-50", "unet-2d", "stable-diffusion-1.5", "faster-rcnn-resnet50-fpn"])
def test_trainium_2_trains_no_networks_of_convolutions(client: TestClient, model: str) -> None:
    work = {"task": "training", "model": model, "software": {"framework": "pytorch"}}
    answer = post(client, "/recommend", workload=work, constraints={"provider": "aws"}, objective="fastest", limit=100)
    assert not gpus(answer) & {"trainium2-96gb", "trainium3-144gb"}
    assert rejected(answer)["software_model"]["count"] >= 4
    estimate = post(client, "/estimate", workload={"task": "training", "model": model}, machine="aws/trn2.48xlarge")
    assert "software_model" in warned(estimate)


def test_trainium_1_trains_a_resnet_in_part_and_language_models_in_full(client: TestClient) -> None:
    for model, code in {"resnet-50": {"software_partly"}, "gpt2": set()}.items():
        work = {"task": "training", "model": model, "software": {"framework": "pytorch"}}
        answer = post(client, "/recommend", workload=work, constraints={"family": ["trn1"]}, limit=1)
        assert warned(answer["choices"][0]) & {"software_partly"} == code
        mainstream = post(client, "/recommend", workload={"task": "training", "model": model}, limit=100)
        assert ("neuron" in platforms(mainstream)) <= (not code)


@pytest.mark.parametrize(
    ("model", "on_inferentia_1", "on_inferentia_2"),
    [
        ("gpt2", "software_model", None),
        ("stable-diffusion-1.5", "software_model", None),
        ("t5-small", "software_partly", None),
        ("whisper-base", "software_partly", None),
        ("bert-base", None, None),
    ],
)
def test_inferentia_1_serves_encoders_and_inferentia_2_decoders_too(
    client: TestClient, model: str, on_inferentia_1: str | None, on_inferentia_2: str | None
) -> None:
    work, codes = {"task": "inference", "model": model}, {"software_model", "software_partly"}
    for machine, code in {"aws/inf1.6xlarge": on_inferentia_1, "aws/inf2.xlarge": on_inferentia_2}.items():
        answer = post(client, "/estimate", workload=work, machine=machine)
        assert warned(answer) & codes == ({code} if code else set())
        family = {"family": [machine.removeprefix("aws/").split(".")[0]]}
        counts = post(client, "/recommend", workload=work, constraints=family)["counts"]
        assert (counts["admitted"] == 0) == (code == "software_model")


LOAD = {"requests_per_second": 2, "input_length": 1000, "output_length": 300}


@pytest.mark.parametrize(
    ("engine", "model", "precision", "runs", "lacks"),
    [
        ("tensorrt-llm", "gpt-oss-20b", None, {"h100", "b200", "rtx 5090"}, {"a6000", "a100", "rtx 4090", "l40s"}),
        ("tensorrt-llm", "llama-3.1-8b", "nvfp4", {"b200", "rtx 5090"}, {"a6000", "a100", "rtx 3090"}),
        ("tensorrt-llm", "llama-3.1-8b", "fp8", {"l4", "h100"}, {"a100", "t4"}),
        ("tensorrt-llm", "llama-3.1-8b", "int4", {"a100", "h100"}, {"b200"}),
        ("vllm", "gpt-oss-20b", None, {"a100", "l4", "mi300x"}, {"t4"}),
        ("vllm", "llama-3.1-8b", "nf4", {"a100", "t4"}, {"mi300x"}),
        ("lmdeploy", "llama-3.1-8b", "fp8", {"l4", "h100"}, {"a100", "t4", "v100"}),
        ("tgi", "gpt-oss-20b", None, set(), {"a100", "h100", "b200"}),
        ("llama.cpp", "gpt-oss-20b", None, {"t4", "a100"}, set()),
    ],
)
def test_engines_run_formats_on_the_architectures_that_they_list(
    client: TestClient, engine: str, model: str, precision: str | None, runs: set[str], lacks: set[str]
) -> None:
    work = {"task": "inference", "model": model, "software": {"engine": engine}, "serving": LOAD}
    work |= {} if precision is None else {"precision": [precision]}
    for gpu in sorted(runs | lacks):
        answer = post(client, "/recommend", workload=work, constraints={"gpu": [gpu]}, limit=1)
        assert (answer["counts"]["admitted"] > 0) == (gpu in runs), gpu
        if gpu in lacks:
            text = rejected(answer)["software_format"]["text"]
            assert f"format there, {precision or 'mxfp4'}." in text


def test_an_estimate_warns_of_a_format_that_the_engine_does_not_run(client: TestClient) -> None:
    work = {"task": "inference", "model": "gpt-oss-20b", "software": {"engine": "tensorrt-llm"}}
    answer = post(client, "/estimate", workload=work, machine="aws/p4d.24xlarge")
    [text] = [each["text"] for each in answer["warnings"] if each["code"] == "software_format"]
    assert text.startswith("tensorrt-llm is not known to do inference with weights in mxfp4 on the NVIDIA A100")
    assert "software_format" not in warned(post(client, "/estimate", workload=work, machine="aws/p6-b200.48xlarge"))


def test_a_list_of_formats_runs_where_one_of_them_does(client: TestClient) -> None:
    work = {"task": "inference", "model": "llama-3.1-8b", "software": {"engine": "tensorrt-llm"}, "serving": LOAD}
    both = work | {"precision": ["nvfp4", "bf16"]}
    assert post(client, "/recommend", workload=both, constraints={"gpu": ["a100"]})["counts"]["admitted"] > 0


def test_pytorch_of_a_version_needs_the_cuda_of_its_builds(client: TestClient) -> None:
    def ask(cuda: str) -> Answer:
        work = {"task": "training", "model": "bert-base", "software": {"framework": "pytorch==2.8", "cuda": cuda}}
        return post(client, "/recommend", workload=work, constraints={"architecture": ["pascal"]})

    refused = ask("12.8")
    assert refused["counts"]["admitted"] == 0
    relax = rejected(refused)["software_cuda"]["relax"]
    admitted = ask(relax["to"]["workload.software.cuda"])
    assert admitted["counts"]["admitted"] == relax["admits"] > 0
    [text] = [each["text"] for each in admitted["choices"][0]["warnings"] if each["code"] == "software_partly"]
    assert "only in the CUDA 12.6 builds" in text


def test_software_shows_the_families_formats_and_builds_of_its_rules(client: TestClient) -> None:
    listed = {each["id"]: each for each in all_items(client, "/frameworks?software=neuron,tensorrt-llm,pytorch")}
    assert {"llm,moe,hybrid_moe"} <= {rule["families"] for rule in listed["neuron"]["rules"]}
    assert {"fp8", "mxfp4,nvfp4"} <= {rule["formats"] for rule in listed["tensorrt-llm"]["rules"]}
    assert ">=12.6,<12.7" in {rule["cuda"] for rule in listed["pytorch"]["rules"]}
    assert [each["supported"] for each in listed["neuron"]["platforms"] if each["platform"] == "neuron"] == ["yes"]


@pytest.mark.parametrize("work", [{"method": "qlora"}, {"optimizer": "adamw_8bit"}])
def test_kernels_of_pytorch_code_that_do_not_run_there_have_a_warning(client: TestClient, work: Answer) -> None:
    """Neither QLoRA nor 8-bit states run in part on a TPU, for which bitsandbytes has no kernels."""
    workload = {"task": "training", "model": "llama-3.1-8b", "precision": ["bf16"], "sequence_length": 2048, **work}
    named = {**workload, "software": {"framework": "pytorch"}}
    in_jax = {**workload, "software": {"framework": "maxtext"}}
    expected = {("tpu", "pytorch"): {"software_unsupported"}, ("h100", "pytorch"): set(), ("tpu", "maxtext"): set()}
    machines = {"tpu": "gcp/ct6e-standard-8t", "h100": "aws/p5.48xlarge"}
    for (machine, framework), codes in expected.items():
        asked = named if framework == "pytorch" else in_jax
        constraints = {"instance": [machines[machine]]}
        (choice,) = post(client, "/recommend", workload=asked, constraints=constraints)["choices"]
        estimate = post(client, "/estimate", workload=asked, machine=machines[machine])
        for warnings in (choice["warnings"], estimate["warnings"]):
            texts = {each["code"]: each["text"] for each in warnings}
            found = {code for code, text in texts.items() if code.startswith("software") and "bitsandbytes" in text}
            assert found == codes, (machine, framework, texts)


def test_code_in_software_that_is_not_known_has_no_change(client: TestClient) -> None:
    """JetStream is of JAX: its users were asked to change code for PyTorch/XLA."""
    work = {"task": "inference", "model": "llama-3.1-8b", "precision": ["bf16"], "concurrency": 8}
    named = {**work, "software": {"engine": "jetstream"}}
    machine = "gcp/ct5lp-hightpu-8t"
    assert post(client, "/estimate", workload=named, machine=machine)["code_change_required"] is None
    (choice,) = post(client, "/recommend", workload=named, constraints={"instance": [machine]})["choices"]
    assert choice["code_change_required"] is None
    assert "PyTorch/XLA" in post(client, "/estimate", workload=work, machine=machine)["code_change_required"]


def test_a_layout_counts_chips_and_not_their_cores(client: TestClient) -> None:
    work = {"task": "inference", "model": "llama-3.1-70b", "precision": ["bf16"], "concurrency": 16}
    body = {"workload": work, "machine": "aws/inf2.48xlarge", "layout": {"tensor": 24}}
    answer = client.post("/estimate", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"].endswith("A layout counts each AWS Inferentia2 32GB once, and not its cores.")
