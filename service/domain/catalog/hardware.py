"""GPUs and the instance types that carry them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from operator import itemgetter
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar, get_args

from service.domain.catalog.precision import ENOUGH, Rate, SupportAsked, format_of, runs_as

LifecycleState = Literal["announced", "preview", "available", "closed_to_new", "retired"]
LIFECYCLE_STATES: tuple[LifecycleState, ...] = get_args(LifecycleState)
"""All states, in the order in which an instance type passes through them."""

ENDED = frozenset({"closed_to_new", "retired"})
"""States after which an instance type in use has to be replaced."""

RENTED: tuple[LifecycleState, ...] = ("available", "closed_to_new", "preview")
"""States in which some customers can rent an instance type."""

IN_USE: tuple[LifecycleState, ...] = ("available", "closed_to_new")
"""States that questions admit unless they name others."""

CPU = "cpu"
"""The platform of machines without a GPU, and their kind in rules about software."""

INTERCONNECTS = ("none", "pcie", "nvlink", "nvswitch", "infinity_fabric", "ici", "neuronlink", "roce")
"""How the GPUs of one machine reach each other; `none` is a single GPU."""

SLOW_LINKS = (None, "none", "pcie")
"""Interconnects over which several GPUs train one model slowly, or that are unknown."""

MATRIX_ENGINE_OVER_FP32 = 4.0
"""Ratio of the 16-bit matrix rate to plain fp32, for GPUs whose vendor states only fp32. It is 154.8 / 38.7 for the RTX
A6000 and 261 / 65.3 for the RTX 5000 Ada (TFLOP/s of their data sheets)."""

HELD_OVER_BASE_CLOCK = 4 / 3
"""Boost clock ÷ base clock up to which a GPU holds its boost clock in matrix work: that of an A100 is 1.1 to 1.3, and
that of an H100 and H200 with SXM 1.25 and 1.32."""

MOST_OVER_BASE_CLOCK = 2.74
"""The largest boost clock ÷ base clock of a GPU with published runs, that of the RTX 6000 Ada (2,505 and 915 MHz). A
larger one counts as this one, because no run says that its card is slowed further."""

HALF_SPEED_OVER_FP32 = 2.0
"""16-bit matrix rate ÷ fp32 rate of GPUs whose matrix engines work at half of their speed: an L20, an L40 and an RTX
4090. It is 4 for the L40S, which has the chip of the L40."""

SLOWED_PER_CLOCK = 0.4
"""Time that matrix work takes longer for each unit of boost clock ÷ base clock beyond that. It has the least error on
published runs that were left out (docs/fits.md); a T4, with 1,590 and 585 MHz, takes 1.55 times as long."""

NAME_RULES = {
    "aws": re.compile(
        r"(?:ml\.)?(?P<letters>[a-z]+?)(?P<generation>\d+)(?P<attributes>[a-z]*)(?:-[a-z]+\d+)?\.(?P<size>[\w-]+)"
    ),
}
"""Provider → pattern of its instance names. AWS: the series is letters and a number, the letters behind it are variants
(d local disk, n network, g Graviton), a GPU may follow (`-b200`), and so does the size after the dot."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, TPU, NPU or FPGA, or a part of a card (`fraction` below 1); every figure is that of one such unit."""

    id: str
    name: str
    kind: str
    """`gpu`, `tpu`, `npu` or `fpga`; `cpu` where CPUs are described as one GPU."""
    vendor: str
    """Maker of the chip, such as `nvidia`."""
    architecture: str
    """Generation of the chip, such as `hopper` or `cdna-3`."""
    platform: str | None
    """The platform that code for this GPU is written for, such as `cuda`; None if no deep-learning code runs on it."""
    released_on: str | None
    """Year, month or day of the release, such as `2022`, `2022-03` or `2022-03-22`; None if unknown."""
    memory_gb: float | None
    """Memory in GB as it is sold."""
    usable_memory_gib: float | None
    """Memory in GiB that programs can allocate."""
    memory_type: str | None
    """Such as `HBM3` or `GDDR6`."""
    memory_bandwidth_gb_per_second: float | None
    tdp_watts: float | None
    """Rated power."""
    cores: int | None
    """Units that add and multiply: CUDA cores or stream processors."""
    base_clock_mhz: float | None
    boost_clock_mhz: float | None
    gpus_per_board: int | None
    """GPUs that a machine sees for each board that is sold; above 1 for boards such as the K80."""
    gpus_per_rack: int | None
    """GPUs on one fast link where that is more than a node: NVL72 racks and TPU pods (makers' data sheets)."""
    gpus_per_tray: int | None
    """GPUs of the nodes that make up a rack. Nodes of another size with this GPU are joined by the network alone."""
    slices: str | None
    """Numbers of chips of the slices of a TPU pod, with commas: a cluster of another size is several equal slices,
    which the network joins. None: the nodes of a rack are joined in any number, or the slices are unknown."""
    compute_capability: str | None
    """The maker's name of the instruction set: `9.0` for NVIDIA's Hopper, `gfx942` for AMD's CDNA 3."""
    tensor_core_generation: int | None
    """Generation of NVIDIA's tensor cores, 1 for Volta; None for a GPU without them."""
    interconnect: str | None
    """Link between GPUs of this kind, such as `nvlink`; `none` if they have none, None if unknown."""
    interconnect_gb_per_second: float | None
    """Bandwidth of the link per GPU in GB/s, both directions added; None if unknown or none."""
    pcie_generation: int | None
    """PCIe generation of the card; None if unknown, and estimates then assume the rate of the fourth."""
    form_factor: str | None
    """Such as `pcie`, `sxm5` or `oam`; None if unknown."""
    positioned_for: str | None
    """Purpose for which the vendor sells it: `training`, `inference` or `graphics`; None if for all of them, or
    unknown."""
    consumer: bool | None
    """Whether the card is sold in the GeForce, GTX, RTX or Titan lines; None when unknown."""
    fraction: float
    """1 for a whole card, 0.5 for one half of a card."""
    partition_of: str | None
    """Id of the card of which this is a part; None for a whole card."""
    successor: str | None
    """Id of the GPU that the vendor sells in its place."""
    source: str
    note: str | None
    aliases: tuple[str, ...]
    """Other names of the GPU; several GPUs may share one."""
    has_flash_attention: bool
    """False where the rules on software say that FlashAttention-2 does not run on its architecture."""
    rates: Mapping[str, Rate] = field(hash=False)
    """Rates by precision; a precision without an entry is unknown."""

    @property
    def slice_sizes(self) -> tuple[int, ...]:
        """The numbers of `slices`; empty if there are none."""
        return tuple(map(int, self.slices.split(","))) if self.slices else ()

    @property
    def code_family(self) -> tuple[str, str | None]:
        """GPUs of one family run the same compiled code: the architecture, and the major compute capability.

        Blackwell has two: code that is compiled for 10.0 does not run on 12.0.
        """
        return self.architecture, self.compute_capability and self.compute_capability.partition(".")[0]

    @property
    def released_year(self) -> int | None:
        """The year in which the GPU was released; None if unknown."""
        return None if self.released_on is None else int(self.released_on[:4])

    @property
    def has_tensor_cores(self) -> bool:
        """Whether the GPU has NVIDIA's tensor cores; other matrix engines show as `accelerated` precisions."""
        return self.tensor_core_generation is not None

    @property
    def has_sparsity(self) -> bool:
        """Whether the peak is higher where half of the weights are zero in a fixed pattern."""
        return any(rate.sparse_tflops for rate in self.rates.values())

    def multiplies_in(self, precision: str) -> str:
        """Returns the precision in which the GPU multiplies: without TF32, frameworks fall back to plain fp32."""
        name = runs_as(precision)
        return "fp32" if name == "tf32" and not self.runs("tf32") else name

    def sustained_share(self, precision: str) -> float:
        """Returns the share of its peak in a precision that a GPU sustains in matrix work: a card with too little power
        for its boost clock has a base clock far below it. Matrix engines at half of their speed take less power, and
        hold the boost clock; plain fp32 does not run on them.
        """
        if not (self.base_clock_mhz and self.boost_clock_mhz):
            return 1.0
        over_base = min(self.boost_clock_mhz / self.base_clock_mhz, MOST_OVER_BASE_CLOCK)
        slowed = SLOWED_PER_CLOCK * max(0.0, over_base - HELD_OVER_BASE_CLOCK)
        plain = self.multiplies_in(precision) == "fp32"
        return 1.0 / (1.0 + slowed * (1.0 if plain else self._beyond_half_speed))

    @property
    def _beyond_half_speed(self) -> float:
        """How far the speed of the matrix engines is above half: from 0 to 1, which also stands for unknown rates."""
        matrix, plain = self.tflops("fp16"), self.tflops("fp32")
        if not (self.tensor_core_generation and matrix and plain):
            return 1.0
        return min(1.0, max(0.0, matrix / plain / HALF_SPEED_OVER_FP32 - 1.0))

    def rate_at(self, precision: str) -> Rate | None:
        """Returns the rate in a precision, else in the precision whose arithmetic multiplies it; None if unknown."""
        if precision in self.rates or format_of(precision).has_own_rates:
            return self.rates.get(precision)
        return self.rates.get(runs_as(precision))

    def runs(self, precision: str, asked: SupportAsked = "native") -> bool:
        """Returns whether the GPU is known to run a precision with at least the level of support that is asked for."""
        rate = self.rate_at(precision)
        return rate is not None and rate.support in ENOUGH[asked]

    def is_unfit_for(self, precision: str) -> bool:
        """Returns whether the GPU is known to lack a precision, or to run it at a reduced rate."""
        rate = self.rates.get(precision)
        return rate is not None and rate.support in ("none", "reduced")

    def tflops(self, precision: str) -> float | None:
        """Returns the dense peak in 10^12 operations per second; None if unknown."""
        rate = self.rate_at(precision)
        return rate.dense_tflops if rate else None


