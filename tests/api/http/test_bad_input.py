"""Every request gets a good answer or a problem that names the field, and never a failure of the service."""

import gzip
import json
import socket
from collections.abc import Iterator
from time import thread_time
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.api.http import body as body_reading
from service.api.http.body import read_json
from service.api.http.problems import BodyUnreadable
from service.api.http.usual_words import MEANINGS
from tests.api.raw_asgi import JSON, KEY, Answer, call, get, recommend
from tests.server import Server

MANY = ",".join(["a100"] * 10_000)
LISTS = ("/instances", "/gpus", "/prices", "/precisions", "/providers", "/regions", "/frameworks", "/sources")
GETS = (*LISTS, "/instances/aws/g5.xlarge", "/instances/aws/g5.xlarge/similar", "/gpus/a100", "/catalog")


def is_problem(answer: Answer, status: int, field: str | None = None, near: str | None = None) -> None:
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    response = answer.json()
    assert response["status"] == status
    assert response["detail"].endswith((".", "?", ")")), response["detail"]
    if field is not None:
        assert answer.fields[0] == field, response
    if near is not None:
        assert near in answer.near, response
        assert near in response["errors"][0]["message"]


# Queries


@pytest.mark.parametrize(
    ("target", "field", "near"),
    [
        ("/instances?precison=bf16", "precison", "precision"),
        ("/gpus?vendro=nvidia", "vendro", "vendor"),
        ("/prices?from_=2020-01-01", "from_", "from"),
        ("/compare?instances=g5.xlarge&instance=g5.xlarge", "instances", "instance"),
        ("/instances?precision=fp7", "precision", "fp8"),
        ("/instances?precision=bf16,fp7", "precision", "fp8"),
        ("/instances?gpu=a10000", "gpu", "a100"),
        ("/instances?provider=awz", "provider", "aws"),
        ("/instances?region=us-esat-1", "region", "us-east-1"),
        ("/instances?country=DEE", "country", "DE"),
        ("/instances?country=Germny", "country", "Germany"),
        ("/instances?family=p6-b20", "family", "p6-b200"),
        ("/instances?continent=europa", "continent", "europe"),
        ("/instances?seller_class=hyperscalar", "seller_class", "hyperscaler"),
        ("/instances?family=g55", "family", "g5"),
        ("/instances?instance=g5.12xlrge", "instance", "g5.12xlarge"),
        ("/instances?instance=aws/g5.12xlrge", "instance", "aws/g5.12xlarge"),
        ("/instances?framework=pytorhc", "framework", "pytorch"),
        ("/instances?sort=usd_per_huor", "sort", "usd_per_hour"),
        ("/instances?sort=-vcpu", "sort", "vcpus"),
        ("/instances?sort=-price", "sort", "usd_per_hour"),
        ("/instances?sort=-vram", "sort", "gpu_memory_gb"),
        ("/instances?min_price=1", "min_price", "max_usd_per_hour"),
        ("/instances?market=spott", "market", "spot"),
        ("/instances?gpu_vendor=nvidea", "gpu_vendor", "nvidia"),
        ("/instances?gpu_kind=tpus", "gpu_kind", "tpu"),
        ("/instances?architecture=amper", "architecture", "ampere"),
        ("/instances?cpu_architecture=x68_64", "cpu_architecture", "x86_64"),
        ("/instances?interconnect=nvlinc", "interconnect", "nvlink"),
        ("/instances?lifecycle=retird", "lifecycle", "retired"),
        ("/instances?task=trainig", "task", "training"),
        ("/instances?precision_support=nativ", "precision_support", "native"),
        ("/instances?service=sagemakr", "service", "sagemaker"),
        ("/gpus?vendor=nvidea", "vendor", "nvidia"),
        ("/gpus?kind=gpus", "kind", "gpu"),
        ("/gpus?architecture=amper", "architecture", "ampere"),
        ("/gpus?provider=awz", "provider", "aws"),
        ("/gpus?precision=bf17", "precision", "bf16"),
        ("/gpus?sort=memory", "sort", "memory_gb"),
        ("/prices?instance=g5.12xlrge", "instance", "g5.12xlarge"),
        ("/prices?provider=awz", "provider", "aws"),
        ("/prices?region=us-esat-1", "region", "us-east-1"),
        ("/prices?zone=AP-IN-2", "zone", "AP-IN-1"),
        ("/prices?market=spott", "market", "spot"),
        ("/prices?gpu=a10000", "gpu", "a100"),
        ("/prices?sort=price", "sort", "usd_per_hour"),
        ("/prices?sort=date", "sort", "observed_on"),
        ("/prices?date=2026-01-01", "date", "as_of"),
        ("/measurements?sort=date", "sort", "measured_on"),
        ("/regions?continent=europa", "continent", "europe"),
        ("/regions?provider=awz", "provider", "aws"),
        ("/regions?region=us-esat-1", "region", "us-east-1"),
        ("/regions?name=us-east-1", "name", "region"),
        ("/providers?provider=awz", "provider", "aws"),
        ("/providers?id=aws", "id", "provider"),
        ("/instances?name=p4d.24xlarge", "name", "instance"),
        ("/instances?model=h100", "model", "gpu"),
        ("/gpus?id=h100", "id", "gpu"),
        ("/models?model=llama", "model", "q"),
        ("/gpus?q=h100", "q", "gpu"),
        ("/prices?country=DE", "country", "region"),
        ("/prices?page=2", "page", "cursor"),
        ("/prices?page_size=10", "page_size", "limit"),
        ("/instances?order=usd_per_hour", "order", "sort"),
        ("/measurements?name=llama", "name", "q"),
        ("/frameworks?framework=pytorch", "framework", "software"),
        ("/instances?region=us-east-11", "region", "us-east-1"),
        ("/instances?region=eu-west-9", "region", "eu-west-1"),
        ("/sources?source=article-autodl", "source", "article-autodl-2022"),
        ("/frameworks?software=pytorhc", "software", "pytorch"),
        ("/compare?instance=g5.12xlrge", "instance", "g5.12xlarge"),
        ("/compare?instance=g5.xlarge&baseline=g5.12xlrge", "baseline", "g5.12xlarge"),
        ("/compare?instance=g5.xlarge&workload=alexnet", "workload", "alexnet_train"),
        ("/compare?instance=g5.xlarge&precision=bf17", "precision", "bf16"),
        ("/compare?instance=g5.xlarge&region=us-esat-1", "region", "us-east-1"),
    ],
)
def test_a_misspelt_name_gets_its_near_ones(app: FastAPI, target: str, field: str, near: str) -> None:
    is_problem(get(app, target), 422, field, near)


