"""A row of a table of published runs, as a question to `POST /estimate` and the figure to compare its answer with.

This file knows the fields of the API and nothing else of the service.
"""

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, str]

GPUS = {
    "A100-SXM-80GB": "a100-sxm4-80gb",
    "A800-SXM-80GB": "a800-sxm4-80gb",
    "H800-SXM-80GB": "h800-sxm5-80gb",
    "H100-SXM-96GB-HBM2e": "h100-sxm5-80gb",
    "V100-SXM3-32GB": "v100-sxm2-32gb",
    "B200-180GB": "b200-sxm-180gb",
    "B300-288GB": "b300-sxm-288gb",
    "GB200-192GB": "gb200-186gb",
    "GB200-186GB": "gb200-186gb",
    "RTX-Pro-6000-Blackwell-96GB": "rtx-pro-6000-workstation-96gb",
    "RTX-3090Ti-24GB": "rtx-3090-ti-24gb",
    "RTX-2080Ti-11GB": "rtx-2080-ti-11gb",
    "RTX-4070Ti-12GB": "rtx-4070-ti-12gb",
    "RTX-3080Ti-12GB": "rtx-3080-ti-12gb",
    "GTX-1080Ti-11GB": "gtx-1080-ti-11gb",
    "TITAN-X-Maxwell-12GB": "m40-12gb",
    "Trainium1-32GB": "trainium-32gb",
    "TPU-v4": "tpu-v4-32gb",
    "TPU-v5p": "tpu-v5p-95gb",
    "TPU-v5e": "tpu-v5e-16gb",
    "TPU-v3": "tpu-v3-32gb",
    "Gaudi2": "gaudi2-96gb",
    "H200-141GB": "h200-sxm-141gb",
    "RTX-8000-48GB": "quadro-rtx-8000-48gb",
    "Quadro-RTX-8000-48GB": "quadro-rtx-8000-48gb",
    "Quadro-RTX-6000-24GB": "quadro-rtx-6000-24gb",
    "RTX-6000-Ada-48GB": "rtx-6000-ada-48gb",
    "GH200-96GB": "gh200-96gb",
    "H100-NVL-94GB": "h100-nvl-94gb",
    "RTX-2080S-8GB": "rtx-2080-super-8gb",
    "H100-SXM-80GB": "h100-sxm5-80gb",
}

NETWORK_GBPS_PER_GPU = {
    "h100-sxm": 400,
    "h200-sxm": 400,
    "h800": 400,
    "b200": 400,
    "b300": 800,
    "gb200": 400,
    "gb300": 800,
    "a100-sxm": 200,
    "a800": 200,
    "v100-sxm": 100,
    "trainium": 50,
    "tpu": 200,
    "gaudi": 100,
}
DEFAULT_NETWORK_GBPS_PER_GPU = 25

LINKED = re.compile(r"sxm|gb200|gb300|b200|b300|gh200|tpu|trainium|inferentia|gaudi")

FRAMEWORKS: list[tuple[str, str]] = [
    (r"^megatron-bridge", "megatron-bridge"),
    (r"automodel", "nemo-automodel"),
    (r"^nemo megatron", "nemo-megatron"),
    (r"^nemo|nvidia nemo", "nemo"),
    (r"megatron-core", "megatron-core"),
    (r"megatron", "megatron-lm"),
    (r"llm-foundry", "llm-foundry"),
    (r"torchtitan", "torchtitan"),
    (r"torchtune", "torchtune"),
    (r"lit-?gpt generate", "litgpt-generate"),
    (r"lit-?gpt", "litgpt"),
    (r"llama-factory", "llama-factory"),
    (r"tensorrt-llm", "tensorrt-llm"),
    (r"^tensorrt", "tensorrt"),
    (r"vllm", "vllm"),
    (r"llama\.cpp", "llama.cpp"),
    (r"gpt-fast", "gpt-fast"),
    (r"exllama", "exllamav2"),
    (r"mlc", "mlc-llm"),
    (r"neuronx-distributed", "neuronx-distributed"),
    (r"transformers-neuronx", "transformers-neuronx"),
    (r"neuronx?", "torch-neuronx"),
    (r"gpt-neox", "gpt-neox"),
    (r"deepspeed-inference|ds-inference", "deepspeed-inference"),
    (r"deepspeed", "deepspeed"),
    (r"accelerate|hf |transformers|peft|fastchat|llama-recipes|qlora", "transformers"),
    (r"horovod", "tensorflow"),
    (r"ngc pytorch", "pytorch-ngc"),
    (r"mxnet", "mxnet"),
    (r"^tf|tensorflow", "tensorflow"),
    (r"paddle", "paddle"),
    (r"pytorch|torch", "pytorch"),
    (r"hai-llm", "hai-llm"),
]

