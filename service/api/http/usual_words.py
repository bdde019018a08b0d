"""Words that engines, benchmarks and launchers use for fields and for values of the API."""

import re
from collections.abc import Collection

from service.domain.catalog.names import near_names

_LIMITS_ON_TIMES = "max_seconds_to_first_token max_seconds_per_output_token max_seconds_per_request"

_TABLE = {
    # Loads and their limits.
    "rps qps rpm request_rate": "requests_per_second",
    "throughput": "requests_per_second fastest",
    "tps tok_s": "output_tokens_per_second",
    "ttft": "max_seconds_to_first_token",
    "tpot itl tbt": "max_seconds_per_output_token",
    "min_tokens_per_second tokens_per_second_per_user tps_per_user": "max_seconds_per_output_token",
    "min_tokens_per_second_per_user": "max_seconds_per_output_token",
    "gpu_memory_utilization mem_fraction_static": "memory_confidence",
    "utilization utilisation target_utilization target_utilisation": "headroom",
    "latency": "max_seconds_per_request fastest",
    "e2el response_time": "max_seconds_per_request",
    "slo slos sla": _LIMITS_ON_TIMES,
    "users clients max_num_seqs max_concurrency requests_in_flight in_flight": "concurrency",
    "isl prompt_tokens prompt_length": "input_length",
    "osl completion_tokens max_tokens max_new_tokens": "output_length",
    "max_model_len context_length ctx_len num_ctx": "input_length sequence_length",
    "seq_len seqlen max_seq_length max_seq_len block_size": "sequence_length",
    "acceptance_rate draft_acceptance_rate eagle eagle3 medusa mtp ngram": "speculative_acceptance",
    "num_speculative_tokens gamma": "draft_length",
    "max_loras lora_adapters num_loras loras lora_modules": "adapters",
    "max_lora_rank": "adapter_rank",
    "p50 p75 p90 p95 p99 quantile": "percentile",
    "autoscaling autoscale min_instances": "min_replicas max_instances",
    "zones azs num_zones": "availability_zones",
    "images_per_request num_images image_count vision_tokens": "image_tokens",
    "zone availability_zone location datacenter city": "zone region",
    "replicas num_replicas": "min_replicas max_instances",
    # Numbers and layouts.
    "quantization quantisation quantize quant dtype": "precision weight_precision",
    "fp64 fp32 tf32 fp16 bf16 fp8 int8 int4": "precision",
    "kv_cache_dtype": "kv_cache_precision",
    "tp tensor_parallel tensor_parallel_size tp_size tensor_model_parallel_size": "tensor",
    "pp pipeline_parallel pipeline_parallel_size pp_size pipeline_model_parallel_size": "pipeline",
    "dp data_parallel data_parallel_size dp_size": "data",
    "ep expert_parallel expert_parallel_size ep_size expert_model_parallel_size": "expert",
    "cp context_parallel context_parallel_size cp_size": "context",
    # A config.json without its object.
    "model_type architectures torch_dtype num_hidden_layers num_attention_heads": "huggingface_config",
    "num_key_value_heads hidden_size intermediate_size vocab_size rope_theta": "huggingface_config",
    # Training.
    "gradient_accumulation_steps gradient_accumulation accumulate_grad_batches": "global_batch_size accumulation",
    "per_device_train_batch_size micro_batch_size train_batch_size": "batch_size",
    "gradient_checkpointing activation_recomputation recompute": "activation_checkpointing",
    "cache_latents cache_text_encoder_outputs precompute_embeddings": "encoders_in_training",
    "lora_rank lora_r lora_alpha rank": "trainable_parameters",
    "load_in_4bit load_in_8bit": "method weight_precision",
    "adapter": "method adapters",
    "packing sample_packing": "mean_length",
    "freeze frozen": "full trainable_parameters",
    "fsdp deepspeed accelerate": "zero_stage framework",
    "sequence_parallel": "tensor context",
    "num_layers_per_virtual_pipeline_stage": "virtual_stages",
    "lora qlora peft": "lora method",
    "dora rslora loha lokr": "lora",
    "prompt_tuning prefix_tuning prefix bitfit ia3 textual_inversion": "adapters",
    "full_finetune full_finetuning full_fine_tuning full_parameter galore apollo dreambooth": "full",
    "cpu_offload offload offload_param": "offload_parameters offload_optimizer offload_activations",
    "bs batchsize": "batch_size global_batch_size",
    "compile torch_compile": "framework",
    "resolution image_size imgsz img_size crop_size frames": "sample",
    "params num_parameters": "parameters",
    "trials sweep": "concurrent_runs",
    "workers": "vcpus_per_gpu",
    "max_steps num_steps max_iters": "steps",
    "num_train_epochs num_epochs max_epochs": "epochs",
    "amount": "samples tokens",
    "dataset_size num_samples images": "samples",
    "dataset_tokens": "tokens",
    # Machines and prices.
    "num_gpus n_gpus": "min_gpu_count",
    "gpus": "gpu_count gpu min_gpu_count",
    "gpu_type gpu_name gpu_model accelerator accelerators": "gpu",
    "mig vgpu fraction": "min_gpu_count max_gpu_count",
    "vram hbm": "min_gpu_memory_gb min_memory_gb",
    "ram host_memory": "min_memory_gib memory_gib",
    "disk ssd nvme": "min_local_storage_gb",
    "size gb size_gb size_gib capacity": "gib",
    "nvlink nvswitch": "interconnect",
    "efa infiniband roce rdma": "rdma",
    "bandwidth": "min_memory_bandwidth_gb_per_second min_network_gbps",
    "nodes num_nodes node_count nnodes": "nodes max_nodes min_nodes",
    "compute_capability min_compute_capability": "architecture min_tensor_core_generation",
    "driver": "cuda",
    "cuda cuda_version": "framework",
    "cloud clouds": "provider",
    "gdpr residency": "country continent",
    "term commitment commitments savings savings_plan savings_plans": "market commitments_held reserved",
    "budget": "budget_usd",
    "dollars": "usd budget_usd",
    "deadline": "deadline_hours",
    "max_price max_hourly_price max_cost_per_hour hourly_budget min_price min_usd_per_hour": "max_usd_per_hour",
    "max_cost cost_limit max_usd monthly_budget monthly_cost": "budget_usd",
    "budget_usd_per_month max_usd_per_month usd_per_month": "budget_usd",
    "usd_per_million_tokens cost_per_million_tokens price_per_million_tokens": "max_usd_per_million_tokens budget_usd",
    "max_usd_per_million_output_tokens max_usd_per_token": "max_usd_per_million_tokens",
    "max_hours time_limit": "deadline_hours",
    "spot preemptible preemptable interruptible low_priority": "market spot",
    # Hardware, and the code for it.
    "habana hpu": "intel synapse gaudi",
    "annapurna annapurna_labs": "aws",
    "radeon instinct ati hip": "amd rocm",
    "geforce tesla quadro": "nvidia cuda",
    "ascend hisilicon": "huawei cann",
    "libtpu jetstream": "xla vllm",
    "neuroncore": "aws neuron",
    "sm_35 sm_37": "kepler",
    "sm_50 sm_52": "maxwell",
    "sm_60 sm_61": "pascal",
    "sm_70": "volta",
    "sm_75": "turing",
    "sm_80 sm_86": "ampere",
    "sm_89": "ada-lovelace",
    "sm_90": "hopper",
    "sm_100 sm_120": "blackwell",
    "sm_103": "blackwell-ultra",
    "gfx90a": "cdna-2",
    "gfx942": "cdna-3",
    "gfx950": "cdna-4",
    "eu": "country europe",
    # What a list is about.
    "name id": "name instance region software gpu q provider",
    "model": "model gpu q",
    "framework": "framework software",
    "q search query": "q instance gpu software",
    "country continent": "region",
    "page offset skip next": "cursor",
    "page_size per_page top max_results": "limit",
    "sort_by order order_by": "sort",
    "date": "as_of measured_on observed_on released_on",
    # Addresses.
    "offers pricing": "/prices",
    "machines vms instance_types": "/instances",
    # Values of fields.
    "price": "cheapest usd_per_hour max_usd_per_hour",
    "cost lowest_cost lowest_price": "cheapest usd",
    "hours": "hours_on deadline_hours",
    "speed performance": "fastest",
    "price_performance value balanced": "best_value",
    "energy power efficiency": "most_efficient",
    "serving serve embeddings reranking rerank generation transcription": "inference",
    "sft fine_tuning fine_tune finetuning instruction_tuning": "finetune training full lora",
    "finetune": "training",
    "embedding": "inference finetune",
    "contrastive classification": "finetune",
    "reward_modeling reward_modelling rm": "reward",
    "preference": "dpo",
    "pretraining pre_training cpt": "pretrain training",
    "pretrain": "training",
}
"""Words in lower case with underscores → names of fields and values and addresses, each list separated by spaces."""

MEANINGS = {word: tuple(meanings.split()) for words, meanings in _TABLE.items() for word in words.split()}
"""The meanings of each word. Only the names that exist where the word was sent are suggested."""

_NO_LETTER_OR_DIGIT = re.compile(r"[^a-z0-9]+")


def meant_by(name: str) -> tuple[str, ...]:
    """Returns the names that a word may mean, or else its first part with a meaning (`ttft` of `max_ttft_ms`)."""
    word = _NO_LETTER_OR_DIGIT.sub("_", name.lower())
    parts = (MEANINGS[part] for part in word.split("_") if part in MEANINGS)
    return MEANINGS.get(word) or next(parts, ())


def suggested(name: str, known: Collection[str]) -> tuple[str, ...]:
    """Returns the known names that a word means, else those that look like it.

    A word for a limit of a column, such as `vram` for `min_gpu_memory_gb`, also means the column.
    """
    meant = meant_by(name)
    columns = (word.removeprefix("min_").removeprefix("max_") for word in meant)
    return tuple(dict.fromkeys(word for word in (*meant, *columns) if word in known)) or near_names(name, known)
