"""Words that engines, benchmarks and launchers use for fields and for values of the API."""

import re
from collections.abc import Collection

from service.domain.catalog.names import near_names

_LIMITS_ON_TIMES = ("max_seconds_to_first_token", "max_seconds_per_output_token", "max_seconds_per_request")

MEANINGS: dict[str, tuple[str, ...]] = {
    # Loads and their limits.
    **dict.fromkeys(("rps", "qps", "rpm", "request_rate", "throughput"), ("requests_per_second",)),
    **dict.fromkeys(("tps", "tok_s"), ("output_tokens_per_second",)),
    "ttft": ("max_seconds_to_first_token",),
    **dict.fromkeys(("tpot", "itl", "tbt"), ("max_seconds_per_output_token",)),
    **dict.fromkeys(("latency", "e2el", "response_time"), ("max_seconds_per_request",)),
    **dict.fromkeys(("slo", "slos", "sla"), _LIMITS_ON_TIMES),
    **dict.fromkeys(("users", "clients", "max_num_seqs", "max_concurrency"), ("concurrency",)),
    **dict.fromkeys(("isl", "prompt_tokens", "prompt_length"), ("input_length",)),
    **dict.fromkeys(("osl", "completion_tokens", "max_tokens", "max_new_tokens"), ("output_length",)),
    **dict.fromkeys(("max_model_len", "context_length", "ctx_len", "num_ctx"), ("input_length", "sequence_length")),
    **dict.fromkeys(("seq_len", "seqlen", "max_seq_length", "max_seq_len", "block_size"), ("sequence_length",)),
    **dict.fromkeys(("acceptance_rate", "draft_acceptance_rate"), ("speculative_acceptance",)),
    **dict.fromkeys(("num_speculative_tokens", "gamma"), ("draft_length",)),
    **dict.fromkeys(("max_loras", "lora_adapters", "num_loras", "loras", "lora_modules"), ("adapters",)),
    "max_lora_rank": ("adapter_rank",),
    **dict.fromkeys(("p50", "p75", "p90", "p95", "p99", "quantile"), ("percentile",)),
    **dict.fromkeys(("autoscaling", "autoscale", "min_instances"), ("min_replicas", "max_instances")),
    **dict.fromkeys(("zones", "azs", "num_zones"), ("availability_zones",)),
    **dict.fromkeys(("zone", "availability_zone", "location", "datacenter"), ("zone", "region")),
    **dict.fromkeys(("replicas", "num_replicas"), ("min_replicas", "max_instances")),
    # Numbers and layouts.
    **dict.fromkeys(("quantization", "quantisation", "quantize", "quant", "dtype"), ("precision", "weight_precision")),
    **dict.fromkeys(("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4"), ("precision",)),
    "kv_cache_dtype": ("kv_cache_precision",),
    **dict.fromkeys(("tp", "tensor_parallel", "tensor_parallel_size", "tp_size"), ("tensor",)),
    **dict.fromkeys(("pp", "pipeline_parallel", "pipeline_parallel_size", "pp_size"), ("pipeline",)),
    **dict.fromkeys(("dp", "data_parallel", "data_parallel_size", "dp_size"), ("data",)),
    **dict.fromkeys(("ep", "expert_parallel", "expert_parallel_size", "ep_size"), ("expert",)),
    **dict.fromkeys(("cp", "context_parallel", "context_parallel_size", "cp_size"), ("context",)),
    # Training.
    **dict.fromkeys(
        ("gradient_accumulation_steps", "gradient_accumulation", "accumulate_grad_batches"),
        ("global_batch_size", "accumulation"),
    ),
    **dict.fromkeys(("per_device_train_batch_size", "micro_batch_size", "train_batch_size"), ("batch_size",)),
    **dict.fromkeys(("gradient_checkpointing", "activation_recomputation", "recompute"), ("activation_checkpointing",)),
    **dict.fromkeys(("lora_rank", "lora_r", "lora_alpha", "rank"), ("trainable_parameters",)),
    **dict.fromkeys(("lora", "qlora", "peft"), ("lora", "method")),
    **dict.fromkeys(("prompt_tuning", "prefix_tuning", "ia3"), ("adapters",)),
    **dict.fromkeys(("full_finetune", "full_finetuning", "full_fine_tuning", "full_parameter"), ("full",)),
    **dict.fromkeys(("cpu_offload", "offload"), ("offload_optimizer", "offload_activations")),
    **dict.fromkeys(("bs", "batchsize"), ("batch_size", "global_batch_size")),
    **dict.fromkeys(("compile", "torch_compile"), ("framework",)),
    **dict.fromkeys(("resolution", "image_size", "frames"), ("sample",)),
    **dict.fromkeys(("params", "num_parameters"), ("parameters",)),
    **dict.fromkeys(("trials", "sweep"), ("concurrent_runs",)),
    "workers": ("vcpus_per_gpu",),
    **dict.fromkeys(("max_steps", "num_steps", "max_iters"), ("steps",)),
    **dict.fromkeys(("num_train_epochs", "num_epochs", "max_epochs"), ("epochs",)),
    **dict.fromkeys(("dataset_size", "num_samples", "images"), ("samples",)),
    "dataset_tokens": ("tokens",),
    # Machines and prices.
    **dict.fromkeys(("gpus", "num_gpus", "n_gpus"), ("min_gpu_count",)),
    **dict.fromkeys(("gpu_type", "gpu_name", "gpu_model", "accelerator", "accelerators"), ("gpu",)),
    **dict.fromkeys(("mig", "vgpu", "fraction"), ("min_gpu_count", "max_gpu_count")),
    **dict.fromkeys(("vram", "hbm"), ("min_gpu_memory_gb", "min_memory_gb")),
    **dict.fromkeys(("ram", "host_memory"), ("min_memory_gib", "memory_gib")),
    **dict.fromkeys(("disk", "ssd", "nvme"), ("min_local_storage_gb",)),
    **dict.fromkeys(("nvlink", "nvswitch"), ("interconnect",)),
    **dict.fromkeys(("efa", "infiniband", "roce", "rdma"), ("rdma",)),
    "bandwidth": ("min_memory_bandwidth_gb_per_second", "min_network_gbps"),
    **dict.fromkeys(("nodes", "num_nodes", "node_count", "nnodes"), ("nodes", "max_nodes", "min_nodes")),
    **dict.fromkeys(("compute_capability", "min_compute_capability"), ("architecture", "min_tensor_core_generation")),
    "driver": ("cuda",),
    **dict.fromkeys(("cloud", "clouds"), ("provider",)),
    **dict.fromkeys(("gdpr", "residency"), ("country", "continent")),
    **dict.fromkeys(("term", "commitment", "commitments", "savings_plan"), ("market", "commitments_held")),
    "budget": ("budget_usd",),
    "dollars": ("usd", "budget_usd"),
    "deadline": ("deadline_hours",),
    **dict.fromkeys(("max_price", "max_hourly_price", "max_cost_per_hour", "hourly_budget"), ("max_usd_per_hour",)),
    **dict.fromkeys(("max_cost", "cost_limit", "max_usd", "monthly_budget", "monthly_cost"), ("budget_usd",)),
    **dict.fromkeys(
        ("budget_usd_per_month", "max_usd_per_month", "usd_per_month", "max_usd_per_million_tokens"), ("budget_usd",)
    ),
    **dict.fromkeys(("max_hours", "time_limit"), ("deadline_hours",)),
    **dict.fromkeys(("spot", "preemptible", "interruptible"), ("market",)),
    # What a list is about.
    **dict.fromkeys(("name", "id"), ("name", "instance", "region", "software", "gpu", "q", "provider")),
    "model": ("model", "gpu", "q"),
    "framework": ("framework", "software"),
    **dict.fromkeys(("q", "search", "query"), ("q", "instance", "gpu", "software")),
    **dict.fromkeys(("country", "continent"), ("region",)),
    **dict.fromkeys(("page", "offset", "skip", "next"), ("cursor",)),
    **dict.fromkeys(("page_size", "per_page", "top", "max_results"), ("limit",)),
    **dict.fromkeys(("sort_by", "order", "order_by"), ("sort",)),
    "date": ("as_of", "measured_on", "observed_on", "released_on"),
    # Values of fields.
    "price": ("cheapest", "usd_per_hour"),
    **dict.fromkeys(("cost", "lowest_cost", "lowest_price"), ("cheapest",)),
    **dict.fromkeys(("speed", "performance"), ("fastest",)),
    **dict.fromkeys(("price_performance", "value", "balanced"), ("best_value",)),
    **dict.fromkeys(("energy", "power", "efficiency"), ("most_efficient",)),
    **dict.fromkeys(
        ("serving", "serve", "embeddings", "reranking", "rerank", "generation", "transcription"),
        ("inference",),
    ),
    **dict.fromkeys(("sft", "fine_tuning", "fine_tune", "finetuning", "instruction_tuning"), ("finetune", "training")),
    "finetune": ("training",),
    "embedding": ("inference", "finetune"),
    **dict.fromkeys(("contrastive", "classification"), ("finetune",)),
    **dict.fromkeys(("reward_modeling", "reward_modelling", "rm"), ("reward",)),
    "preference": ("dpo",),
    **dict.fromkeys(("pretraining", "pre_training", "cpt"), ("pretrain", "training")),
    "pretrain": ("training",),
}
"""Word in lower case with underscores → names of fields and values. Only the names that exist where the word was sent
are suggested."""

_NO_LETTER_OR_DIGIT = re.compile(r"[^a-z0-9]+")


def meant_by(name: str) -> tuple[str, ...]:
    """Returns the names that a word may mean, or else its first part with a meaning (`ttft` of `max_ttft_ms`)."""
    word = _NO_LETTER_OR_DIGIT.sub("_", name.lower())
    parts = (MEANINGS[part] for part in word.split("_") if part in MEANINGS)
    return MEANINGS.get(word) or next(parts, ())


def suggested(name: str, known: Collection[str]) -> tuple[str, ...]:
    """Returns the known names that a word means, else those that look like it."""
    return tuple(meant for meant in meant_by(name) if meant in known) or near_names(name, known)
