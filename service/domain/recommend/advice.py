"""Advice besides the first choice: codes with figures, each only where it applies."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu, InstanceType
from service.domain.catalog.offer import MARKETS
from service.domain.catalog.precision import SINGLE_PRECISIONS, USUAL_PRECISIONS
from service.domain.catalog.reference import Service
from service.domain.catalog.software_support import RUNS, rules_by_type, said
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.recommend.answer import Choice, Question, WorkEstimate
from service.domain.recommend.codes import AdviceCode
from service.domain.recommend.successors import best_peak
from service.domain.recommend.warnings import cpus_are_too_few
from service.domain.selection.requirements import Requirement
from service.domain.statement import Statement
from service.domain.versions import Versions, known_versions, written

MAX_ADVICE = 6
HALF = ("bf16", "fp16")
TASKS_WITHOUT_GPU = frozenset({"classical", "sequential", "development"})
TASKS_OF_DEEP_LEARNING = frozenset({"training", "inference"})
ENDED = frozenset({"closed_to_new", "retired"})
"""States after which an instance type in use has to be replaced."""

SLOW_LINKS = (None, "none", "pcie")
MUCH_FASTER = 2.0
"""Minimum ratio of peaks for a larger machine to count as a step up rather than as another choice."""

SMALL_SHARE = 0.5
"""Share of a card's memory below which a job may fit on a part of a card."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The part of a question and its choices that advice depends on. Machines are indices of instance types."""

    task: str
    top: int | None = None
    """The first choice."""
    precision: str | None = None
    """The precision in which the first choice runs the workload."""
    other: int | None = None
    """The best choice with another GPU."""
    nodes: int = 1
    current: int | None = None
    providers: tuple[str, ...] = ()
    """Requested providers; empty: any."""
    refused: tuple[str, ...] = ()
    """Precisions that the workload cannot tolerate."""
    framework: Requirement | None = None
    concurrent_runs: int = 1
    fault_tolerant: bool = False
    cores_bind: bool = False
    """Whether the CPUs of the first choice are too few and decode the samples."""
    part: float | None = None
    """The part of a card that may be enough."""
    cut_over_gpus: bool = False
    """Whether one GPU does not hold the model."""
    basis: str = "peak"


Figures = Mapping[str, Any]
Adviser = Callable[[Situation, Catalog], Figures | None]
"""Returns the figures of a piece of advice, or None if it does not apply."""


def situation_of(question: Question, choices: tuple[Choice, ...], catalog: Catalog) -> Situation:
    """Returns what the advice for an answer depends on."""
    top = choices[0] if choices else None
    work = top.estimate if top is not None and isinstance(top.estimate, WorkEstimate) else None
    modelled = None if work is None else work.modelled
    return Situation(
        task=question.task,
        top=None if top is None else top.index,
        precision=modelled.precision if modelled is not None else None if top is None else top.precision,
        other=None if top is None else next((each.index for each in choices if _has_another_gpu(each, top)), None),
        nodes=1 if top is None else top.nodes,
        current=None if question.current_instance is None else catalog.place_of[question.current_instance],
        providers=question.constraints.words.get("provider", ()),
        refused=question.refused_precisions,
        framework=question.needs.framework,
        concurrent_runs=question.concurrent_runs,
        fault_tolerant=question.fault_tolerant,
        cores_bind=top is not None
        and not question.decodes_on_gpu
        and cpus_are_too_few(question, top, modelled, catalog),
        part=_part_of_a_card(question, modelled),
        cut_over_gpus=modelled is not None and modelled.estimate.layout.model_ranks > 1,
        basis="peak" if question.job is None else _basis(work),
    )


def advise(situation: Situation, catalog: Catalog) -> tuple[Statement[AdviceCode], ...]:
    """Returns the most important advice that applies."""
    advice = []
    for code, adviser in ADVISERS.items():
        figures = adviser(situation, catalog)
        if figures is not None:
            advice.append(Statement(code, figures))
        if len(advice) == MAX_ADVICE:
            break
    return tuple(advice)