PRECISIONS: list[tuple[str, str, str, float | None]] = [
    (r"nf4-dq", "bf16", "pure", 4.127),
    (r"nf4", "bf16", "pure", 4.5),
    (r"^(mxfp8|fp8-mx)", "mxfp8", "mixed", None),
    (r"^nvfp4", "nvfp4", "mixed", None),
    (r"^fp8", "fp8", "mixed", None),
    (r"^fp4", "fp4", "mixed", None),
    (r"^tf32", "tf32", "single", None),
    (r"^fp32", "fp32", "single", None),
    (r"^bf16-(pure|true)", "bf16", "pure", None),
    (r"^bf16", "bf16", "mixed", None),
    (r"^(fp16|amp|f16)", "fp16", "mixed", None),
    (r"^int8|^q8", "int8", "mixed", None),
    (r"^int4-g32", "int4", "mixed", 5.0),
    (r"^q4f16", "int4", "mixed", 4.5),
    (r"^(int4|q4|exl2|gptq|awq|gguf|q\d)", "int4", "mixed", None),
]
"""Pattern of a precision in the table → its name in the API, the recipe, and bits per weight where the row has none."""


@dataclass(frozen=True, slots=True)
class RunQuestion:
    """A request body, and the figure of its answer that the row measured."""

    id: str
    kind: str
    body: dict[str, Any]
    quantity: str
    value: float
    group: str
    accelerator: str
    model: str
    extras: dict[str, Any] = field(default_factory=dict)


class UnansweredRun(Exception):
    """The row cannot be put as a question; the sentence says why."""


COUNTED_QUALITIES = "AB"
"""Qualities of rows that count; the figures of others are rounded, recalled or inconsistent."""


def counted_rows(table: Path) -> Iterator[Row]:
    """The rows of a table (CSV) that count."""
    with table.open(encoding="utf-8") as file:
        yield from (row for row in csv.DictReader(file) if row["quality"] in COUNTED_QUALITIES)


def _number(row: Row, column: str) -> float | None:
    text = row[column].strip()
    return float(text) if text else None


def _whole(row: Row, column: str, default: int) -> int:
    return int(_number(row, column) or default)


def gpu_of(row: Row) -> str:
    """The id of the GPU in the catalog."""
    name = row["accelerator"]
    return GPUS.get(name, name.lower())


