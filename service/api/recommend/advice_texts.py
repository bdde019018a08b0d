"""The sentences of advice: for each code of the domain, a text with its figures."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date

from service.api.estimate.sentences import Sentence, ended
from service.api.http.figures import dollars, plural
from service.domain.catalog.hardware import InstanceType
from service.domain.codes import AdviceCode
from service.domain.physics.input_pipeline import CORES_PER_GPU_THAT_DECODES, USUAL_CORES_PER_GPU

Priced = tuple[float, InstanceType]

WITHOUT_GPU = {
    "classical": "Classical machine learning",
    "sequential": "Work that goes step by step",
    "development": "Writing and debugging code",
}
LINKS = {
    "pcie": "PCIe",
    "nvlink": "NVLink",
    "nvswitch": "NVLink through a switch",
    "infinity_fabric": "Infinity Fabric",
    "ici": "the links of their pod",
    "neuronlink": "NeuronLink",
    "roce": "RoCE",
}
"""Words for the links between GPUs."""
BASES = {"peak": "the vendors' peak rates", "modelled": "a model of the job", "outdated": "outdated measurements"}


def _no_accelerator_needed(task: str, cheapest: Priced | None) -> str:
    opening = f"{WITHOUT_GPU[task]} needs no GPU"
    if cheapest is None:
        return f"{opening}."
    usd, machine = cheapest
    return f"{opening}: {machine.id} has none, and {_vcpus(machine.vcpus)} for ${usd:g} an hour."


def _vcpus(vcpus: float | None) -> str:
    return "an unknown number of vCPUs" if vcpus is None else f"{vcpus:g} vCPUs"


def _separate_dev_and_training(cheapest: Priced | None) -> str:
    price = "" if cheapest is None else f" (from ${cheapest[0]:g} an hour: {cheapest[1].id})"
    return f"Keep development apart from training, and rent a GPU{price} only for the hours of a run."


def _graphics(cheapest: Priced) -> str:
    usd, machine = cheapest
    name = machine.gpu.name if machine.gpu else "GPU"
    return f"The {name} is sold for graphics: {machine.id} has {machine.gpu_count} from ${usd:g} an hour."


def _fractional_gpu(
    cheapest: Priced | None, card: str | None, services: Sequence[tuple[str, str | None, date | None]]
) -> str:
    sentences = []
    if cheapest is not None:
        usd, machine = cheapest
        sentences.append(f"{machine.id} has {machine.whole_gpus:.3g} of a card ({card}) for ${usd:g} an hour.")
    for name, description, closed_on in services:
        offers = description or "a part of an accelerator for a machine without a GPU"
        since = "" if closed_on is None else f" It has admitted no new customers since {closed_on}."
        sentences.append(f"{name} is {offers}.{since}")
    return " ".join(sentences)


def _faster(ending: str, unit: str = "TFLOPS") -> Callable[..., str]:
    """Returns a sentence such as `At bf16 or fp16 the A100 peaks at 312 TFLOPS, 16 times its fp32; …`."""

    def sentence(formats: Sequence[str], gpu: str, tflops: float, times: float, now: str) -> str:
        names = " or ".join(formats)
        return f"At {names} the {gpu} peaks at {tflops:g} {unit}, {times:.3g} times its {now}; {ending}."

    return sentence


def _quantisation_required(gpu: str, toolkits: Sequence[str]) -> str:
    with_kit = f", and run by its vendor's software ({', '.join(toolkits)})" if toolkits else ""
    return f"The {gpu} multiplies only in int8: the model must be quantised{with_kit}."


def _independent_runs(runs: int, gpus: int, memory_gb: float | None) -> str:
    if runs <= gpus:
        return f"The {runs} runs take one of the {gpus} GPUs each: none waits for another, and links do not matter."
    on_each = -(-runs // gpus)
    shared = f"{runs} runs share {plural(gpus, 'GPU')}, up to {on_each} on each"
    return f"{shared}." if memory_gb is None else f"{shared}, with {memory_gb / on_each:.3g} GB of memory for a run."


def _one_model_per_gpu(gpus: int, memory_gb: float | None) -> str:
    size = "" if memory_gb is None else f" of up to {memory_gb:g} GB"
    return f"Each of the {gpus} GPUs can serve a model of its own{size}, or another copy of one."


def _gpu_decoding(vcpus: float | None) -> str:
    usual, less = USUAL_CORES_PER_GPU, CORES_PER_GPU_THAT_DECODES
    return (
        f"{_vcpus(vcpus)} limit the speed: decoding on the GPU (NVIDIA DALI) takes {less[0]:g} to {less[1]:g} cores "
        f"per GPU instead of {usual[0]:g} to {usual[1]:g}."
    )


def _migration_path(old: str, new: str, gpus: int, links: str | None, times: float, usd: float) -> str:
    linked = "" if links is None else f", linked by {LINKS[links]},"
    return (
        f"From {old}, code and precisions carry over to {new} of the same architecture: {plural(gpus, 'GPU')}{linked} "
        f"with {times:.3g} times the peak. Its best offer under the constraints costs ${dollars(usd)} an hour."
    )


def _upgrade_path(
    instance: str,
    memory: tuple[str, float] | None,
    speed: tuple[str, float] | None,
    value: tuple[str, float] | None,
    *,
    estimated: bool,
) -> str:
    of = "estimated speed" if estimated else "peak"
    steps = [f"more memory on {memory[0]} ({memory[1]:g} GB)"] if memory else []
    steps += [f"more speed on {speed[0]} ({speed[1]:.3g} times the {of})"] if speed else []
    steps += [f"more speed per dollar on {value[0]} ({value[1]:.3g} times)"] if value else []
    *others, last = steps
    return f"One step up from {instance}, a single GPU has {', '.join(others)}{' and ' if others else ''}{last}."


def _managed_training(service: str, machines: str, percent: float | None) -> str:
    fee = ""
    if percent is not None:
        adds = f"{percent:g} %" if percent else "nothing"
        fee = f"; it adds {adds} to the price of {machines}"
    return f"{service} starts a machine for the run and bills only the run{fee}."


ADVICE: Mapping[AdviceCode, Sentence] = {
    AdviceCode.CURRENT_ENDS: lambda **figures: f"{ended(**figures).removesuffix('.')}: plan to move what runs on it.",
    AdviceCode.NO_ACCELERATOR_NEEDED: _no_accelerator_needed,
    AdviceCode.SEPARATE_DEV_AND_TRAINING: _separate_dev_and_training,
    AdviceCode.GRAPHICS: _graphics,
    AdviceCode.QUANTISATION_REQUIRED: _quantisation_required,
    AdviceCode.FRACTIONAL_GPU: _fractional_gpu,
    AdviceCode.TF32: _faster("numbers stay fp32 in memory, and the code needs no change"),
    AdviceCode.TF32_OFF_BY_DEFAULT: "PyTorch leaves TF32 off for matrix products from {since} on: "
    "torch.set_float32_matmul_precision('high') turns it on.",
    AdviceCode.TF32_ON_BY_DEFAULT: "PyTorch from {since} to before {before} multiplies matrices in TF32 where the "
    "code says fp32: torch.backends.cuda.matmul.allow_tf32 = False turns it off.",
    AdviceCode.MIXED_PRECISION: _faster("mixed precision usually needs changes of the training code"),
    AdviceCode.HALF_PRECISION: _faster("serving need not keep the precision of training"),
    AdviceCode.INT8: _faster("the model must be quantised, and its answers checked", "TOPS"),
    AdviceCode.CODE_CHANGE_REQUIRED: "One model trains on the {gpus} GPUs only with code that is written for it "
    "(torch.distributed, tf.distribute, Horovod); other code keeps one of them busy.",
    AdviceCode.INDEPENDENT_RUNS: _independent_runs,
    AdviceCode.ONE_MODEL_PER_GPU: _one_model_per_gpu,
    AdviceCode.GPU_DECODING: _gpu_decoding,
    AdviceCode.MIGRATION_PATH: _migration_path,
    AdviceCode.EVALUATE_NEXT: lambda basis, first, second: (
        f"The order rests on {BASES[basis]}: before a long run, measure the work on {first} and on {second}."
    ),
    AdviceCode.MONITOR_MEMORY: "The host memory of {instance} is unknown, and a run that fills it is killed: watch "
    "`free -m` and `nvidia-smi` in a short run before a long one.",
    AdviceCode.MANAGED_SPOT: lambda services: (
        f"{' and '.join(services)} can run the work on spot capacity and handle interruptions and checkpoints."
    ),
    AdviceCode.MANAGED_TRAINING: _managed_training,
    AdviceCode.IMAGE_ADVICE: lambda images: (
        f"Drivers and frameworks built for these machines come with {' and '.join(images)}."
    ),
    AdviceCode.UPGRADE_PATH: _upgrade_path,
}