def _has_another_gpu(choice: Choice, top: Choice) -> bool:
    gpu, gpu_of_top = choice.instance_type.gpu, top.instance_type.gpu
    return gpu is not None and gpu_of_top is not None and gpu.id != gpu_of_top.id


def _part_of_a_card(question: Question, modelled: JobEstimate | None) -> float | None:
    """Returns the smallest part of a card that may be enough: as requested, or by the memory that the job needs."""
    least = question.constraints.at_least.get("gpu_count")
    if least is not None and least < 1:
        return least
    if modelled is None or modelled.estimate.layout.gpus > 1 or not modelled.estimate.memory.usable_bytes:
        return None
    share = modelled.estimate.memory.needed_bytes / modelled.estimate.memory.usable_bytes
    return share if share < SMALL_SHARE else None


def _basis(work: WorkEstimate | None) -> str:
    """Returns what the figures of a choice rest on; an old measurement does not save measuring again."""
    if work is None:
        return "peak"
    return "modelled" if work.measured is None or work.measured.stale else work.measured.basis


def _machine(index: int | None, catalog: Catalog) -> InstanceType | None:
    return None if index is None else catalog.instance_types[index]


def _gpu_on_top(situation: Situation, catalog: Catalog) -> Gpu | None:
    instance_type = _machine(situation.top, catalog)
    return None if instance_type is None else instance_type.gpu


# Machines by price


def _is_without_gpu(instance_type: InstanceType) -> bool:
    return instance_type.gpu is None


def _has_gpu(instance_type: InstanceType) -> bool:
    return instance_type.gpu is not None


def _is_for_graphics(instance_type: InstanceType) -> bool:
    return instance_type.gpu is not None and instance_type.gpu.positioned_for == "graphics"


def _is_part(instance_type: InstanceType) -> bool:
    return instance_type.gpu is not None and instance_type.gpu.fraction < 1


Kind = Callable[[InstanceType], bool]
Priced = tuple[float, InstanceType]


def _by_price(kind: Kind, catalog: Catalog) -> list[Priced]:
    """Returns the available machines of a kind with their on-demand price, the cheapest first."""

    def find() -> list[Priced]:
        pairs = zip(catalog.instance_types, catalog.default_offers.tolist(), strict=True)
        priced = [(_on_demand(offer, catalog), each) for each, offer in pairs if kind(each)]
        available = [(usd, each) for usd, each in priced if usd and each.state_on(catalog.day) == "available"]
        return sorted(available, key=lambda pair: (pair[0], pair[1].id))

    return catalog.memory.get_or_compute(("by_price", kind), find)


def _on_demand(offer_index: int, catalog: Catalog) -> float | None:
    """Returns the dollars per hour of an offer; None without a price or in another market."""
    if offer_index < 0 or MARKETS[catalog.offers.market[offer_index]] != "on_demand":
        return None
    usd = float(catalog.offers.usd_per_hour[offer_index])
    return usd if usd > 0 else None


def _cheapest(kind: Kind, situation: Situation, catalog: Catalog, least_gpus: float = 0.0) -> Priced | None:
    providers = situation.providers
    return next(
        (
            (usd, instance_type)
            for usd, instance_type in _by_price(kind, catalog)
            if (not providers or instance_type.provider in providers) and instance_type.whole_gpus >= least_gpus
        ),
        None,
    )


# Work that needs another kind of machine


def _no_accelerator_needed(situation: Situation, catalog: Catalog) -> Figures | None:
    if situation.task not in TASKS_WITHOUT_GPU:
        return None
    return {"task": situation.task, "cheapest": _cheapest(_is_without_gpu, situation, catalog)}


