"""What else would help, beside taking the first choice: a sentence with its figures, told only where it applies."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu, InstanceType
from service.domain.catalog.offer import MARKETS
from service.domain.catalog.precision import SINGLE_PRECISIONS, USUAL_PRECISIONS
from service.domain.catalog.reference import Service
from service.domain.catalog.software_support import RUNS, rules_by_type, said
from service.domain.physics.input_pipeline import CORES_PER_GPU_THAT_DECODES, USUAL_CORES_PER_GPU
from service.domain.recommend.successors import best_peak
from service.domain.selection.requirements import Requirement
from service.domain.versions import known_versions, written

MOST_ADVICE = 6
HALF = ("bf16", "fp16")
WITHOUT_GPU = {
    "classical": "Classical machine learning",
    "sequential": "Work that goes step by step",
    "development": "Writing and debugging code",
}
ENDED = {"closed_to_new": "has admitted no new customers", "retired": "has not been offered"}
"""How a type's end is told of, by its state."""

SLOW_LINKS = (None, "none", "pcie")
MUCH_FASTER = 2.0
"""A machine that is less than twice as fast is no step up, only another choice."""


class Advice(NamedTuple):
    """A code of the closed list, and its sentence."""

    code: str
    text: str


class Situation(NamedTuple):
    """What was asked, and what came out on top. Machines are places in the catalog.

    It is made for each answer and looked up, which takes a tuple half as long as a dataclass.
    """

    task: str
    top: int | None = None
    precision: str | None = None
    """What the first choice runs the work in."""
    other: int | None = None
    """The best choice with another GPU."""
    nodes: int = 1
    current: int | None = None
    providers: tuple[str, ...] = ()
    """Empty: any."""
    refused: tuple[str, ...] = ()
    """Precisions whose numbers the work does not bear."""
    framework: Requirement | None = None
    concurrent_runs: int = 1
    fault_tolerant: bool = False
    cores_bind: bool = False
    part: float | None = None
    """Of a card, where that may be enough."""
    cut_over_gpus: bool = False
    """One GPU does not hold the model."""
    basis: str = "peak"


Adviser = Callable[[Situation, Catalog], str | None]


def advise(asked: Situation, catalog: Catalog) -> list[Advice]:
    """The few that matter most."""
    told = ((code, adviser(asked, catalog)) for code, adviser in ADVISERS.items())
    return [Advice(code, text) for code, text in told if text is not None][:MOST_ADVICE]


def machine(place: int | None, catalog: Catalog) -> InstanceType | None:
    return None if place is None else catalog.instance_types[place]


def gpu_on_top(asked: Situation, catalog: Catalog) -> Gpu | None:
    kind = machine(asked.top, catalog)
    return None if kind is None else kind.gpu


# Machines by price


def is_without_gpu(kind: InstanceType) -> bool:
    return kind.gpu is None


def has_gpu(kind: InstanceType) -> bool:
    return kind.gpu is not None


def is_for_graphics(kind: InstanceType) -> bool:
    return kind.gpu is not None and kind.gpu.positioned_for == "graphics"


def is_part(kind: InstanceType) -> bool:
    return kind.gpu is not None and kind.gpu.fraction < 1


Kind = Callable[[InstanceType], bool]


def by_price(wanted: Kind, catalog: Catalog) -> list[tuple[float, InstanceType]]:
    """The machines of a kind that can be had by the hour on demand, the cheapest first."""

    def find() -> list[tuple[float, InstanceType]]:
        found = []
        for kind, place in zip(catalog.instance_types, catalog.default_offers.tolist(), strict=True):
            if wanted(kind) and (usd := on_demand(place, catalog)) and kind.state_on(catalog.day) == "available":
                found.append((usd, kind))
        return sorted(found, key=lambda each: (each[0], each[1].id))

    return catalog.memory.get_or_compute(("by_price", wanted), find)


def on_demand(place: int, catalog: Catalog) -> float | None:
    """Dollars per hour of an offer; nothing where it has no price or is of another market."""
    if place < 0 or MARKETS[catalog.offers.market[place]] != "on_demand":
        return None
    usd = float(catalog.offers.usd_per_hour[place])
    return usd if usd > 0 else None


def cheapest(
    wanted: Kind, asked: Situation, catalog: Catalog, least_gpus: float = 0.0
) -> tuple[float, InstanceType] | None:
    return next(
        (
            each
            for each in by_price(wanted, catalog)
            if (not asked.providers or each[1].provider in asked.providers) and each[1].whole_gpus >= least_gpus
        ),
        None,
    )


# Work that needs another kind of machine


