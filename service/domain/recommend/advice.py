"""Advice in addition to the choices, as codes with figures."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import ENDED, SLOW_LINKS, Gpu, InstanceType
from service.domain.catalog.precision import SINGLE_PRECISIONS, USUAL_PRECISIONS
from service.domain.catalog.reference import Fee, Service, SoftwareRule, fee_of
from service.domain.catalog.software_support import RUNS, rules_by_type, rules_on_gpu, support_by, task_mask
from service.domain.codes import AdviceCode
from service.domain.jobs.config import InferenceConfig
from service.domain.jobs.job import Job
from service.domain.jobs.job_on_gpu import multiplies_in
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.recommend.answer import Choice, WorkContext, WorkEstimate
from service.domain.recommend.warnings import cpus_decode_too_slowly, measurement_warnings
from service.domain.selection.requirements import TASKS_WITHOUT_GPU
from service.domain.selection.successors import best_peak
from service.domain.selection.upgrades import Priced, Upgrades, larger_machine, next_cards
from service.domain.statement import Statement
from service.domain.versions import known_versions, written

MAX_ADVICE = 6
HALF = ("bf16", "fp16")
"""Precisions of 16 bits."""

DEEP_LEARNING = ("training", "inference")
ANY_TASK = (*DEEP_LEARNING, *TASKS_WITHOUT_GPU, "graphics", "hpc")
WORTH_A_CHANGE = 1.1
"""Minimum ratio of peaks for another format to be advised: on GeForce cards TF32 is as fast as fp32."""

SMALL_SHARE = 0.5
"""Share of a card's memory: a job that needs less is advised to run on a part of a card (assumed)."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The work of a question, and the parts of its choices that advice depends on."""

    context: WorkContext
    top: InstanceType | None = None
    """The machine of the first choice."""
    precision: str | None = None
    """The precision in which the first choice runs the workload."""
    weight_bits: float | None = None
    """Bits of a weight where they are stored in another format than that precision."""
    other: InstanceType | None = None
    """The machine of the best choice with another GPU."""
    upgrades: Upgrades | None = None
    """The machines to which the work may move later."""
    nodes: int = 1
    instances: int = 1
    current: InstanceType | None = None
    cores_bind: bool = False
    """Whether the CPUs of the first choice decode the samples and are too few."""
    part: float | None = None
    """The part of a card that may be enough, as a fraction of 1."""
    utilisation: float = 0.0
    """The share of its highest rate that a load takes of the first choice; 0 without a load."""
    cut_over_gpus: bool = False
    """Whether one GPU does not hold the model."""
    distributes: bool = False
    """Whether the software that is named trains one model on many GPUs by itself."""
    basis: str = "peak"
    is_managed: bool = False
    """Whether a managed service runs the first choice, as the question asks."""

    @property
    def gpu(self) -> Gpu | None:
        """The GPU of the first choice."""
        return None if self.top is None else self.top.gpu

    @property
    def gpus(self) -> int:
        """The GPUs of all nodes of one instance of the first choice."""
        return 0 if self.top is None or self.top.gpu is None else self.top.gpu_count * self.nodes

    @property
    def runs_share_machines(self) -> bool:
        """Whether several runs share a machine and take one GPU each; the runs of a job take machines of their own."""
        return self.context.concurrent_runs > 1 and self.basis == "peak"


Figures = Mapping[str, Any]
Adviser = Callable[[Situation, Catalog], Figures | None]
"""Returns the figures of a piece of advice, or None if it does not apply."""