class StateEvent(Protocol):
    """A state that begins on a day."""

    @property
    def state(self) -> LifecycleState:
        """The state."""

    @property
    def starts_on(self) -> date:
        """The day on which the state begins."""


Event = TypeVar("Event", bound=StateEvent)


class HasLifecycle(Generic[Event]):
    """Something that passes through dated states, such as an instance type or a service."""

    __slots__ = ()
    lifecycle: tuple[Event, ...]
    """The states in the order of their days."""

    def state_on(self, day: date) -> LifecycleState | None:
        """Returns the state in force on a day; None before the first event."""
        event = self.event_on(day)
        return None if event is None else event.state

    def event_on(self, day: date) -> Event | None:
        """Returns the event that began the state in force on a day; None before the first event."""
        return next((event for event in reversed(self.lifecycle) if event.starts_on <= day), None)


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """From this day on, an instance type is in this state."""

    state: LifecycleState
    starts_on: date
    basis: str
    """`published` by the provider, `first_seen` (the oldest known listing, so the state may have begun earlier), or
    `recalled`: general knowledge that was not checked again.
    """
    source: str
    note: str | None


class NameParts(NamedTuple):
    """The parts of an instance name, such as p, 3, (d, n) and 24xlarge of `p3dn.24xlarge`."""

    letters: str
    generation: int
    attributes: tuple[str, ...]
    size: str

    @property
    def series(self) -> str:
        """Letters and generation, such as `p3`."""
        return f"{self.letters}{self.generation}"