@pytest.mark.parametrize("path", ["/feeds", "/catalog", "/catalog/unmapped", "/recommend/codes", "/precisions"])
def test_a_list_refuses_a_parameter_that_it_does_not_have(app: FastAPI, path: str) -> None:
    is_problem(get(app, f"{path}?colour=red"), 422, "colour")


def test_near_names_of_one_length_come_in_the_order_of_the_catalog_and_not_of_a_set(app: FastAPI) -> None:
    ids = [region.id for region in app.state.live_catalog.on(None).reference.regions]
    containing = sorted((name for name in dict.fromkeys(ids) if "outh" in name), key=len)
    near = get(app, "/instances?region=outh").near
    assert near == containing[:3]


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("/instances?min_vcpus=-1", "min_vcpus"),
        ("/instances?max_usd_per_hour=-0.01", "max_usd_per_hour"),
        ("/instances?min_vcpus=9&max_vcpus=2", "min_vcpus"),
        ("/gpus?min_memory_gb=9&max_memory_gb=2", "min_memory_gb"),
        ("/gpus?min_released_year=2022&max_released_year=2020", "min_released_year"),
        # Of several empty ranges, every process names the same one.
        (
            "/instances?min_vcpus=9&max_vcpus=2&min_gpu_count=9&max_gpu_count=2&min_memory_gib=9&max_memory_gib=2",
            "min_gpu_count",
        ),
        ("/instances?min_vcpus=nan", "min_vcpus"),
        ("/instances?min_vcpus=Infinity", "min_vcpus"),
        ("/instances?min_vcpus=-inf", "min_vcpus"),
        ("/instances?min_vcpus=1e999", "min_vcpus"),
        ("/instances?min_vcpus=" + "9" * 400, "min_vcpus"),
        ("/instances?min_vcpus=" + "9" * 9000, "min_vcpus"),
        ("/instances?min_vcpus=many", "min_vcpus"),
        ("/instances?min_vcpus=", "min_vcpus"),
        ("/instances?min_tflops=1", "precision"),
        ("/instances?precision_support=any", "precision"),
        ("/instances?sort=tflops", "sort"),
        ("/instances?sort=", "sort"),
        ("/instances?sort=-", "sort"),
        ("/instances?sort=--vcpus", "sort"),
        ("/instances?gpu=,", "gpu"),
        ("/instances?rdma=perhaps", "rdma"),
        ("/instances?q=" + "x" * 100_000, "q"),
        (f"/instances?gpu={MANY}", "gpu"),
        ("/instances?" + "&".join(["gpu=a100"] * 10_000), "gpu"),
        ("/instances?gpu=%ff", "gpu"),
        ("/instances?gpu=%00", "gpu"),
        (b"/instances?gpu=\xff\xfe", "gpu"),
        ("/instances?%ff=1", "�"),
        ("/regions?country=Atlantis", "country"),
        ("/prices?from=2020-01-02&to=2019-01-01", "from"),
        ("/prices?from=soon", "from"),
        ("/prices?to=2020-13-01", "to"),
        ("/compare", "instance"),
        ("/compare?instance=", "instance"),
        ("/instances/aws/g5.xlarge/similar?limit=101", "limit"),
        ("/gpus?min_memory_gb=nan", "min_memory_gb"),
    ],
)
def test_a_bad_value_is_reported_with_its_parameter(app: FastAPI, target: str | bytes, field: str) -> None:
    is_problem(get(app, target), 422, field)


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("limit", ["0", "501", "-1", "abc", "", "1.5", "9" * 5000])
def test_a_bad_limit(app: FastAPI, path: str, limit: str) -> None:
    is_problem(get(app, f"{path}?limit={limit}"), 422, "limit")


@pytest.mark.parametrize("path", [*GETS, "/compare?instance=g5.xlarge"])
@pytest.mark.parametrize(
    "day",
    ["2099-01-01", "2005-12-31", "0001-01-01", "2022-02-30", "yesterday", "", "20220217", "2022-2-17", "1645056000",
     "0", "-1e30", "1e999", "nan", "2022-02-17T00:00:00", "２０２２-02-17", "%00"],
)  # fmt: skip
def test_a_day_that_no_catalog_has(app: FastAPI, path: str, day: str) -> None:
    is_problem(get(app, f"{path}{'&' if '?' in path else '?'}as_of={day}"), 422, "as_of")