def _separate_dev_and_training(situation: Situation, catalog: Catalog) -> Figures | None:
    return {"cheapest": _cheapest(_has_gpu, situation, catalog)} if situation.task == "development" else None


def _graphics(situation: Situation, catalog: Catalog) -> Figures | None:
    cheapest = _cheapest(_is_for_graphics, situation, catalog) if situation.task == "graphics" else None
    return None if cheapest is None else {"cheapest": cheapest}


def _fractional_gpu(situation: Situation, catalog: Catalog) -> Figures | None:
    if situation.task != "inference" or situation.part is None:
        return None
    top = _gpu_on_top(situation, catalog)
    part = None
    if top is None or top.fraction == 1:
        part = _cheapest(_is_part, situation, catalog, least_gpus=situation.part)
    services = [each.name for each in _services("fraction", situation.providers, catalog)]
    if part is None and not services:
        return None
    return {"cheapest": part, "card": part and _whole_card(part[1], catalog), "services": services}


def _whole_card(instance_type: InstanceType, catalog: Catalog) -> str:
    """Returns the name of the card of which a machine has a part."""
    assert instance_type.gpu is not None
    gpu = instance_type.gpu
    return catalog.reference.gpus.get(gpu.partition_of or gpu.id, gpu).name


# Number formats


def _faster(situation: Situation, catalog: Catalog, formats: Iterable[str]) -> Figures | None:
    """Returns the formats with the highest peak; None if none is faster than the precision in use."""
    gpu = _gpu_on_top(situation, catalog)
    now = None if gpu is None else _peak_at(gpu, situation.precision)
    if gpu is None or not now:
        return None
    peaks = {name: _peak_at(gpu, name) or 0.0 for name in formats if name not in situation.refused}
    best = max(peaks.values(), default=0.0)
    if best <= now:
        return None
    names = tuple(name for name, peak in peaks.items() if peak == best)
    return {"formats": names, "gpu": gpu.name, "tflops": best, "times": best / now, "now": situation.precision}


def _peak_at(gpu: Gpu, precision: str | None) -> float | None:
    return gpu.tflops(precision) if precision and gpu.runs(precision) else None


def _tf32(situation: Situation, catalog: Catalog) -> Figures | None:
    if situation.task not in TASKS_OF_DEEP_LEARNING or situation.precision != "fp32":
        return None
    return _faster(situation, catalog, ("tf32",))


def _tf32_off_by_default(situation: Situation, catalog: Catalog) -> Figures | None:
    """Applies if the framework is PyTorch in a version that does not use TF32 by itself."""
    framework, gpu = situation.framework, _gpu_on_top(situation, catalog)
    if situation.top is None or gpu is None or framework is None or framework.software != "pytorch":
        return None
    if situation.precision not in SINGLE_PRECISIONS or not gpu.runs("tf32"):
        return None
    since = _disabled_since(framework.versions, situation.top, catalog)
    return None if since is None else {"since": written(since.low)}


def _disabled_since(versions: Versions, index: int, catalog: Catalog) -> Versions | None:
    for rule in rules_by_type(catalog, "pytorch-tf32-matmul-default")[index]:
        since = known_versions(rule.versions)
        if rule.supported == "no" and since.meets(versions):
            return since
    return None


def _mixed_precision(situation: Situation, catalog: Catalog) -> Figures | None:
    applies = situation.task == "training" and situation.precision in SINGLE_PRECISIONS
    return _faster(situation, catalog, HALF) if applies else None


def _half_precision(situation: Situation, catalog: Catalog) -> Figures | None:
    applies = situation.task == "inference" and situation.precision in SINGLE_PRECISIONS
    return _faster(situation, catalog, HALF) if applies else None


def _int8(situation: Situation, catalog: Catalog) -> Figures | None:
    applies = situation.task == "inference" and situation.precision in USUAL_PRECISIONS
    return _faster(situation, catalog, ("int8",)) if applies else None


