"""Demands of a step on each resource of a cluster, and the time that the resource takes at its rated speed: FLOPs at
the part of the peak that a GPU sustains.

Amounts depend on the job and its layout, and seconds per unit on the cluster alone. Therefore one matrix product
combines many layouts with many clusters.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from service.domain.arrays import Number
from service.domain.catalog.hardware import Gpu, peak_flops
from service.domain.catalog.precision import bytes_per_value
from service.domain.jobs.config import Config, InferenceConfig
from service.domain.physics.cluster import DEFAULT_VCPUS_PER_GPU, Cluster
from service.domain.physics.parallelism import all_reduce_bytes, linked_ranks

Demands: TypeAlias = dict[tuple[str, str], Number]
"""Amount for one GPU by term and resource. A term may use several resources, one after another.

Resources are FLOPs at the job's precision (`flops`), at 16 bits at least (`wide_flops`) and in fp32 (`plain_flops`);
bytes of GPU memory (`memory`), of the fast link, of the slower of link and network (`slow_link`), of the network, and
from the memory of the host (`host_link`);
energy (`joules`), which takes time at the rated power; seconds of one vCPU (`vcpu`); and `seconds` that no hardware
shortens.
"""


GRADIENTS = "data"
"""Name of the term for the exchange of gradients, which may run at the same time as the rest of a step."""


class StepTerms(NamedTuple):
    """Ideal seconds of each term of a step, and the units (samples or tokens) that the step yields."""

    seconds: dict[str, float]
    units: float
    least_seconds: float = 0.0
    """Seconds in which links or network carry the bytes of the step at their rated speed: no step is shorter."""
    least_term: str = GRADIENTS
    """The term to which most of these bytes belong."""


def peak_in(config: Config, gpu: Gpu, precision: str) -> float:
    """Returns the dense operations per second of one GPU at a precision, with the stack's precision of sums."""
    peak = peak_flops(gpu, precision)
    if not (config.software.stack.accumulates_in_16_bits and gpu.tensor_core_generation):
        return peak
    # Tensor cores that add up in 16 bits multiply at half of their int8 rate.
    return max(peak, peak_flops(gpu, "int8") / 2)


def seconds_per_flop(config: Config, gpu: Gpu) -> dict[str, float]:
    """Returns seconds per FLOP of one GPU at the job's precision (`flops`) and at that of attention (`wide_flops`).

    They are those at the rate that the GPU sustains.
    """
    # Attention scores have at least 16 bits; in inference all formats of 16 bits count as bf16.
    width = bytes_per_value(config.precision)
    at_16_bits = width < 2 or (width == 2 and isinstance(config, InferenceConfig))
    formats = {"flops": config.precision, "wide_flops": "bf16" if at_16_bits else config.precision}
    return {
        name: 1 / (peak_in(config, gpu, format_) * gpu.sustained_share(format_)) for name, format_ in formats.items()
    }


def seconds_per_unit_of_hardware(cluster: Cluster) -> dict[str, float]:
    """Returns seconds per unit of each resource that does not depend on the precision."""
    return {
        "plain_flops": 1 / peak_flops(cluster.gpu, "fp32"),
        "memory": 1 / cluster.memory_bandwidth,
        "link": 1 / cluster.link_bytes_per_second,
        "slow_link": 1 / min(cluster.link_bytes_per_second, cluster.network_bytes_per_second),
        "network": 1 / cluster.network_bytes_per_second,
        "host_link": 1 / cluster.host_link_bytes_per_second,
        "joules": 1 / cluster.watts,
        "vcpu": 1 / (cluster.vcpus_per_gpu or DEFAULT_VCPUS_PER_GPU),
        "seconds": 1.0,
    }


def seconds_per_unit(config: Config, cluster: Cluster) -> dict[str, float]:
    """Returns seconds per unit of each resource of a cluster at its rated speed."""
    return seconds_per_flop(config, cluster.gpu) | seconds_per_unit_of_hardware(cluster)


def ideal_seconds(demands: Demands, rates: Mapping[str, float]) -> dict[str, float]:
    """Returns the seconds of each term, given the seconds that each resource takes for a unit."""
    seconds: dict[str, float] = {}
    for (term, resource), amount in demands.items():
        seconds[term] = seconds.get(term, 0.0) + float(amount) * rates[resource]
    return seconds


def ideal_terms(
    demands: Demands, units: float, config: Config, cluster: Cluster, carried: Iterable[Demands] = ()
) -> StepTerms:
    """Returns the seconds of each term at the rated speed of every part of a cluster.

    `carried` has the bytes of a step on each carrier, such as the network, whatever other work they overlap with.
    """
    rates = seconds_per_unit(config, cluster)
    slowest = max((ideal_seconds(each, rates) for each in carried), key=lambda each: sum(each.values()), default={})
    term = max(slowest, key=slowest.__getitem__, default=GRADIENTS)
    return StepTerms(ideal_seconds(demands, rates), units, sum(slowest.values()), term)


def summed_over(term: str, size: Number, inside: Number, parts: Number, between: str = "slow_link") -> Demands:
    """Bytes that a GPU sends to sum `size` bytes over parts of so many linked GPUs: reduce-scatter inside a part,
    all-reduce of the shares between parts, then all-gather inside. `between` is the resource that joins the parts.
    """
    return {
        (term, "link"): all_reduce_bytes(size, inside),
        (term, between): all_reduce_bytes(size / inside, parts),
    }


def summed_in_tensor_groups(size: Number, tensor: Number, linked_gpus: Number) -> Demands:
    """Bytes that a GPU sends to sum `size` bytes over its tensor-parallel group."""
    inside = linked_ranks(tensor, linked_gpus)
    return summed_over("tensor", size, inside, tensor / inside)


def over_links(name: str, amount: Number, linked: Number) -> Demands:
    """Bytes between ranks: over the fast link where these share one (`linked`, or the share of bytes of which this is
    true), else over the slower of link and network.
    """
    return {(name, "link"): amount * linked, (name, "slow_link"): amount * (1.0 - linked)}