@pytest.mark.parametrize("path", GETS)
def test_an_unknown_parameter(app: FastAPI, path: str) -> None:
    is_problem(get(app, f"{path}?as_off=2022-02-17"), 422, "as_off")


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    "cursor",
    [
        "", "abc", "%ff", "%00", "====", "W10=", "bnVsbA==", "MQ==", "A" * 100_000, "W1tb" * 240,
        "WyJhIiwxZTk5OSwiYiJd", "WyJhIiwtMSwiYiJd", "WyJhIixudWxsLHt9XQ==", "WyJhIiwxLCJcdWQ4MDAiXQ==",
        "eyJhIjogMX0=", "WyJhIiwgdHJ1ZSwgImIiXQ==",
    ],
)  # fmt: skip
def test_a_cursor_that_no_answer_contained(app: FastAPI, path: str, cursor: str) -> None:
    is_problem(get(app, f"{path}?cursor={cursor}"), 422, "cursor")


def test_a_cursor_of_another_question(app: FastAPI) -> None:
    cursor = get(app, "/instances?limit=1&provider=aws").json()["next_cursor"]
    assert get(app, f"/instances?limit=2&provider=aws&cursor={cursor}").status == 200
    for other in ("/instances?provider=gcp", "/instances?provider=aws&sort=name", "/instances", "/gpus?provider=aws"):
        is_problem(get(app, f"{other}{'&' if '?' in other else '?'}cursor={cursor}"), 422, "cursor")


@pytest.mark.parametrize(
    ("target", "field", "near"),
    [
        ("/gpus/T100", "id", "t4"),
        ("/gpus/a10000", "id", "a100"),
        ("/gpus/%ff", "id", None),
        ("/gpus/%00", "id", None),
        ("/instances/aws/g5.12xlrge", "name", "aws/g5.12xlarge"),
        ("/instances/awz/g5.12xlarge", "name", "aws/g5.12xlarge"),
        ("/instances/aws/%ff", "name", None),
        ("/instances/aws/g5.12xlrge/similar", "name", "aws/g5.12xlarge"),
        ("/gpus/a/b", None, None),
        ("/nothing", None, None),
        ("/docs/files/../../settings.py", None, None),
        ("/docs/files/%2e%2e/%2e%2e/settings.py", None, None),
    ],
)
def test_an_address_of_nothing(app: FastAPI, target: str, field: str | None, near: str | None) -> None:
    is_problem(get(app, target), 404, field, near)


def test_a_name_too_long_for_any(app: FastAPI) -> None:
    is_problem(get(app, "/gpus/" + "x" * 5000), 422, "id")