def no_accelerator_needed(asked: Situation, catalog: Catalog) -> str | None:
    if asked.task not in WITHOUT_GPU:
        return None
    opening = f"{WITHOUT_GPU[asked.task]} gains nothing from a GPU"
    found = cheapest(is_without_gpu, asked, catalog)
    if found is None:
        return f"{opening}."
    usd, kind = found
    return f"{opening}: {kind.id} has none, and {told_cores(kind)} for ${usd:g} an hour."


def told_cores(kind: InstanceType) -> str:
    return "an unknown number of vCPUs" if kind.vcpus is None else f"{kind.vcpus:g} vCPUs"


def separate_dev_and_training(asked: Situation, catalog: Catalog) -> str | None:
    if asked.task != "development":
        return None
    found = cheapest(has_gpu, asked, catalog)
    from_usd = "" if found is None else f" (from ${found[0]:g} an hour: {found[1].id})"
    return f"Keep development apart from training, and rent a GPU{from_usd} for the hours of a run alone."


def graphics(asked: Situation, catalog: Catalog) -> str | None:
    found = cheapest(is_for_graphics, asked, catalog) if asked.task == "graphics" else None
    if found is None:
        return None
    usd, kind = found
    assert kind.gpu is not None
    return f"The {kind.gpu.name} is sold for graphics: {kind.id} has {kind.gpu_count} from ${usd:g} an hour."


def fractional_gpu(asked: Situation, catalog: Catalog) -> str | None:
    if asked.task != "inference" or asked.part is None:
        return None
    told, top = [], gpu_on_top(asked, catalog)
    part = cheapest(is_part, asked, catalog, least_gpus=asked.part)
    if part is not None and (top is None or top.fraction == 1):
        usd, kind = part
        told.append(f"{kind.id} rents {kind.whole_gpus:.3g} of {whole_card(kind, catalog)} for ${usd:g} an hour.")
    told += [
        f"{each.name} attaches a fraction of an accelerator to a machine without a GPU."
        for each in services("fraction", asked.providers, catalog)
    ]
    return " ".join(told) or None


def whole_card(kind: InstanceType, catalog: Catalog) -> str:
    """The name of the card that a machine has a part of."""
    assert kind.gpu is not None
    whole = catalog.reference.gpus.get(kind.gpu.partition_of or kind.gpu.id, kind.gpu)
    return f"an {whole.name}"


# Number formats


def peak_at(gpu: Gpu, precision: str | None) -> float | None:
    return gpu.tflops(precision) if precision and gpu.runs(precision) else None


def quicker(asked: Situation, catalog: Catalog, formats: Iterable[str]) -> str | None:
    """`At bf16 or fp16 the A100 peaks at 312 TFLOPS, 16 times its fp32`; nothing where none is quicker."""
    gpu = gpu_on_top(asked, catalog)
    now = None if gpu is None else peak_at(gpu, asked.precision)
    if gpu is None or not now:
        return None
    peaks = {name: peak_at(gpu, name) or 0.0 for name in formats if name not in asked.refused}
    best = max(peaks.values(), default=0.0)
    if best <= now:
        return None
    names = " or ".join(name for name, peak in peaks.items() if peak == best)
    return f"At {names} the {gpu.name} peaks at {best:g} TFLOPS, {best / now:.3g} times its {asked.precision}"


def tf32(asked: Situation, catalog: Catalog) -> str | None:
    if asked.task not in ("training", "inference") or asked.precision != "fp32":
        return None
    found = quicker(asked, catalog, ("tf32",))
    return found and f"{found}; numbers stay fp32 in memory, and the code needs no change."


def tf32_off_by_default(asked: Situation, catalog: Catalog) -> str | None:
    """Where the framework is PyTorch in a version that does not use TF32 by itself."""
    framework, gpu = asked.framework, gpu_on_top(asked, catalog)
    if asked.top is None or gpu is None or framework is None or framework.software != "pytorch":
        return None
    if asked.precision not in SINGLE_PRECISIONS or not gpu.runs("tf32"):
        return None
    for rule in rules_by_type(catalog, "pytorch-tf32-matmul-default")[asked.top]:
        since = known_versions(rule.versions)
        if rule.supported == "no" and since.meets(framework.versions):
            return (
                f"PyTorch leaves TF32 off for matrix products from {written(since.low)} on: "
                "torch.set_float32_matmul_precision('high') turns it on."
            )
    return None


def mixed_precision(asked: Situation, catalog: Catalog) -> str | None:
    if asked.task != "training" or asked.precision not in SINGLE_PRECISIONS:
        return None
    found = quicker(asked, catalog, HALF)
    return found and f"{found}; mixed precision usually needs changes of the training code."