def situation_of(context: WorkContext, choices: tuple[Choice, ...], upgrades: Upgrades, catalog: Catalog) -> Situation:
    """Returns what the advice for an answer depends on."""
    top, current = choices[0] if choices else None, context.current_instance
    work = top.estimate if top is not None and isinstance(top.estimate, WorkEstimate) else None
    modelled = None if work is None else work.modelled
    config = None if modelled is None else modelled.config
    situation = Situation(
        context=context,
        current=None if current is None else catalog.instance_types[catalog.index_of[current]],
        upgrades=upgrades,
        part=_part_of_a_card(context, top, modelled),
        utilisation=0.0
        if modelled is None or modelled.estimate.served is None
        else modelled.estimate.served.utilisation,
        cut_over_gpus=modelled is not None and modelled.estimate.layout.spreads_model,
        distributes=config is not None and config.software.stack.stack_class.distributes,
    )
    if top is None:
        return situation
    measured = None if work is None else work.measured
    # A measurement that is old, or of other software, should be repeated.
    outdated = measured is not None and any(measurement_warnings(measured, context.framework, catalog))
    return replace(
        situation,
        top=top.instance_type,
        precision=context.asked_precision or (top.precision if modelled is None else modelled.precision),
        weight_bits=config.weight_bits if isinstance(config, InferenceConfig) else None,
        other=_first_with_another_gpu(choices),
        nodes=top.nodes,
        instances=top.instances,
        is_managed=top.service_fee is not None,
        cores_bind=cpus_decode_too_slowly(context, top, modelled, catalog),
        basis="peak"
        if work is None
        else "modelled"
        if measured is None
        else "outdated"
        if outdated
        else measured.basis,
    )


def advise(situation: Situation, catalog: Catalog) -> tuple[Statement[AdviceCode], ...]:
    """Returns the most important advice that applies."""
    return tuple(islice(_advice(situation, catalog), MAX_ADVICE))


def _advice(situation: Situation, catalog: Catalog) -> Iterator[Statement[AdviceCode]]:
    for code, (tasks, adviser) in ADVISERS.items():
        figures = adviser(situation, catalog) if situation.context.task in tasks else None
        if figures is not None:
            yield Statement(code, figures)


def _first_with_another_gpu(choices: tuple[Choice, ...]) -> InstanceType | None:
    top, *others = [choice.instance_type for choice in choices]
    return next((other for other in others if top.gpu and other.gpu and other.gpu.id != top.gpu.id), None)


def _part_of_a_card(context: WorkContext, top: Choice | None, modelled: JobEstimate | None) -> float | None:
    """Returns the smallest part of a card that may be enough: as requested, or by the memory that the job needs.

    Work on CPUs needs none, and a load that takes several whole cards would not fit on a part of one.
    """
    if context.part_of_gpu is not None:
        return context.part_of_gpu
    if top is None or top.instance_type.gpu is None or top.instances > 1:
        return None
    if modelled is None or modelled.estimate.layout.gpus > 1 or not modelled.estimate.memory.usable_bytes:
        return None
    share = modelled.estimate.memory.needed_bytes / modelled.estimate.memory.usable_bytes
    return share if share < SMALL_SHARE else None


# Machines by price


def _by_price(catalog: Catalog) -> list[Priced]:
    """Returns the available machines with their on-demand price, the cheapest first."""
    usd = catalog.on_demand_prices
    priced = [(float(usd[index]), catalog.instance_types[index]) for index in np.flatnonzero(usd > 0).tolist()]
    # Advice names machines to rent, and those closed to new customers cannot be rented.
    available = [pair for pair in priced if pair[1].state_on(catalog.day) == "available"]
    return sorted(available, key=lambda pair: (pair[0], pair[1].id))


def _cheapest(situation: Situation, catalog: Catalog, is_suitable: Callable[[InstanceType], object]) -> Priced | None:
    providers = situation.context.providers
    machines = (pair for pair in catalog.derive(_by_price) if not providers or pair[1].provider in providers)
    return next((pair for pair in machines if is_suitable(pair[1])), None)


def _no_accelerator_needed(situation: Situation, catalog: Catalog) -> Figures | None:
    if any(support_by(rules_on_gpu(catalog, each.software, None)) == "no" for each in situation.context.needs.software):
        return None
    least = situation.context.needs.host_memory_gib or 0.0

    def suffices(machine: InstanceType) -> bool:
        return machine.gpu is None and (machine.memory_gib or 0.0) >= least

    return {"task": situation.context.task, "cheapest": _cheapest(situation, catalog, suffices)}


def _separate_dev_and_training(situation: Situation, catalog: Catalog) -> Figures:
    trains = catalog.derive(task_mask, "training")
    return {"cheapest": _cheapest(situation, catalog, lambda each: each.gpu and trains[catalog.index_of[each.id]])}


def _graphics(situation: Situation, catalog: Catalog) -> Figures | None:
    cheapest = _cheapest(situation, catalog, lambda machine: machine.gpu and machine.gpu.positioned_for == "graphics")
    return cheapest and {"cheapest": cheapest}


