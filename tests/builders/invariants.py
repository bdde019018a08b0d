"""Contradictions in an answer: each function yields a sentence for every one that it finds."""

from collections.abc import Iterator, Mapping
from math import inf, isclose
from typing import Any

from tests.builders.request_bodies import Body

ROUNDED = 1e-5
"""Answers have six significant digits."""

LEAST = 1e-300
"""Smaller amounts take no time that a number can hold."""


def at_most(figure: float, limit: float) -> bool:
    return figure <= limit * (1 + ROUNDED) + LEAST


ROUNDED_PARTS = ("billing_rounding", "rounding")
"""Parts of a bill whose three cases are rounded each by itself, in any order."""


def crossed_bands(value: Any, where: str) -> Iterator[str]:
    """Yields the bands anywhere in an answer whose low, likely and high are not in this order."""
    if isinstance(value, dict):
        if value.get("name") in ROUNDED_PARTS:
            return
        if value.keys() >= {"low", "likely", "high"} and not value["low"] <= value["likely"] <= value["high"]:
            yield f"{where}: {value}"
        for name, each in value.items():
            yield from crossed_bands(each, f"{where}.{name}")
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from crossed_bands(each, f"{where}[{place}]")


def contradictions_in_estimate(workload: Body, estimate: Body) -> Iterator[str]:
    """Yields what a modelled estimate says against itself, with an instance for each of the concurrent runs."""
    yield from crossed_bands(estimate, "estimate")
    if (overhead := estimate["overhead_beyond_steps"]) is not None and overhead < 0:
        yield f"overhead_beyond_steps {overhead}"
    if (share := estimate["model_flops_utilisation"]) is not None and share > 1:
        yield f"model_flops_utilisation {share}"
    memory = estimate["memory"]
    if not isclose(sum(memory["parts"].values()), memory["needed_gib_per_gpu"], rel_tol=1e-4):
        yield f"parts of memory {sum(memory['parts'].values())}, not {memory['needed_gib_per_gpu']}"
    yield from rate_against_hours(workload, estimate)
    if workload["task"] == "training" and estimate["step_seconds"]:
        yield from _rate_against_steps(estimate, workload.get("concurrent_runs") or 1)


def rate_against_hours(workload: Body, estimate: Body) -> Iterator[str]:
    """Work that is finished sooner than its own rate allows."""
    hours, amount = estimate["hours"], workload.get("amount") or {}
    if hours is None:
        return
    for name in ("samples", "tokens"):
        rate, asked = estimate.get(f"{name}_per_second"), amount.get(name)  # a measured rate has no tokens
        if rate is None or asked is None or (name == "tokens" and workload["task"] == "inference"):
            continue
        asked *= (amount.get("epochs") or 1) * (workload.get("concurrent_runs") or 1)
        for end, other in (("low", "high"), ("likely", "likely"), ("high", "low")):
            if not at_most(asked, rate[end] * hours[other] * 3600):
                yield f"{asked} {name} in {hours[other]} h at {rate[end]} per second"


def _rate_against_steps(estimate: Body, instances: int) -> Iterator[str]:
    """The parts of a step add up to the time in which an instance takes its samples at the likely rate."""
    layout, seconds = estimate["layout"], sum(estimate["step_seconds"].values())
    round_of_samples = layout["data"] * layout["micro_batch"]
    samples = estimate["samples_per_second"]["likely"] / instances * seconds
    most = round_of_samples * layout["accumulation"]
    if not (at_most(samples, most) and at_most(most - round_of_samples, samples)):
        yield f"{samples} samples in a step of {seconds} s, which has {most}"


LEAST_OF_A_NODE = {
    "min_vcpus": ("vcpus",),
    "min_memory_gib": ("memory_gib",),
    "min_network_gbps": ("network_gbps",),
    "min_local_storage_gb": ("local_storage_gb",),
    "min_gpu_count": ("gpu", "count"),
    "min_gpu_memory_gb": ("gpu", "memory_gb"),
}
"""Constraints on a node, and where a choice shows the figure."""


def contradictions_in_choice(question: Body, choice: Body) -> Iterator[str]:
    """Yields the numbers of a question, with its defaults filled in, that a choice does not keep."""
    limits, workload, estimate = question["constraints"], question["workload"], choice["estimate"] or {}
    if not limits["min_nodes"] <= choice["nodes"] <= limits["max_nodes"]:
        yield f"{choice['nodes']} nodes, not {limits['min_nodes']} to {limits['max_nodes']}"
    if choice["instances"] > limits["max_instances"]:
        yield f"{choice['instances']} instances, not up to {limits['max_instances']}"
    yield from _runs_without_place(question, choice)
    for name, path in LEAST_OF_A_NODE.items():
        figure = choice["specs"]
        for step in path:
            figure = figure and figure[step]
        if limits[name] and (figure is None or figure < limits[name]):
            yield f"{name} {limits[name]}, but {figure}"
    needed, memory = workload["host"]["memory_gib"], choice["specs"]["memory_gib"]
    if (
        needed
        and not (memory or 0) >= needed
        and "host_memory_unknown" not in {each["code"] for each in choice["warnings"]}
    ):
        yield f"host.memory_gib {needed}, but {memory}"
    # Interruptions only add to the hours of a rate, and a load has no amount.
    if estimate.get("hours") and workload["amount"] and workload["serving"] is None:
        yield from rate_against_hours(workload, estimate)


