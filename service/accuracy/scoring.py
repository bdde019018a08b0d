"""Scores answers: errors by kind of work, decisions, coverage of the band, and the order of machines."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from statistics import mean, median

from service.accuracy.rows import Row, RunQuestion


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """The answer to a question about a published run.

    For a decision, `likely` is 1 if the run likely fits, and `low` is 1 if it fits with the usual confidence.
    """

    question: RunQuestion
    likely: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Returns the relative error of the likely figure: |likely / published - 1|."""
        return abs(self.likely / self.question.value - 1.0)

    @property
    def inside(self) -> bool:
        """Whether the published figure lies in the band."""
        return self.low <= self.question.value <= self.high


def subset_of(question: RunQuestion) -> str:
    """Returns the line of the report in which a row counts."""
    row = question.row
    task = "inference" if row["task"].startswith("infer") else "training"
    if question.quantity in ("fits", "max_context_tokens"):
        return f"{task} fits"
    if question.quantity == "memory_bytes_per_gpu":
        return f"{task} memory"
    by_kind = {"train_throughput": _training_subset, "infer_throughput": _inference_subset}
    return by_kind[row["kind"]](row) if row["kind"] in by_kind else row["kind"]


def _training_subset(row: Row) -> str:
    if row["model"].startswith("TransformerXL"):
        return "training: Transformer-XL"
    if row["task"].startswith("dpo"):
        return "training: DPO"
    if row["task"] in ("lora", "qlora", "peft_other", "adapter"):
        return "training: LoRA"
    if row["family"] == "llm":
        bits = "nvfp4" if "fp4" in row["precision"] else "fp8" if "fp8" in row["precision"] else "bf16"
        return f"training: dense LLM {bits}"
    if row["family"] in ("moe", "hybrid_moe"):
        return "training: MoE"
    return f"training: {row['family']}"


UNITS = {
    "ms time-per-output-token": "time per output token",
    "ms time-to-first-token": "time to first token",
    "prefill tokens/s": "prefill",
    "output tokens/s(total)": "serving",
}


def _inference_subset(row: Row) -> str:
    if row["unit"] in UNITS and row["steady"]:
        return f"inference: {UNITS[row['unit']]}, {'steady' if row['steady'] == '1' else 'burst'}"
    if row["unit"] in UNITS:
        return f"inference: {UNITS[row['unit']]}"
    if "decode" in row["unit"] or "tokens" in row["unit"]:
        return "inference: decode, batch 1" if row["batch_or_concurrency"] == "1" else "inference: decode, batched"
    if row["family"] in ("diffusion", "speech"):
        return f"inference: {row['family']}"
    small = row["batch_or_concurrency"].isdigit() and int(row["batch_or_concurrency"]) < 128
    return "inference: CNN and encoder, small batch" if small else "inference: CNN and encoder, offline"


@dataclass(frozen=True, slots=True)
class Score:
    """One line: rows, median absolute percentage error, bias (predicted ÷ published), share inside the band."""

    rows: int
    error: float
    bias: float
    inside: float


def _score(answers: Sequence[ScoredAnswer]) -> Score:
    return Score(
        len(answers),
        median(a.error for a in answers),
        median(a.likely / a.question.value for a in answers),
        sum(a.inside for a in answers) / len(answers),
    )


def scores(answers: Iterable[ScoredAnswer]) -> dict[str, Score]:
    """Scores by line of the report, and of all lines of one task."""
    groups: dict[str, list[ScoredAnswer]] = defaultdict(list)
    for answer in answers:
        # A decision has no error in percent; `decisions` counts them.
        if answer.question.quantity in ("fits", "max_context_tokens"):
            continue
        name = subset_of(answer.question)
        groups[name].append(answer)
        if ":" in name:
            groups[name.split(":")[0] + ", all"].append(answer)
    return {name: _score(group) for name, group in sorted(groups.items())}


@dataclass(frozen=True, slots=True)
class Decisions:
    """Right and wrong answers to whether a run fits."""

    right_fits: int
    right_ooms: int
    false_fits: int
    false_ooms: int

    @property
    def accuracy(self) -> float:
        """Returns the share of decisions that are right; 0 without any."""
        right = self.right_fits + self.right_ooms
        return right / max(1, right + self.false_fits + self.false_ooms)


def decisions(answers: Iterable[ScoredAnswer], *, surely: bool = False) -> Decisions:
    """Right and wrong decisions among the answers to whether a run fits: likely, or with the usual confidence."""
    asked = [answer for answer in answers if answer.question.quantity == "fits"]
    pairs = [((a.low if surely else a.likely) >= 0.5, a.question.value >= 0.5) for a in asked]
    return Decisions(
        pairs.count((True, True)), pairs.count((False, False)), pairs.count((True, False)), pairs.count((False, True))
    )