def _fractional_gpu(situation: Situation, catalog: Catalog) -> Figures | None:
    """Returns the cheapest part of a card that is enough, and services that attach a part to a machine.

    A part in place of the first choice has to run the job for less. Where the caller asks for a part, its size decides.
    """
    least, top, asked = situation.part, situation.top, situation.context.part_of_gpu is not None
    if least is None:
        return None
    enough = partial(_has_part, least) if asked or top is None else partial(_part_runs_job, situation, catalog)
    is_whole = situation.gpu is None or situation.gpu.fraction == 1
    part = _cheapest(situation, catalog, enough) if is_whole else None
    if (
        part is not None
        and not asked
        and top is not None
        and part[0] >= catalog.on_demand_prices[catalog.index_of[top.id]]
    ):
        part = None
    services = [
        (service.name, service.description, event.starts_on if event.state in ENDED else None)
        for service in catalog.reference.services
        if service.kind == "fraction"
        and (not situation.context.providers or service.provider in situation.context.providers)
        and (event := service.event_on(catalog.day)) is not None
        and (event.state == "available" or asked)
    ]
    sold = None if part is None else part[1].gpu
    card = None if sold is None else catalog.reference.card_of(sold).name
    return {"cheapest": part, "card": card, "services": services} if part or services else None


def _has_part(least: float, machine: InstanceType) -> bool:
    """Returns whether a machine has a part of a card, and GPUs that make at least this number together."""
    return machine.gpu is not None and machine.gpu.fraction < 1 and machine.whole_gpus >= least


def _part_runs_job(situation: Situation, catalog: Catalog, machine: InstanceType) -> bool:
    """Returns whether a part of a card has the memory that the job needs of the first choice, and its load the peak."""
    part, gpu, top, share = machine.gpu, situation.gpu, situation.top, situation.part
    if part is None or part.fraction == 1 or gpu is None or top is None or share is None:
        return False
    card = catalog.reference.card_of(part)
    peak = machine.whole_gpus * max((card.tflops(name) or 0.0 for name in USUAL_PRECISIONS), default=0.0)
    has_room = (part.memory_gb or 0.0) * machine.gpu_count >= share * (gpu.memory_gb or 0.0)
    return has_room and peak >= situation.utilisation * best_peak(top)


# Number formats


def _faster_format(
    situation: Situation, _catalog: Catalog, *, now: Collection[str], formats: Sequence[str]
) -> Figures | None:
    """Returns the formats with the highest peak; None if none is faster, or the precision in use is not in `now`."""
    gpu, precision = situation.gpu, situation.precision
    if gpu is None or precision not in now or not (peak := _peak_at(gpu, precision)):
        return None
    peaks = {name: _peak_at(gpu, name) for name in formats if name not in situation.context.refused_precisions}
    best = max(peaks.values(), default=0.0)
    if best < WORTH_A_CHANGE * peak:
        return None
    names = tuple(name for name, tflops in peaks.items() if tflops == best)
    return {"formats": names, "gpu": gpu.name, "tflops": best, "times": best / peak, "now": precision}


def _eight_bits(situation: Situation, catalog: Catalog) -> Figures | None:
    """Returns the 8-bit formats with a higher peak in which the stack multiplies; None if weights have fewer bits."""
    if situation.weight_bits is not None and situation.weight_bits < 8:
        return None
    job, gpu, formats = situation.context.job, situation.gpu, ["fp8", "int8"]
    if isinstance(job, Job) and gpu is not None:
        formats = [name for name in formats if multiplies_in(job, name, gpu)]
    return _faster_format(situation, catalog, now=USUAL_PRECISIONS, formats=formats)


def _peak_at(gpu: Gpu | None, precision: str | None) -> float:
    """Returns the peak of a GPU; 0 if it is unknown or the GPU does not run the precision."""
    return (gpu.tflops(precision) or 0.0) if gpu and precision and gpu.runs(precision) else 0.0


