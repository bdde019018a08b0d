"""A language model on an engine: the calibrated seconds of its work, the requests it holds, and its steady state."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isinf

import numpy as np

from service.domain.arrays import Floats, Indices, Number, taken
from service.domain.band import Band
from service.domain.calibration.coefficients import Coefficients, Features, StepFactors
from service.domain.calibration.step_kinds import GENERATION, MEMORY
from service.domain.jobs.config import InferenceConfig
from service.domain.jobs.serving import Serving
from service.domain.physics.cluster import Cluster
from service.domain.physics.disaggregated import serve_load, times_of_load
from service.domain.physics.inference_roofline import (
    CalibratedRates,
    EngineTerms,
    arrival_demands,
    engine_terms,
    pass_demands,
    passes_of_prompt,
    passes_under_load,
    prompt_demands,
    request_demands,
    step_demands,
    step_depends_on_requests,
    step_expert_launches,
    step_unpacking_flops,
    step_weight_bytes,
)
from service.domain.physics.input_pipeline import samples_fed
from service.domain.physics.load import TIMES, Engines, Replicas, Served
from service.domain.physics.memory import (
    CACHE,
    PROMPTS,
    SAMPLER,
    InferenceMemory,
    figures,
    inference_memory,
    replicas_in_use,
    requests_at_once,
    requests_in,
    requests_with_room,
    sent_cache_bytes,
)
from service.domain.physics.parallelism import AnyLayout, Layout
from service.domain.physics.resources import Demands, seconds_per_unit
from service.domain.physics.serving import BurstShares, EngineTimes, SteadyState, steady_state

IN_MEMORY = ("weights", "context", CACHE, "activations", SAMPLER, PROMPTS)
"""Parts of the memory of an engine, by their names in `InferenceMemory`."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Calibrated bytes of an engine on each of its GPUs."""

    ideal: InferenceMemory
    factors: StepFactors

    @staticmethod
    def of(coefficients: Coefficients, config: InferenceConfig, layout: Layout, features: Features) -> "EngineMemory":
        """Returns the memory of an engine in a layout, with the coefficients of these features."""
        return EngineMemory(inference_memory(config, layout), coefficients.factors(MEMORY, IN_MEMORY, features))

    def holding(self, requests: float) -> dict[str, float]:
        """Bytes by part while this number of requests runs."""
        return self.factors.seconds(figures(self.ideal.holding(requests)))

    def room(self, config: InferenceConfig, plannable: float) -> float:
        """Requests that fit, both by the memory that published runs took and by the room that an engine gives its
        cache.
        """
        empty, each = sum(self.holding(0.0).values()), sum(self.factors.seconds(figures(self.ideal.request)).values())
        in_cache = requests_with_room(config, plannable, self.ideal)
        return float(room_by_memory(config, (plannable - empty) / each, in_cache))


def engine_factors(coefficients: Coefficients, features: Features) -> StepFactors:
    """Returns the factors of an engine's seconds."""
    return coefficients.factors(GENERATION, GENERATION.start, features)


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica of a language model at work."""

    terms: EngineTerms
    """Ideal seconds of each part of the engine's work, by term."""
    seconds: EngineTimes
    """Calibrated seconds of each part."""
    room: float
    """Requests that can run at once; 0 where none fits."""
    state: SteadyState
    per_request: EngineTimes
    """Parts of the time between the ends of two requests, in the steady state or in the burst that is asked for."""
    per_token: EngineTimes
    """Parts of the time between two tokens of a request, in the steady state or in the burst that is asked for."""

    @property
    def figures(self) -> tuple[Number, Number, Number]:
        """Requests per second, and seconds to the first token and per token."""
        shares = (self.per_request, self.state.to_first_token, self.per_token)
        between, first, token = (share.total(self.seconds) for share in shares)
        return 1.0 / between, first, token

    def ideal(self, share: EngineTimes) -> dict[str, float]:
        """Ideal seconds by term of a figure, where `share` says how often it counts each part."""
        seconds: dict[str, float] = {}
        for part, terms in self.terms._asdict().items():
            for term, amount in terms.items():
                seconds[term] = seconds.get(term, 0.0) + amount * float(getattr(share, part))
        return seconds


