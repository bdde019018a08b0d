"""A row of a table of published runs, as a question to `POST /estimate` and the figure to compare its answer with.

This file knows the fields of the API and little else of the service.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.domain.errors import Unusable

Row = dict[str, str]

NETWORK_GBPS_PER_GPU = {
    "h100-sxm": 400,
    "h200-sxm": 400,
    "h20-": 400,
    "h800": 400,
    "b200": 400,
    "b300": 800,
    "gb200": 400,
    "gb300": 800,
    "mi3": 400,
    "a100-sxm": 200,
    "a800": 200,
    "v100-sxm": 100,
    "trainium": 50,
    "tpu": 200,
    "gaudi": 100,
}
DEFAULT_NETWORK_GBPS_PER_GPU = 25

LINKED = re.compile(r"sxm|gb200|gb300|b200|b300|gh200|^h20-|^mi(250|3)|tpu|trainium|inferentia|gaudi")
"""GPUs with direct links to each other (NVLink, Infinity Fabric, ICI, NeuronLink); all others are connected by PCIe."""

PRECISIONS: tuple[tuple[str, str, float | None], ...] = (
    (r"nf4-dq", "bf16", 4.127),
    (r"nf4", "bf16", 4.5),
    (r"^(mxfp8|fp8-mx)", "mxfp8", None),
    (r"^nvfp4", "nvfp4", None),
    (r"^mxfp4", "mxfp4", None),
    (r"^fp8", "fp8", None),
    (r"^fp4", "fp4", None),
    (r"^tf32", "tf32", None),
    (r"^fp32", "fp32", None),
    (r"^bf16", "bf16", None),
    (r"^(fp16|amp|f16)", "fp16", None),
    (r"^int8|^q8", "int8", None),
    (r"^int4-g32", "int4", 5.0),
    (r"^q4f16", "int4", 4.5),
    (r"^(int4|q4|exl2|gptq|awq|gguf|q\d)", "int4", None),
)
"""Pattern of a precision in the table → its name in the API, and bits per weight with the scales of their groups."""

OF_BITSANDBYTES = re.compile(r"^nf4(-dq)?")
"""Precisions whose weights bitsandbytes stores and expands, in the names of the API."""

WITHOUT_MASTER_WEIGHTS = re.compile(r"nf4|^bf16-(pure|true)")
"""Precisions of runs that keep no fp32 copy of the weights."""


@dataclass(frozen=True, slots=True)
class RunQuestion:
    """A request body, and the figure of the answer that the row measured."""

    row: Row
    body: dict[str, Any]
    quantity: str
    value: float
    """The published figure, in the units of the answer."""
    extras: dict[str, Any]
    """The amount of work behind a duration, and whether FLOPs are those of the hardware."""


class UnansweredRun(Exception):
    """The row cannot be put as a question; the sentence says why."""


COUNTED_QUALITIES = "AB"
"""Qualities of rows that count; the figures of others are rounded, recalled or inconsistent."""


NEEDED_COLUMNS = frozenset({
    "kind", "task", "model", "family", "precision", "accelerator", "total_accelerators", "framework", "value", "unit",
    "source", "quality", "group", "notes",
})  # fmt: skip
"""Columns that every table of published runs has; others may be missing."""
OTHER_COLUMNS = (
    "seq_len", "input_len", "output_len", "weight_bits", "optimizer", "trainable_params_m", "activation_checkpointing",
    "micro_batch", "global_batch", "batch_or_concurrency", "tp", "pp", "vp", "cp", "ep", "dp", "zero_stage",
    "accelerators_per_node", "network_gbps", "train_tokens_b", "train_samples", "kv_precision", "steady", "requests",
    "statistic", "fit_weight",
)  # fmt: skip

KV_PRECISIONS = ("bf16", "fp16", "fp8", "int8")
TOKENS_OF_IMAGES = re.compile(r"(\d+) tokens of images")
"""How the notes of a row count the tokens of a prompt that are images."""
REQUESTS = re.compile(r"(\d+) (?:requests|prompts)")
"""How the notes of a row count the requests of a benchmark."""
TIMES_OF_A_TOKEN = {"ttft_ms": "ms time-to-first-token", "tpot_ms": "ms time-per-output-token"}
"""Beginning of a column, such as ttft_ms_p50 → the unit of its figures."""


def counted_rows(table: Path) -> Iterator[Row]:
    """The rows of a table (CSV) that count.

    A table without the names of this catalog (`gpu_id`, `model_id`, `stack`) is read by the names of its source.
    Raises `Unusable` for a file that is no such table.
    """
    with table.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.DictReader(file)
        if missing := NEEDED_COLUMNS.difference(lines.fieldnames or ()):
            raise Unusable(
                f"{table} is not a table of published runs: it lacks the columns {', '.join(sorted(missing))}."
            )
        for line in lines:
            if line["quality"] in COUNTED_QUALITIES:
                row = dict.fromkeys(OTHER_COLUMNS, "") | line
                yield from [row] if "gpu_id" in line else _in_our_names(row)


def _in_our_names(row: Row) -> Iterator[Row]:
    """Yields a row under the names of this catalog, and a further row for each time per token that it states."""
    # The names of GPUs, models and frameworks are read by the service; what follows a release or a comma is a remark.
    row["gpu_id"], row["model_id"] = row["accelerator"].lower(), row["model"]
    row["stack"] = re.split(r"\s+v?\d|\s*[(,/;]", row["framework"], maxsplit=1)[0].strip().lower()
    row["kv_precision"] = row["kv_precision"] if row["kv_precision"] in KV_PRECISIONS else ""
    requests = REQUESTS.search(row["notes"])
    row["requests"] = requests[1] if requests else ""
    yield row
    # All clients of a benchmark begin at once: a mean has their first wait, whose share follows from the requests.
    statistics = ("p50", "mean") if row["requests"] else ("p50",)
    for column, unit in TIMES_OF_A_TOKEN.items() if row["steady"] == "1" else ():
        if statistic := next((name for name in statistics if row.get(f"{column}_{name}")), None):
            yield row | {"unit": unit, "value": row[f"{column}_{statistic}"], "statistic": statistic}


def _number(row: Row, column: str) -> float | None:
    text = row[column].strip()
    return float(text) if text else None


def _model_of(row: Row) -> str:
    # Until version 1.1 the benchmark of that name had ResNet-34 and images of 300 pixels.
    return "ssd300-resnet34" if row["model_id"] == "mlperf-ssd" and "v1.1" in row["source"] else row["model_id"]


def _whole(row: Row, column: str, default: int) -> int:
    return int(_number(row, column) or default)


def _machine_of(row: Row) -> dict[str, Any]:
    gpu = row["gpu_id"]
    # Tables of clusters state the total; where they omit the GPUs of a node, eight are assumed.
    total = _whole(row, "total_accelerators", 0)
    if not total:
        raise UnansweredRun("The number of accelerators is not given.")
    per_node = min(total, _whole(row, "accelerators_per_node", 8))
    rate = next((g for start, g in NETWORK_GBPS_PER_GPU.items() if gpu.startswith(start)), DEFAULT_NETWORK_GBPS_PER_GPU)
    network = _number(row, "network_gbps") or rate * per_node
    body: dict[str, Any] = {"gpu": gpu, "gpu_count": per_node, "network_gbps": network}
    if per_node > 1 and not LINKED.search(gpu):
        body["interconnect"] = "pcie"
    return {"machine": body, "nodes": -(-total // per_node)}


def software_of(row: Row) -> dict[str, str]:
    """The framework or engine, with its release where the row gives one."""
    stack = row["stack"]
    if not stack:
        return {}
    # Harness releases of MLPerf say nothing about the submitter's own code.
    if stack.startswith("mlperf"):
        return {"framework": stack}
    if stack == "pytorch" and "DeepLearningExamples" in row["source"]:
        stack = "deeplearningexamples"
    if row["framework"].startswith("Torch "):
        stack = "torch7"
    release = re.search(r"(\d+(?:\.\d+)+|(?<=tf)\d)", row["framework"].lower())
    if stack == "megatron-bridge":
        release = re.search(r"NeMo (2\d\.\d\d(?:\.\d\d)?)", row["notes"]) or release
    return {"framework": f"{stack}=={release[1]}" if release else stack}


def _precision_of(row: Row) -> tuple[str, float | None]:
    """Name of the precision, and bits per weight."""
    text, bits = row["precision"].lower(), _number(row, "weight_bits")
    matching = (entry[1:] for entry in PRECISIONS if re.search(entry[0], text))
    name, bits_with_scales = next(matching, ("bf16", None))
    if text.startswith("fp4") and (bits == 4 or (text == "fp4" and "litgpt" in row["framework"])):
        bits_with_scales = 4.5
    return name, bits_with_scales or bits


CORES_PER_CHIP = 2
"""AWS counts tensor parallelism in NeuronCores, of which a chip of the first two generations has two."""


def _layout_of(row: Row, gpus: int) -> dict[str, Any]:
    tensor, pipeline = _whole(row, "tp", 1), _whole(row, "pp", 1)
    context, expert = _whole(row, "cp", 1), _whole(row, "ep", 1)
    body: dict[str, Any] = {}
    if row["tp"] or row["pp"] or row["cp"]:
        if re.search("trainium|inferentia", row["gpu_id"]):
            tensor = max(1, tensor // CORES_PER_CHIP)
        tensor = min(tensor, gpus)
        if "litgpt" in row["framework"] and row["kind"] != "infer_throughput" and tensor > 1:
            tensor, body["zero_stage"] = 1, 3  # litgpt shards (FSDP) what the table calls tensor parallel
        if _whole(row, "dp", 1) * tensor * pipeline > gpus:
            tensor = max(1, tensor // _whole(row, "dp", 1))  # attention is replicated over its tensor group
            expert = max(expert, gpus)
        # Tables give the model-parallel degrees only: the rest of the GPUs are copies.
        data = max(1, gpus // (tensor * pipeline * context))
        body |= {"tensor": tensor, "pipeline": pipeline, "context": context, "expert": min(expert, gpus), "data": data}
    body |= {name: _whole(row, name, 0) for name in ("zero_stage", "micro_batch") if row[name]}
    if row["activation_checkpointing"]:
        # "+sp" is sequence parallelism, for which a layout has no field.
        body["activation_checkpointing"] = row["activation_checkpointing"].removesuffix("+sp")
    if row["vp"]:
        body["virtual_stages"] = _whole(row, "vp", 1)
    return body


METHODS = {"lora": "lora", "qlora": "qlora", "adapter": "adapters", "peft_other": "lora", "dpo_qlora": "qlora"}
PURPOSES = {"finetune_full": "finetune", "dpo": "dpo", "dpo_qlora": "dpo"}
NF4_BITS = 4.5
STORED_AS = {4.127: "nf4-dq", 4.5: "nf4", 8.0: "int8"}


def _training_of(row: Row) -> dict[str, Any]:
    precision, bits = _precision_of(row)
    work: dict[str, Any] = {
        "task": "training",
        "model": _model_of(row),
        "precision": [precision],
        "method": METHODS.get(row["task"], "full"),
        "software": software_of(row),
        "purpose": PURPOSES.get(row["task"], "pretrain"),
    }
    if WITHOUT_MASTER_WEIGHTS.search(row["precision"].lower()):
        work["mixed_precision"] = False
    elif row["precision"].lower().endswith("-amp"):
        work["mixed_precision"] = True
    if work["method"] == "qlora" or row["precision"].startswith(("nf4", "int8(")):
        work |= {"method": "qlora", "weight_precision": STORED_AS.get(bits or NF4_BITS, "nf4")}
    if "attention not fused" in row["notes"]:
        work["flash_attention"] = False
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
"""Techniques in the order in which a published table adds them, and the fields of the request that each sets."""

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


LONGEST_ANSWER_OF_SHAREGPT = 1000
"""Approximate tokens of the longest of some hundred answers of ShareGPT, whose mean is 200."""


def _served_format_of(row: Row) -> dict[str, Any]:
    """The precision, and the bits per weight where the precision does not give them."""
    if stored := OF_BITSANDBYTES.search(row["precision"].lower()):
        return {"precision": [stored[0]]}
    precision, bits = _precision_of(row)
    if row["precision"].startswith(("int8(", "fp4")) and "litgpt" in row["framework"]:
        precision = "bf16"  # only weights are stored so
    return {"precision": [precision]} | ({"weight_bits": bits} if bits else {})


def _inference_of(row: Row) -> dict[str, Any]:
    work: dict[str, Any] = {
        "task": "inference",
        "model": _model_of(row),
        "software": software_of(row),
        **_served_format_of(row),
    }
    # A row without lengths is of a model that fixes them, or of work whose figure does not depend on them.
    for name, length in (
        ("input", _number(row, "input_len") or _number(row, "seq_len")),
        ("output", _number(row, "output_len")),
    ):
        if length:
            work[f"{name}_length"] = round(length)
    batch = row["batch_or_concurrency"]
    if re.fullmatch(r"[\d.]+", batch):
        work["concurrency"] = max(1, round(float(batch)))
    if "mean ~170" in row["notes"]:
        work["mean_length"] = 170.0
    if images := TOKENS_OF_IMAGES.search(row["notes"]):
        work["image_tokens"] = float(images[1])
    if row["kv_precision"]:
        work["kv_cache_precision"] = row["kv_precision"]
    if row["requests"] and row["steady"] == "0":
        work["amount"] = {"samples": float(row["requests"])}
        if re.search("ShareGPT|burst", row["notes"]):
            work["longest_output_length"] = LONGEST_ANSWER_OF_SHAREGPT
    return work


def question_of(row: Row) -> RunQuestion:
    """The row as a question. Raises `UnansweredRun` where the row lacks what the question needs."""
    machine = _machine_of(row)
    gpus = machine["machine"]["gpu_count"] * machine["nodes"]
    inference = row["kind"] == "infer_throughput" or row["task"].startswith("infer")
    work = _inference_of(row) if inference else _training_of(row)
    layout = _layout_of(row, gpus)
    if "torchtitan" in row["framework"] and layout.get("pipeline", 1) > 1 and "micro_batch" in layout:
        # torchtitan cuts the local batch, which its tables give, into pipeline micro-batches of one sample.
        work["global_batch_size"] = layout["micro_batch"] * layout["data"]
        layout["micro_batch"] = 1
    quantity, value, extras = _observed(row, gpus)
    if "amount" in extras:
        work["amount"] = extras["amount"]
    # A run had the layout that people choose; whether it ran out of memory is asked of that one.
    layout["choose"] = "usual" if quantity == "fits" else "usual_if_it_fits"
    return RunQuestion(row, {"workload": work, **machine, "layout": layout}, quantity, value, extras)


QUANTITIES: dict[str, tuple[str, float]] = {
    "tokens/s(total)": ("tokens_per_second", 1.0),
    "output tokens/s(total)": ("tokens_per_second", 1.0),
    "decode tokens/s": ("decoded_tokens_per_second", 1.0),
    "prefill tokens/s": ("prefill_tokens_per_second", 1.0),
    "samples/s(total)": ("samples_per_second", 1.0),
    "ms time-per-output-token": ("seconds_per_output_token", 1e-3),
    "ms time-to-first-token": ("seconds_to_first_token", 1e-3),
    "GB peak/gpu": ("memory_bytes_per_gpu", 1e9),
    "GiB peak/gpu": ("memory_bytes_per_gpu", 1024.0**3),
    "fits(1)/oom(0)": ("fits", 1.0),
    "max context tokens": ("max_context_tokens", 1.0),
    "mfu_pct": ("model_flops_utilisation", 0.01),
    "TFLOP/s/gpu": ("flops_per_second_per_gpu", 1e12),
    "model-TFLOP/s/gpu": ("flops_per_second_per_gpu", 1e12),
    "hw-TFLOP/s/gpu": ("flops_per_second_per_gpu", 1e12),
    "minutes": ("seconds", 60.0),
    "hours": ("seconds", 3600.0),
    "days": ("seconds", 86400.0),
}
"""Unit in the table → the quantity of the answer, and the factor to its units."""


def _observed(row: Row, gpus: int) -> tuple[str, float, dict[str, Any]]:
    """The quantity that the row measured, its value in the units of the answer, and what else the comparison needs."""
    value, unit = float(row["value"]), row["unit"]
    per_gpu = {"tokens/s/gpu": ("tokens_per_second", gpus), "gpu-hours": ("seconds", 3600.0 / gpus)}
    if unit not in per_gpu and unit not in QUANTITIES:
        raise UnansweredRun(f"The unit '{unit}' is not one the answer has.")
    quantity, factor = per_gpu.get(unit) or QUANTITIES[unit]
    extras: dict[str, Any] = {"hardware": unit.startswith("hw")}
    if quantity == "seconds":
        extras = {"amount": _amount_of(row)}
    elif row["statistic"] == "mean" and row["requests"]:
        extras["first_wave"] = float(row["batch_or_concurrency"]) / float(row["requests"])
    return quantity, value * factor, extras


def _amount_of(row: Row) -> dict[str, float]:
    samples = "pairs" if row["task"].startswith("dpo") else "samples"
    for name, column, factor in (("tokens", "train_tokens_b", 1e9), (samples, "train_samples", 1.0)):
        if amount := _number(row, column):
            return {name: amount * factor}
    raise UnansweredRun("The amount of work is not given.")