@pytest.mark.parametrize("path", [*GETS, "/compare", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/"])
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_a_method_that_an_address_does_not_take(app: FastAPI, path: str, method: str) -> None:
    answer = call(app, method, path)
    is_problem(answer, 405)
    assert "GET" in answer.headers["allow"]
    assert "GET" in answer.json()["detail"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "BREW"])
def test_recommend_is_asked_by_post(app: FastAPI, method: str) -> None:
    answer = call(app, method, "/recommend")
    is_problem(answer, 405)
    assert answer.headers["allow"] == "POST"


# Bodies


def asked(**more: Any) -> dict[str, Any]:
    return {"workload": {"task": "training"}, **more}


def constrained(**constraints: Any) -> dict[str, Any]:
    return asked(constraints=constraints)


def working(**workload: Any) -> dict[str, Any]:
    return {"workload": {"task": "training", **workload}}


def test_an_unknown_field_of_an_object_gets_the_fields_of_this_object_first(client: TestClient) -> None:
    body = {"measured": {"samples_per_second": 100, "amount": {"samples": 1e7}}, "machine": "aws/g5.xlarge"}
    answer = client.post("/estimate", json=body).json()
    assert answer["errors"][0]["near"] == ["measured.samples", "measured.tokens", "workload.amount"]


@pytest.mark.parametrize(
    ("body", "field", "near"),
    [
        (asked(constrants={}), "constrants", "constraints"),
        (asked(wrkload={}), "wrkload", "workload"),
        (constrained(regoin=["us-east-1"]), "constraints.regoin", "constraints.region"),
        (working(precison=["bf16"]), "workload.precison", "workload.precision"),
        (working(host={"vcpu_per_gpu": 1}), "workload.host.vcpu_per_gpu", "workload.host.vcpus_per_gpu"),
        (working(amount={"token": 1}), "workload.amount.token", "workload.amount.tokens"),
        (asked(objective={"usdd": 1}), "objective.usdd", "objective.usd"),
        (asked(objective="cheepest"), "objective", "cheapest"),
        ({"workload": {"task": "trainig"}}, "workload.task", "training"),
        (working(method="qlorra"), "workload.method", "qlora"),
        (working(precision_support="nativ"), "workload.precision_support", "native"),
        (working(precision=["fp7"]), "workload.precision", "fp8"),
        (working(weight_precision="int44"), "workload.weight_precision", "int4"),
        (working(kv_cache_precision="bf17"), "workload.kv_cache_precision", "bf16"),
        (
            working(amount={"hours_on": {"instance": "p3.8xlarg", "hours": 1}}),
            "workload.amount.hours_on.instance",
            "p3.8xlarge",
        ),
        (working(software={"platforms": ["kuda"]}), "workload.software.platforms", "cuda"),
        (constrained(gpu=["a10000"]), "constraints.gpu", "a100"),
        (constrained(provider=["awz"]), "constraints.provider", "aws"),
        (constrained(region=["us-esat-1"]), "constraints.region", "us-east-1"),
        (constrained(market=["spott"]), "constraints.market", "spot"),
        (
            asked(
                workload={"task": "training", "fault_tolerant": False}, constraints={"market": ["spot", "on_demandd"]}
            ),
            "constraints.market",
            "on_demand",
        ),
        (constrained(family=["g55"]), "constraints.family", "g5"),
        (constrained(instance=["g5.12xlrge"]), "constraints.instance", "g5.12xlarge"),
        (constrained(framework=["pytorhc"]), "constraints.framework", "pytorch"),
        (constrained(interconnect=["nvlinc"]), "constraints.interconnect", "nvlink"),
        (constrained(exclude=["g5.12xlrge"]), "constraints.exclude", "aws/g5.12xlarge"),
        (asked(current_instance="p3.8xlarg"), "current_instance", "p3.8xlarge"),
        (asked(per="offers"), "per", "offer"),
    ],
)
def test_a_misspelt_name_in_a_body_gets_its_near_ones(
    app: FastAPI, body: dict[str, Any], field: str, near: str
) -> None:
    is_problem(recommend(app, body), 422, field, near)


TRAINING = {"task": "training", "model": "resnet-50"}


@pytest.mark.parametrize(
    ("path", "body", "near"),
    [
        ("/recommend", constrained(regions=["us-east-1"]), {"constraints.region"}),
        ("/estimate", {"hours": 1, "machine": {"gpu": "a100", "instance": "x"}}, set()),
        ("/estimate", {"hours": 1, "machine": {"gpus": "a100"}}, {"machine.gpu"}),
        ("/estimate", {"hours": 1, "machine": "p4d.24xlarge", "storage": [{"gibs": 1}]}, {"storage.0.gib"}),
        ("/estimate", {"hours": 1, "machine": "p4d.24xlarge", "storage": {"size": 1}}, {"storage.gib"}),
        ("/estimate", {"workload": {**TRAINING, "model": {"layer": 1}}, "machine": "x"}, {"workload.model.layers"}),
        ("/estimate/batch", {"item": []}, {"items"}),
        ("/estimate/batch", {"items": [{"hours": 1, "machine": {"gpu_counts": 8}}]}, {"machine.gpu_count"}),
        ("/recommend/batch", {"items": [working(precison=["bf16"])]}, {"workload.precision"}),
    ],
)  # fmt: skip
def test_near_names_of_an_unknown_field_are_paths_of_fields_in_the_same_object(
    app: FastAPI, path: str, body: dict[str, Any], near: set[str]
) -> None:
    answer = call(app, "POST", path, headers=JSON, chunks=[json.dumps(body).encode()]).json()
    error = next(
        error
        for problem in ([item["problem"] for item in answer["items"]] if "items" in answer else [answer])
        for error in problem["errors"]
        if error["message"].startswith("There is no field")
    )
    parent = error["field"].rpartition(".")[0]
    assert near <= set(error["near"])
    assert bool(near) == bool(error["near"])
    assert {name.rpartition(".")[0] for name in error["near"]} <= {parent}
    assert error["field"] not in error["near"]


@pytest.mark.parametrize(
    ("path", "body", "near"),
    [
        ("/recommend", {"gpu": ["a100"]}, "constraints.gpu"),
        ("/recommend", constrained(precision=["bf16"]), "workload.precision"),
        ("/recommend", {"engine": "vllm"}, "workload.software.engine"),
        ("/recommend", working(max_usd_per_hour=3), "constraints.max_usd_per_hour"),
        ("/estimate", {"hours": 1, "gpu_count": 8}, "machine.gpu_count"),
    ],
)
def test_a_field_in_the_wrong_object_gets_the_path_of_its_place(
    app: FastAPI, path: str, body: dict[str, Any], near: str
) -> None:
    answer = call(app, "POST", path, headers=JSON, chunks=[json.dumps(body).encode()]).json()
    assert any(error["near"][:1] == [near] for error in answer["errors"]), answer


def serving(**load: Any) -> dict[str, Any]:
    return {"workload": {"task": "inference", "model": "llama-3.1-8b", "serving": load}}


@pytest.mark.parametrize(
    ("path", "body", "near"),
    [
        ("/recommend", serving(rps=5), ["workload.serving.requests_per_second"]),
        ("/recommend", working(qps=5), ["workload.serving.requests_per_second"]),
        ("/recommend", serving(max_ttft_ms=500), ["workload.serving.max_seconds_to_first_token"]),
        ("/recommend", serving(TPOT=0.05), ["workload.serving.max_seconds_per_output_token"]),
        ("/recommend", serving(min_tokens_per_second=20), ["workload.serving.max_seconds_per_output_token"]),
        ("/recommend", serving(target_utilization=0.7), ["workload.serving.headroom"]),
        ("/recommend", working(gpu_memory_utilization=0.9), ["workload.memory_confidence"]),
        ("/recommend", serving(min_tokens_per_second_per_user=20), ["workload.serving.max_seconds_per_output_token"]),
        ("/recommend", serving(throughput=20), ["workload.serving.requests_per_second"]),
        ("/recommend", serving(eagle=True), ["workload.serving.speculative_acceptance"]),
        ("/recommend", working(model={"model_type": "llama"}), ["workload.model.huggingface_config"]),
        ("/recommend", asked(objective="throughput"), ["fastest"]),
        ("/recommend", asked(objective="latency"), ["fastest"]),
        ("/recommend", serving(isl=1000), ["workload.serving.input_length", "workload.input_length"]),
        ("/recommend", serving(images_per_request=1), ["workload.image_tokens"]),
        (
            "/recommend",
            serving(cost_per_million_tokens=0.5),
            ["constraints.max_usd_per_million_tokens", "constraints.budget_usd"],
        ),
        ("/recommend", working(dtype="bf16"), ["workload.precision", "workload.weight_precision"]),
        ("/estimate", {"machine": "x", "tensor_parallel_size": 2}, ["layout.tensor"]),
        ("/recommend/batch", {"items": [serving(rps=5)]}, ["workload.serving.requests_per_second"]),
        ("/recommend", asked(workload={"task": "sft"}), ["training"]),
        ("/recommend", asked(workload={"task": "training", "method": "sft"}), ["full", "lora"]),
        ("/recommend", asked(workload={"task": "embeddings"}), ["inference"]),
        ("/recommend", working(purpose="SFT"), ["finetune"]),
        (
            "/estimate",
            {"machine": "x", "gradient_accumulation_steps": 2},
            ["workload.global_batch_size", "layout.accumulation"],
        ),
        ("/recommend", working(per_device_train_batch_size=4), ["workload.batch_size"]),
        (
            "/estimate",
            {"machine": "x", "workload": {"task": "training", "gradient_checkpointing": True}},
            ["layout.activation_checkpointing"],
        ),
        ("/recommend", working(lora_rank=16), ["workload.trainable_parameters"]),
        ("/recommend", working(load_in_4bit=True), ["workload.method", "workload.weight_precision"]),
        ("/recommend", working(sample_packing=True), ["workload.mean_length"]),
        ("/recommend", working(freeze="encoder"), ["workload.trainable_parameters"]),
        ("/estimate", {"machine": "x", "tensor_model_parallel_size": 4}, ["layout.tensor"]),
        ("/recommend", serving(max_loras=4), ["workload.serving.adapters"]),
        ("/recommend", serving(max_lora_rank=64), ["workload.serving.adapter_rank"]),
        ("/recommend", serving(p90=1), ["workload.serving.percentile"]),
        ("/recommend", asked(constraints={"monthly_budget": 500}), ["constraints.budget_usd"]),
        ("/recommend", asked(constraints={"max_price": 10}), ["constraints.max_usd_per_hour"]),
        ("/recommend", asked(constraints={"spot": True}), ["constraints.market"]),
        ("/recommend", asked(constraints={"market": ["1y_savings_plan"]}), ["reserved"]),
        (
            "/recommend",
            asked(constraints={"generation": 5}),
            [f"constraints.{name}_generation" for name in ("min", "max", "min_tensor_core")],
        ),
        ("/recommend", asked(num_gpus=8), ["constraints.min_gpu_count"]),
        ("/estimate", {"machine": {"gpu": "h100", "gpus": 8}, "hours": 1}, ["machine.gpu_count", "machine.gpu"]),
        (
            "/recommend",
            {"workload": {"task": "training"}, "objective": {"cost": 1}},
            ["objective.usd", "previous_objective.usd"],
        ),
        ("/recommend", asked(objective="lowest_cost"), ["cheapest"]),
        ("/recommend", constrained(min_vram_gb=24), ["constraints.min_gpu_memory_gb"]),
        ("/recommend", constrained(gpu_type="a100"), ["constraints.gpu"]),
        ("/recommend", constrained(cloud="aws"), ["constraints.provider"]),
        ("/recommend", constrained(location="Frankfurt"), ["constraints.region"]),
        ("/recommend", constrained(infiniband=True), ["constraints.rdma"]),
        ("/recommend", constrained(nvlink=True), ["constraints.interconnect"]),
        (
            "/recommend",
            constrained(min_compute_capability=8.0),
            ["constraints.architecture", "constraints.min_tensor_core_generation"],
        ),
        ("/recommend", constrained(num_nodes=4), ["constraints.max_nodes", "constraints.min_nodes"]),
        ("/estimate", {"machine": "x", "num_nodes": 4}, ["nodes"]),
        ("/recommend", working(model_name="llama"), ["workload.model", "constraints.gpu"]),
        (
            "/recommend",
            working(cpu_offload=True),
            ["workload.offload_parameters", "workload.offload_optimizer", "workload.offload_activations"],
        ),
        (
            "/recommend",
            constrained(gpu_count=4),
            ["constraints.min_gpu_count", "constraints.max_gpu_count", "objective.gpu_count"],
        ),
        (
            "/recommend",
            working(gpu_count=4),
            ["objective.gpu_count", "previous_objective.gpu_count", "constraints.min_gpu_count"],
        ),
        ("/recommend", constrained(price=2), ["constraints.max_usd_per_hour"]),
        ("/recommend", constrained(city="Paris"), ["constraints.region"]),
        ("/recommend", serving(requests_in_flight=8), ["workload.serving.concurrency", "workload.concurrency"]),
        ("/recommend", working(purpose="cpt"), ["pretrain"]),
        ("/recommend", working(purpose="reward_modeling"), ["reward"]),
        ("/recommend", working(method="full_finetune"), ["full"]),
    ],
)
def test_a_word_of_engines_and_benchmarks_gets_the_name_that_it_means(
    app: FastAPI, path: str, body: dict[str, Any], near: list[str]
) -> None:
    answer = call(app, "POST", path, headers=JSON, chunks=[json.dumps(body).encode()]).json()
    (error,) = (answer["items"][0]["problem"] if "items" in answer else answer)["errors"]
    assert error["near"] == near


def test_each_word_means_a_name_that_a_body_or_a_query_has(app: FastAPI) -> None:
    document = json.dumps(app.openapi())
    assert [name for names in MEANINGS.values() for name in names if f'"{name}"' not in document] == []


ODD: list[Any] = [None, True, 1, 1.5, -1, "x", "", [], [1], [None], [[]], [{}], {}, {"a": 1}, 10**400, [10**400]]


@pytest.mark.parametrize("value", ODD, ids=lambda value: json.dumps(value)[:20])
@pytest.mark.parametrize(
    "path",
    ["", "workload", "constraints", "objective", "current_instance", "limit", "per", "as_of", "workload.task",
     "workload.precision", "workload.model", "workload.model.layers", "workload.software",
     "workload.software.libraries", "workload.host", "workload.fault_tolerant", "workload.amount",
     "workload.amount.hours_on", "workload.checkpoint", "workload.numerics.min_bits", "constraints.gpu",
     "constraints.min_vcpus", "constraints.rdma", "constraints.exclude", "constraints.max_nodes",
     "constraints.market", "constraints.max_price_age_days"],
)  # fmt: skip
def test_odd_values_are_refused_at_their_place_or_taken(app: FastAPI, path: str, value: Any) -> None:
    body: Any = value
    if path:
        body = {"workload": {"task": "training"}}
        *parents, last = path.split(".")
        inner = body
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    answer = recommend(app, json.dumps(body))
    if answer.status != 200:
        is_problem(answer, 422)
        place = path.rsplit(".", 1)[0] if path.startswith("workload.model.") else path  # one figure needs the others
        assert answer.fields[0].startswith(place or ("body", "workload", "a")), answer.json()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('"constraints": {"min_vcpus": NaN}', "constraints.min_vcpus"),
        ('"constraints": {"min_vcpus": -Infinity}', "constraints.min_vcpus"),
        ('"constraints": {"min_vcpus": 1e999}', "constraints.min_vcpus"),
        ('"constraints": {"min_vcpus": 1' + "0" * 400 + "}", "constraints.min_vcpus"),
        ('"constraints": {"min_vcpus": -1}', "constraints.min_vcpus"),
        ('"constraints": {"min_vcpus": "12"}', "constraints.min_vcpus"),
        ('"constraints": {"min_vcpus": true}', "constraints.min_vcpus"),
        ('"constraints": {"min_vcpus": 9, "max_vcpus": 2}', "constraints.min_vcpus"),
        ('"constraints": {"min_nodes": 3, "max_nodes": 2}', "constraints.min_nodes"),
        ('"constraints": {"min_nodes": 0}', "constraints.min_nodes"),
        ('"constraints": {"rdma": "yes"}', "constraints.rdma"),
        ('"constraints": {"gpu": ["\\ud800"]}', "constraints.gpu.0"),
        ('"constraints": {"gpu": [' + ",".join(['"a100"'] * 10_000) + "]}", "constraints.gpu"),
        ('"constraints": {"budget_usd": 0}', "constraints.budget_usd"),
        ('"limit": 0', "limit"),
        ('"limit": 101', "limit"),
        ('"limit": "5"', "limit"),
        ('"limit": 1' + "0" * 400, "limit"),
        ('"limit": 1' + "0" * 5000, "limit"),
        ('"as_of": "2099-01-01"', "as_of"),
        ('"as_of": "1850-01-01"', "as_of"),
        ('"as_of": 0', "as_of"),
        ('"objective": {}', "objective"),
        ('"objective": {"usd": 0}', "objective"),
        ('"objective": {"usd": -1}', "objective.usd"),
        ('"objective": {"usd": NaN}', "objective.usd"),
        ('"objective": "\\ud800"', "objective"),
        ('"\\ud800": 1', "body"),
        ('"current_instance": "\\udfff"', "current_instance"),
    ],
)
def test_a_bad_value_in_a_body_is_reported_with_its_path(app: FastAPI, body: str, field: str) -> None:
    is_problem(recommend(app, '{"workload": {"task": "training"}, ' + body + "}"), 422, field)


