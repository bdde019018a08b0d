"""Roofline of a training step, of decoding, of prefill and of a plain forward pass: ideal seconds, term by term.

Every term is what the work would take if that part of the machine ran at its rated speed and nothing else took time.
`efficiency.py` says how many times longer each really takes; the step is their sum.
"""

from dataclasses import dataclass
from typing import NamedTuple

from service.domain.collective import all_reduce_seconds, hierarchical_all_reduce_seconds
from service.domain.counting import (
    attention_flops_per_token,
    attention_share,
    expert_share,
    kv_bytes_per_token,
    multiplied_parameters,
    parameters_touched,
)
from service.domain.formats import bytes_per_value, peak_flops
from service.domain.machine import DEFAULT_VCPUS_PER_GPU, Machine
from service.domain.model import Model, Transformer
from service.domain.parallelism import (
    Layout,
    bubble_share,
    data_bytes,
    expert_bytes_per_layer,
    tensor_bytes_per_layer,
)
from service.domain.workload import Inference, Training

LAUNCH_SECONDS = 5e-6
"""What starting one kernel costs a CPU, nominally; its efficiency coefficient holds what each stack really pays."""

KERNELS_PER_LAYER_FORWARD = 12
ROUTING_SECONDS = 1e-3
"""What a CPU spends on routing one expert layer of one micro-batch, nominally: sorting, counting, waiting for sizes."""

KERNELS_OF_A_PLAIN_NETWORK = 250
"""Kernels in the forward pass of a convolutional network such as ResNet-50, where layers are not known."""

ACTIVATION_BYTES_PER_FLOP = 0.021
"""Bytes moved per forward FLOP of a 16-bit convolutional network, forward pass: ResNet-50 moves about 0.52 GB per
trained image at 8.2 GFLOP, a third of it forward (measured 2,375 images/s on an A100 at 80 % of its bandwidth)."""

LAYER_BYTES_PER_VALUE = 34.0
"""Bytes that a transformer layer writes per token and hidden value (Korthikanti et al. 2022, Table 2)."""

DECODE_SECONDS_PER_VCPU_SAMPLE = 1 / 130
"""One image decoded and augmented by one CPU core with Pillow: 100-150 per second."""

NARROW = 1024.0
"""The width at which matrices stop filling a GPU; narrower ones take proportionally longer."""


class Terms(NamedTuple):
    """Ideal seconds of each part of a step; the units of a step are what it yields."""

    seconds: dict[str, float]
    units: float


@dataclass(frozen=True, slots=True)
class TrainingShape:
    """Sizes of one training step on one GPU."""

    sequence: float
    sequences_per_micro: float
    tokens_per_micro: float
    micro_batches: int
    samples_per_step: float


def training_shape(work: Training, layout: Layout) -> TrainingShape:
    """What one GPU does in one optimizer step; packed samples count their mean real length."""
    length = work.mean_length or work.sequence_length or 1
    return TrainingShape(
        sequence=length,
        sequences_per_micro=layout.micro_batch,
        tokens_per_micro=layout.micro_batch * length / layout.context,
        micro_batches=layout.accumulation,
        samples_per_step=layout.global_batch,
    )


PASSES = {"full": 3.0, "lora": 2.0, "qlora": 2.0, "adapter": 2.0}
"""Forward passes' worth of matrix work in a step: frozen weights need no gradient of their own, so 4N and not 6N."""