def _runs_without_place(question: Body, choice: Body) -> Iterator[str]:
    """Runs that take turns although more machines are allowed."""
    runs, of_job = question["workload"]["concurrent_runs"], "samples_per_second" in (choice["estimate"] or {})
    gpus = choice["gpu"]["per_node"] if choice["gpu"] else 1
    places = choice["instances"] * (1 if of_job else max(1.0, gpus))
    room = choice["instances"] < question["constraints"]["max_instances"]
    if question["workload"]["serving"] is None and places < runs and room:
        yield f"{runs} concurrent runs on {places} machines or GPUs"


def differences_from_estimate(workload: Body, choice: Body, answer: Body) -> Iterator[str]:
    """Yields how the estimate of a choice differs from the answer to the same workload on the same machines."""
    if "problem" in answer:
        yield f"refused: {answer['problem']['detail']}"
        return
    chosen, estimated = choice["estimate"], answer["estimate"]
    if not answer["fits"] or chosen["layout"] != estimated["layout"]:
        yield f"fits {answer['fits']} in {estimated['layout']}, not in {chosen['layout']}"
    # Interruptions add to the hours of a spot machine, and checkpoints to those of any.
    saves = (workload.get("checkpoint") or {}).get("interval_minutes") is not None
    for name in ("samples_per_second",) if choice["market"] == "spot" or saves else ("samples_per_second", "hours"):
        figure, other = chosen[name], estimated[name]
        ends = figure or other or {}
        if not all(figure and other and isclose(figure[end], other[end], rel_tol=1e-4) for end in ends):
            yield f"{name} {figure}, not {other}"


def work_above_peak(model: Mapping[str, Any], workload: Body, estimate: Body) -> Iterator[str]:
    """Yields the rate of a network that needs more FLOP/s than its GPUs have at the job's precision."""
    flops, rate, layout = model.get("forward_flops_per_sample"), estimate["samples_per_second"], estimate["layout"]
    if not flops or rate is None or model.get("dimensions") or "layers" in model:
        return
    passes = 1.0
    if workload["task"] == "training" and workload.get("method", "full") == "full":
        # Training passes forward and twice backward, once of it for the weights that learn.
        learned = workload.get("trainable_parameters")
        passes = 2.0 + (1.0 if learned is None else min(1.0, learned / model["parameters"]))
    done = rate["likely"] / (workload.get("concurrent_runs") or 1) * flops * passes
    gpus = layout["data"] * layout["tensor"] * layout["pipeline"] * layout["context"]
    if not at_most(done, estimate["peak_tflops_per_gpu"] * gpus * 1e12):
        yield f"{done / gpus / 1e12} TFLOP/s at a peak of {estimate['peak_tflops_per_gpu']}"


def littles_law(estimate: Body, answer_tokens: float, in_flight: float) -> Iterator[str]:
    """Yields a contradiction where requests in flight are not rate x seconds of a request, within 5 %."""
    rate, first = (estimate[name]["likely"] for name in ("samples_per_second", "seconds_to_first_token"))
    later = max(0.0, answer_tokens - 1.0)
    found = rate * (first + (later * estimate["seconds_per_output_token"]["likely"] if later else 0.0))
    if not isclose(found, in_flight, rel_tol=0.05):
        yield f"{in_flight} requests in flight, but {rate} a second of {found / rate} s"


def impossible_speed(model: Body, workload: Body, estimate: Body, bandwidth: float | None) -> Iterator[str]:
    """Yields what is faster than reading the weights and the cache once per step, or than the peak of the GPUs.

    The bounds are generous: only active weights outside the embedding, one byte for each cached value of the prompt.
    """
    sizes, layout = model["dimensions"], estimate["layout"]
    if sizes["encoder_layers"]:
        return  # each token passes through a part of the layers
    weights = model["active_parameters"] - sizes["vocabulary"] * sizes["hidden"]
    gpus = layout["tensor"] * layout["pipeline"]
    rate, first = (estimate[name]["likely"] for name in ("samples_per_second", "seconds_to_first_token"))
    peak, prompt, answer = estimate["peak_tflops_per_gpu"] * 1e12, workload["input_length"], workload["output_length"]
    if not at_most(2 * weights * (prompt + answer) * rate, peak * gpus * layout["data"]):
        yield f"{rate} requests per second are above the peak"
    if not at_most(2 * weights * prompt, peak * gpus * first):
        yield f"a prompt is read in {first} s, which is above the peak"
    bits = BITS.get((workload.get("precision") or [model["published_precision"]])[0], 16)
    if bandwidth is None or answer == 1:
        return
    token = estimate["seconds_per_output_token"]["likely"]
    # GPUs over which experts are spread read those of a token at the same time.
    routed = _routed_to(sizes) * (1.0 - 1.0 / max(1, min(sizes["experts_per_token"], layout["expert"])))
    seconds = max(0.0, weights - routed) * bits / 8 / layout["tensor"] / (bandwidth * 1e9)
    cached = model["computed"]["kv_bytes_per_token_fp16"] / 2
    if not sizes["sliding_window"]:
        decoding = rate * answer * token / layout["data"]
        seconds += decoding * prompt * cached / gpus / (bandwidth * 1e9)
    if not at_most(seconds, token):
        yield f"a token in {token} s, but reading weights and cache takes {seconds} s"


