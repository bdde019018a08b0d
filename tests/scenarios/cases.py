"""The cases as they were collected, in words of their own, and what each of them lets a scenario send.

A scenario of a case sends nothing that the case does not say, and everything that it says.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.scenarios.render import Step

HERE = Path(__file__).parent
Leaf = tuple[str, Any]
"""A path into a request, without the room it is in (`constraints`), and one of the values there."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question or a belief, with the answer that it expects."""

    id: str
    as_of: str
    catalog: str
    strength: str
    endpoint: str
    request: Mapping[str, Any]
    expect: Mapping[str, Any]


def cases() -> dict[str, Case]:
    """Returns every case by its id."""
    rows = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
    return {row["id"]: Case(**row) for row in rows}


# What a case says

TASKS = {
    "train": "training",
    "infer": "inference",
    "hpc": "hpc",
    "graphics": "graphics",
    "dev": "development",
    "traditional_ml": "classical",
    "sequential": "sequential",
}
OBJECTIVES = {
    "max_performance": "fastest",
    "price_performance": "best_value",
    "balanced": "best_value",
    "min_hourly_cost": "cheapest",
    "min_total_cost": "cheapest",
    "min_power": "most_efficient",
}
WEIGHTS = {
    "max_gpu_count": "gpu_count",
    "max_gpu_memory": "gpu_memory_gb",
    "samples_per_dollar": "samples_per_usd",
    "samples_per_joule": "samples_per_joule",
    "samples_per_second": "samples_per_second",
}
FEATURES = {"tensor_cores": ("tensor_cores", True), "nvlink": ("interconnect", "nvlink")}
FRAMEWORKS = {"pytorch_lightning": "pytorch-lightning"}


def _one(path: str) -> Callable[[Any], list[Leaf]]:
    return lambda value: [(path, value)]


def _each(path: str) -> Callable[[Any], list[Leaf]]:
    return lambda values: [(path, value) for value in ([values] if isinstance(values, str) else values)]


def _nothing(_: Any) -> list[Leaf]:
    return []


def _objective(value: str) -> list[Leaf]:
    return [(f"objective.{WEIGHTS[value]}", 1)] if value in WEIGHTS else [("objective", OBJECTIVES[value])]


def _on_aws(name: str) -> str:
    return f"aws/{name}"