def engine_on(factors: StepFactors, config: InferenceConfig, cluster: Cluster, layout: Layout, room: float) -> Engine:
    """Returns a replica with as many requests in flight as the configuration asks for, or as there is room for."""
    in_flight = requests_in_flight(config, layout, room)
    tried = [
        _engine_with_places(factors, config, cluster, layout, room, float(places))
        for places in places_to_try(config, in_flight, max(1.0, room))
    ]
    return min(tried, key=lambda engine: float(engine.per_request.total(engine.seconds)))


def places_to_try(config: InferenceConfig, in_flight: Number, most: Number) -> tuple[Number, ...]:
    """Returns the numbers of requests at once with which an engine is tried; it takes the one that yields the most.

    An engine takes as many as there is room for. Static batches can also be of half the clients each, so that the two
    halves take turns and the engine never waits for the next requests.
    """
    if not config.software.stack.static_batches or config.serving is not None or not config.concurrency:
        return (most,)
    return most, np.clip(in_flight / 2.0, 1.0, most)


def _engine_with_places(
    factors: StepFactors, config: InferenceConfig, cluster: Cluster, layout: Layout, room: float, most: float
) -> Engine:
    in_flight = requests_in_flight(config, layout, room)
    # Terms that do not grow in proportion to the requests are computed with all of these running.
    running = min(in_flight, most)
    terms = engine_terms(config, cluster, layout, running)
    least = float(step_weight_bytes(config, layout, running)) / cluster.memory_bandwidth
    seconds = _calibrated(factors, terms, least)
    state = steady_state(seconds, in_flight, most, config.output_length, config.longest_answer(running))
    return Engine(terms, seconds, room, state, *shares_of(config, layout, state, most))


def shares_of(config: InferenceConfig, layout: AnyLayout, state: SteadyState, most_running: Number) -> BurstShares:
    """Parts of the time between the ends of two requests, and between two tokens, in a steady state or in a burst."""
    if not config.burst or isinf(config.burst):  # an amount of tokens over a tiny length is too many requests to count
        return BurstShares(state.per_request, state.per_token)
    output = max(1.0, config.output_length)
    replicas = replicas_in_use(config, layout)
    requests = np.maximum(1.0, config.burst / replicas)  # a replica serves whole requests
    shares = state.of_burst(requests, most_running, output, max(output, config.longest_output or 0.0))
    # Where replicas outnumber the requests, the remaining replicas are idle.
    replicas_per_request = np.maximum(1.0, replicas / max(1.0, config.burst))
    return shares._replace(per_request=shares.per_request.times(replicas_per_request))


def requests_in_flight(config: InferenceConfig, layout: Layout, room: float) -> float:
    """Requests in flight on each replica; one where there is room for none."""
    return float(requests_at_once(config, layout, max(1.0, room)))


def room_by_memory(config: InferenceConfig, fit: Number, in_cache: Number) -> Number:
    """Returns the requests that run at once; 0 where the longest one does not fit.

    `fit` is the number of whole requests that fit in memory, and `in_cache` the number that runs in the engine's cache.
    """
    running = np.minimum(np.floor(requests_in(config, fit)), in_cache)
    return np.where(fit >= config.longest_over_mean, np.maximum(1.0, running), 0.0)


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Likely times of the tokens of answers: at the percentile of the question, and as means over all requests."""

    seconds_to_first_token: float
    seconds_per_output_token: float | None
    """None where answers have a single token."""
    mean_to_first_token: float
    mean_per_token: float


@dataclass(frozen=True, slots=True)
class ServedLoad:
    """A load on instances of one cluster, with engines at their likely speed, or with `Serving.safe` at the low end.

    Times are those at the percentile of the question.
    """

    serving: Serving
    instances: Band
    """Fewest instances that keep all limits on times, where engines are as fast as the high end, the likely figure and
    the low end of their band; where no number keeps the limits, the fewest that carry the load.
    """
    missed: Mapping[str, float]
    """By field of each limit that these instances do not keep, the least figure that other numbers would reach, in this
    layout or, if it was chosen freely, in any."""
    replicas: float
    """Copies of the model on one instance."""
    places: float
    """Most requests that run at once on a replica."""
    running: float
    """Requests that run at once on a replica while it works."""
    in_flight: float
    """Requests of all instances that run, wait or are on their way."""
    utilisation: float
    """Rate of a replica divided by its highest rate, which its host may limit."""
    requests_per_second: float
    """Rate of all instances together."""
    seconds_per_request: float
    tokens: TokenTimes | None
    """None where answers have no tokens."""
    prompt_share: float
    """Share of the engine's time that reads prompts; with disaggregated prefill, the share of the instances."""
    prefill_instances: int = 0
    """Instances that only read prompts."""
    seconds_of_transfer: float = 0.0
    """Seconds in which an instance that reads prompts sends the cache of one."""
    most_of_gpus: float | None = None
    """Highest requests per second of the GPUs of an instance, where its hosts limit the load; None elsewhere."""

    @property
    def batch(self) -> float:
        """Mean requests that run on a replica at any time, also while it is idle: no more than are in flight."""
        writers = (self.instances.likely - self.prefill_instances) * self.replicas
        return min(self.running, self.in_flight / writers)