def name_parts(provider: str, name: str) -> NameParts | None:
    """Returns the parts of a name; None if the provider has no rule or the name does not follow it."""
    rule = NAME_RULES.get(provider)
    match = rule.fullmatch(name) if rule else None
    if match is None:
        return None
    return NameParts(match["letters"], int(match["generation"]), tuple(match["attributes"]), match["size"])


@dataclass(frozen=True, slots=True)
class InstanceType(HasLifecycle[LifecycleEvent]):
    """A machine under a provider's name."""

    provider: str
    name: str
    """Name at the provider, such as `p4d.24xlarge`."""
    service: str
    """The service that rents it out, such as `ec2` or `sagemaker`."""
    family: str
    """Family of instance types, such as `p4d`."""
    gpu: Gpu | None
    gpu_count: int
    interconnect: str | None
    interconnect_gb_per_second: float | None
    vcpus: float | None
    """vCPUs of the machine, as the provider counts them; None: unknown."""
    cpu_architecture: str | None
    cpu_vendor: str | None
    cpu_model: str | None
    memory_gib: float | None
    """Host memory in GiB; None: unknown."""
    network_gbps: float | None
    """Network of the machine in gigabits per second, at its peak; None: unknown."""
    network_baseline_gbps: float | None
    rdma: bool | None
    """Whether the network between machines has RDMA; None: unknown."""
    gpudirect_rdma: bool | None
    """Whether the network reads the memory of GPUs directly; None: unknown."""
    local_storage_gb: float | None
    """Local disks in GB; 0: none, None: unknown."""
    bare_metal: bool | None
    """Whether the renter has the whole machine without a hypervisor; None: unknown."""
    hypervisor: str | None
    """`nitro` or `xen` at AWS, `none` on bare metal; None: unknown."""
    cpu_fp32_tflops: float | None
    """Dense peak of all vCPUs in fp32, in 10^12 operations per second: cores x clock x operations per cycle;
    None: unknown."""
    cpu_memory_bandwidth_gb_per_second: float | None
    cpu_baseline_share: float | None
    """Share of its time that each vCPU of a burstable type can run without end; null for all other types."""
    twin_of: str | None
    """Name of the plain instance type on which a managed service runs: `p4d.24xlarge` for `ml.p4d.24xlarge`."""
    orderable: bool | None
    """Whether the provider takes this name in an order; false for combinations of a host and GPUs and for listings of
    single GPUs, None: unknown."""
    source: str
    note: str | None
    lifecycle: tuple[LifecycleEvent, ...]

    @property
    def id(self) -> str:
        """Returns `provider/name`, which is unique."""
        return f"{self.provider}/{self.name}"

    @property
    def name_parts(self) -> NameParts | None:
        """Returns the parts of the name by the rule of its provider; None if there is no rule or it does not fit."""
        return name_parts(self.provider, self.name)

    @property
    def processor(self) -> Gpu | None:
        """A GPU, or all CPUs as one processor; None if the figures of the CPUs are unknown."""
        return self.gpu if self.gpu is not None or self.cpu_memory_bandwidth_gb_per_second is None else _cpus(self)

    @property
    def platform(self) -> str | None:
        """The platform that code for this machine is written for; None if no deep-learning code runs on its GPU."""
        return CPU if self.gpu is None else self.gpu.platform

    @property
    def whole_gpus(self) -> float:
        """The number of GPUs, in which a part of a card counts as its fraction: 0.125 for one eighth of an A10."""
        return self.gpu_count * self.gpu.fraction if self.gpu else 0.0

    @property
    def total_gpu_memory_gb(self) -> float | None:
        """The memory of all GPUs together; None if unknown."""
        return None if self.gpu is None or self.gpu.memory_gb is None else self.gpu.memory_gb * self.gpu_count

    @property
    def total_bandwidth_gb_per_second(self) -> float | None:
        """The memory bandwidth of all GPUs together; None if unknown."""
        bandwidth = None if self.gpu is None else self.gpu.memory_bandwidth_gb_per_second
        return None if bandwidth is None else bandwidth * self.gpu_count

    @property
    def vcpus_per_gpu(self) -> float | None:
        """vCPUs per GPU; None without GPUs, or if unknown."""
        return None if self.vcpus is None or not self.gpu_count else self.vcpus / self.gpu_count

    @property
    def tdp_watts(self) -> float | None:
        """The rated power of all GPUs together; None if unknown."""
        return None if self.gpu is None or self.gpu.tdp_watts is None else self.gpu.tdp_watts * self.gpu_count

    @property
    def sustained_network_gbps(self) -> float | None:
        """The network bandwidth that lasts; None if unknown. Types with network credits exceed it for minutes only.

        RDMA uses no credits, so the whole bandwidth of types with it lasts.
        """
        bursts = self.network_baseline_gbps is not None and not self.rdma
        return self.network_baseline_gbps if bursts else self.network_gbps

    def sustained_by_cpus(self, figure: float | None) -> float | None:
        """Returns the part of a figure of all vCPUs that a burstable type sustains once its CPU credits are used up."""
        share = self.cpu_baseline_share
        return figure if figure is None or share is None else figure * share

    def tflops(self, precision: str) -> float | None:
        """Returns the dense peak of all GPUs together; without GPUs, the peak that the CPUs sustain in fp32 or fp64.

        It is in 10^12 operations per second; None if unknown.
        """
        if self.gpu is None:
            fp32 = self.sustained_by_cpus(self.cpu_fp32_tflops)
            # A vector register holds half as many numbers of twice the bits.
            return {"fp32": fp32, "fp64": fp32 and fp32 / 2}.get(precision)
        peak = self.gpu.tflops(precision)
        return None if peak is None else peak * self.gpu_count

    def fastest(self, precisions: Iterable[str]) -> tuple[str | None, float | None]:
        """Returns which of the precisions that the GPUs run has the highest known peak, and this peak as `tflops`.

        Both are None if no such peak is known.
        """
        run = [name for name in precisions if self.gpu is not None and self.gpu.runs(name)]
        peaks = [(name, peak) for name in run if (peak := self.tflops(name)) is not None]
        return max(peaks, key=itemgetter(1), default=(None, None))

    def end_after(self, day: date) -> LifecycleEvent | None:
        """Returns the first event after a day that closes or retires the type; None if none is known."""
        return next((event for event in self.lifecycle if event.starts_on > day and event.state in ENDED), None)

    @property
    def launched_on(self) -> date | None:
        """The day on which the type became generally available; None if unknown. The oldest listing may be later."""
        launches = (event for event in self.lifecycle if event.state == "available" and event.basis != "first_seen")
        return next((event.starts_on for event in launches), None)


