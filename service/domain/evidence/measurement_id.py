"""What a training loop tells of itself → a measurement, whose id follows from all that was told."""

import hashlib
import json
from dataclasses import asdict, replace

from service.domain.catalog.reference import Measurement

LETTERS = 24
"""Of a SHA-256 in hexadecimal: 96 bits, so that no two measurements ever share them."""

NOT_TOLD = ("id", "gpu_count")
"""The catalog knows them; what was told is the same whatever the catalog says."""


def samples_per_second(steps: int, seconds: float, batch_size: int, world_size: int) -> float:
    """Of all workers together, each of which takes a batch a step."""
    return steps * batch_size * world_size / seconds


def identified(told: Measurement) -> Measurement:
    """With the id that the same measurement has whenever it is told."""
    content = {name: value for name, value in asdict(told).items() if name not in NOT_TOLD}
    text = json.dumps(content, sort_keys=True, default=str)
    return replace(told, id=f"sent-{hashlib.sha256(text.encode()).hexdigest()[:LETTERS]}")