def _tf32_by_default(situation: Situation, catalog: Catalog, *, on: bool) -> Figures | None:
    """Applies if the framework is PyTorch in a version that uses TF32 by default (`on`), or in one that does not."""
    framework, top, gpu = situation.context.needs.framework, situation.top, situation.gpu
    if top is None or gpu is None or framework is None or framework.software != "pytorch":
        return None
    if situation.precision not in SINGLE_PRECISIONS or not gpu.runs("tf32"):
        return None
    defaults = {
        rule.supported: known_versions(rule.versions)
        for rule in _rules(top, "pytorch-tf32-matmul-default", catalog)
        if known_versions(rule.versions).overlaps(framework.versions)
    }
    # If the caller allows versions of both defaults, the newer default counts.
    if "no" in defaults:
        return None if on else {"since": written(defaults["no"].low)}
    if not on or "yes" not in defaults:
        return None
    return {"since": written(defaults["yes"].low), "before": written(defaults["yes"].before or ())}


def _quantisation_required(situation: Situation, catalog: Catalog) -> Figures | None:
    gpu, top = situation.gpu, situation.top
    if top is None or gpu is None or not gpu.runs("int8") or any(map(gpu.runs, USUAL_PRECISIONS)):
        return None
    toolkits = sorted({rule.software for rule in catalog.software if rule.kind == "toolkit"} - {"cpu"})
    return {"gpu": gpu.name, "toolkits": [kit for kit in toolkits if support_by(_rules(top, kit, catalog)) in RUNS]}


def _rules(instance_type: InstanceType, software: str, catalog: Catalog) -> tuple[SoftwareRule, ...]:
    return catalog.derive(rules_by_type, software).on(catalog.index_of[instance_type.id])


# Several GPUs


def _code_change_required(situation: Situation, _catalog: Catalog) -> Figures | None:
    needless = situation.distributes or situation.runs_share_machines
    return {"gpus": situation.gpus} if situation.gpus > 1 and not needless else None


def _independent_runs(situation: Situation, _catalog: Catalog) -> Figures | None:
    gpu, runs = situation.gpu, situation.context.concurrent_runs
    gpus = situation.gpus * situation.instances
    return {"runs": runs, "gpus": gpus, "memory_gb": gpu.memory_gb} if gpu and situation.runs_share_machines else None


def _one_model_per_gpu(situation: Situation, _catalog: Catalog) -> Figures | None:
    top, gpu = situation.top, situation.gpu
    if top is None or gpu is None or top.gpu_count < 2 or situation.cut_over_gpus:
        return None
    return {"gpus": top.gpu_count, "memory_gb": gpu.memory_gb}


def _gpu_decoding(situation: Situation, catalog: Catalog) -> Figures | None:
    top = situation.top
    applies = top is not None and situation.cores_bind and support_by(_rules(top, "dali", catalog)) == "yes"
    return {"vcpus": top.vcpus} if top is not None and applies else None


# Next steps


def _current_ends(situation: Situation, catalog: Catalog) -> Figures | None:
    current = situation.current
    event = None if current is None else current.event_on(catalog.day)
    if current is None or event is None or event.state not in ENDED:
        return None
    return {"instance": current.id, "state": event.state, "since": event.starts_on}


def _migration_path(situation: Situation, catalog: Catalog) -> Figures | None:
    # The path starts at the machine that the caller has, else at the first choice.
    old = situation.current or situation.top
    larger = None if old is None or situation.upgrades is None else larger_machine(old.id, situation.upgrades, catalog)
    if old is None or larger is None:
        return None
    usd, new = larger
    links = None if new.interconnect in SLOW_LINKS else new.interconnect
    times = best_peak(new) / best_peak(old)
    return {"old": old.id, "new": new.id, "gpus": new.gpu_count, "links": links, "times": times, "usd": usd}


def _upgrade_path(situation: Situation, catalog: Catalog) -> Figures | None:
    """Applies to a single GPU; returns the next cards of its seller with more memory, speed, and speed per dollar."""
    top, upgrades = situation.top, situation.upgrades
    if top is None or upgrades is None or situation.gpus != 1:
        return None
    now = upgrades.card(catalog.index_of[top.id], catalog)
    if now is None:
        return None
    memory, speed, value = next_cards(now, situation.context.task, situation.precision, upgrades, catalog)
    if memory is None and speed is None:
        return None
    return {
        "instance": top.id,
        "memory": memory and (memory.machine.id, memory.memory_gb),
        "speed": speed and (speed.machine.id, speed.speed / now.speed),
        "value": value and (value.machine.id, value.per_usd / now.per_usd),
        "estimated": upgrades.rate is not None,
    }


