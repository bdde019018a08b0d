"""The questions that are measured, as bytes on the wire, and the no-op that each is measured against."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Literal
from urllib.parse import quote, urlencode

from bench.load import HOST

Peer = Literal["starlette GET", "FastAPI GET", "FastAPI POST"]

MOST_A_SPELL = 6000
"""Different questions for one spell of asking: more than any spell asks, so that none is answered from memory."""

GPUS = ("h100", "a100", "l4", "t4", "a10g", "v100", "l40s", "h200", "a6000", "rtx-4090")
OBJECTIVES = ("cheapest", "fastest", "best_value", "most_efficient")
SORTS = ("usd_per_hour", "-tflops", "-tflops_per_usd", "-total_gpu_memory_gb,usd_per_hour", "-memory_gib")


def get(path: str, **parameters: object) -> bytes:
    target = f"{path}?{urlencode(parameters)}" if parameters else path
    return f"GET {target} HTTP/1.1\r\nHost: {HOST}\r\nAccept: application/json\r\n\r\n".encode()


def post(path: str, body: dict[str, Any]) -> bytes:
    encoded = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(encoded)}"
    return f"{head}\r\n\r\n".encode() + encoded


@dataclass(frozen=True, slots=True)
class Question:
    """A kind of question. `ask` makes the n-th one of its kind; `same` ones do not depend on n."""

    name: str
    peer: Peer
    ask: Callable[[int, Sequence[str]], bytes]
    same: bool = False

    def requests(self, start: int, instances: Sequence[str]) -> list[bytes]:
        """What to ask in one spell, beginning with the start-th question."""
        return [self.ask(turn, instances) for turn in islice(count(start), 1 if self.same else MOST_A_SPELL)]


def listed(_turn: int, _instances: Sequence[str]) -> bytes:
    return get("/instances", precision="bf16", limit=50)


def listed_anew(turn: int, _instances: Sequence[str]) -> bytes:
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


LISTED = Question("GET /instances?precision=bf16&limit=50, asked again", "FastAPI GET", listed, same=True)
LISTED_ANEW = Question("the same, new each time", "FastAPI GET", listed_anew)
GPU_NAMED = Question("POST /recommend, GPU named", "FastAPI POST", gpu_named)
BROADEST = Question("POST /recommend, broadest", "FastAPI GET", broadest)

QUESTIONS = (
    LISTED,
    LISTED_ANEW,
    Question("GET /instances, filtered and sorted, new each time", "FastAPI GET", sorted_page),
    Question("GET /instances/{provider}/{name}, each in turn", "FastAPI GET", one_instance),
    GPU_NAMED,
    BROADEST,
)

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