def _quantisation_required(situation: Situation, catalog: Catalog) -> Figures | None:
    gpu, top = _gpu_on_top(situation, catalog), situation.top
    if top is None or gpu is None or not gpu.runs("int8") or any(map(gpu.runs, USUAL_PRECISIONS)):
        return None
    toolkits = sorted({rule.software for rule in catalog.software if rule.kind == "toolkit"} - {"cpu"})
    return {"gpu": gpu.name, "toolkits": [kit for kit in toolkits if said(rules_by_type(catalog, kit)[top]) in RUNS]}


# Several GPUs


def _code_change_required(situation: Situation, catalog: Catalog) -> Figures | None:
    instance_type = _machine(situation.top, catalog)
    gpus = 0 if instance_type is None else instance_type.gpu_count * situation.nodes
    if situation.task != "training" or gpus < 2 or situation.concurrent_runs > 1:
        return None
    return {"gpus": gpus}


def _independent_runs(situation: Situation, catalog: Catalog) -> Figures | None:
    instance_type, runs = _machine(situation.top, catalog), situation.concurrent_runs
    if instance_type is None or instance_type.gpu is None or runs < 2:
        return None
    return {"runs": runs, "gpus": instance_type.gpu_count * situation.nodes, "memory_gb": instance_type.gpu.memory_gb}


def _one_model_per_gpu(situation: Situation, catalog: Catalog) -> Figures | None:
    instance_type = _machine(situation.top, catalog)
    if situation.task != "inference" or instance_type is None or situation.cut_over_gpus:
        return None
    if instance_type.gpu is None or instance_type.gpu_count < 2:
        return None
    return {"gpus": instance_type.gpu_count, "memory_gb": instance_type.gpu.memory_gb}


def _gpu_decoding(situation: Situation, catalog: Catalog) -> Figures | None:
    instance_type = _machine(situation.top, catalog)
    if situation.top is None or instance_type is None or not situation.cores_bind:
        return None
    runs = said(rules_by_type(catalog, "dali")[situation.top]) == "yes"
    return {"vcpus": instance_type.vcpus} if runs else None


# Next steps


def _current_ends(situation: Situation, catalog: Catalog) -> Figures | None:
    instance_type = _machine(situation.current, catalog)
    event = None if instance_type is None else instance_type.event_on(catalog.day)
    if instance_type is None or event is None or event.state not in ENDED:
        return None
    return {"instance": instance_type.id, "state": event.state, "since": event.starts_on}


def _migration_path(situation: Situation, catalog: Catalog) -> Figures | None:
    start = situation.top if situation.current is None else situation.current
    if situation.task != "training" or start is None:
        return None
    old = catalog.instance_types[start]
    larger = catalog.memory.get_or_compute(("larger", start), lambda: _larger_machine(old, catalog))
    if larger is None:
        return None
    usd, new = larger
    links = None if new.interconnect in SLOW_LINKS else new.interconnect
    times = best_peak(new) / best_peak(old)
    return {"old": old.id, "new": new.id, "gpus": new.gpu_count, "links": links, "times": times, "usd": usd}


def _larger_machine(old: InstanceType, catalog: Catalog) -> Priced | None:
    """Returns the fastest machine of the same architecture there; fast links come first, then peak, then price."""
    if old.gpu is None:
        return None
    similar = [
        (usd, new)
        for usd, new in _by_price(_has_gpu, catalog)
        if (new.provider, new.service, new.cpu_architecture) == (old.provider, old.service, old.cpu_architecture)
        and new.gpu is not None
        and new.gpu.architecture == old.gpu.architecture
        and best_peak(new) >= MUCH_FASTER * best_peak(old)
    ]
    return max(
        similar,
        key=lambda pair: (pair[1].interconnect not in SLOW_LINKS, best_peak(pair[1]), -pair[0]),
        default=None,
    )


