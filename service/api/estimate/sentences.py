"""The sentences of POST /estimate, which put figures of the domain into words."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from typing import Any

from service.api.estimate.response import memory_response
from service.api.estimate.software_sentences import (
    software_format,
    software_model,
    software_partly,
    software_unknown,
    software_unrecognised,
)
from service.api.http.figures import plural, readable
from service.domain.codes import WarningCode
from service.domain.evidence.named import NamedRate
from service.domain.jobs.stacks import UNKNOWN
from service.domain.layouts.job_estimate import FasterLayout
from service.domain.layouts.would_fit import FitChange
from service.domain.physics.estimate import MemoryNeed
from service.domain.physics.host_memory import HostNeed
from service.domain.statement import Statement
from service.domain.units import GIB, HOURS_A_DAY

ENDED = {"closed_to_new": "has admitted no new customers", "retired": "has not been offered"}

Sentence = str | Callable[..., str]
"""A template or a function of the figures."""


def text_of(sentence: Sentence, figures: Mapping[str, Any]) -> str:
    """Returns a sentence with its figures."""
    return sentence.format(**figures) if isinstance(sentence, str) else sentence(**figures)


# The estimate


def _gpu_memory(memory: MemoryNeed, of_cpus: bool, faster: FasterLayout | None) -> str:
    per_gpu = "" if of_cpus else " per GPU"
    shown, least = memory_response(memory), memory.above_weights(memory.least_band).times(1 / GIB)
    if memory.fits:
        needs = "one request needs" if memory.least_bytes < memory.needed_bytes else "it needs"
        asked = "" if memory.fits_surely else f" and not of {memory.confidence:.0%} as asked"
        return (
            f"The job fits with a probability of {100 * shown.fit_probability:g}%{asked}: in eight of ten runs {needs} "
            f"{least.low:.1f} to {least.high:.1f} GiB{per_gpu}, and {shown.usable_gib_per_gpu:.1f} can be used."
            f"{'' if faster is None else _faster(faster)}"
        )
    needed = f"{shown.needed_gib_per_gpu:.1f}: {_largest_first(shown.parts)}"
    return f"{shown.usable_gib_per_gpu:.1f} GiB{per_gpu} can be used; the job needs {needed}."


def _faster(faster: FasterLayout) -> str:
    return (
        " The layout is the one that needs the least memory, because none fits as asked: with memory_confidence "
        f"{faster.confidence:g}, another one is {faster.times:.3g} times as fast."
    )


def _host_memory(host: HostNeed) -> str:
    parts = {name: size / GIB for name, size in host.parts.items()}
    needed = f"{host.needed_bytes / GIB:.1f}: {_largest_first(parts)}"
    return f"The host of a node has {(host.available_bytes or 0.0) / GIB:.1f} GiB of memory; the job needs {needed}."


def _largest_first(gib: Mapping[str, float]) -> str:
    largest = sorted(gib.items(), key=lambda part: -part[1])
    return ", ".join(f"{size:.1f} {name.replace('_', ' ')}" for name, size in largest if size >= 0.05)


def ended(instance: str, state: str, since: object) -> str:
    """Returns the sentence that an instance type is closed to new customers or retired."""
    return f"{instance} {ENDED[state]} since {since}."


def no_offer(instance: str, day: date) -> str:
    """Returns the sentence that no price of an instance type is known on a day."""
    return f"The catalog of {day} has no offer of {instance}: what the run costs is unknown."


def _bound_by_host(rate: float, asked: bool, feeding: str) -> str:
    if asked:
        return f"The workload asks for {_rate(rate)} samples per second on a machine, but {feeding}."
    could = f"The GPUs of a node could take {_rate(rate)} samples per second"
    return f"{could}, but {feeding}: the estimate uses this rate."


def lengths_assumed(lengths: Mapping[str, float], *, speech: bool) -> str:
    """Returns which lengths of a sample the caller did not give, and the tokens that are assumed."""
    tokens = " and ".join(f"{plural(round(count), 'token')} of {name}" for name, count in lengths.items())
    beams = " Published runs decide how many beams count: one to five in programs, one in engines." if speech else ""
    return f"{_not_given([f'{name}_length' for name in lengths])}, so a sample is taken to have {tokens}.{beams}"


def _not_given(fields: Sequence[str]) -> str:
    """Returns that one field was not given, or that neither of two was."""
    named = [f"`{field}`" for field in fields]
    return f"{f'No {named[0]}' if len(named) == 1 else f'Neither {named[0]} nor {named[1]}'} was given"


def _host_bound(
    rate: float, fed: float, vcpus: float | None = None, *, asked: bool = False, single: bool = False
) -> str:
    cpus = "the CPUs prepare" if vcpus is None else f"its {vcpus:g} vCPUs prepare"
    return _bound_by_host(rate, asked, f"{'its single thread prepares' if single else cpus} only {_rate(fed)}")


def _slow_reads(rate: float, gbps: float, read: float, sample_mb: float, asked: bool = False) -> str:
    return _bound_by_host(
        rate, asked, f"a network of {gbps:g} Gbps delivers only {_rate(read)} samples of {sample_mb:g} MB"
    )


def _precision_stored(
    gpu: str, asked: str, precision: str, engine: str | None, all_change: bool = False, rate_known: bool = True
) -> str:
    if all_change:
        return f"Full training keeps its weights in {precision}: {asked} only stores weights that do not change."
    does_not = f"The {gpu} does not multiply in {asked}" if rate_known else f"No rate of {gpu} in {asked} is known"
    if engine is not None:
        does_not = f"{engine} is not known to multiply in {asked} on the {gpu}"
        if engine == UNKNOWN.line:
            does_not = f"No engine is named, so none is assumed to multiply in {asked} on the {gpu}"
    return f"{does_not}: the weights are stored in it, and multiplied in {precision}."


def _attends_to_all(engine: str | None, gpu: str, model: str, tokens: int) -> str:
    whose = "No engine" if engine is None else engine
    known = f"{whose} is {'' if engine is None else 'not '}known to have kernels on the {gpu}"
    return f"{known} for the {tokens:,} tokens that {model} selects: the estimate attends to all tokens."


def _extrapolates(properties: Collection[str], stack_named: bool) -> str:
    unnamed = not stack_named and "stack" in properties
    names = {"architecture": "a GPU of this architecture", "model": "this model"}
    if stack_named:
        names["stack"] = "this stack"
    if "architecture" not in properties:  # a GPU of a new architecture is new itself
        names["gpu"] = "this GPU"
    new = [names[name] for name in properties if name in names]
    reasons = ["no framework or engine is named"] if unnamed else []
    reasons += [f"no published run has {' or '.join(new)}"] if new else []
    return f"The estimate is less certain, because {' and '.join(reasons)}."


def _rate(rate: float) -> str:
    """Returns a rate in whole numbers, or in three digits below 100."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _network_unknown(*, gbps: float, disaggregated: bool, linked: int | None, crossing: tuple[str, ...]) -> str:
    parallelism = f"{' and '.join(crossing) or 'data'} parallelism {'cross' if len(crossing) > 1 else 'crosses'}"
    crosses = "the cache of each prompt crosses" if disaggregated else parallelism
    between, of = ("the machines", "") if linked is None else (f"groups of {linked:,} linked GPUs", " of each machine")
    return f"The network between {between} is not stated: {gbps:g} Gbps{of} are assumed, and {crosses} it."


