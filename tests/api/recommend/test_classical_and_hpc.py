"""Classical machine learning and simulations: what needs a GPU, what does not, and which task to send."""

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_recommend
from tests.builders.instance_types import instance_type


@pytest.mark.parametrize("framework", ["xgboost>=2.0", "LightGBM", "CatBoost", "sklearn", "rapids", "random forest"])
@pytest.mark.parametrize("task", ["training", "inference"])
def test_a_library_of_classical_machine_learning_is_referred_to_its_task(
    client: TestClient, framework: str, task: str
) -> None:
    """Peaks at 16 bits, by which training is ranked without a model, say nothing about trees."""
    work = {"task": task, "software": {"framework": framework}}
    response = client.post("/recommend", json={"workload": work})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["field"] == "workload.software.framework"
    assert "send task classical" in error["message"]
    post_recommend(client, {"workload": {**work, "task": "classical"}})


@pytest.mark.parametrize("software", [{"framework": "cuml"}, {"libraries": ["rapids>=24.06"]}])
def test_work_that_runs_on_nvidia_gpus_alone_gets_one(client: TestClient, software: object) -> None:
    """RAPIDS runs on Volta and newer."""
    work = {"task": "classical", "software": software}
    answer = post_recommend(client, {"workload": work, "limit": 100})
    gpus = {each["gpu"] and each["gpu"]["id"] for each in answer["choices"]}
    assert None not in gpus
    assert not {"p100-pcie-16gb", "gtx-1080-ti-11gb", "k80-12gb", "m60-8gb", "mi300x-192gb"} & gpus
    assert "no_accelerator_needed" not in {each["code"] for each in answer["advice"]}


@pytest.mark.parametrize("framework", ["xgboost", "lightgbm", "catboost", "scikit-learn"])
def test_work_that_also_runs_on_cpus_gets_the_cheapest_machine(client: TestClient, framework: str) -> None:
    answer = post_recommend(client, {"workload": {"task": "classical", "software": {"framework": framework}}})
    assert answer["choices"][0]["gpu"] is None
    assert "software_unknown" not in {each["code"] for each in answer["notes"]}


def test_simulations_may_run_on_cpus(client: TestClient) -> None:
    """A simulation that asks for machines without a GPU was answered that none of them runs fp64."""
    work = {"task": "hpc", "precision": ["fp64"]}
    answer = post_recommend(client, {"workload": work, "constraints": {"max_gpu_count": 0}})
    assert answer["choices"]
    assert all(each["gpu"] is None for each in answer["choices"])


def test_cpus_run_double_precision_at_half_the_rate_of_single() -> None:
    host = instance_type("host", gpu=None, cpu_fp32_tflops=2.0)
    assert (host.tflops("fp32"), host.tflops("fp64"), host.tflops("bf16")) == (2.0, 1.0, None)
    assert instance_type("unknown", gpu=None).tflops("fp64") is None