def _evaluate_next(situation: Situation, _catalog: Catalog) -> Figures | None:
    top, other, basis = situation.top, situation.other, situation.basis
    if top is None or other is None or basis not in ("peak", "modelled", "outdated"):
        return None
    return {"basis": basis, "first": top.id, "second": other.id}


def _monitor_memory(situation: Situation, _catalog: Catalog) -> Figures | None:
    top = situation.top
    return {"instance": top.id} if top is not None and top.memory_gib is None else None


# Services of the provider


def _services_of_top(situation: Situation, kind: str, catalog: Catalog) -> list[Service]:
    """Returns the open services of the first choice's provider; none if the choice is rented through a service."""
    top = situation.top
    if top is None or top.twin_of or situation.is_managed:
        return []
    services = [each for each in catalog.reference.services if each.kind == kind and each.runs_on(top)]
    return [service for service in services if service.state_on(catalog.day) == "available"]


def _managed_spot(situation: Situation, catalog: Catalog) -> Figures | None:
    services = _services_of_top(situation, "managed_spot", catalog) if situation.context.fault_tolerant else []
    return {"services": [service.name for service in services]} if services else None


def _managed_training(situation: Situation, catalog: Catalog) -> Figures | None:
    top, services = situation.top, _services_of_top(situation, "managed_training", catalog)
    if top is None or not services:
        return None
    fee = fee_of(catalog.reference.fees, top, services[0].id, catalog.day)
    known = fee if isinstance(fee, Fee) else None
    figures = {"machines": (known and known.family) or top.family, "percent": known and known.percent_of_compute}
    return {"service": services[0].name, **figures}


def _image_advice(situation: Situation, catalog: Catalog) -> Figures | None:
    services = _services_of_top(situation, "image", catalog)
    return {"images": [service.name for service in services]} if services else None


_FROM_FP32 = partial(_faster_format, now=SINGLE_PRECISIONS, formats=HALF)

ADVISERS: dict[AdviceCode, tuple[Collection[str], Adviser]] = {
    AdviceCode.CURRENT_ENDS: (ANY_TASK, _current_ends),
    AdviceCode.NO_ACCELERATOR_NEEDED: (TASKS_WITHOUT_GPU, _no_accelerator_needed),
    AdviceCode.SEPARATE_DEV_AND_TRAINING: (("development",), _separate_dev_and_training),
    AdviceCode.GRAPHICS: (("graphics",), _graphics),
    AdviceCode.QUANTISATION_REQUIRED: (ANY_TASK, _quantisation_required),
    AdviceCode.FRACTIONAL_GPU: (("inference",), _fractional_gpu),
    AdviceCode.TF32: (DEEP_LEARNING, partial(_faster_format, now=("fp32",), formats=("tf32",))),
    AdviceCode.TF32_OFF_BY_DEFAULT: (ANY_TASK, partial(_tf32_by_default, on=False)),
    AdviceCode.TF32_ON_BY_DEFAULT: (ANY_TASK, partial(_tf32_by_default, on=True)),
    AdviceCode.MIXED_PRECISION: (("training",), _FROM_FP32),
    AdviceCode.HALF_PRECISION: (("inference",), _FROM_FP32),
    AdviceCode.INT8: (("inference",), _eight_bits),
    AdviceCode.CODE_CHANGE_REQUIRED: (("training",), _code_change_required),
    AdviceCode.INDEPENDENT_RUNS: (ANY_TASK, _independent_runs),
    AdviceCode.ONE_MODEL_PER_GPU: (("inference",), _one_model_per_gpu),
    AdviceCode.GPU_DECODING: (ANY_TASK, _gpu_decoding),
    AdviceCode.MIGRATION_PATH: (("training",), _migration_path),
    AdviceCode.EVALUATE_NEXT: (DEEP_LEARNING, _evaluate_next),
    AdviceCode.MONITOR_MEMORY: (DEEP_LEARNING, _monitor_memory),
    AdviceCode.MANAGED_SPOT: (("training",), _managed_spot),
    AdviceCode.MANAGED_TRAINING: (("training",), _managed_training),
    AdviceCode.IMAGE_ADVICE: (DEEP_LEARNING, _image_advice),
    AdviceCode.UPGRADE_PATH: (DEEP_LEARNING, _upgrade_path),
}
"""All advice, the most important first, with the tasks that it is for."""