def _beyond_context(*, model: str, most: int, tokens: float, trains: bool) -> str:
    follows = (
        "its positions have to be scaled, or learned again for them."
        if trains
        else "engines refuse them unless its positions are scaled, and answers may get worse."
    )
    published = f"{model} is published for sequences of up to {most:,} tokens"
    return f"{published}, and the longest here have {tokens:,.0f}: {follows}"


def _length_unknown(*, fields: tuple[str, ...]) -> str:
    part = {"input_length": "prompt", "output_length": "answer"}
    parts = " and each ".join(part[name] for name in fields)
    return f"{_not_given(fields)}, so each {parts} has one token: send the lengths of your requests for their rates."


def _drafts_do_not_pay(steps: float, drafter: str | None, model: str) -> str:
    smaller = "" if drafter is None else f"a smaller `draft_model` than {drafter}, "
    return (
        f"Drafts slow {model} down: with them, a token takes {steps:.2f} times as long for a request alone, and longer "
        f"for many. Send {smaller}a shorter `draft_length`, or no `speculative_acceptance`."
    )


def _few_vcpus(vcpus_per_gpu: float, requested: float | None, usual: tuple[float, float]) -> str:
    if requested is not None:
        return f"It has {vcpus_per_gpu:g} vCPUs per GPU; the workload asks for {requested:g}."
    return (
        f"It has {vcpus_per_gpu:.3g} vCPUs per GPU; loading samples usually takes {usual[0]:g} to {usual[1]:g}, unless "
        "the workload needs little of its CPUs."
    )


