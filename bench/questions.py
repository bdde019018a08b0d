"""The requests that are measured, as bytes on the wire, each with the no-op to which it is compared."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Literal
from urllib.parse import quote, urlencode

from bench.load import HOST

Peer = Literal["starlette GET", "FastAPI GET", "FastAPI POST"]

MOST_A_SPELL = 6000
"""The number of different requests prepared for one spell: more than any spell sends, so that no cache answers one."""

GPUS = ("h100", "a100", "l4", "t4", "a10g", "v100", "l40s", "h200", "a6000", "rtx-4090")
OBJECTIVES = ("cheapest", "fastest", "best_value", "most_efficient")
SORTS = ("usd_per_hour", "-tflops", "-tflops_per_usd", "-total_gpu_memory_gb,usd_per_hour", "-memory_gib")


def get(path: str, **parameters: object) -> bytes:
    target = f"{path}?{urlencode(parameters)}" if parameters else path
    return f"GET {target} HTTP/1.1\r\nHost: {HOST}\r\nAccept: application/json\r\n\r\n".encode()


def post(path: str, body: dict[str, Any], padding: int = 0) -> bytes:
    encoded = json.dumps(body).encode() + b" " * padding
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(encoded)}"
    return f"{head}\r\n\r\n".encode() + encoded


@dataclass(frozen=True, slots=True)
class Question:
    """A family of requests. `ask` makes the n-th one; the requests of a `same` family do not depend on n."""

    name: str
    peer: Peer
    ask: Callable[[int, Sequence[str]], bytes]
    same: bool = False
    slow: bool = False
    """Sent over one connection only, because a spell is too short for many slow answers."""

    def requests(self, start: int, instances: Sequence[str]) -> list[bytes]:
        """Returns the requests of one spell, starting with the start-th one."""
        return [self.ask(turn, instances) for turn in islice(count(start), 1 if self.same else MOST_A_SPELL)]


def listed(turn: int, _instances: Sequence[str]) -> bytes:
    return get("/instances", precision="bf16", limit=50, min_vcpus=turn / 100_000)


def sorted_page(turn: int, _instances: Sequence[str]) -> bytes:
    return get(
        "/instances",
        precision="bf16",
        market="on_demand",
        sort=SORTS[turn % len(SORTS)],
        max_usd_per_hour=40 + turn / 100_000,
        limit=20,
    )


def one_instance(turn: int, instances: Sequence[str]) -> bytes:
    return get("/instances/" + quote(instances[turn % len(instances)]))


def gpu_named(turn: int, _instances: Sequence[str]) -> bytes:
    limits = {
        "gpu": [GPUS[turn % len(GPUS)]],
        "min_memory_gib": 8 + turn % 977 / 50,
        "max_usd_per_hour": 0.5 + turn % 9973 / 250,
    }
    return post("/recommend", {"workload": {"task": "training", "precision": ["fp16"]}, "constraints": limits})


def broadest(turn: int, _instances: Sequence[str]) -> bytes:
    return post(
        "/recommend",
        {
            "workload": {"task": "training", "fault_tolerant": True},
            "constraints": {"max_usd_per_hour": 10_000 + turn / 1000},
            "objective": OBJECTIVES[turn % len(OBJECTIVES)],
        },
    )


LARGE = "llama-3.1-70b"
UP_TO_8_NODES = {"max_nodes": 8}


def training(turn: int) -> dict[str, Any]:
    """Returns a workload whose sequence length and batch repeat after half a million turns, its amount never."""
    return {
        "task": "training",
        "model": LARGE,
        "precision": ["bf16"],
        "sequence_length": 512 + turn % 7681,
        "global_batch_size": 8 * (1 + turn % 61),
        "amount": {"tokens": 1_000_000_000 + turn},
    }


def trained(turn: int, _instances: Sequence[str]) -> bytes:
    return post("/recommend", {"workload": training(turn), "constraints": UP_TO_8_NODES})


def trained_again(_turn: int, instances: Sequence[str]) -> bytes:
    return trained(0, instances)


IN_A_BATCH, WORKLOADS_IN_IT = 1000, 50


def one_of_a_batch(batch: int, index: int) -> dict[str, Any]:
    """Returns the question at this index: workloads alternate, and each question has its own price limit."""
    workload = training(batch * WORKLOADS_IN_IT + index % WORKLOADS_IN_IT)
    return {"workload": workload, "constraints": {**UP_TO_8_NODES, "max_usd_per_hour": 10 + index / 10}}


def large_body() -> bytes:
    """Returns a small question in a body of 3 MB."""
    return post("/recommend", {"workload": {"task": "training"}}, padding=3_000_000)


def batch_of(batch: int) -> bytes:
    return post("/recommend/batch", {"items": [one_of_a_batch(batch, index) for index in range(IN_A_BATCH)]})


def singles_of(batch: int) -> list[bytes]:
    """Returns the questions of a batch as single requests."""
    return [post("/recommend", one_of_a_batch(batch, index)) for index in range(IN_A_BATCH)]


def served(turn: int, _instances: Sequence[str]) -> bytes:
    work = {
        "task": "inference",
        "model": LARGE,
        "input_length": 128 + turn % 7681,
        "output_length": 64 + turn % 509,
        "amount": {"tokens": 1_000_000_000 + turn},
        "software": {"engine": "vllm"},
    }
    return post("/recommend", {"workload": work, "constraints": UP_TO_8_NODES})


def loaded(turn: int, _instances: Sequence[str]) -> bytes:
    answer = 64 + turn % 509
    serving = {
        "requests_per_second": 1 + turn % 9973 / 1000,
        "input_length": 128 + turn % 7681,
        "output_length": {"mean": answer, "p95": 2.5 * answer},
        "max_seconds_to_first_token": 2,
        "max_seconds_per_output_token": 0.05,
    }
    work = {"task": "inference", "model": LARGE, "serving": serving, "software": {"engine": "vllm"}}
    return post("/recommend", {"workload": work, "constraints": UP_TO_8_NODES})


def loaded_again(_turn: int, instances: Sequence[str]) -> bytes:
    return loaded(0, instances)


def estimated(turn: int, _instances: Sequence[str]) -> bytes:
    return post("/estimate", {"workload": training(turn), "machine": "aws/p4d.24xlarge", "nodes": 4})


LISTED = Question("GET /instances?precision=bf16&limit=50, new each time", "FastAPI GET", listed)
ONE_INSTANCE = Question("GET /instances/{provider}/{name}, each in turn", "FastAPI GET", one_instance)
GPU_NAMED = Question("POST /recommend, GPU named", "FastAPI POST", gpu_named)
BROADEST = Question("POST /recommend, broadest", "FastAPI GET", broadest)
TRAINED = Question("POST /recommend, 70B on up to 8 nodes, new each time", "FastAPI POST", trained, slow=True)
TRAINED_AGAIN = Question("POST /recommend, 70B on up to 8 nodes, asked again", "FastAPI POST", trained_again, same=True)
SERVED = Question("POST /recommend, 70B serving on up to 8 nodes, new each time", "FastAPI POST", served, slow=True)
LOADED = Question("POST /recommend, a load of 70B on up to 8 nodes, new each time", "FastAPI POST", loaded, slow=True)
LOADED_AGAIN = Question(
    "POST /recommend, a load of 70B on up to 8 nodes, asked again", "FastAPI POST", loaded_again, same=True
)
ESTIMATED = Question("POST /estimate, 70B on 4 nodes, new each time", "FastAPI POST", estimated)

QUESTIONS = (
    LISTED,
    Question("GET /instances, filtered and sorted, new each time", "FastAPI GET", sorted_page),
    ONE_INSTANCE,
    GPU_NAMED,
    BROADEST,
    TRAINED,
    TRAINED_AGAIN,
    SERVED,
    LOADED,
    LOADED_AGAIN,
    ESTIMATED,
)

ALIVE = get("/healthz")
"""The request for which the service itself does nothing."""

NOOPS: dict[Peer, bytes] = {
    "starlette GET": get("/"),
    "FastAPI GET": get("/"),
    "FastAPI POST": post(
        "/",
        {
            "workload": {"task": "training", "precision": ["fp16"]},
            "constraints": {"gpu": ["h100"], "min_memory_gib": 16, "max_usd_per_hour": 20.5},
        },
    ),
}
