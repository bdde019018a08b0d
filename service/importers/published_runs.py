"""Turns a line of published_runs.csv into cells of its table.

The file keeps the terms of its sources, next to the names of this catalog (`model_id`, `gpu_id`, `precision_id`,
`stack`, `source_id`). It also has columns that only the measurement of accuracy reads.
"""

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation

COLUMNS = {
    "model": "model_id",
    "gpu": "gpu_id",
    "precision": "precision_id",
    "format": "precision",
    "framework": "stack",
    "software": "framework",
    "source": "source_id",
    "detail": "source_detail",
    "sequence_length": "seq_len",
    "input_length": "input_len",
    "output_length": "output_len",
    "samples": "train_samples",
    "note": "notes",
}
"""Name of a column in the table → its name in the file, where the two differ."""

NOT_IN_THE_TABLE = frozenset({
    "model", "family", "params_b", "active_params_b", "layers", "hidden", "heads", "kv_heads", "ffn", "head_dim",
    "experts", "experts_per_token", "vocab", "fwd_gflops_per_sample", "optimizer", "trainable_params_m",
    "activation_checkpointing", "tp", "pp", "vp", "cp", "ep", "dp", "zero_stage", "accelerator", "reported_mfu_pct",
    "reported_tflops_per_gpu", "source", "group", "kv_precision", "steady", "requests", "statistic", "network_gbps",
    "fit_weight",
})  # fmt: skip

UNITS = {
    "tokens/s(total)": "tokens_per_second",
    "tokens/s/gpu": "tokens_per_second_per_gpu",
    "samples/s(total)": "samples_per_second",
    "output tokens/s(total)": "output_tokens_per_second",
    "decode tokens/s": "decode_tokens_per_second",
    "prefill tokens/s": "prefill_tokens_per_second",
    "ms time-per-output-token": "milliseconds_per_output_token",
    "ms time-to-first-token": "milliseconds_to_first_token",
    "gpu-hours": "gpu_hours",
    "mfu_pct": "mfu_percent",
    "TFLOP/s/gpu": "tflops_per_gpu",
    "model-TFLOP/s/gpu": "model_tflops_per_gpu",
    "hw-TFLOP/s/gpu": "hardware_tflops_per_gpu",
    "scaling efficiency % vs 1 GPU": "scaling_efficiency_percent",
    "GB peak/gpu": "gb_per_gpu",
    "GiB peak/gpu": "gib_per_gpu",
    "max context tokens": "max_context_tokens",
    "fits(1)/oom(0)": "fits",
}


def run_cells(cells: Mapping[str, str]) -> dict[str, str]:
    """Returns the cells of a row by the columns of its table, in their units; text that is not a number stays."""
    rest = dict(cells)
    renamed = {ours: rest.pop(theirs) for ours, theirs in COLUMNS.items() if theirs in rest}
    rest = {name: text for name, text in rest.items() if name not in NOT_IN_THE_TABLE}
    gpu_count, nodes = _gpus_and_nodes(rest.pop("total_accelerators", ""), rest.pop("accelerators_per_node", ""))
    machine, concurrency = rest.pop("instance_type", ""), rest.pop("batch_or_concurrency", "")
    tokens, unit = rest.pop("train_tokens_b", ""), rest.pop("unit", "")
    with suppress(InvalidOperation, OverflowError):
        tokens = tokens and str(float(Decimal(tokens) * 10**9))
    return renamed | {
        **rest,
        "unit": UNITS.get(unit, unit),
        "gpu_count": gpu_count,
        "nodes": nodes,
        "machine": machine if "/" in machine else "",
        "concurrency": concurrency if concurrency.isdecimal() else "",
        "tokens": tokens,
    }


def _gpus_and_nodes(total: str, per_node: str) -> tuple[str, str]:
    """Returns GPUs per node, and nodes. A job smaller than a node has all of its GPUs in one node."""
    if not (total.isdecimal() and per_node.isdecimal()) or "0" in (total, per_node):
        return "", ""
    used = min(int(total), int(per_node))
    # Rounded up: the last node of a job may be partly used.
    return str(used), str(-(-int(total) // used))