def _routed_to(sizes: Body) -> float:
    """Parameters of the experts that a token is routed to, in all layers."""
    width = sizes["hidden"] * sizes["expert_ffn"] * (3 if sizes["gated"] else 2)
    return float(sizes["experts_per_token"] * width * (sizes["layers"] - sizes["dense_layers"]))


BITS = {"fp8": 8, "int8": 8, "int4": 4, "fp32": 32, "mxfp4": 4, "nvfp4": 4}


def contradictions_in_load(question: Body, choice: Body) -> Iterator[str]:
    """Yields what a choice for a load says against the load, its limits, or itself."""
    asked, load, estimate = question["workload"]["serving"], choice["serving"], choice["estimate"]
    lengths = (asked["input_length"], asked["output_length"])
    prompt, answer = (each["mean"] if isinstance(each, dict) else each for each in lengths)
    yield from _missed_by_load(asked, load)
    limits = question.get("constraints", {})
    if choice["instances"] > (most := limits.get("max_instances", inf)):
        yield f"{choice['instances']} instances, not up to {most}"
    if "budget_usd" in limits and load["usd_per_month"]["likely"] > limits["budget_usd"]:
        yield f"${load['usd_per_month']['likely']} a month, not up to ${limits['budget_usd']}"
    per_million = load["usd_per_million_tokens"]
    if per_million is not None and per_million["likely"] > limits.get("max_usd_per_million_tokens", inf) + 1e-6:
        yield f"${per_million['likely']} for a million tokens"
    if load["instances"] != choice["instances"]:
        yield f"{choice['instances']} instances, and the load says {load['instances']}"
    if not isclose(estimate["concurrency"], load["concurrency"], rel_tol=1e-4):
        yield f"{estimate['concurrency']} requests in flight, not {load['concurrency']}"
    yield from littles_law(estimate, answer, load["concurrency"])
    if load["usd_per_month"] is not None:
        yield from _dollars_of_load(load, choice["usd_per_hour"], prompt, answer)


def _missed_by_load(asked: Body, load: Body) -> Iterator[str]:
    if not load["keeps_limits"]:
        yield f"limits are not kept: {load['reason']}"
    for name in ("seconds_to_first_token", "seconds_per_output_token", "seconds_per_request"):
        if load[name] is not None and not at_most(load[name], asked.get(f"max_{name}", inf)):
            yield f"{name} is {load[name]}"
    closed = "concurrency" in asked
    if not at_most(load["utilisation"], 1.0 if closed else 1.0 - asked.get("headroom", 0.2)):
        yield f"utilisation {load['utilisation']}"
    for name in ("requests_per_second", "output_tokens_per_second", "concurrency"):
        if not at_most(asked.get(name, 0.0), load[name]):
            yield f"{name} {load[name]}"
    if closed and not at_most(asked["concurrency"], load["max_batch"] * load["replicas"]):
        yield f"{load['replicas']} replicas have room for {load['max_batch']} requests each"
    if not at_most(load["batch"], min(load["max_batch"], load["concurrency"])):
        yield f"{load['batch']} of {load['concurrency']} requests in {load['max_batch']} places"
    if load["instances"] % asked.get("availability_zones", 1) or load["replicas"] < asked.get("min_replicas", 1):
        yield f"{load['instances']} instances with {load['replicas']} replicas"


def _dollars_of_load(load: Body, usd_per_hour: float, prompt: float, answer: float) -> Iterator[str]:
    if not isclose(load["usd_per_month"]["likely"], usd_per_hour * 730, rel_tol=1e-4):
        yield f"${load['usd_per_month']['likely']} a month, ${usd_per_hour} an hour"
    paid = prompt * load["usd_per_million_input_tokens"]["likely"]
    paid += answer * load["usd_per_million_output_tokens"]["likely"]
    an_hour = load["requests_per_second"] * 3600 / 1e6
    # Prices of a million tokens are whole micro-dollars.
    if not isclose(paid * an_hour, usd_per_hour, rel_tol=1e-3, abs_tol=(prompt + answer) * an_hour / 1e6):
        yield f"tokens pay ${paid * an_hour} of ${usd_per_hour} an hour"