def transformer_training_terms(work: Training, machine: Machine, layout: Layout) -> Terms:
    """Terms of one optimizer step of a transformer."""
    model, gpu = work.model, machine.gpu
    t = model.transformer
    assert t is not None
    shape = training_shape(work, layout)
    cut = layout.tensor * layout.pipeline
    tokens = shape.tokens_per_micro
    recompute = layout.activation_checkpointing == "full"
    passes = PASSES[work.method]
    body = 2.0 * multiplied_parameters(model) * tokens / cut
    attention = attention_share(model) * attention_flops_per_token(t, shape.sequence) * tokens / cut
    matrix = body * (passes + (1.0 if recompute else 0.0)) / peak_flops(gpu, work.precision)
    wide = peak_flops(gpu, "bf16" if bytes_per_value(work.precision) < 2 else work.precision)
    scores = attention * (3.5 + (1.0 if recompute else 0.0)) / wide
    width = t.expert_ffn or (t.ffn if t.experts else t.hidden)
    value = min(2.0, bytes_per_value(work.precision)) if work.precision not in ("fp32", "tf32") else 4.0
    moved = LAYER_BYTES_PER_VALUE * value / 2 * 3 * tokens * t.hidden * t.layers / cut
    moved += 12.0 * tokens * t.vocabulary / cut * 2
    if not work.flash_attention:
        moved += 5 * 3 * tokens * shape.sequence * t.heads * t.layers / cut * value / 2
    kernels = KERNELS_PER_LAYER_FORWARD * 3 * t.layers / layout.pipeline
    routed = expert_share(model) * t.layers / layout.pipeline if is_routed(model) else 0.0
    trainable = work.trainable_parameters or (model.parameters if work.method == "full" else 0.003 * model.parameters)
    here = trainable / cut / layout.expert
    m = shape.micro_batches
    weights_read = model.parameters * bytes_per_value(work.weight_precision or "bf16") / cut
    weights_read /= layout.expert
    per_micro = {
        "matrix": matrix,
        "narrow": matrix * NARROW * layout.tensor / width,
        "attention": scores,
        "memory": moved / machine.memory_bandwidth,
        "weights": 3 * weights_read / machine.memory_bandwidth,
        "launch": kernels * LAUNCH_SECONDS,
        "tensor": _tensor_seconds(layout, machine, tokens, t.hidden, t.layers, recompute=recompute),
        "expert": expert_share(model)
        * _expert_seconds(layout, machine, tokens, t.hidden, t.layers, t.experts_per_token or 6),
        "routing": routed * ROUTING_SECONDS,
        "context": _context_seconds(layout, machine, tokens, t),
    }
    seconds = {name: m * value for name, value in per_micro.items()}
    seconds["bubble"] = bubble_share(layout) * sum(seconds.values())
    seconds["data"] = _data_seconds(layout, machine, here) * (m if layout.zero_stage >= 3 else 1)
    sharded = layout.data if layout.zero_stage else 1
    seconds["optimizer"] = 22.0 * here / sharded / machine.memory_bandwidth
    seconds["step"] = 1e-3
    return Terms(seconds, shape.samples_per_step)


def _tensor_seconds(
    layout: Layout, machine: Machine, tokens: float, hidden: int, layers: int, *, recompute: bool
) -> float:
    if layout.tensor <= 1:
        return 0.0
    size = tensor_bytes_per_layer(tokens, hidden, recompute=recompute)
    return all_reduce_seconds(size, layout.tensor, machine.link(layout.tensor)) * layers / layout.pipeline


