"""The filters on instance types.

An entry of `WORDS`, `NUMBERS` or `FLAGS` is all that a new filter needs: the column of the catalog, the facet, the sort
order, the request fields, the check with its relaxation, and the codes with their meanings follow from it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Mask, read_only
from service.domain.catalog.hardware import INTERCONNECTS, InstanceType
from service.domain.catalog.precision import SUPPORT_LEVELS
from service.domain.catalog.reference import SELLER_CLASSES, Reference


@dataclass(frozen=True, slots=True)
class WordColumn:
    """A word of an instance type. A filter on it takes several words, any of which passes."""

    label: str
    read: Callable[[InstanceType, Reference], str | None]
    description: str
    ground: Literal["hardware", "constraint"] = "constraint"
    """Ground of a rejection by this filter, as the API states it."""
    vocabulary: Callable[[Reference], Iterable[str]] | None = None
    """All words that a request may name; by default those that occur in the column."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    """Other names of words, in lower case → the word."""


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A number of an instance type. A filter on it takes a minimum and a maximum."""

    label: str
    read: Callable[[InstanceType], float | None]
    note: str = ""
    """Last sentence of the descriptions of minimum and maximum."""
    is_filter: bool = True
    """Whether requests can limit it; otherwise it only sorts and counts."""


@dataclass(frozen=True, slots=True)
class FlagColumn:
    """A property that an instance type has or lacks, or of which this is unknown."""

    label: str
    read: Callable[[InstanceType], bool | None]
    description: str
    can_be_unknown: bool = True


WORDS: dict[str, WordColumn] = {
    "provider": WordColumn(
        "provider",
        lambda t, _: t.provider,
        "Provider ids or names, see `/providers`.",
        vocabulary=lambda reference: reference.providers,
    ),
    "seller_class": WordColumn(
        "class of the seller",
        lambda t, reference: reference.owner_class_of(t),
        "`hyperscaler`, `neocloud`, `marketplace` or `reseller`, see `/providers`. Machines of third parties are of "
        "class `marketplace`.",
        vocabulary=lambda _: SELLER_CLASSES,
    ),
    "instance": WordColumn("instance type", lambda t, _: t.id, "Instance types, as `name` or `provider/name`."),
    "service": WordColumn("service", lambda t, _: t.service, "`ec2` or `sagemaker` at AWS; `compute` elsewhere."),
    "family": WordColumn("family", lambda t, _: t.family, "Families, such as `g5`."),
    "letters": WordColumn(
        "series by its letters",
        lambda t, _: t.name_parts and t.name_parts.letters,
        "Letters of names that are built from them: `p` finds P2, P3 and P4d.",
    ),
    "series": WordColumn(
        "series",
        lambda t, _: t.name_parts and t.name_parts.series,
        "Letters and generation of names that are built from them: `g5` finds G5 and G5g.",
    ),
    "size": WordColumn(
        "size",
        lambda t, _: t.name_parts and t.name_parts.size,
        "Size of names that end in one, such as `metal` or `xlarge`.",
    ),
    "gpu": WordColumn(
        "GPU",
        lambda t, _: t.gpu.id if t.gpu else None,
        "GPU ids, names or aliases; `a100` finds every A100 card.",
        "hardware",
    ),
    "gpu_vendor": WordColumn(
        "vendor of the GPU",
        lambda t, _: t.gpu.vendor if t.gpu else None,
        "Vendors of the GPU, such as `nvidia`.",
        "hardware",
        lambda reference: sorted({gpu.vendor for gpu in reference.gpus.values()}),
    ),
    "gpu_kind": WordColumn(
        "kind of GPU",
        lambda t, _: t.gpu.kind if t.gpu else None,
        "`gpu`, `tpu`, `npu` or `fpga`; machines without any have a `max_gpu_count` of 0.",
        "hardware",
        lambda reference: sorted({gpu.kind for gpu in reference.gpus.values()}),
    ),
    "platform": WordColumn(
        "platform",
        lambda t, _: t.platform,
        "What code is written for: `cuda`, `rocm`, `xla`, `neuron`, …; see `/frameworks`.",
        "hardware",
    ),
    "architecture": WordColumn(
        "GPU architecture",
        lambda t, _: t.gpu.architecture if t.gpu else None,
        "GPU architectures, such as `ampere`.",
        "hardware",
        lambda reference: sorted({gpu.architecture for gpu in reference.gpus.values()}),
    ),
    "cpu_architecture": WordColumn(
        "CPU architecture",
        lambda t, _: t.cpu_architecture,
        "`x86_64` or `arm64`.",
        "hardware",
        other_names={"arm": "arm64", "aarch64": "arm64", "x86": "x86_64", "x64": "x86_64", "amd64": "x86_64"},
    ),
    "cpu_vendor": WordColumn(
        "CPU vendor",
        lambda t, _: t.cpu_vendor,
        "Vendors of the CPU, such as `amd`.",
        "hardware",
        other_names=dict.fromkeys(("graviton", "graviton2", "aws graviton", "aws graviton2"), "aws"),
    ),
    "hypervisor": WordColumn(
        "hypervisor", lambda t, _: t.hypervisor, "`nitro` or `xen` at AWS; `none` on bare metal.", "hardware"
    ),
    "interconnect": WordColumn(
        "interconnect of the GPUs",
        lambda t, _: t.interconnect,
        "How the GPUs of one machine are linked; `nvlink` finds `nvswitch` too.",
        "hardware",
        lambda _: INTERCONNECTS,
    ),
}
NUMBERS: dict[str, NumberColumn] = {
    "gpu_count": NumberColumn("number of GPUs", lambda t: t.whole_gpus, "A part of a card counts as its fraction."),
    "gpu_memory_gb": NumberColumn(
        "memory of one GPU", lambda t: t.gpu.memory_gb if t.gpu else None, "It is the memory that the vendor states."
    ),
    "total_gpu_memory_gb": NumberColumn("memory of all GPUs together", lambda t: t.total_gpu_memory_gb),
    "vcpus": NumberColumn("number of vCPUs", lambda t: t.vcpus),
    "memory_gib": NumberColumn("host memory", lambda t: t.memory_gib),
    "network_gbps": NumberColumn("network bandwidth", lambda t: t.network_gbps),
    "local_storage_gb": NumberColumn("local storage", lambda t: t.local_storage_gb),
    "memory_bandwidth_gb_per_second": NumberColumn(
        "memory bandwidth of one GPU", lambda t: t.gpu.memory_bandwidth_gb_per_second if t.gpu else None
    ),
    "vcpus_per_gpu": NumberColumn("number of vCPUs per GPU", lambda t: t.vcpus_per_gpu),
    "generation": NumberColumn(
        "generation of the series", lambda t: t.name_parts and t.name_parts.generation, "It is 5 for `g5`."
    ),
    "tensor_core_generation": NumberColumn(
        "generation of the tensor cores",
        lambda t: t.gpu.tensor_core_generation if t.gpu else None,
        "It is 3 for Ampere.",
    ),
    "launched_year": NumberColumn("year of the launch", lambda t: t.launched_on.year if t.launched_on else None),
    "gpu_released_year": NumberColumn(
        "year in which the GPU was released", lambda t: t.gpu.released_year if t.gpu else None
    ),
    "tdp_watts": NumberColumn("rated power of all GPUs together", lambda t: t.tdp_watts, is_filter=False),
}
FLAGS: dict[str, FlagColumn] = {
    "rdma": FlagColumn(
        "RDMA support of the network",
        lambda t: t.rdma,
        "Whether the network bypasses the operating system: EFA, InfiniBand or RoCE.",
    ),
    "gpudirect_rdma": FlagColumn(
        "GPUDirect RDMA support of the network",
        lambda t: t.gpudirect_rdma,
        "Whether GPUs of several machines exchange data over RDMA directly.",
    ),
    "orderable": FlagColumn(
        "acceptance of the name in an order",
        lambda t: t.orderable,
        "Whether the provider accepts the name in an order; false for combinations and for single GPUs.",
    ),
    "bare_metal": FlagColumn("virtualisation", lambda t: t.bare_metal, "Whether there is no hypervisor."),
    "tensor_cores": FlagColumn(
        "tensor core support of the GPU",
        lambda t: t.gpu is not None and t.gpu.has_tensor_cores,
        "Whether the GPU has NVIDIA's tensor cores; for other vendors use `precision_support`.",
        can_be_unknown=False,
    ),
    "sparsity": FlagColumn(
        "sparsity support of the GPU",
        lambda t: t.gpu is not None and t.gpu.has_sparsity,
        "Whether the peak is higher for weights that are zero in a fixed pattern.",
        can_be_unknown=False,
    ),
}