@dataclass(frozen=True, slots=True)
class CalibratedEngines:
    """Engines at any number of running requests, by the same formulas as `engine_on`: one layout, or one per row.

    Of their work, only the experts and adapters that a step reads and the passes of a prompt depend on the number of
    requests that run, so the rest is computed once.
    """

    config: InferenceConfig
    layouts: AnyLayout
    memory: Number
    """Seconds per byte of memory at its rated speed."""
    weights: Number
    """Calibrated seconds per byte of weights."""
    unpacking: Number
    """Calibrated seconds per operation of unpacking."""
    launch: Number
    """Calibrated seconds per ideal second of starting kernels."""
    step: Number
    """Seconds of a step apart from its weights and from experts that are computed one after another."""
    request: Number
    """Seconds that each running request adds to a step."""
    prompt: Number
    """Seconds of a prompt apart from its passes."""
    one_pass: Number
    """Seconds of one pass over the tokens of a prompt."""
    arrival: Number
    whole_step: Number | None = None
    """Seconds of a step with its weights; None where these depend on the requests that run."""

    @staticmethod
    def of(
        config: InferenceConfig, layouts: AnyLayout, linked_gpus: Number, memory: Number, rate: CalibratedRates
    ) -> "CalibratedEngines":
        """Returns engines. `memory` is the seconds per byte of memory at its rated speed."""

        def total(demands: Demands) -> Number:
            return sum(amount * rate(term, resource) for (term, resource), amount in demands.items())

        request, prompt = (of(config, layouts, linked_gpus) for of in (request_demands, prompt_demands))
        engines = CalibratedEngines(
            config,
            layouts,
            memory,
            rate("weights", "memory"),
            rate("unpacking", "plain_flops"),
            rate("launch", "seconds"),
            total(step_demands(config, layouts)),
            np.maximum(total(request), request["cache", "memory"] * memory),
            total(prompt),
            total(pass_demands(config, layouts)),
            total(arrival_demands(config, layouts, prompt)),
        )
        return engines if step_depends_on_requests(config) else replace(engines, whole_step=engines.step_of(1.0))

    def rows(self, rows: Indices) -> "CalibratedEngines":
        """Returns some of the engines."""
        if isinstance(self.layouts, Layout):
            return self
        columns = {name: np.asarray(column)[rows] for name in SECONDS if (column := getattr(self, name)) is not None}
        return replace(self, config=self.config.rows(rows), layouts=taken(self.layouts, rows), **columns)

    def step_of(self, running: Number) -> Number:
        """Returns the calibrated seconds of a step with its weights, which is no faster than reading them."""
        if self.whole_step is not None:
            return self.whole_step
        read = step_weight_bytes(self.config, self.layouts, running)
        unpacked = step_unpacking_flops(self.config, self.layouts, running) * self.unpacking
        experts = step_expert_launches(self.config, running) * self.launch
        return np.maximum(read * self.weights + unpacked + experts + self.step, read * self.memory)

    def at(self, running: Floats) -> EngineTimes:
        """Returns the calibrated seconds of each part of the work."""
        return EngineTimes(
            self.step_of(running),
            self.request,
            self.prompt + passes_of_prompt(self.config, running) * self.one_pass,
            self.arrival,
        )

    def under_load(self, running: Floats) -> EngineTimes:
        """Returns the calibrated seconds with the passes that prompts share counted as a part of the steps.

        A prompt waits for the whole pass that reads it, whether it shares that pass with other prompts or not.
        """
        passes = passes_under_load(self.config, running)
        return EngineTimes(
            self.step_of(running) + passes.step * self.one_pass,
            self.request,
            self.prompt + passes.prompt * self.one_pass,
            self.arrival,
            passes.own * self.one_pass,
        )