def _machine_of(row: Row) -> dict[str, Any]:
    gpu = gpu_of(row)
    total = _whole(row, "total_accelerators", 0)
    if not total:
        raise UnansweredRun("The number of accelerators is not given.")
    per_node = min(total, _whole(row, "accelerators_per_node", 8))
    linked = bool(LINKED.search(gpu))
    rate = next((g for start, g in NETWORK_GBPS_PER_GPU.items() if gpu.startswith(start)), DEFAULT_NETWORK_GBPS_PER_GPU)
    body: dict[str, Any] = {"gpu": gpu, "gpu_count": per_node, "network_gbps": rate * per_node}
    if per_node > 1 and not linked:
        body["interconnect"] = "pcie"
    return {"machine": body, "nodes": -(-total // per_node)}


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def _model_of(row: Row, known: Callable[[str], bool]) -> dict[str, Any] | str:
    """The name of the model where the service knows it, and its size otherwise."""
    name = "ssd300-vgg16" if row["model"] == "MLPerf-ssd" and "v1.1" in row["source"] else row["model"]
    if known(name):
        return name
    body: dict[str, Any] = {"name": row["model"], "family": row["family"]}
    parameters, active = _number(row, "params_b"), _number(row, "active_params_b")
    if parameters:
        body["parameters"] = parameters * 1e9
    if active:
        body["active_parameters"] = active * 1e9
    if row["layers"] and row["hidden"] and not row["fwd_gflops_per_sample"]:
        return body | _dimensions_of(row)
    if not row["fwd_gflops_per_sample"] or not parameters:
        raise UnansweredRun("Neither the model's name nor its size is known.")
    return body | {"forward_flops_per_sample": 1e9 * float(row["fwd_gflops_per_sample"])}


DIMENSIONS = {
    "layers": "layers",
    "hidden": "hidden",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "head_dim": "head_size",
    "ffn": "ffn",
    "vocab": "vocabulary",
    "experts": "experts",
    "experts_per_token": "experts_per_token",
}


def _dimensions_of(row: Row) -> dict[str, Any]:
    body: dict[str, Any] = {ours: _whole(row, theirs, 0) for theirs, ours in DIMENSIONS.items() if row[theirs]}
    body["decoder"] = row["family"] not in ("encoder", "vit")
    if "MLA" in row["notes"]:
        body |= {"mla_kv_rank": 512, "mla_rope_size": 64, "mla_value_size": 128}
    return body


def software_of(row: Row) -> dict[str, str]:
    """The framework or engine, with its release."""
    text = row["framework"].strip()
    if "mlcommons/training" in row["source"]:
        return {"framework": "mlperf-training"}
    if "mlcommons/inference" in row["source"]:
        return {"engine": "mlperf-inference"}
    line = next((name for pattern, name in FRAMEWORKS if re.search(pattern, text.lower())), None)
    if line is None:
        return {}
    container = re.search(r"NeMo (2\d\.\d\d)", row["notes"])
    release = re.search(r"(\d+(?:\.\d+)+|(?<=tf)\d)", text.lower())
    if line == "megatron-bridge" and container:
        release = container
    return {"framework": f"{line}=={release[1]}" if release else line}


def _precision_of(row: Row) -> tuple[str, str, float | None]:
    """Name of the precision, recipe, and bits per weight."""
    text, bits = row["precision"].lower(), _number(row, "weight_bits")
    matching = (entry[1:] for entry in PRECISIONS if re.search(entry[0], text))
    name, recipe, known_bits = next(matching, ("bf16", "mixed", None))
    if text.startswith("fp4") and (bits == 4 or (text == "fp4" and "litgpt" in row["framework"])):
        known_bits = 4.5
    return name, recipe, known_bits or bits


CHECKPOINTING = {"full": "full", "selective": "selective", "selective+sp": "selective", "none": "none"}


def _layout_of(row: Row, gpus: int) -> dict[str, Any]:
    tensor, pipeline = _whole(row, "tp", 1), _whole(row, "pp", 1)
    context, expert = _whole(row, "cp", 1), _whole(row, "ep", 1)
    body: dict[str, Any] = {}
    if row["tp"] or row["pp"]:
        if re.search("trainium|inferentia", gpu_of(row)):
            tensor = max(1, tensor // CORES_PER_CHIP)
        tensor = min(tensor, gpus)
        if "litgpt" in row["framework"] and row["kind"] != "infer_throughput" and tensor > 1:
            tensor, body["zero_stage"] = 1, 3  # litgpt shards (FSDP) what the table calls tensor parallel
        data = max(1, gpus // (tensor * pipeline * context))
        body |= {"tensor": tensor, "pipeline": pipeline, "context": context, "expert": min(expert, gpus), "data": data}
    if row["zero_stage"]:
        body["zero_stage"] = _whole(row, "zero_stage", 0)
    if row["micro_batch"]:
        body["micro_batch"] = _whole(row, "micro_batch", 1)
    if row["activation_checkpointing"]:
        body["activation_checkpointing"] = CHECKPOINTING.get(row["activation_checkpointing"], "none")
    if "interleaved" in row["notes"]:
        body["virtual_stages"] = 3 if pipeline < 64 else 1
    return body


CORES_PER_CHIP = 2
"""AWS counts tensor parallelism in NeuronCores, of which a chip of the first two generations has two."""

METHODS = {"lora": "lora", "qlora": "qlora", "adapter": "adapters", "peft_other": "lora"}
NF4_BITS = 4.5
STORED_AS = {4.127: "nf4-dq", 4.5: "nf4", 8.0: "int8"}


def _training_of(row: Row, known: Callable[[str], bool]) -> dict[str, Any]:
    precision, recipe, bits = _precision_of(row)
    work: dict[str, Any] = {
        "task": "training",
        "model": _model_of(row, known),
        "precision": [precision],
        "method": METHODS.get(row["task"], "full"),
        "software": software_of(row),
        "purpose": "finetune" if row["task"] == "finetune_full" else "pretrain",
    }
    if recipe == "pure":
        work["mixed_precision"] = False
    if work["method"] == "qlora" or row["precision"].startswith(("nf4", "int8(")):
        work |= {"method": "qlora", "weight_precision": STORED_AS.get(bits or NF4_BITS, "nf4")}
    return work | _sizes_of(row) | _techniques_of(row)


def _sizes_of(row: Row) -> dict[str, Any]:
    """Lengths, batch and trainable parameters, as far as the row has them."""
    body: dict[str, Any] = {}
    mean = re.search(r"mean ~(\d+) tok", row["notes"])
    if row["input_len"]:
        body["mean_length"] = _number(row, "input_len")
    elif mean and row["unit"].startswith("tokens"):
        body["mean_length"] = float(mean[1])
    if row["seq_len"]:
        body["sequence_length"] = _whole(row, "seq_len", 1)
    if row["global_batch"]:
        body["global_batch_size"] = _whole(row, "global_batch", 1)
    if row["trainable_params_m"]:
        body["trainable_parameters"] = 1e6 * float(row["trainable_params_m"])
    if "paged" in row["optimizer"]:
        body["optimizer"] = "paged_adamw"
    return body


TECHNIQUES: dict[str, dict[str, Any]] = {
    "Packed Dataset": {},
    "Compile": {},
    "Chunked Cross Entropy": {"chunked_loss": True},
    "Activation Checkpointing": {},
    "Fuse optimizer step into backward": {"fused_optimizer": True},
    "Activation Offloading": {"offload_activations": True},
    "8-bit AdamW": {"optimizer": "adamw_8bit"},
    "LoRA": {"fused_optimizer": False, "optimizer": "adamw"},
    "QLoRA": {},
}
"""The order in which a published table adds techniques, each row to the ones before, and the fields that each sets."""

UNPACKED_LENGTH = 256
"""Approximate length that a batch of instructions is padded to before samples are packed."""


def _techniques_of(row: Row) -> dict[str, Any]:
    """The techniques that the row's note counts up to the one it names."""
    if not row["notes"].startswith("cumulative technique"):
        return {}
    name = row["notes"].split(":", 1)[1].strip().lstrip("+ ").strip()
    fields: dict[str, Any] = {}
    for technique, added in TECHNIQUES.items():
        fields |= added
        if technique == name:
            return fields
    return {"sequence_length": UNPACKED_LENGTH, "mean_length": float(UNPACKED_LENGTH)}


def _inference_of(row: Row, known: Callable[[str], bool]) -> dict[str, Any]:
    precision, _, bits = _precision_of(row)
    work: dict[str, Any] = {
        "task": "inference",
        "model": _model_of(row, known),
        "precision": [precision],
        "software": software_of(row),
    }
    if bits:
        work["weight_bits"] = bits
    if row["precision"].startswith(("nf4", "int8(", "fp4")) and "litgpt" in row["framework"]:
        work["precision"] = ["bf16"]  # only weights are stored so
    inputs, outputs = _number(row, "input_len"), _number(row, "output_len")
    work["input_length"] = round(inputs if inputs is not None else _number(row, "seq_len") or 0)
    work["output_length"] = round(outputs or 0)
    batch = row["batch_or_concurrency"]
    if re.fullmatch(r"[\d.]+", batch):
        work["concurrency"] = max(1, round(float(batch)))
    if "mean ~170" in row["notes"]:
        work["mean_length"] = 170.0
    return work


def question_of(row: Row, known: Callable[[str], bool]) -> RunQuestion:
    """The row as a question; `known` says whether the service knows the name of a model. Raises `UnansweredRun`."""
    machine = _machine_of(row)
    gpus = machine["machine"]["gpu_count"] * machine["nodes"]
    inference = row["kind"] == "infer_throughput" or row["task"].startswith("infer")
    work = _inference_of(row, known) if inference else _training_of(row, known)
    layout = _layout_of(row, gpus)
    if "torchtitan" in row["framework"] and layout.get("pipeline", 1) > 1 and "micro_batch" in layout:
        work["global_batch_size"] = layout["micro_batch"] * layout["data"]
        layout["micro_batch"] = 1
    quantity, value, extras = _observed(row, gpus)
    if "amount" in extras:
        work["amount"] = extras["amount"]
    # A run had the layout that people choose; whether it ran out of memory is asked of that one.
    layout["choose"] = "usual" if quantity == "fits" else "usual_if_it_fits"
    body = {"workload": work, **machine, "layout": layout}
    return RunQuestion(
        row["id"], row["kind"], body, quantity, value, row["group"], row["accelerator"], row["model"], extras
    )


RATES = {
    "tokens/s(total)": "tokens_per_second",
    "output tokens/s(total)": "tokens_per_second",
    "decode tokens/s": "tokens_per_second",
    "prefill tokens/s": "prefill_tokens_per_second",
    "samples/s(total)": "samples_per_second",
}
SCALED = {
    "ms time-per-output-token": ("seconds_per_output_token", 1e-3),
    "ms time-to-first-token": ("seconds_to_first_token", 1e-3),
    "GB peak/gpu": ("memory_bytes_per_gpu", 1e9),
    "GiB peak/gpu": ("memory_bytes_per_gpu", 1024.0**3),
    "fits(1)/oom(0)": ("fits", 1.0),
    "mfu_pct": ("model_flops_utilisation", 0.01),
}
DURATIONS = {"minutes": 60.0, "hours": 3600.0, "days": 86400.0, "gpu-hours": 3600.0}


def _observed(row: Row, gpus: int) -> tuple[str, float, dict[str, Any]]:
    """The quantity that the row measured, its value in the units of the answer, and what else the comparison needs."""
    value, unit = float(row["value"]), row["unit"]
    if unit in RATES:
        return RATES[unit], value, {}
    if unit in SCALED:
        name, scale = SCALED[unit]
        return name, value * scale, {}
    if unit == "tokens/s/gpu":
        return "tokens_per_second", value * gpus, {}
    if unit in ("max context tokens", "KV tokens"):
        return "max_context_tokens", value, {"limit": _number(row, "seq_len")}
    if unit.endswith("TFLOP/s/gpu"):
        return "flops_per_second_per_gpu", value * 1e12, {"hardware": unit.startswith("hw")}
    if unit in DURATIONS:
        seconds = value * DURATIONS[unit] / (gpus if unit == "gpu-hours" else 1)
        return "seconds", seconds, {"amount": _amount_of(row)}
    raise UnansweredRun(f"The unit '{unit}' is not one the answer has.")


def _amount_of(row: Row) -> dict[str, float]:
    tokens, samples = _number(row, "train_tokens_b"), _number(row, "train_samples")
    if tokens:
        return {"tokens": tokens * 1e9}
    if samples:
        return {"samples": samples}
    raise UnansweredRun("The amount of work is not given.")
