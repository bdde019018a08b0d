"""Measurements that callers send: their rate, and an id that is computed from their content."""

import hashlib
import json
from dataclasses import asdict, replace

from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.reference import Measurement

_LETTERS = 24
"""Hexadecimal digits of an id, from a SHA-256: 96 bits, so that ids of different content do not collide."""

_FROM_CATALOG = ("id", "gpu_count", "since")
"""Fields that the catalog fills in. The id leaves them out, so that it does not change with the catalog."""

_ADDED_LATER = ("owner", "watts")
"""Fields that were added later. The id leaves them out where they are None, so that older ids stay valid."""


def samples_per_second(steps: int, seconds: float, batch_size: int, world_size: int) -> float:
    """Returns the rate of `world_size` workers together, each of which processes a batch per step."""
    return steps * batch_size * world_size / seconds


def most_samples_per_second(instance_type: InstanceType, nodes: int) -> float | None:
    """Returns a rate that no workload can exceed: one byte per sample at the memory bandwidth of all GPUs.

    Only the name of the workload is known, and not its FLOPs, but GPUs read at least one byte of each sample. None if
    the machine has no GPU or its bandwidth is unknown.
    """
    bandwidth = instance_type.total_bandwidth_gb_per_second
    return None if bandwidth is None else bandwidth * 1e9 * nodes


def identified(measurement: Measurement) -> Measurement:
    """Returns the measurement with its id, which is the same for the same content."""
    content = {name: value for name, value in asdict(measurement).items() if name not in _FROM_CATALOG}
    content = {name: value for name, value in content.items() if name not in _ADDED_LATER or value is not None}
    # Sorted, so that the id does not depend on the order of the fields of the class.
    text = json.dumps(content, sort_keys=True, default=str)
    return replace(measurement, id=f"sent-{hashlib.sha256(text.encode()).hexdigest()[:_LETTERS]}")
