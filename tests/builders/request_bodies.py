"""Bodies of POST /recommend and POST /estimate, and changes to them."""

import copy
from typing import Any

Body = dict[str, Any]

TRAINING: Body = {
    "workload": {
        "task": "training",
        "model": "llama-3-8b",
        "precision": ["bf16"],
        "sequence_length": 4096,
        "global_batch_size": 64,
        "amount": {"tokens": 1e9},
        "software": {"framework": "torchtitan"},
    },
    "machine": "aws/p4d.24xlarge",
}
SERVING: Body = {
    "workload": {
        "task": "inference",
        "model": "llama-3-8b",
        "input_length": 512,
        "output_length": 128,
        "software": {"engine": "vllm==0.6.0"},
    },
    "machine": {"gpu": "h100-sxm5-80gb", "usd_per_hour": 3.0},
}
HF_LLAMA: Body = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
"""The config.json of Llama 3 8B."""
NETWORK: Body = {
    "workload": {
        "task": "training",
        "model": "resnet-50",
        "global_batch_size": 256,
        "amount": {"samples": 1e6, "epochs": 2},
    },
    "machine": "aws/g5.12xlarge",
}


def question(task: str = "training", **parts: Any) -> Body:
    workload = {"task": task, **parts.pop("workload", {})}
    return {"workload": workload, "constraints": parts.pop("constraints", {}), "limit": 100, **parts}


def changed(body: Body, **parts: Any) -> Body:
    """The body with other values, paths written with `__`; None takes a value away."""
    made = copy.deepcopy(body)
    for path, value in parts.items():
        *above, last = path.split("__")
        place = made
        for step in above:
            place = place.setdefault(step, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return made


def relaxed(body: Body, to: dict[str, Any]) -> Body:
    """The question with a relaxation sent back literally: paths into the question, else constraints."""
    changed = copy.deepcopy(body)
    for name, value in to.items():
        *parents, last = name.split(".") if "." in name else ("constraints", name)
        inner = changed
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return changed