SAYS: Mapping[str, Callable[[Any], list[Leaf]]] = {
    "growth": _one("workload.growth"),
    "task": lambda value: [("workload.task", TASKS[value])],
    "workloads.task": lambda value: [("workload.task", TASKS[value])],
    "objective": _objective,
    "utility.terms.samples_per_dollar": lambda _: [("objective.samples_per_usd", 1)],
    "utility.terms.samples_per_joule": lambda _: [("objective.joules", 1)],
    "utility.terms.samples_per_second": lambda _: [("objective.samples_per_second", 1)],
    "gpu.count": lambda value: [("min_gpu_count", value), ("max_gpu_count", value)],
    "gpu.min_count": _one("min_gpu_count"),
    "workloads.gpu.min_count": _one("min_gpu_count"),
    "gpu.fraction": _one("min_gpu_count"),
    "gpu.count_choices": _nothing,
    "gpu.min_memory_gb": _one("min_gpu_memory_gb"),
    "gpu.min_total_memory_gb": _one("min_total_gpu_memory_gb"),
    "gpu.model": _one("gpu"),
    "gpus": _each("gpu"),
    "names": _each("gpu"),
    "accelerators": _each("gpu"),
    "gpu.features": lambda values: [FEATURES[value] for value in values],
    "interconnect": _one("interconnect"),
    "accelerator_kind": _one("gpu_kind"),
    "accelerated": lambda _: [("gpu_kind", "gpu"), ("gpu_kind", "npu")],
    "cpu_arch": lambda value: [] if value == "any" else [("cpu_architecture", value)],
    "precision": _each("precision"),
    "workloads.precision": _each("precision"),
    "precision_flexible": lambda value: [("workload.precision_flexible", True)] if value else [],
    "code_change_allowed": _one("workload.code_changes"),
    "provider": _one("provider"),
    "providers": lambda value: [] if value == "any" else _each("provider")(value),
    "families": _each("family"),
    "family_generation": _one("series"),
    "candidates": _each("instance"),
    "architecture": _one("architecture"),
    "size": _one("size"),
    "region": _one("region"),
    "min_network_gbps": _one("min_network_gbps"),
    "min_vcpus": _one("min_vcpus"),
    "min_system_memory_gb": _one("min_memory_gib"),
    "nodes": lambda value: [] if value == 1 else [("min_nodes", value), ("max_nodes", value)],
    "colocation": lambda _: [("same_placement", True)],
    "purchase": lambda value: (
        [("managed_service", "sagemaker-training")] if value == "sagemaker_managed" else _each("market")(value)
    ),
    "fault_tolerant": _one("workload.fault_tolerant"),
    "deadline_hours": _one("deadline_hours"),
    "max_instances": lambda value: [] if value == 1 else [("max_instances", value)],
    "total_samples": _one("workload.amount.samples"),
    "workload.total_samples": _one("workload.amount.samples"),
    "measurements.instance": lambda value: [("machine", _on_aws(value))],
    "measurements.gpu": lambda _: [("machine", "autodl/rtx-3090x1")],
    "measurements.samples_per_second": _one("samples_per_second"),
    "measurements.seconds_per_batch": lambda value: [("seconds", value), ("steps", 1)],
    "measurements.batch_size": _one("batch_size"),
    "measurements.price_per_hour_usd": _one("usd_per_hour"),
    "measurements.watts": _one("watts"),
    "measurements.measured_at": _one("measured_at"),
    "measurements.software.pytorch": lambda value: [("software.framework", f"pytorch=={value}")],
    "measurements.workload": _one("name"),
    "batch_size": _one("batch_size"),
    "world_size": _one("world_size"),
    "steps": _one("steps"),
    "seconds": _one("seconds"),
    "price_per_hour_usd": _one("usd_per_hour"),
    "samples_per_second": _one("samples_per_second"),
    "measured_at": _one("measured_at"),
    "software.pytorch": lambda value: [("software.framework", f"pytorch=={value}")],
    "workload": _one("name"),
    "workload.name": _one("workload.name"),
    "workload.framework": _one("workload.software.framework"),
    "workload.batch_size": _one("workload.batch_size"),
    "workload.models": _one("workload.concurrent_runs"),
    "workload.parameters": _one("workload.model.parameters"),
    "workload.dataset": _one("workload.dataset"),
    "workload.goal": _one("workload.goal"),
    "workload.model_size": _one("workload.model_size"),
    "workload.size": _one("workload.model_size"),
    "workload.scale": _nothing,
    "software.framework": lambda value: [("workload.software.framework", FRAMEWORKS.get(value, value))],
    "software.framework and version": lambda value: [("workload.software.framework", value)],
    "portability.api": lambda value: [("workload.software.framework", FRAMEWORKS[value])],
    "software.cuda": _one("workload.software.cuda"),
    "software.custom_kernels": lambda _: [("workload.software.custom_cuda_kernels", True)],
    "software.requires": _each("workload.software.platforms"),
    "software.model_supported_on": _each("workload.software.platforms"),
    "given.software.pytorch": lambda value: [("workload.software.framework", f"pytorch=={value}")],
    "given.instance": _one("current_instance"),
    "numerics.high_precision_required": lambda _: [("workload.numerics.min_bits", 32)],
    "data_loading": lambda _: [("workload.host.single_threaded", True)],
    "name": _one("name in the path"),
    "sort": _one("sort"),
    "facets": lambda values: [("facets", ",".join(values))],
    "hours": _one("hours"),
    "training_hours": _one("hours"),
    "instance": lambda value: [("machine", _on_aws(value))],
    "instances": _each("instance"),
    "baseline": _one("baseline"),
    "prices.on_demand": _one("usd_per_hour.on_demand"),
    "prices.spot": _one("usd_per_hour.spot"),
    "offer.per_gpu.vcpus": _one("host_per_gpu.vcpus"),
    "offer.per_gpu.system_memory_gb": _one("host_per_gpu.memory_gib"),
    "offers.gpu_samples_per_second": _one("measured.samples_per_second"),
    "offers.cpu_samples_per_second": _one("measured.host_samples_per_second"),
}
"""The fields of a case in the words of the service. Every one of these leaves must be sent."""

SAYS_NOTHING = {
    "activity": "Every task that needs no GPU gets the same answer.",
    "checkpointing": "Work that saves and resumes is fault-tolerant.",
    "distributed": "Work on several GPUs is distributed.",
    "experience": "The answer is the same for a beginner.",
    "given.applies_to": "It describes the event.",
    "given.event": "It describes the event.",
    "given.lifecycle": "The catalog has the day.",
    "max_measurement_age_days": "The service has an age of its own.",
    "metric": "Every metric is in the answer.",
    "offers.name": "Names of the two machines.",
    "parallelism": "The number of GPUs says it.",
    "project": "A name for a batch.",
    "scaling_efficiency": "Independent instances share the work without loss.",
    "software.install": "Packages from the shelf are the default.",
    "workloads.name": "Names of the parts.",
}
"""Fields of a case that nothing has to be sent for, with the reason."""

CATALOGS: Mapping[str, frozenset[Leaf]] = {
    **dict.fromkeys(("2017", "2019-01", "2021-05", "2022-02"), frozenset({("provider", "aws"), ("service", "ec2")})),
    "2022-03": frozenset({("provider", "autodl")}),
    "2023-06": frozenset({("service", "ec2")}),
}
"""Contents of the catalog of a case: the instance types of EC2, or the GPUs of AutoDL."""


def flat(value: Any, path: str = "") -> Iterator[Leaf]:
    """Yields the leaves of a request; lists have no place in a path, and `constraints` is left out."""
    if isinstance(value, Mapping):
        for name, held in value.items():
            below = "" if name in ("constraints", "items", "over", "base") else name
            yield from flat(held, ".".join(filter(None, (path, below))))
    elif isinstance(value, list):
        for held in value:
            yield from flat(held, path)
    else:
        yield path, value