@pytest.mark.parametrize(
    ("software", "field"),
    [
        ({"cuda": "new"}, "cuda"),
        ({"cuda": ">=13,<12"}, "cuda"),
        ({"framework": "pytorch>=two"}, "framework"),
        ({"engine": "vllm 0..6"}, "engine"),
        ({"libraries": [{"name": "dali>=3,<2"}]}, "libraries"),
    ],
)
def test_a_version_that_cannot_be_read_is_reported(app: FastAPI, software: dict[str, Any], field: str) -> None:
    is_problem(recommend(app, working(software=software)), 422, f"workload.software.{field}")


@pytest.mark.parametrize(
    "config",
    [
        '{"a": "\\ud800"}', '{"\\ud800": 1}', '{"a": NaN}', '{"a": 1e999}', '{"a": 1' + "0" * 5000 + "}",
        "{" + ",".join(f'"{each}": 1' for each in range(301)) + "}",
    ],
)  # fmt: skip
def test_a_model_config_that_could_not_be_sent_back(app: FastAPI, config: str) -> None:
    body = f'{{"workload": {{"task": "training", "model": {{"huggingface_config": {config}}}}}}}'
    is_problem(recommend(app, body), 422, "workload.model.huggingface_config")


def test_the_error_about_a_model_config_names_the_field_as_it_was_sent(app: FastAPI) -> None:
    config = {"model_type": "llama", "hidden_size": "4096"}
    answer = recommend(app, working(model={"huggingface_config": config}))
    is_problem(answer, 422, "workload.model.huggingface_config.hidden_size")


