"""What a step asks of each part of a machine, and how long that part takes at its rated speed.

A demand is an amount of a resource: FLOPs, bytes of memory or of a link, seconds that no hardware shortens. Amounts
depend on the work and its layout, seconds per unit on the machine alone; so many layouts meet many machines in one
product of matrices.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from service.domain.arrays import Number
from service.domain.catalog.hardware import Gpu, peak_flops
from service.domain.catalog.precision import bytes_per_value
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.physics.cluster import DEFAULT_VCPUS_PER_GPU, Cluster

RESOURCES = ("flops", "wide_flops", "memory", "link", "slow_link", "network", "vcpu", "seconds")
"""FLOPs at the precision of the work, and at 16 bits at least; bytes of GPU memory, of the fast link, of the slower of
link and network, and of the network; seconds of one vCPU; seconds as they are. All of or for one GPU."""

Demands: TypeAlias = dict[tuple[str, str], Number]
"""(Term, resource) -> amount. A term may ask for several resources, one after another."""


class StepTerms(NamedTuple):
    """Ideal seconds of each part of a step; the units of a step are what it yields."""

    seconds: dict[str, float]
    units: float


def wide_precision(config: TrainingConfig | InferenceConfig) -> str:
    """What attention scores are computed in: 16 bits where the rest is narrower; engines always use 16."""
    if isinstance(config, InferenceConfig) or bytes_per_value(config.precision) < 2:
        return "bf16"
    return config.precision


def peaks(config: TrainingConfig | InferenceConfig, gpu: Gpu) -> tuple[float, float]:
    """FLOP/s of one GPU at the precision of the work, and of its attention scores."""
    return peak_flops(gpu, config.precision), peak_flops(gpu, wide_precision(config))


def seconds_per_unit(config: TrainingConfig | InferenceConfig, cluster: Cluster) -> dict[str, float]:
    """Of each resource."""
    flops, wide_flops = peaks(config, cluster.gpu)
    return {
        "flops": 1 / flops,
        "wide_flops": 1 / wide_flops,
        "memory": 1 / cluster.memory_bandwidth,
        "link": 1 / cluster.link_bytes_per_second,
        "slow_link": 1 / min(cluster.link_bytes_per_second, cluster.network_bytes_per_second),
        "network": 1 / cluster.network_bytes_per_second,
        "vcpu": 1 / (cluster.vcpus_per_gpu or DEFAULT_VCPUS_PER_GPU),
        "seconds": 1.0,
    }


def ideal_seconds(demands: Demands, rates: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each term on one machine."""
    seconds: dict[str, float] = {}
    for (term, resource), amount in demands.items():
        seconds[term] = seconds.get(term, 0.0) + float(amount) * rates[resource]
    return seconds


def over_links(name: str, amount: Number, linked: Number) -> Demands:
    """Bytes of a collective: over the fast link where its ranks share one, else over the slower of link and network."""
    return {(name, "link"): amount * linked, (name, "slow_link"): amount * (1.0 - linked)}
