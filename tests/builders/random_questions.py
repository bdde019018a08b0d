"""Valid questions of every kind, drawn at random in the words of the service itself.

Every field of `POST /recommend` is among them, alone and together; whatever is drawn must be answered with 200.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from fastapi.testclient import TestClient

from service.domain.jobs.stacks import software_called
from tests.api.answers import all_items

TASKS = ("training", "inference", "hpc", "graphics", "development", "classical", "sequential")
OBJECTIVES = ("cheapest", "fastest", "best_value", "most_efficient")
TERMS = ("usd", "hours", "samples_per_second", "samples_per_usd", "joules", "risk")
OPTIMIZERS = ("adamw", "adam", "sgd", "AdamW")
FORMATS = ("int8", "int4", "fp8", "nf4", "bf16", "fp16")
FRAMEWORKS = (
    "pytorch",
    "pytorch>=2.3",
    "tensorflow",
    "torchtitan",
    "jax",
    "mxnet",
    "an unheard-of one",
    "deepspeed 0.14",
)
ENGINES = ("vllm", "vllm==0.6.0", "tensorrt-llm", "sglang", "llama.cpp", "tgi<2")
SWITCHES = ("mixed_precision", "flash_attention", "chunked_loss", "fused_optimizer", "offload_activations")
SERVICES = ("sagemaker-training", "sagemaker-managed-spot-training")
PLATFORMS = ("cuda", "rocm", "xla", "neuron", "synapse", "cann", "cpu")
LIBRARIES = ("sagemaker-model-parallel", "flash-attention", "bitsandbytes", "nccl")
RANGES: Mapping[str, tuple[float, ...]] = {
    "gpu_count": (0, 0.125, 0.5, 1, 2, 4, 8, 16, 1e6),
    "gpu_memory_gb": (0, 8, 11, 12, 16, 24, 40, 80, 141, 1e6),
    "total_gpu_memory_gb": (0, 16, 96, 320, 640, 1e6),
    "vcpus": (0, 2, 4, 8, 96, 192, 1e6),
    "memory_gib": (0, 4, 16, 61, 64.1, 1152, 1e6),
    "network_gbps": (0, 10, 25, 100, 400, 3200),
    "local_storage_gb": (0, 100, 900, 7600),
    "tflops": (0, 1, 19.5, 312, 2496, 1e6),
    "memory_bandwidth_gb_per_second": (0, 160, 300, 900, 2039, 8000),
    "vcpus_per_gpu": (0, 2, 4, 8, 12, 64),
}
DAYS = (None, None, None, None, "2017-08-01", "2019-01-15", "2021-05-16", "2022-02-17", "2023-06-07", "2026-01-31")
MODELS: tuple[Mapping[str, Any], ...] = (
    {"parameters": 7e9, "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocabulary": 32000},
    {"name": "small", "layers": 12, "hidden": 768, "heads": 12, "family": "encoder", "decoder": False},
    {"parameters": 25.6e6, "forward_flops_per_sample": 8.2e9, "family": "cnn"},
    {"parameters": 5e8, "active_parameters": 1e8, "forward_flops_per_sample": 1e9},
    {"layers": 24, "hidden": 2048, "heads": 16, "ffn": 5632, "experts": 8, "experts_per_token": 2, "vocabulary": 32000},
    {"layers": 48, "hidden": 6144, "heads": 48, "kv_heads": 4, "gated": True, "tied": False, "context_tokens": 8192},
    {
        "name": "from a config",
        "huggingface_config": {
            "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
            "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048,
        },
    },
)  # fmt: skip


COMMITMENTS = ("reserved", "1y_committed_use", "3y_committed_use", "1y_reserved_all_upfront", "capacity_block")
"""The market of commitments, and terms that are sold today."""


def _reads_tokens(model: Mapping[str, Any]) -> bool:
    return "layers" in model or "huggingface_config" in model


@dataclass(frozen=True)
class Vocabulary:
    """The names that the service knows, by the field that takes them."""

    words: Mapping[str, Sequence[str]]
    models: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, client: TestClient) -> "Vocabulary":
        """Names that are known on every day of `DAYS`: instance types and families of the oldest are in all of them."""
        gpus = all_items(client, "/gpus")
        oldest = all_items(client, f"/instances?as_of={min(filter(None, DAYS))}&lifecycle=available,retired,preview")
        words = {
            "provider": [item["id"] for item in all_items(client, "/providers")],
            "region": sorted({item["id"] for item in all_items(client, "/regions")}),
            "seller_class": ["hyperscaler", "neocloud", "marketplace", "reseller"],
            "country": sorted({item["country"] for item in all_items(client, "/regions") if item["country"]}),
            "continent": ["asia", "europe", "north america"],
            "instance": [f"{item['provider']}/{item['name']}" for item in oldest],
            "family": sorted({item["family"] for item in oldest}),
            "gpu": [item["id"] for item in gpus] + ["a100", "V100", "Tesla T4", "rtx 3090"],
            "gpu_vendor": sorted({item["vendor"] for item in gpus}),
            "gpu_kind": sorted({item["kind"] for item in gpus}),
            "architecture": sorted({item["architecture"] for item in gpus}),
            "cpu_architecture": ["x86_64"],
            "cpu_vendor": ["intel", "Intel"],
            "interconnect": ["none", "pcie", "nvlink", "nvswitch", "infinity_fabric", "ici", "neuronlink", "roce"],
            "market": ["on_demand", "spot", *COMMITMENTS],
            "lifecycle": ["announced", "preview", "available", "closed_to_new", "retired"],
            "framework": ["cuda", "pytorch"],
            "precision": [item["id"] for item in all_items(client, "/precisions")],
            "exclude": ["aws", "g2", "aws/g2.2xlarge", "a100", "gcp"],
        }
        # The inference of a model whose work is unknown is refused.
        known = (
            item for item in all_items(client, "/models") if item["dimensions"] or item["forward_flops_per_sample"]
        )
        return cls(words, list(known))


@dataclass(frozen=True)
class Questions:
    """Draws one question after the other; the same seed draws the same ones."""

    vocabulary: Vocabulary
    random: Random

    def maybe(self, chance: float = 0.3) -> bool:
        return self.random.random() < chance

    def amount(self, low: float = 1e-3, high: float = 1e6) -> float:
        """Spread evenly over the orders of magnitude, at times whole."""
        value = low * (high / low) ** self.random.random()
        return float(round(value)) if value >= 1 and self.maybe(0.5) else value

    def whole(self, most: int) -> int:
        drawn: float = float(most) ** self.random.random()
        return max(1, round(drawn))

    def names(self, field: str, most: int = 3) -> list[str]:
        known = self.vocabulary.words[field]
        return self.random.sample(known, self.random.randint(1, min(most, len(known))))

    def some(self, fields: Mapping[str, Callable[[], Any]], chance: float) -> dict[str, Any]:
        return {name: draw() for name, draw in fields.items() if self.maybe(chance)}

    def question(self) -> dict[str, Any]:
        """A body of `POST /recommend`."""
        work = self.workload()
        asked: dict[str, Any] = {"workload": work}
        if self.maybe(0.85):
            asked["constraints"] = self.constraints(has_precision=self.rated(work))
        if self.maybe(0.8):
            asked["objective"] = self.objective()
        asked |= self.some(
            {
                "current_instance": lambda: self.names("instance")[0],
                "limit": lambda: self.random.randint(1, 100),
                "per": lambda: self.random.choice(("type", "offer")),
                "diversify": self.either,
                "as_of": lambda: self.random.choice(DAYS),
            },
            0.3,
        )
        return asked

    def question_of_a_job(self) -> dict[str, Any]:
        """A question about training or inference of a model, in which few constraints leave several choices."""
        work = {**self.workload(), "task": self.random.choice(TASKS[:2])}
        work = self.learnable(work if "model" in work else work | self.model())
        if work["task"] == "training" and "software" not in work and self.maybe(0.1):
            work["offload_parameters"] = True
        limits: dict[str, Any] = {"max_nodes": self.random.choice((1, 2, 4)), "max_instances": self.whole(16)}
        limits = (limits if self.maybe() else {}) | ({"layout": self.layout(work)} if self.maybe(0.2) else {})
        return {
            "workload": work,
            "constraints": limits,
            "objective": self.objective(),
            "limit": 3,
            "as_of": self.random.choice(DAYS),
        }

    def layout(self, work: Mapping[str, Any]) -> dict[str, Any]:
        """Parts of a layout that are fixed; only a transformer can be divided otherwise than by its samples."""
        fields: dict[str, Callable[[], Any]] = {"data": lambda: self.random.choice((1, 2, 8))}
        if any(each["id"] == work["model"] and each["dimensions"] for each in self.vocabulary.models):
            fields |= {"tensor": lambda: self.random.choice((1, 2, 4))}
        if work["task"] == "training":
            lowest = 3 if "offload_parameters" in work else 0
            fields |= {
                "zero_stage": lambda: self.random.randint(lowest, 3),
                "activation_checkpointing": lambda: self.random.choice(("none", "selective", "full")),
            }
        return self.some(fields, 0.5)

    def billed(self, question: dict[str, Any]) -> dict[str, Any]:
        """A question with charges of its run; services for training run no inference."""
        billing = self.billing()
        if question["workload"]["task"] == "inference":
            billing.pop("managed_service", None)
        return {**question, **billing}

    def billing(self) -> dict[str, Any]:
        """Charges of a run apart from its work, in the fields of both requests."""
        classes = ("gp3", "s3-standard", "pd-ssd", "instance-store")
        return self.some(
            {
                "managed_service": lambda: self.random.choice(
                    ("sagemaker-training", "sagemaker-managed-spot-training")
                ),
                "storage": lambda: (
                    {"gib": self.amount(1, 1e5), "class": self.random.choice(classes)}
                    | self.some({"hours": lambda: self.amount(0.1, 1e4)}, 0.3)
                ),
                "data_transfer_out_gb": lambda: self.amount(1, 1e6),
                "data_transfer_already_gb": lambda: self.amount(1, 1e6),
                "data_transfer_between_regions_gb": lambda: self.amount(1, 1e5),
                "data_transfer_between_zones_gb": lambda: self.amount(1, 1e5),
                "setup_minutes": lambda: self.amount(0.1, 1e4),
                "idle_fraction": self.random.random,
                "commitments_held": lambda: self.random.sample(COMMITMENTS, 2),
                "checkpoint": self.checkpoint,
            },
            0.3,
        )

    def rated(self, work: Mapping[str, Any]) -> bool:
        """Whether peaks at a precision rank and can be limited; physics and measurements rank by other figures."""
        of_a_job = "model" in work and work["task"] in ("training", "inference")
        return not of_a_job and "name" not in work and (bool(work.get("precision")) or work["task"] in TASKS[:4])

    def objective(self) -> Any:
        if self.maybe(0.7):
            return self.random.choice(OBJECTIVES)
        drawn = self.some(dict.fromkeys(TERMS, self.amount), 0.4)
        return drawn or {self.random.choice(TERMS): 1.0}

    # Constraints

    def constraints(self, *, has_precision: bool) -> dict[str, Any]:
        words = [name for name in self.vocabulary.words if name != "precision"]
        chance = self.random.choice((0.02, 0.05, 0.15))
        found = self.some({name: lambda name=name: self.names(name) for name in words}, chance)  # type: ignore[misc]
        for name, steps in RANGES.items():
            if name != "tflops" or has_precision:
                found |= self.span(name, steps, chance)
        found |= self.some(
            {
                "max_usd_per_hour": lambda: self.amount(0.05, 200),
                "max_price_age_days": lambda: self.amount(0.1, 2000),
                "rdma": self.either,
                "gpudirect_rdma": self.either,
                "bare_metal": self.either,
                "budget_usd": lambda: self.amount(0.1, 1e6),
                "deadline_hours": lambda: self.amount(0.01, 1e4),
                "max_instances": lambda: self.whole(64),
                "same_placement": self.either,
                "allow_preview": self.either,
                "allow_marketplace_clusters": self.either,
                "allow_unknown_region": self.either,
                "confidence": lambda: self.random.choice(("likely", "safe")),
            },
            chance,
        )
        if self.maybe(0.2):
            most = self.random.choice((1, 2, 3, 4, 8, 32, 1000))
            found |= {"max_nodes": most} | ({"min_nodes": self.random.randint(1, most)} if self.maybe() else {})
        return found

    def span(self, name: str, steps: Sequence[float], chance: float) -> dict[str, float]:
        low, high = sorted(self.random.choices(steps, k=2))
        return self.some({f"min_{name}": lambda: low, f"max_{name}": lambda: high}, chance)

    def either(self) -> bool:
        return self.random.choice((True, False))

    # Workloads

    def workload(self) -> dict[str, Any]:
        task = self.random.choice(TASKS if self.maybe() else TASKS[:2])
        work: dict[str, Any] = {"task": task}
        if self.maybe(0.5):
            work |= self.model()
        rare = self.random.choice((0.05, 0.2))
        work |= self.some(
            {
                "name": lambda: self.random.choice(("alexnet_train", "rnn_train", "nightly")),
                "method": lambda: self.random.choice(("full", "lora", "qlora", "adapters")),
                "purpose": lambda: self.random.choice(("pretrain", "finetune", "kto")),
                "precision": lambda: self.names("precision"),
                "precision_support": lambda: self.random.choice(("accelerated", "native", "any")),
                "weight_precision": lambda: self.random.choice(FORMATS),
                "weight_bits": lambda: self.amount(1, 64),
                "kv_cache_precision": lambda: self.random.choice(("fp8", "int8", "fp16")),
                "optimizer": lambda: self.random.choice(OPTIMIZERS),
                "trainable_parameters": lambda: self.amount(1e3, 1e9),
                "global_batch_size": lambda: self.whole(4096),
                "batch_size": lambda: self.whole(512),
                "concurrency": lambda: self.whole(1024),
                "fault_tolerant": self.either,
                "checkpoint": self.checkpoint,
                "software": self.software,
                "host": self.host,
                "numerics": lambda: self.some(
                    {"fp16_overflows": self.either, "min_bits": lambda: self.random.randint(1, 64)}, 0.5
                ),
                "concurrent_runs": lambda: self.whole(16),
                "sample_mb": lambda: self.amount(1e-4, 100),
                "assume_network_gbps": lambda: self.random.choice((10, 100, 400)),
                "reads_from": lambda: self.random.choice(("network", "local")),
                **dict.fromkeys(SWITCHES, self.either),
            },
            rare,
        )
        if {"batch_size", "global_batch_size"} <= work.keys():
            # All GPUs share the global batch, of which one takes the other.
            work["global_batch_size"] = max(work["global_batch_size"], work["batch_size"])
        return self.learnable(work) if "model" in work else work

    def learnable(self, work: dict[str, Any]) -> dict[str, Any]:
        """The work with what its model can learn: no more parameters than it has, and preferences if it answers."""
        known = next((each for each in self.vocabulary.models if each["id"] == work["model"]), None)
        if "trainable_parameters" in work:
            # The smallest of `MODELS` has 25.6 million.
            most = known["parameters"] if known else 25e6
            work = {**work, "trainable_parameters": min(work["trainable_parameters"], most)}
        if work.get("purpose") == "kto" and not (known["dimensions"] if known else _reads_tokens(work["model"])):
            work = {**work, "purpose": "finetune"}
        return work

    def model(self) -> dict[str, Any]:
        """A model with lengths that it can read and an amount of work in a unit that it has."""
        if self.maybe(0.25):
            answer: Any = self.random.choice(MODELS)
            reads_tokens, most = _reads_tokens(answer), 512
        else:
            known = self.random.choice(self.vocabulary.models)
            answer = known["id"]
            reads_tokens = known["dimensions"] is not None
            most = (known["dimensions"] or {}).get("context_tokens") or 128
        found = {"model": answer}
        if reads_tokens:
            found |= self.some({"sequence_length": lambda: min(self.whole(16384), most)}, 0.4)
            longest = found.get("sequence_length", min(most, 128))
            found |= self.some({"mean_length": lambda: self.amount(1, longest)}, 0.4)
            found |= self.some({"input_length": lambda: self.whole(most)}, 0.4)
            found |= {"output_length": self.whole(2048)} if self.maybe(0.7) else {}
        if self.maybe(0.7):
            found["amount"] = self.quantity(in_tokens=reads_tokens and "output_length" in found)
        return found

    def served_model(self) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """A model that generates, and a workload that serves it, without requests and lengths."""
        known = [model for model in self.vocabulary.models if (model["dimensions"] or {}).get("decoder")]
        model = self.random.choice(known)
        work = {"task": "inference", "model": model["id"]}
        return model, work | self.some(
            {
                "precision": lambda: [self.random.choice(("bf16", "fp16", "fp8", "int8", "int4", "fp32"))],
                "kv_cache_precision": lambda: "fp8",
                "software": lambda: {"engine": self.random.choice((*ENGINES, "transformers"))},
            },
            0.5,
        )

    def lengths(self, model: Mapping[str, Any]) -> dict[str, int]:
        """Tokens of a prompt and of an answer that the model has room for."""
        most = max(2, (model["dimensions"]["context_tokens"] or 8192) // 2)
        return {"input_length": min(self.whole(16384), most), "output_length": min(self.whole(4096), most)}

    def load(self) -> dict[str, Any]:
        """A body of `POST /recommend` with a load to serve, or with requests in flight."""
        model, work = self.served_model()
        if self.maybe(0.25):
            work |= {**self.lengths(model), "concurrency": self.whole(2048)}
        else:
            work["serving"] = self.serving(self.lengths(model))
            if self._may_be_disaggregated(work) and self.maybe(0.3):
                work["serving"]["disaggregated"] = True
        asked: dict[str, Any] = {"workload": work, "limit": 2}
        asked["constraints"] = self.some(
            {
                "provider": lambda: self.names("provider"),
                "gpu": lambda: self.names("gpu", 6),
                "max_nodes": lambda: self.random.choice((1, 2, 4)),
                "max_instances": lambda: self.whole(64),
                "budget_usd": lambda: self.amount(100, 1e6),
                "max_usd_per_million_tokens": lambda: self.amount(0.05, 50),
                "market": lambda: ["on_demand", "spot"],
                "max_usd_per_hour": lambda: self.amount(1, 100),
            },
            0.25,
        )
        return asked

    def _may_be_disaggregated(self, work: Mapping[str, Any]) -> bool:
        engine = software_called(work.get("software", {}).get("engine"))
        return engine.stack.disaggregates and work["serving"].keys().isdisjoint(
            ("concurrency", "max_seconds_per_request")
        )

    def long_prompts(self) -> dict[str, Any]:
        """A body of `POST /recommend` with prompts of most of a context, on two kinds of GPU, some of them alone."""
        random = self.random
        model = random.choice(("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "qwen2.5-72b-instruct", "mixtral-8x7b"))
        load: dict[str, Any] = {
            "input_length": random.randint(10_000, 30_000),
            "output_length": random.randint(1, 2000),
        }
        load |= {"concurrency": self.whole(16)}
        work: dict[str, Any] = {
            "task": "inference",
            "model": model,
            "precision": [random.choice(("bf16", "fp8", "int4"))],
        }
        work |= {"serving": load} if self.maybe(0.7) else load
        work |= {"kv_cache_precision": "fp8"} if self.maybe(0.4) else {}
        gpus = ("rtx-4090-24gb", "a10g-24gb", "a100-sxm4-40gb", "l40s-48gb", "h100-sxm5-80gb", "h200-sxm-141gb")
        limits: dict[str, Any] = {"gpu": random.sample(gpus, 2), "max_gpu_count": random.choice((1, 2, 4, 8))}
        limits |= {"provider": ["vast"]} if self.maybe(0.4) else {}
        return {"workload": work, "constraints": limits, "limit": 1}

    def serving(self, lengths: Mapping[str, int]) -> dict[str, Any]:
        """A load of requests of these mean lengths, with limits."""
        load: dict[str, Any] = {
            name: {"mean": mean, "p95": mean * self.random.uniform(1.0, 3.8)} if self.maybe(0.4) else mean
            for name, mean in lengths.items()
        }
        rates: dict[str, Callable[[], float]] = {
            "requests_per_second": lambda: self.amount(0.01, 1000),
            "output_tokens_per_second": lambda: self.amount(1, 1e5),
            "concurrency": lambda: self.whole(4096),
        }
        rate = self.random.choice(list(rates))
        load |= {rate: rates[rate]()}
        if self.maybe(0.3):
            load |= {"speculative_acceptance": self.random.uniform(0.01, 0.99)}
            load |= self.some({"draft_length": lambda: self.whole(16)}, 0.3)
        return load | self.some(
            {
                "max_seconds_to_first_token": lambda: self.amount(0.05, 20),
                "max_seconds_per_output_token": lambda: self.amount(0.005, 0.5),
                "max_seconds_per_request": lambda: self.amount(1, 300),
                "percentile": lambda: self.random.choice((50, 95, 99, 99.9)),
                "percentile_to_first_token": lambda: self.random.choice((50, 95, 99, 99.9)),
                "percentile_per_request": lambda: self.random.choice((50, 95, 99, 99.9)),
                "prefix_cache_hit_rate": lambda: self.random.uniform(0.0, 0.99),
                "headroom": lambda: self.random.uniform(0.0, 0.6),
                "min_replicas": lambda: self.whole(8),
                "availability_zones": lambda: self.random.randint(1, 3),
            },
            0.3,
        )

    def quantity(self, *, in_tokens: bool) -> dict[str, Any]:
        kinds: dict[str, Callable[[], dict[str, Any]]] = {
            "samples": lambda: (
                {"samples": self.amount(1, 1e10)} | ({"epochs": self.amount(1, 100)} if self.maybe() else {})
            ),
            "steps": lambda: {"steps": self.amount(1, 1e7)},
            "hours_on": lambda: {"hours_on": {"instance": self.names("instance")[0], "hours": self.amount(0.1, 1e4)}},
        }
        if in_tokens:
            kinds["tokens"] = lambda: {"tokens": self.amount(1, 1e13)}
        return self.random.choice(list(kinds.values()))()

    def checkpoint(self) -> dict[str, float]:
        fields = {"interval_minutes": (0.1, 1e4), "save_seconds": (0.1, 1e4), "restart_seconds": (0.1, 1e4)}
        return self.some({name: lambda ends=ends: self.amount(*ends) for name, ends in fields.items()}, 0.6)  # type: ignore[misc]

    def software(self) -> dict[str, Any]:
        return self.some(
            {
                "framework": lambda: self.random.choice(FRAMEWORKS),
                "engine": lambda: self.random.choice(ENGINES),
                "cuda": lambda: self.random.choice(("11.3", "12.4", ">=11.8", "9.0")),
                "platforms": lambda: self.random.sample(PLATFORMS, self.random.randint(1, 3)),
                "libraries": lambda: [{"name": self.random.choice(LIBRARIES), "required": self.either()}],
                "custom_cuda_kernels": self.either,
            },
            0.4,
        )

    def host(self) -> dict[str, Any]:
        return self.some(
            {
                "vcpus_per_gpu": lambda: self.amount(0.5, 64),
                "memory_gib": lambda: self.amount(1, 4096),
                "cpu_samples_per_second_per_vcpu": lambda: self.amount(0.1, 1e4),
                "gpu_decoding": self.either,
            },
            0.5,
        )