@pytest.mark.parametrize("other", [{"layers": 80}, {"family": "encoder"}, {"parameters": 7e10}])
def test_what_a_model_config_already_says_is_refused(app: FastAPI, other: dict[str, Any]) -> None:
    """It was ignored."""
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    answer = recommend(app, working(model={"huggingface_config": {**config, "vocab_size": 9}, **other, "name": "own"}))
    is_problem(answer, 422, f"workload.model.{next(iter(other))}")


@pytest.mark.parametrize("field", ["input_length", "output_length", "sequence_length", "mean_length", "serving"])
def test_a_length_of_what_has_one_size_is_refused(app: FastAPI, field: str) -> None:
    """Lengths of prompts and answers of images were ignored."""
    load = {"requests_per_second": 1, "input_length": 512}
    answer = recommend(
        app, asked(workload={"task": "inference", "model": "sdxl", field: load if field == "serving" else 512})
    )
    is_problem(answer, 422, "workload.serving.input_length" if field == "serving" else f"workload.{field}")


def test_a_model_config_is_sent_back_as_it_came(app: FastAPI) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    odd = {"rope": {"factor": 8.0, "kind": None}, "names": ["ä", "\u0000", True]}
    config = {"model_type": "llama", "vocab_size": 9, **sizes, **odd}
    answer = recommend(app, working(model={"huggingface_config": config}))
    assert answer.json()["question"]["workload"]["model"]["huggingface_config"] == config


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 422, "body"),
        (b"null", 422, "body"),
        (b"1", 422, "body"),
        (b'"x"', 422, "body"),
        (b"[]", 422, "body"),
        (b"{}", 422, "workload"),
        (b"{", 400, "body"),
        (b"\x00", 400, "body"),
        (b"'a'", 400, "body"),
        (b'{"workload": {"task": "\xff"}}', 400, "body"),
        ('{"workload": {"task": "training"}}'.encode("utf-16"), 400, "body"),
        (b"[" * 100_000, 400, "body"),
        (b"[" * 100_000 + b"]" * 100_000, 400, "body"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400, "body"),
        (b'{"workload": {"task": "training", "task": "hpc"}}', 400, "task"),
        (b'{"\\ud800": 1, "\\ud800": 2}', 400, "?"),
        (b'{"workload": {"task": "training"}, "limit": 1, "limit": 2}', 400, "limit"),
    ],
)
def test_a_body_that_is_no_question(app: FastAPI, body: bytes, status: int, field: str) -> None:
    is_problem(recommend(app, body), status, field)