def _expert_seconds(
    layout: Layout, machine: Machine, tokens: float, hidden: int, layers: int, experts_per_token: int
) -> float:
    """All-to-alls of the expert layers: inside the linked GPUs, and between such groups one copy per group.

    Ranks of a tensor cut hold different tokens there (sequence parallelism), and an expert group counts them in.
    """
    if layout.expert <= 1:
        return 0.0
    here = tokens / layout.tensor
    groups = -(-layout.expert // machine.linked_gpus)
    inside = min(layout.expert, machine.linked_gpus)
    seconds = expert_bytes_per_layer(here, hidden, experts_per_token, inside) / machine.link_bytes_per_second
    if groups > 1:
        copies = groups * (1.0 - (1.0 - 1.0 / groups) ** experts_per_token)
        across = expert_bytes_per_layer(here, hidden, 1, groups) * copies
        seconds += across / min(machine.link_bytes_per_second, machine.network_bytes_per_second)
    return seconds * layers / layout.pipeline


def _context_seconds(layout: Layout, machine: Machine, tokens: float, t: Transformer) -> float:
    """Keys and values passed round the ring, forward and twice backward: 3 x 2 k d tokens (c - 1) values of 2 bytes."""
    if layout.context <= 1:
        return 0.0
    size = 3 * 2 * 2.0 * t.kv_heads * t.head_size * tokens * (layout.context - 1) / layout.tensor
    return size / machine.link(layout.tensor * layout.context) * t.layers / layout.pipeline


def _data_seconds(layout: Layout, machine: Machine, parameters_here: float) -> float:
    """Gradients over the data-parallel group, which spans nodes once tensor x pipeline x data leaves one."""
    ranks = layout.data * layout.context
    if ranks <= 1:
        return 0.0
    size = data_bytes(parameters_here, layout.zero_stage)
    inside = max(1, min(ranks, machine.linked_gpus // max(1, layout.tensor)))
    outside = -(-ranks // inside)
    return hierarchical_all_reduce_seconds(
        size, inside, outside, machine.link_bytes_per_second, machine.network_bytes_per_second * inside
    )


def network_training_terms(work: Training, machine: Machine, layout: Layout) -> Terms:
    """Terms of one step of a network that is known by its forward FLOPs per sample (convolutions and others)."""
    model, gpu = work.model, machine.gpu
    flops = model.forward_flops_per_sample or 2.0 * model.parameters
    samples = layout.micro_batch * layout.accumulation
    value = bytes_per_value(work.precision)
    moved = ACTIVATION_BYTES_PER_FLOP * flops * 3 * value / 2
    peak = peak_flops(gpu, work.precision)
    vcpus = machine.vcpus_per_gpu or DEFAULT_VCPUS_PER_GPU
    seconds = {
        "matrix": 3 * flops * samples / peak,
        "memory": moved * samples / machine.memory_bandwidth,
        "launch": 3 * KERNELS_OF_A_PLAIN_NETWORK * LAUNCH_SECONDS * layout.accumulation,
        "input": samples * DECODE_SECONDS_PER_VCPU_SAMPLE / vcpus,
        "data": _data_seconds(layout, machine, model.parameters),
        "optimizer": 22.0 * model.parameters / machine.memory_bandwidth,
        "step": 1e-3,
    }
    return Terms(seconds, layout.global_batch)


def training_terms(work: Training, machine: Machine, layout: Layout) -> Terms:
    """Terms of one optimizer step; it yields samples."""
    if work.model.transformer is not None:
        return transformer_training_terms(work, machine, layout)
    return network_training_terms(work, machine, layout)


def weight_bytes(work: Inference) -> float:
    """Bytes per weight as stored."""
    if work.weight_bits:
        return work.weight_bits / 8
    return bytes_per_value(work.precision)


def kv_value_bytes(work: Inference) -> float:
    return bytes_per_value(work.kv_precision) if work.kv_precision else 2.0


def decode_terms(work: Inference, machine: Machine, layout: Layout, concurrency: float, context: float) -> Terms:
    """One decoding step of a batch: every weight touched is read once, and the whole cache of keys and values.

    Layers split over GPUs (pipeline) take turns, so they neither add bandwidth nor lose it; tensor cuts share the work.
    """
    model = work.model
    t = model.transformer
    assert t is not None
    wide = layout.tensor
    touched = parameters_touched(model, concurrency) * weight_bytes(work) / wide
    cache = kv_bytes_per_token(t, kv_value_bytes(work), wide) * context * concurrency
    flops = concurrency * 2.0 * multiplied_parameters(model) / wide
    peak = peak_flops(machine.gpu, work.precision)
    messages = 2 * t.layers
    seconds = {
        "weights": touched / machine.memory_bandwidth,
        "cache": cache / machine.memory_bandwidth,
        "matrix": flops / peak,
        "launch": KERNELS_PER_LAYER_FORWARD * t.layers * LAUNCH_SECONDS,
        "tensor": messages * all_reduce_seconds(2.0 * concurrency * t.hidden, wide, machine.link(wide)),
        "latency": messages * 10e-6 * (wide > 1),
        "step": 1e-3,
        "request": 1e-5 * concurrency,
        "vocabulary": concurrency * t.vocabulary * 4 * 3 / wide / machine.memory_bandwidth,
    }
    return Terms(seconds, concurrency)


def prefill_terms(work: Inference, machine: Machine, layout: Layout, prompts: float, length: float) -> Terms:
    """Reading so many prompts of a length: 2 N s FLOPs and causal attention, and each weight at least once."""
    model = work.model
    t = model.transformer
    assert t is not None
    wide = layout.tensor
    tokens = prompts * length
    peak = peak_flops(machine.gpu, work.precision)
    flops = tokens * 2.0 * multiplied_parameters(model) / wide
    attention = tokens * attention_flops_per_token(t, length) / wide
    touched = parameters_touched(model, tokens) * weight_bytes(work) / wide
    size = 2.0 * tokens * t.hidden
    seconds = {
        "prefill": flops / peak,
        "attention": attention / peak_flops(machine.gpu, "bf16"),
        "weights": touched / machine.memory_bandwidth,
        "memory": LAYER_BYTES_PER_VALUE * tokens * t.hidden * t.layers / wide / machine.memory_bandwidth,
        "launch": KERNELS_PER_LAYER_FORWARD * t.layers * LAUNCH_SECONDS,
        "tensor": 2 * t.layers * all_reduce_seconds(size, wide, machine.link(wide)),
        "step": 1e-3,
    }
    return Terms(seconds, tokens)


def serving_terms(work: Inference, machine: Machine, layout: Layout, concurrency: float) -> Terms:
    """One decoding step in the steady state of continuous batching, with its share of the prefill of newcomers.

    Each of B conversations lasts `output_length` steps, so B / output_length prompts are read per step. Stages of a
    pipeline work on different conversations at once: they share what grows with B, and each still reads its own weights
    every round.
    """
    context = work.input_length + work.output_length / 2
    decode = decode_terms(work, machine, layout, concurrency, context)
    newcomers = concurrency / max(1.0, work.output_length)
    prefill = prefill_terms(work, machine, layout, newcomers, max(1.0, work.input_length)).seconds
    seconds = dict(decode.seconds)
    seconds["prefill"] = prefill["prefill"] + prefill["attention"]
    seconds["prefill_memory"] = prefill["memory"]
    seconds["tensor"] += prefill["tensor"]
    for shared in ("cache", "matrix", "prefill", "prefill_memory", "vocabulary", "tensor"):
        seconds[shared] /= layout.pipeline
    return Terms(seconds, concurrency)


def forward_terms(work: Inference, machine: Machine, batch: float) -> Terms:
    """A forward pass over a batch of samples: encoders and networks known by their FLOPs."""
    model, t = work.model, work.model.transformer
    value = weight_bytes(work)
    if t is not None:
        length = work.mean_length or work.input_length or 1
        flops = length * (2.0 * multiplied_parameters(model) + attention_flops_per_token(t, length))
        moved = LAYER_BYTES_PER_VALUE * length * t.hidden * t.layers
        kernels = float(KERNELS_PER_LAYER_FORWARD * t.layers)
    else:
        flops = model.forward_flops_per_sample or 2.0 * model.parameters
        moved = ACTIVATION_BYTES_PER_FLOP * flops
        kernels = KERNELS_OF_A_PLAIN_NETWORK
    seconds = {
        "matrix": batch * flops / peak_flops(machine.gpu, work.precision),
        "memory": batch * moved * value / 2 / machine.memory_bandwidth,
        "weights": model.parameters * value / machine.memory_bandwidth,
        "launch": kernels * LAUNCH_SECONDS,
        "step": 1e-3,
    }
    return Terms(seconds, batch)


def is_routed(model: Model) -> bool:
    """Whether tokens go to experts; hybrids may not say how many."""
    return model.family in ("moe", "hybrid_moe")


def is_generative(model: Model) -> bool:
    return model.transformer is not None and model.transformer.decoder