def half_precision(asked: Situation, catalog: Catalog) -> str | None:
    if asked.task != "inference" or asked.precision not in SINGLE_PRECISIONS:
        return None
    found = quicker(asked, catalog, HALF)
    return found and f"{found}; answers need not keep the precision of training."


def int8(asked: Situation, catalog: Catalog) -> str | None:
    if asked.task != "inference" or asked.precision not in USUAL_PRECISIONS:
        return None
    found = quicker(asked, catalog, ("int8",))
    return found and f"{found.replace('TFLOPS', 'TOPS')}; the model must be quantised, and its answers checked."


def quantisation_required(asked: Situation, catalog: Catalog) -> str | None:
    gpu = gpu_on_top(asked, catalog)
    if asked.top is None or gpu is None or not gpu.runs("int8") or any(map(gpu.runs, USUAL_PRECISIONS)):
        return None
    kits = [name for name in toolkits(catalog) if said(rules_by_type(catalog, name)[asked.top]) in RUNS]
    with_kit = f", and run by what its maker has for it ({', '.join(kits)})" if kits else ""
    return f"The {gpu.name} multiplies in int8 alone: the model must be quantised{with_kit}."


def toolkits(catalog: Catalog) -> list[str]:
    """Software layers of GPUs; every host runs what is for CPUs."""
    return sorted({rule.software for rule in catalog.software if rule.kind == "toolkit"} - {"cpu"})


# Several GPUs


def code_change_required(asked: Situation, catalog: Catalog) -> str | None:
    kind = machine(asked.top, catalog)
    gpus = 0 if kind is None else kind.gpu_count * asked.nodes
    if asked.task != "training" or gpus < 2 or asked.concurrent_runs > 1:
        return None
    return (
        f"One model trains on the {gpus} GPUs only with code that is written for it "
        "(torch.distributed, tf.distribute, Horovod); other code keeps one of them busy."
    )


def independent_runs(asked: Situation, catalog: Catalog) -> str | None:
    kind, runs = machine(asked.top, catalog), asked.concurrent_runs
    if kind is None or kind.gpu is None or runs < 2:
        return None
    gpus = kind.gpu_count * asked.nodes
    if runs <= gpus:
        return f"The {runs} runs take one of the {gpus} GPUs each: none waits for another, and links do not count."
    shared = f"{runs} runs share {gpus} GPU{'s' if gpus > 1 else ''}, up to {-(-runs // gpus)} on each"
    memory = kind.gpu.memory_gb
    return f"{shared}." if memory is None else f"{shared}, with {memory / -(-runs // gpus):.3g} GB of memory for a run."


def one_model_per_gpu(asked: Situation, catalog: Catalog) -> str | None:
    kind = machine(asked.top, catalog)
    if asked.task != "inference" or kind is None or kind.gpu is None or kind.gpu_count < 2 or asked.cut_over_gpus:
        return None
    size = "" if kind.gpu.memory_gb is None else f" of up to {kind.gpu.memory_gb:g} GB"
    return f"Each of the {kind.gpu_count} GPUs can serve a model of its own{size}, or another copy of one."


def gpu_decoding(asked: Situation, catalog: Catalog) -> str | None:
    kind = machine(asked.top, catalog)
    if asked.top is None or kind is None or not asked.cores_bind:
        return None
    if said(rules_by_type(catalog, "dali")[asked.top]) != "yes":
        return None
    usual, less = USUAL_CORES_PER_GPU, CORES_PER_GPU_THAT_DECODES
    return (
        f"{told_cores(kind)} bind: decoding on the GPU (NVIDIA DALI) takes {less[0]:g} to {less[1]:g} cores per GPU "
        f"instead of {usual[0]:g} to {usual[1]:g}."
    )


# What next


def current_ends(asked: Situation, catalog: Catalog) -> str | None:
    kind = machine(asked.current, catalog)
    event = None if kind is None else kind.event_on(catalog.day)
    if kind is None or event is None or event.state not in ENDED:
        return None
    return f"{kind.id} {ENDED[event.state]} since {event.starts_on}: plan to move what runs on it."


def migration_path(asked: Situation, catalog: Catalog) -> str | None:
    start = asked.top if asked.current is None else asked.current
    if asked.task != "training" or start is None:
        return None
    found = catalog.memory.get_or_compute(("grows", start), lambda: grows_to(catalog.instance_types[start], catalog))
    if found is None:
        return None
    usd, kind = found
    old = catalog.instance_types[start]
    links = "" if kind.interconnect in SLOW_LINKS else f" over {kind.interconnect}"
    return (
        f"From {old.id}, code and precisions carry over to {kind.id} of the same architecture: {kind.gpu_count} GPUs"
        f"{links}, {best_peak(kind) / best_peak(old):.3g} times the peak, from ${usd:g} an hour."
    )