POSTS = ("/recommend", "/recommend/batch", "/estimate", "/estimate/batch", "/measurements")


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(("open_", "close"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["lists", "objects"])
def test_a_body_is_nested_at_most_64_deep(app: FastAPI, path: str, open_: bytes, close: bytes) -> None:
    for depth, status in ((64, 422), (65, 400), (900, 400)):
        body = open_ * depth + b"1" + close * depth
        answer = call(app, "POST", path, headers=(*JSON, KEY), chunks=[body])
        is_problem(answer, status)
        assert ("64 levels" in answer.json()["detail"]) == (status == 400)


@pytest.mark.parametrize("path", POSTS)
def test_a_body_holds_a_bounded_number_of_names(app: FastAPI, path: str) -> None:
    most = 10_000 if path in ("/recommend", "/estimate") else 100_000
    for more, status in ((0, 422), (1, 400)):
        inner = {f"n{number}": 1 for number in range(most + more - 2)}
        answer = call(app, "POST", path, headers=(*JSON, KEY), chunks=[json.dumps({"a": {"b": inner}}).encode()])
        is_problem(answer, status)
        assert (f"more than {most:,} names" in answer.json()["detail"]) == (status == 400)


def test_a_thousand_questions_fit_into_the_names_of_a_batch(app: FastAPI) -> None:
    items = [working(amount={"tokens": 1}, software={"framework": "x"}, host={"vcpus_per_gpu": 1})] * 1000
    body = json.dumps({"items": [{**item, "limit": "many", "per": "x", "as_of": 0} for item in items]}).encode()
    assert body.count(b'":') > 10_000
    answer = call(app, "POST", "/recommend/batch", headers=JSON, chunks=[body])
    assert [item["problem"]["status"] for item in answer.json()["items"]] == [422] * 1000


def test_looking_for_a_repeated_name_takes_time_in_proportion_to_the_names() -> None:
    names = [f'"n{number}": 1' for number in range(9_999)]
    started = thread_time()
    with pytest.raises(BodyUnreadable, match="'n9998' twice"):
        read_json(("{" + ",".join([*names, names[-1]]) + "}").encode())
    assert thread_time() - started < 0.25  # counting each name among all others takes 1.3 s


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        b"",
        b"text/plain",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=x",
        b"\xff",
        b"json",
    ],
)
def test_a_body_that_is_not_sent_as_json(app: FastAPI, content_type: bytes | None) -> None:
    headers = () if content_type is None else ((b"content-type", content_type),)
    answer = call(app, "POST", "/recommend", headers=headers, chunks=[json.dumps(asked()).encode()])
    is_problem(answer, 415, "body")
    assert "application/json" in answer.json()["detail"]