SECONDS = ("memory", "weights", "unpacking", "launch", "step", "request", "prompt", "one_pass", "arrival", "whole_step")
"""Columns of `CalibratedEngines`."""


def calibrated_rates(factors: StepFactors, config: InferenceConfig, cluster: Cluster) -> CalibratedRates:
    """Returns a function for the calibrated seconds per unit of a resource that a term needs on a cluster."""
    rates = seconds_per_unit(config, cluster)
    return lambda term, resource: rates[resource] * factors.whole(term)


def engine_with(factors: StepFactors, config: InferenceConfig, cluster: Cluster, layout: Layout) -> CalibratedEngines:
    """Returns the engine of a language model on one cluster and layout."""
    rate = calibrated_rates(factors, config, cluster)
    memory = seconds_per_unit(config, cluster)["memory"]
    return CalibratedEngines.of(config, layout, cluster.linked_gpus, memory, rate)


def served_load(
    engine: Engines, config: InferenceConfig, cluster: Cluster, layout: Layout, room: float, rates: Band
) -> ServedLoad | None:
    """Returns the instances that serve the load of a configuration; None without a load, or where no request fits.

    `rates` is the band of an engine's rate, as factors of the calibrated rate.
    """
    serving, generates = config.serving, config.model.generates
    if serving is None or not room:
        return None
    # Engines as fast as the high end of the band, the likely figure and the low end.
    speeds = np.array([rates.high, rates.likely, rates.low])
    count = float(layout.data if generates else cluster.gpus)
    fed = samples_fed(cluster, config.loading)
    replicas = Replicas.of(engine, np.full(3, room), np.full(3, count), 1.0 / speeds, fed)
    sent = float(sent_cache_bytes(config, layout)) if serving.disaggregated else 0.0
    transfer = np.full(3, sent / cluster.network_bytes_per_second)
    served = serve_load(replicas, transfer, serving)
    low, _, high = served.fewest.tolist()
    chosen = np.array([2 if serving.safe else 1])
    served, replicas = Served(*(column[chosen] for column in served)), replicas.rows(chosen)
    instances, times = float(served.fewest[0]), times_of_load(replicas, transfer[chosen], served, serving)
    seconds = replicas.seconds(np.clip(times.running, 1.0, room))
    tokens, running, copies = serving.answer.mean, float(times.running[0]), instances * count
    prompt = float(np.asarray(seconds.prompt)[0])
    decode = tokens * float(np.asarray(seconds.step / max(1.0, running) + seconds.request)[0]) if tokens > 1.0 else 0.0
    readers, rate = float(served.prefill[0]), float(served.rate[0]) * copies
    shares = serving.percentiles
    first, token, request = (float(figure(times, shares[name])[0]) for name, (_, figure) in TIMES.items())
    return ServedLoad(
        serving=serving,
        # Slow engines may keep the limits on no number of instances; the fewest that carry the load may then be fewer.
        instances=Band(min(low, instances), instances, max(low, instances, high)),
        missed=served.missed(serving),
        replicas=count,
        places=room,
        running=running,
        in_flight=serving.concurrency or rate * float(times.mean_request[0]),
        utilisation=float(served.utilisation[0]),
        most_of_gpus=float(replicas.most_of_engines(serving)[0]) * count
        if replicas.hosts_limit(served.fewest, serving)[0]
        else None,
        requests_per_second=rate,
        seconds_per_request=request,
        tokens=TokenTimes(
            first, token if tokens > 1.0 else None, float(times.mean_first_token[0]), float(times.mean_per_token[0])
        )
        if generates
        else None,
        prompt_share=readers / instances if readers else prompt / (prompt + decode) if generates else 1.0,
        prefill_instances=round(readers),
        seconds_of_transfer=float(transfer[1]) if readers else 0.0,
    )


def _calibrated(factors: StepFactors, terms: EngineTerms, least_step: float) -> EngineTimes:
    """Returns the calibrated seconds of each part. No step is faster than reading its weights and cache."""
    step, request, prompt, arrival = (sum(factors.seconds(part).values()) for part in terms)
    return EngineTimes(max(step, least_step), max(request, terms.request["cache"]), prompt, arrival)