SAME_WORKLOAD = (
    "kind",
    "task",
    "model",
    "precision",
    "unit",
    "seq_len",
    "input_len",
    "output_len",
    "total_accelerators",
    "framework",
    "batch_or_concurrency",
    "activation_checkpointing",
)


def _by_workload(answers: Iterable[ScoredAnswer]) -> Iterator[list[list[ScoredAnswer]]]:
    """For each workload, the answers of every machine that ran it."""
    groups: dict[tuple[str, ...], dict[str, list[ScoredAnswer]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        row = answer.question.row
        if row["kind"] in ("train_throughput", "infer_throughput"):
            # The words of a recording decide the work of speech, and each source has recordings of its own.
            recording = row["source"] if row["family"] == "speech" else ""
            key = (*(row[column] for column in SAME_WORKLOAD), recording)
            groups[key][row["accelerator"]].append(answer)
    yield from (list(machines.values()) for machines in groups.values())


def pairs_in_order(answers: Iterable[ScoredAnswer], apart: float = 0.0) -> tuple[int, int]:
    """Returns the number of pairs of machines in the right order, and of all pairs.

    Only workloads that three or more machines ran count, and pairs that differ by more than `apart`. For several runs
    of a workload on one machine, the median counts.
    """
    right = total = 0
    for machines in _by_workload(answers):
        # Two machines have only one order, which is right by chance in half of all cases.
        if len(machines) < 3:
            continue
        for first, second in combinations(machines, 2):
            truth = median(a.question.value for a in first) / median(a.question.value for a in second)
            estimate = median(a.likely for a in first) / median(a.likely for a in second)
            if max(truth, 1 / truth) > 1 + apart:
                total += 1
                right += (truth > 1) == (estimate > 1)
    return right, total


@dataclass(frozen=True, slots=True)
class RentedGpu:
    """Price of an hour of a GPU, and its peak."""

    usd_per_hour: float
    tflops: float


@dataclass(frozen=True, slots=True)
class Regret:
    """The extra cost of a way to choose machines over the cheapest machine, for published workloads."""

    mean: float
    """Mean over workloads of cost of the choice ÷ lowest cost - 1."""
    cheapest: float
    """Share of workloads for which this way chooses the cheapest machine."""
    workloads: int


def regrets(answers: Iterable[ScoredAnswer], rented: Mapping[str, RentedGpu]) -> dict[str, Regret]:
    """The regret of choosing by the estimates, by peak FLOPS per dollar, and by the price of an hour.

    A workload counts if two or more machines with a price ran it, on equally many GPUs.
    """
    extra: dict[str, list[float]] = defaultdict(list)
    for machines in _by_workload(a for a in answers if a.question.quantity.endswith("_per_second")):
        offers = [(rented[gpu], runs) for runs in machines if (gpu := runs[0].question.row["gpu_id"]) in rented]
        if len(offers) < 2:
            continue
        costs = [gpu.usd_per_hour / median(run.question.value for run in runs) for gpu, runs in offers]
        figures = {
            "by the estimates": [gpu.usd_per_hour / median(run.likely for run in runs) for gpu, runs in offers],
            "by peak FLOPS per dollar": [gpu.usd_per_hour / gpu.tflops for gpu, _ in offers],
            "by the cheapest hour": [gpu.usd_per_hour for gpu, _ in offers],
        }
        for way, by_offer in figures.items():
            extra[way].append(costs[by_offer.index(min(by_offer))] / min(costs) - 1.0)
    return {way: Regret(mean(all_), all_.count(0.0) / len(all_), len(all_)) for way, all_ in extra.items()}


def source_of(row: Row) -> str:
    """The source of a row: the last part of its group."""
    return row["group"].rsplit("|", 1)[-1]


SPLITS: dict[str, Callable[[Row], str]] = {
    "group": lambda row: row["group"],
    "source": source_of,
    "accelerator": lambda row: row["accelerator"],
    "architecture": lambda row: row.get("architecture", row["accelerator"]),
    "model": lambda row: row["model"],
}
"""Rows with an equal value are left out together."""


FOLDS = 5
"""Parts into which runs are divided, each of which is left out once."""


def fold_of(row: Row, split: str) -> int:
    """Returns a number below `FOLDS` that is the same for all rows with an equal value."""
    # Python's own hash of a text would differ between processes.
    return int.from_bytes(sha256(SPLITS[split](row).encode()).digest()[:4], "big") % FOLDS