@dataclass(frozen=True, slots=True)
class Category:
    """A column of words: `codes` are indices into `words`; -1 means unknown."""

    codes: NDArray[np.int32]
    words: tuple[str, ...]

    @classmethod
    def of(cls, values: Sequence[str | None]) -> "Category":
        """Builds the column of some values; None is an unknown word."""
        words = tuple(sorted({value for value in values if value is not None}))
        codes: dict[str | None, int] = {word: code for code, word in enumerate(words)}
        return cls(read_only(np.array([codes.get(value, -1) for value in values], np.int32)), words)

    def among(self, words: Iterable[str]) -> Mask:
        """Returns a mask of the rows that have one of the words."""
        wanted = set(words)
        # The last entry is for -1, the code of an unknown word, which as an index means the last one.
        return np.array([word in wanted for word in self.words] + [False])[self.codes]


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns by name, one row per instance type. An unknown number is NaN; an unknown flag or word is -1."""

    words: dict[str, Category]
    numbers: dict[str, Floats]
    flags: dict[str, NDArray[np.int8]]
    support: dict[str, NDArray[np.int8]]
    """Index into SUPPORT_LEVELS by precision; -1 if unknown."""
    tflops: dict[str, Floats]
    """Dense peak of all GPUs together by precision, in 10^12 operations per second."""

    @classmethod
    def of(cls, types: Sequence[InstanceType], day: date, reference: Reference) -> "Columns":
        """Builds the columns of some instance types, with their lifecycle state on a day."""
        words = {name: Category.of([column.read(t, reference) for t in types]) for name, column in WORDS.items()}
        words["lifecycle"] = Category.of([t.state_on(day) for t in types])
        return cls(
            words=words,
            numbers={name: number_column([column.read(t) for t in types]) for name, column in NUMBERS.items()},
            flags={name: _code_column([column.read(t) for t in types]) for name, column in FLAGS.items()},
            support={name: _code_column([_support_code(t, name) for t in types]) for name in reference.precisions},
            tflops={name: number_column([t.tflops(name) for t in types]) for name in reference.precisions},
        )


def number_column(values: Sequence[float | None]) -> Floats:
    """Returns a read-only column of numbers; NaN where a number is unknown."""
    return read_only(np.array([np.nan if value is None else value for value in values], np.float64))


def _code_column(values: Sequence[int | None]) -> NDArray[np.int8]:
    return read_only(np.array([-1 if value is None else value for value in values], np.int8))


def _support_code(instance_type: InstanceType, precision: str) -> int | None:
    if instance_type.gpu is None:
        return None if instance_type.tflops(precision) is None else SUPPORT_LEVELS.index("native")
    rate = instance_type.gpu.rate_at(precision)
    return None if rate is None or rate.support is None else SUPPORT_LEVELS.index(rate.support)