def _cpus(host: InstanceType) -> Gpu:
    """The CPUs of a machine without a GPU, described as one GPU so that the same formulas estimate both."""
    unknown = dict.fromkeys(each.name for each in fields(Gpu))
    figures = {
        "id": f"{CPU}:{host.id}",
        "name": host.cpu_model or "CPU",
        "kind": CPU,
        "vendor": host.cpu_vendor or CPU,
        "architecture": CPU,
        "platform": CPU,
        "memory_gb": host.memory_gib,
        # A CPU moves bytes only while it runs.
        "memory_bandwidth_gb_per_second": host.sustained_by_cpus(host.cpu_memory_bandwidth_gb_per_second),
        "interconnect": "none",
        "consumer": False,
        "fraction": 1.0,
        "source": host.source,
        "aliases": (),
        "has_flash_attention": True,
        "rates": {"fp32": Rate("fp32", "native", host.tflops("fp32"), None, host.source, None)},
    }
    return Gpu(**{**unknown, **figures})  # type: ignore[arg-type]


def peak_flops(gpu: Gpu, precision: str) -> float:
    """Returns dense operations per second of one GPU; a missing peak is derived from that of a stand-in."""
    name = gpu.multiplies_in(precision)
    rate = gpu.rate_at(name)
    peak = rate.dense_tflops if rate else None
    if rate and peak and rate.support in ENOUGH["native"]:
        return peak * 1e12
    for other, share in format_of(name).stand_ins:
        tflops = gpu.tflops(other)
        if tflops and gpu.runs(other, "any"):
            engine = MATRIX_ENGINE_OVER_FP32 if other == "fp32" and gpu.runs(name, "accelerated") else 1.0
            return tflops * share * engine * 1e12
    # A reduced rate without a stand-in, such as fp64 on a graphics card, is the rate at which the work runs.
    return (peak or gpu.tflops("fp32") or gpu.tflops("fp16") or 1.0) * 1e12