WARNINGS: Mapping[WarningCode, Sentence] = {
    WarningCode.GPU_MEMORY: _gpu_memory,
    WarningCode.HOST_MEMORY: _host_memory,
    WarningCode.HOST_MEMORY_UNKNOWN: "Its host memory is unknown; the workload asks for {needed_gib:g} GiB.",
    WarningCode.HOST_MEMORY_SMALL: "The host has {gib:g} GiB of memory; the workload asks for {needed_gib:g} GiB.",
    WarningCode.FEW_VCPUS: _few_vcpus,
    WarningCode.TENSOR_OVER_SLOW_LINKS: lambda tensor, crosses_nodes: (
        f"Tensor parallelism of {tensor} crosses {'nodes' if crosses_nodes else 'PCIe'}: every layer waits for it."
    ),
    WarningCode.NETWORK_UNKNOWN: _network_unknown,
    WarningCode.BEYOND_CONTEXT: _beyond_context,
    WarningCode.AMOUNT_BELOW_STEP: (
        "The amount of a run is {samples:,.0f} samples, and a step has {asked:,}: the figures are those of a part of a "
        "step. `global_batch_size` counts samples."
    ),
    WarningCode.STEP_VERY_LARGE: (
        "A step has {tokens:,.0f} tokens, and the largest one of a published run has {most:,} ({model}, {year}): "
        "`global_batch_size` counts samples, each of {length:,} tokens here."
    ),
    WarningCode.LENGTH_UNKNOWN: _length_unknown,
    WarningCode.REQUESTS_WAIT: (
        "{running:,.0f} of {asked:,.0f} requests run at once, as many as the cache has room for and the engine takes; "
        "the time to the first token includes the wait of the others."
    ),
    WarningCode.SLOW_FIRST_TOKEN: lambda seconds, percentile, usual: (
        f"The first token takes up to {seconds:.3g} s in {100 * percentile:g} % of requests, and MLPerf Inference v4.0 "
        f"allows a server of Llama 2 70B {usual:g} s: `max_seconds_to_first_token` limits it."
    ),
    WarningCode.DRAFTS_DO_NOT_PAY: _drafts_do_not_pay,
    WarningCode.NO_CLUSTER_THERE: (
        "The machines are those of a marketplace, each of another owner: no network joins the {nodes} nodes."
    ),
    WarningCode.TRAINING_SHARED: (
        "{instances} independent instances share one run of training, which you have to divide: machines that train "
        "one model together are nodes of one job."
    ),
    WarningCode.VCPUS_UNKNOWN: (
        "The number of vCPUs is unknown: the CPUs may prepare fewer samples than the GPUs take."
    ),
    WarningCode.BATCH_ASSUMED: lambda samples: (
        f"No `global_batch_size` was given, so an optimizer step is taken to have {plural(samples, 'sample')}."
    ),
    WarningCode.BATCH_NOT_FILLED: lambda asked, slots: (
        f"Steps of this layout have room for {slots:,} samples, and the global batch has {asked:,}: the others take "
        f"their time and are empty. Most trainers, such as Megatron-LM, refuse such a batch, and take one of {slots:,}."
    ),
    WarningCode.LENGTHS_ASSUMED: lengths_assumed,
    WarningCode.HOST_BOUND: _host_bound,
    WarningCode.IMAGES_PER_VCPU: lambda rate, vcpus, usual: (
        f"The GPUs of a node read {_rate(rate)} images per second, and its {vcpus:g} vCPUs usually prepare "
        f"{_rate(usual)}. The estimate does not count this limit: send `host.cpu_samples_per_second_per_vcpu`, or "
        "`host.gpu_decoding`."
    ),
    WarningCode.SLOW_READS: _slow_reads,
    WarningCode.PRECISION_REDUCED: "{gpu} runs {precision} only at a very low rate or by conversion.",
    WarningCode.PRECISION_STORED: _precision_stored,
    WarningCode.ATTENDS_TO_ALL: _attends_to_all,
    WarningCode.SOFTWARE_UNKNOWN: lambda near: software_unknown(
        near, "the figures assume that it runs here, and count no effect of it"
    ),
    WarningCode.SOFTWARE_UNRECOGNISED: software_unrecognised,
    WarningCode.ENGINE_OF_LANGUAGE_MODELS: (
        "{engine} is an engine for language models, and no source says that it runs {model}: the figures assume it."
    ),
    WarningCode.ENGINE_OF_EMBEDDINGS: (
        "{engine} embeds and ranks texts, and no source says that it writes any with {model}: the figures assume it."
    ),
    WarningCode.ENGINE_OF_INFERENCE: (
        "{engine} is an engine for inference, and no source says that it trains: the figures assume that it does. "
        "Name the framework of the training code."
    ),
    WarningCode.IMAGE_ENCODER_LEFT_OUT: lambda model, flops, of_text: (
        f"The samples have no images, so that the image encoder of {model} takes no time: send workload.image_tokens. "
        f"In a forward pass, a token of an image takes {flops / 1e9:.3g} GFLOPs more, {100 * flops / of_text:.0f} % of "
        "those in the language model."
    ),
    WarningCode.IMAGE_ENCODER_FROZEN: (
        "The image encoder of {model} is taken as frozen, as trainers keep it by default: training it too takes more "
        "time and memory."
    ),
    WarningCode.SOFTWARE_PARTLY: software_partly,
    WarningCode.SOFTWARE_MODEL: software_model,
    WarningCode.SOFTWARE_FORMAT: software_format,
    WarningCode.SOFTWARE_UNSUPPORTED: ("{software} is not known to run on the {gpu}: the figures assume that it does."),
    WarningCode.TASK_UNSUPPORTED: (
        "No software is known to do {task} on {instance}: the figures assume that some does."
    ),
    WarningCode.BURSTABLE: lambda share: (
        f"Its CPUs sustain {100 * share:g} % of their speed: a higher speed uses up saved credits or costs extra."
    ),
    WarningCode.DIMENSIONS_ASSUMED: (
        "Only the number of parameters is known: layers and heads are assumed to be those of {model}."
    ),
    WarningCode.VALUES_ASSUMED: (
        "How many values the layers of {model} write is not known. They are taken from its FLOPs, by the ratio of "
        "other networks, so that the rate and the memory may be up to four times too high or too low. Send "
        "`model.activation_values_per_sample`, or describe a transformer by its `layers`, `hidden` and `heads`."
    ),
    WarningCode.EXTRAPOLATES: _extrapolates,
    WarningCode.ENDED: ended,
    WarningCode.TERM_TOO_LONG: lambda term, hours, longest: (
        f"Under {term}, the run is paid for {hours / HOURS_A_DAY:,.0f} days, and the seller offers at most "
        f"{longest / HOURS_A_DAY:,.0f} at once: it takes several such terms, each subject to free capacity."
    ),
}
"""Texts of the risks that an estimate shows."""