def grows_to(old: InstanceType, catalog: Catalog) -> tuple[float, InstanceType] | None:
    """The fastest machine of the architecture there, of those with fast links if there are any; even ones by price."""
    if old.gpu is None:
        return None
    least = MUCH_FASTER * best_peak(old)
    alike = [
        (usd, kind)
        for usd, kind in by_price(has_gpu, catalog)
        if (kind.provider, kind.service) == (old.provider, old.service)
        and kind.gpu is not None
        and kind.gpu.architecture == old.gpu.architecture
        and kind.cpu_architecture == old.cpu_architecture
        and best_peak(kind) >= least
    ]
    return max(
        alike,
        key=lambda each: (each[1].interconnect not in SLOW_LINKS, best_peak(each[1]), -each[0]),
        default=None,
    )


RESTS_ON = {"peak": "the makers' peak rates", "modelled": "a model of the job"}


def evaluate_next(asked: Situation, catalog: Catalog) -> str | None:
    top, other = machine(asked.top, catalog), machine(asked.other, catalog)
    if asked.task not in ("training", "inference") or top is None or other is None or asked.basis not in RESTS_ON:
        return None
    rests = f"The order rests on {RESTS_ON[asked.basis]}"
    return f"{rests}: before a long run, measure the work on {top.id} and on {other.id}."


# What the provider rents beside machines


def services(kind: str, providers: tuple[str, ...], catalog: Catalog) -> list[Service]:
    """Those that new customers can have on the catalog's day."""
    return [
        each
        for each in catalog.reference.services
        if each.kind == kind
        and (not providers or each.provider in providers)
        and each.state_on(catalog.day) == "available"
    ]


def services_beside(asked: Situation, kind: str, catalog: Catalog) -> list[Service]:
    """Of the first choice's provider, unless that is such a service itself."""
    top = machine(asked.top, catalog)
    return [] if top is None or top.twin_of else services(kind, (top.provider,), catalog)


def managed_spot(asked: Situation, catalog: Catalog) -> str | None:
    if asked.task != "training" or not asked.fault_tolerant:
        return None
    names = " and ".join(each.name for each in services_beside(asked, "managed_spot", catalog))
    return f"{names} runs the work on spot capacity and looks after interruptions and checkpoints." if names else None


def managed_training(asked: Situation, catalog: Catalog) -> str | None:
    top = machine(asked.top, catalog)
    if asked.task != "training" or top is None:
        return None
    for each in services_beside(asked, "managed_training", catalog):
        fee = premium(each, top, catalog)
        costs = "" if fee is None else f"; an hour of {top.family} costs {fee:g} % more there"
        return f"{each.name} starts a machine for the run and bills the run alone{costs}."
    return None


def premium(service: Service, kind: InstanceType, catalog: Catalog) -> float | None:
    """In percent of the plain machine's price on the catalog's day: the family's own, else that of every other."""
    fees = [
        fee
        for fee in catalog.reference.fees
        if (fee.provider, fee.service) == (service.provider, service.id)
        and fee.family in ("", kind.family)
        and fee.valid_from <= catalog.day
    ]
    return max(fees, key=lambda fee: (fee.family, fee.valid_from)).percent_of_compute if fees else None


def image_advice(asked: Situation, catalog: Catalog) -> str | None:
    if asked.task not in ("training", "inference"):
        return None
    names = " and ".join(each.name for each in services_beside(asked, "image", catalog))
    if not names:
        return None
    return f"{names} come with drivers and frameworks built for these machines; stock packages are built for any."


ADVISERS: dict[str, Adviser] = {
    "current_ends": current_ends,
    "no_accelerator_needed": no_accelerator_needed,
    "separate_dev_and_training": separate_dev_and_training,
    "graphics": graphics,
    "quantisation_required": quantisation_required,
    "fractional_gpu": fractional_gpu,
    "tf32": tf32,
    "tf32_off_by_default": tf32_off_by_default,
    "mixed_precision": mixed_precision,
    "half_precision": half_precision,
    "int8": int8,
    "code_change_required": code_change_required,
    "independent_runs": independent_runs,
    "one_model_per_gpu": one_model_per_gpu,
    "gpu_decoding": gpu_decoding,
    "migration_path": migration_path,
    "evaluate_next": evaluate_next,
    "managed_spot": managed_spot,
    "managed_training": managed_training,
    "image_advice": image_advice,
}
"""By code, what matters most first."""
