"""Room for the KV cache on a GPU, and how many requests fit in it."""

import numpy as np

from service.domain.arrays import Number
from service.domain.jobs.config import InferenceConfig
from service.domain.physics.memory import inference_parts, sequence_cache_bytes, total
from service.domain.physics.parallelism import AnyLayout, Layout

CACHE_SHARE = 0.92
"""Share of a GPU's usable memory that weights, activations and cache may take together."""


def _room_for_cache(config: InferenceConfig, usable_bytes: Number, layout: AnyLayout) -> Number:
    """Bytes of a GPU that weights and activations leave for the KV cache."""
    return np.maximum(0.0, CACHE_SHARE * usable_bytes - total(inference_parts(config, layout, 0.0, 0.0)))


def _concurrency_that_fits(config: InferenceConfig, usable_bytes: Number, layout: AnyLayout) -> Number:
    left = _room_for_cache(config, usable_bytes, layout)
    tokens = max(1.0, config.input_length + config.output_length)
    each = sequence_cache_bytes(config, tokens, layout.tensor) / layout.pipeline
    most = config.software.stack.most_in_flight
    return np.maximum(1.0, np.minimum(most, left / each))


def replicas_in_use(config: InferenceConfig, layout: AnyLayout) -> Number:
    """Copies of the model that have a request to process."""
    return np.minimum(layout.data, max(1.0, config.concurrency)) if config.concurrency else layout.data


def in_flight(config: InferenceConfig, usable_bytes: Number, layout: AnyLayout) -> Number:
    """Conversations at once on one replica: as many as requested and no more than fit, but one at least."""
    most = _concurrency_that_fits(config, usable_bytes, layout)
    if not config.concurrency:
        return most
    asked = config.concurrency / replicas_in_use(config, layout)
    return np.where(asked <= 1, asked, np.minimum(asked, most))


def cache_tokens_that_fit(config: InferenceConfig, usable_bytes: float, layout: Layout) -> float:
    """Tokens of one conversation whose keys and values fit on the GPUs of one replica."""
    tokens = max(1.0, config.input_length + config.output_length)
    each = sequence_cache_bytes(config, tokens, layout.tensor) / layout.pipeline / tokens
    return float(_room_for_cache(config, usable_bytes, layout) / each) if each else 0.0