def warning_text(warning: Statement[WarningCode]) -> str:
    """Returns the sentence of a risk that an estimate shows."""
    return text_of(WARNINGS[warning.code], warning.figures)


def fit_change_text(change: FitChange, *, of_cpus: bool = False) -> str:
    """Returns the sentence of a change that would make a job fit on GPUs, or on the CPUs of machines without one."""
    needed = f"{change.needed_bytes / GIB:.1f} GiB"
    place = "of host memory per node" if change.of_host else "per machine" if of_cpus else "per GPU"
    other = None if change.also is None else _change_text(*change.also)
    match change.code:
        case "nodes" if other:
            return f"With {other} on {change.to:g} nodes it fits in {needed} {place}."
        case "nodes":
            return f"On {change.to:g} nodes it fits in {needed} {place}."
        case "usable_memory_gib":
            return f"A {'machine' if of_cpus else 'GPU'} with {change.to:.1f} GiB of usable memory holds it."
        case "memory_confidence":
            return f"A memory_confidence of {change.to:g} admits it: it likely needs {needed} {place}."
        case "host_memory_gib":
            return f"A host with {needed} of memory holds it."
        case "layout":
            return f"With the best layout in place of the given one it fits in {needed} {place}."
        case code:
            changes = " and ".join(filter(None, (other, _change_text(code, change.to))))
            return f"With {changes} it fits in {needed} {place}."


def _change_text(field: str, to: float | str | bool) -> str:
    return f"{field} {f'{to:g}' if isinstance(to, float) else str(to).lower()}"


def rate_text(rate: NamedRate) -> str:
    """Returns a sentence on where the rate of a named workload is from."""
    measured, age = rate.evidence, f", {rate.days_old} days ago" if rate.is_stale else ""
    when = f"measured on {measured.measured_on}{age}"
    if rate.basis == "measured":
        on = f"Measured on {rate.place} on {measured.measured_on}{age}"
        return f"{on}: {readable(rate.samples_per_second.likely, 4)} samples per second."
    if rate.figure is not None:
        figure = rate.figure.replace("_", " ")
        return f"Scaled by {figure} ({rate.factor:.3g} times) from {rate.place.machine}, {when}."
    return (
        f"The estimate is scaled by {rate.factor:.3g}, the measured over the estimated rate of {rate.place} with the "
        f"same GPU, {when}."
    )