def must_send(case: Case) -> set[Leaf]:
    """Returns the leaves that the request of a case's scenario has to hold."""
    said = [leaf for path, value in _fields(case.request) if path not in SAYS_NOTHING for leaf in SAYS[path](value)]
    if (of_candidates := case.request.get("candidates_from_measurements")) is True:
        said += [("instance", row["instance"]) for row in case.request["measurements"]]
    assert of_candidates in (None, True)
    if "idle_hours" in case.request:
        idle, busy = case.request["idle_hours"], case.request["training_hours"]
        said.append(("idle_fraction", idle / (idle + busy)))
    return {_plain(leaf) for leaf in said}


def may_send(case: Case) -> set[Leaf]:
    """Returns the leaves that the request may hold besides: the world of the case, and what a request cannot lack."""
    allowed: set[Leaf] = set(CATALOGS[case.catalog]) if "provider" not in case.request else {("service", "ec2")}
    if "gpu" in case.request or "accelerator_kind" in case.request:
        allowed.add(("gpu_kind", "gpu"))  # a case means a graphics card by it, the service any accelerator
    if "language_model" in str(case.request.get("workload")):
        allowed.add(("workload.model.family", "llm"))
    if "task" not in case.request:
        allowed.add(("workload.task", "training"))
    if case.request.get("parallelism") == "independent_runs":
        allowed.add(("workload.concurrent_runs", case.request["gpu"]["min_count"]))
    if "measurements" in case.request:
        allowed |= {("instance", row["instance"]) for row in case.request["measurements"] if "instance" in row}
        allowed |= {("workload.task", "training")}
    allowed |= {("architecture", name) for name in case.expect.get("same_filter_must_include_families", ())}
    allowed |= {("machine", f"aws/{name}") for name in case.request.get("instances", ())}
    allowed |= {("instance", name) for name in case.request.get("instances", ())}
    if metric := case.request.get("metric"):
        allowed.add((f"objective.{WEIGHTS[metric]}", 1))
    for memory in (offer.get("system_memory_gb") for offer in case.request.get("offers", ())):
        allowed |= {("instance", name) for name in OF_MEMORY.get(memory, ())}
    return {_plain(leaf) for leaf in allowed}


OF_MEMORY = {64: ("g4dn.4xlarge",), 128: ("g4dn.8xlarge",)}
"""Instance types with just so much host memory, in GiB."""

FREE = frozenset({
    "limit", "per", "as_of", "measured_at", "name", "workload.name", "name in the path", "world_size", "machine.gpu",
    "machine.gpu_count",
})  # fmt: skip
"""Paths whose value changes nothing about the question: how much is shown, and names that join two requests."""


def sent_by(steps: tuple[Step, ...]) -> Iterator[Leaf]:
    """Yields the leaves of all requests of a scenario."""
    for step in steps:
        parts = urlsplit(step.target)
        yield from (_plain((name, word)) for name, words in parse_qsl(parts.query) for word in _words(name, words))
        yield _plain(("name in the path", parts.path.rpartition("/")[2].replace("%20", " ")))
        if step.body is not None:
            yield from map(_plain, flat(step.body))


SAME_PATHS = {"workload.precision": "precision", "task": "workload.task"}
"""Paths of a body and of a query that say the same."""


def _words(name: str, words: str) -> list[str]:
    return [words] if name == "facets" else words.split(",")


def _plain(leaf: Leaf) -> Leaf:
    """Returns a leaf in one spelling: numbers as numbers, words in small letters, fields by their last name."""
    path, value = leaf
    path = SAME_PATHS.get(path, path)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = {"true": True, "false": False}.get(value.lower(), value.lower())
    return path, value if isinstance(value, bool | str) or value is None else float(value)


def _fields(request: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the fields of a case, with lists of words whole."""
    for name, value in request.items():
        below = f"{path}.{name}" if path else name
        if name in ("candidates_from_measurements", "idle_hours", "system_memory_gb") and below not in SAYS:
            continue
        if below == "software" and "version" in value:
            yield "software.framework and version", f"{value['framework']}=={value['version']}"
        elif isinstance(value, Mapping):
            yield from _fields(value, below)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for row in value:
                yield from _fields(row, below)
        else:
            yield below, value


def added(case: Case, steps: tuple[Step, ...]) -> set[Leaf]:
    """Returns what a scenario sends although the case does not say it; looking up facts elsewhere adds nothing."""
    allowed = must_send(case) | may_send(case)
    method, _, path = case.endpoint.partition(" ")
    start = path.partition("{")[0].partition("?")[0]
    asking = tuple(
        step for step in steps if step.method == "POST" or (method == "GET" and step.target.startswith(start))
    )
    return {leaf for leaf in sent_by(asking) if leaf not in allowed and leaf[0] not in FREE}


def left_out(case: Case, steps: tuple[Step, ...]) -> set[Leaf]:
    """Returns what a case says although its scenario does not send it."""
    return must_send(case) - set(sent_by(steps))