def _evaluate_next(situation: Situation, catalog: Catalog) -> Figures | None:
    top, other = _machine(situation.top, catalog), _machine(situation.other, catalog)
    if situation.task not in TASKS_OF_DEEP_LEARNING or situation.basis not in ("peak", "modelled"):
        return None
    return None if top is None or other is None else {"basis": situation.basis, "first": top.id, "second": other.id}


# Services of the provider


def _services(kind: str, providers: tuple[str, ...], catalog: Catalog) -> list[Service]:
    """Returns the services that admit new customers on the catalog's day."""
    return [
        service
        for service in catalog.reference.services
        if service.kind == kind
        and (not providers or service.provider in providers)
        and service.state_on(catalog.day) == "available"
    ]


def _services_of_top(situation: Situation, kind: str, catalog: Catalog) -> list[Service]:
    """Returns services of the first choice's provider; none if the choice is such a service itself."""
    top = _machine(situation.top, catalog)
    return [] if top is None or top.twin_of else _services(kind, (top.provider,), catalog)


def _managed_spot(situation: Situation, catalog: Catalog) -> Figures | None:
    if situation.task != "training" or not situation.fault_tolerant:
        return None
    names = [service.name for service in _services_of_top(situation, "managed_spot", catalog)]
    return {"services": names} if names else None


def _managed_training(situation: Situation, catalog: Catalog) -> Figures | None:
    top = _machine(situation.top, catalog)
    services = _services_of_top(situation, "managed_training", catalog) if situation.task == "training" else []
    if top is None or not services:
        return None
    return {"service": services[0].name, "family": top.family, "percent": _premium(services[0], top, catalog)}


def _premium(service: Service, instance_type: InstanceType, catalog: Catalog) -> float | None:
    """Returns the fee in percent of the plain machine's price: of its family, else the one for all families."""
    fees = [
        fee
        for fee in catalog.reference.fees
        if (fee.provider, fee.service) == (service.provider, service.id)
        and fee.family in ("", instance_type.family)
        and fee.valid_from <= catalog.day
    ]
    return max(fees, key=lambda fee: (fee.family, fee.valid_from)).percent_of_compute if fees else None


def _image_advice(situation: Situation, catalog: Catalog) -> Figures | None:
    if situation.task not in TASKS_OF_DEEP_LEARNING:
        return None
    names = [service.name for service in _services_of_top(situation, "image", catalog)]
    return {"images": names} if names else None


ADVISERS: dict[AdviceCode, Adviser] = {
    AdviceCode.CURRENT_ENDS: _current_ends,
    AdviceCode.NO_ACCELERATOR_NEEDED: _no_accelerator_needed,
    AdviceCode.SEPARATE_DEV_AND_TRAINING: _separate_dev_and_training,
    AdviceCode.GRAPHICS: _graphics,
    AdviceCode.QUANTISATION_REQUIRED: _quantisation_required,
    AdviceCode.FRACTIONAL_GPU: _fractional_gpu,
    AdviceCode.TF32: _tf32,
    AdviceCode.TF32_OFF_BY_DEFAULT: _tf32_off_by_default,
    AdviceCode.MIXED_PRECISION: _mixed_precision,
    AdviceCode.HALF_PRECISION: _half_precision,
    AdviceCode.INT8: _int8,
    AdviceCode.CODE_CHANGE_REQUIRED: _code_change_required,
    AdviceCode.INDEPENDENT_RUNS: _independent_runs,
    AdviceCode.ONE_MODEL_PER_GPU: _one_model_per_gpu,
    AdviceCode.GPU_DECODING: _gpu_decoding,
    AdviceCode.MIGRATION_PATH: _migration_path,
    AdviceCode.EVALUATE_NEXT: _evaluate_next,
    AdviceCode.MANAGED_SPOT: _managed_spot,
    AdviceCode.MANAGED_TRAINING: _managed_training,
    AdviceCode.IMAGE_ADVICE: _image_advice,
}
"""All advice, the most important first."""