@pytest.mark.parametrize("path", POSTS)
def test_a_compressed_body_is_refused_with_that_reason(app: FastAPI, path: str) -> None:
    packed = gzip.compress(json.dumps(asked()).encode())
    answer = call(app, "POST", path, headers=(*JSON, KEY, (b"content-encoding", b"gzip")), chunks=[packed])
    is_problem(answer, 415, "body")
    assert answer.json()["detail"] == "Send the body without the Content-Encoding 'gzip'."


@pytest.mark.parametrize("items", [None, {}])
def test_items_that_are_no_list_are_refused_in_plain_words(app: FastAPI, items: Any) -> None:
    answer = call(app, "POST", "/recommend/batch", headers=JSON, chunks=[json.dumps({"items": items}).encode()])
    is_problem(answer, 422, "items")
    assert answer.json()["detail"] == "'items' should be a list."


def test_recommend_takes_no_query(app: FastAPI) -> None:
    answer = call(app, "POST", "/recommend?limit=3", headers=JSON, chunks=[json.dumps(asked()).encode()])
    is_problem(answer, 422, "limit")


def test_white_space_after_a_body_is_dropped_as_it_arrives_and_white_space_inside_is_kept(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []

    def noted(body: bytes, max_names: int) -> object:
        read.append(body)
        return read_json(body, max_names)

    monkeypatch.setattr(body_reading, "read_json", noted)
    start, end = b'{"workload": {"task": "training"}, "explain": ["aws/p4d', b'.24xlarge"]}'
    answer = call(app, "POST", "/recommend", headers=JSON, chunks=[start, end, *[b" \t\r\n" * 10_000] * 50])
    assert (answer.status, read) == (200, [start + end])
    read.clear()
    answer = call(app, "POST", "/recommend", headers=JSON, chunks=[start, b"  ", b" ", end, b"\f"])
    is_problem(answer, 400)
    assert read == [start + b"   " + end + b"\f"]


@pytest.mark.parametrize("size", [4 * 1024**2 + 1, 5_000_000, 40_000_000])
def test_a_large_body_is_refused(app: FastAPI, size: int) -> None:
    is_problem(recommend(app, b'{"a":"' + b"x" * size + b'"}'), 413, "body")
    chunk = b"x" * 100_000
    answer = call(app, "POST", "/recommend", headers=JSON, chunks=[chunk] * (size // len(chunk) + 1))
    is_problem(answer, 413, "body")


def test_a_problem_contains_only_the_first_errors(app: FastAPI) -> None:
    answer = recommend(app, constrained(gpu=[[]] * 90)).json()
    assert len(answer["errors"]) == 20
    assert "89 more" in answer["detail"]


def test_a_problem_document_stays_small(app: FastAPI) -> None:
    for answer in (
        recommend(app, asked(**{"x" * 500_000: 1})),
        recommend(app, '{"' + "x" * 300_000 + '": 1, "' + "x" * 300_000 + '": 2}'),
        recommend(app, asked(objective="x" * 500_000)),
        get(app, "/instances?" + "x" * 60_000 + "=1"),
    ):
        assert 400 <= answer.status < 500
        assert len(answer.body) < 3000


# Over a real socket


def problem_over(server: Server, **request: Any) -> httpx2.Response:
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        return client.request(**request)


def test_large_bodies_over_http(server: Server) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(50):
            yield b"x" * 100_000

    json_type = {"Content-Type": "application/json"}
    for content in (b"x" * 5_000_000, chunks()):
        answer = problem_over(server, method="POST", url="/recommend", content=content, headers=json_type)
        assert answer.status_code == 413
        assert answer.headers["Content-Type"] == "application/problem+json"


def test_a_long_query_over_http(server: Server) -> None:
    with socket.create_connection(address(server), timeout=10) as wire:
        wire.sendall(b"GET /instances?q=" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b" 4" in everything(wire)[:14]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 1000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",  # the beginning of TLS
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n: no name\r\n\r\n",
        b"GET /instances HTTP/1.1\r\nHost: x\r\nIf-None-Match: \xff\xfe\r\nAccept: \xff\r\nConnection: close\r\n\r\n",
        b"GET /gpus/\xff\xfe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST /recommend HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /recommend HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nContent-Type: application/json\r\n\r\n{}",
        b"POST /recommend HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /recommend HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    ],
)
def test_garbage_does_not_stop_the_server(server: Server, garbage: bytes) -> None:
    with socket.create_connection(address(server), timeout=10) as wire:
        wire.sendall(garbage)
        wire.shutdown(socket.SHUT_WR)
        assert b" 500 " not in everything(wire)[:20]
    assert httpx2.get(f"{server.url}/healthz").status_code == 200


def address(server: Server) -> tuple[str, int]:
    parts = urlsplit(server.url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


def everything(wire: socket.socket) -> bytes:
    """All bytes that the server sends until it closes the connection."""
    found = b""
    try:
        while part := wire.recv(65536):
            found += part
    except ConnectionError:
        pass
    return found