def sustained_flops(gpu: Gpu, precision: str) -> float:
    """Returns the dense operations per second that one GPU sustains in matrix work."""
    return peak_flops(gpu, precision) * gpu.sustained_share(precision)


def better_gpus(gpus: Iterable[Gpu]) -> dict[str, frozenset[str]]:
    """Returns, by id of a GPU, the ids of those of its architecture that are no worse in any figure of speed.

    Rates count as far as they are sustained. Power is one of the figures, because work outside of matrix products
    takes power too. The size of the memory is none: cards that differ by it alone are no worse than each other. GPUs
    with an unknown figure are left out.
    """
    known = [gpu for gpu in gpus if gpu.memory_bandwidth_gb_per_second and gpu.tdp_watts and gpu.rates]
    return {
        gpu.id: frozenset(other.id for other in known if other is not gpu and _no_worse(other, gpu)) for gpu in known
    }


def _no_worse(gpu: Gpu, than: Gpu) -> bool:
    equal = ("vendor", "kind", "architecture", "consumer")
    figures = ("memory_bandwidth_gb_per_second", "tdp_watts")
    return (
        all(getattr(gpu, name) == getattr(than, name) for name in equal)
        and all(getattr(gpu, name) >= getattr(than, name) for name in figures)
        and all(
            sustained_flops(gpu, name) >= sustained_flops(than, name) for name in than.rates if than.runs(name, "any")
        )
    )
