"""The closed list of codes that recommendations use, and GET /recommend/codes."""

from fastapi import APIRouter

from service.api.http.fields import ResponseModel
from service.domain.recommend.codes import AdviceCode, NoteCode, ReasonCode, WarningCode
from service.domain.selection.filters import FILTER_CODES

router = APIRouter(tags=["decision"])

REASONS: dict[ReasonCode, str] = {
    ReasonCode.OBJECTIVE: "The rank of the choice under the objective, with the figures that decide it.",
    ReasonCode.PRECISION: "The precision that the ranking assumes on this GPU, and its peak there.",
    ReasonCode.FITS: "How much of the usable memory of each GPU the job needs.",
    ReasonCode.ONLY_CHOICE: "Nothing else satisfies the constraints.",
    ReasonCode.MEASURED: "The rate that was measured on this machine under the workload's name.",
    ReasonCode.SCALED: "The rate that was measured under the workload's name, scaled from the most similar machine.",
    ReasonCode.TIED: "The uncertainty of the estimates is larger than the difference to these other choices.",
    ReasonCode.WITHIN_LIMITS: "How the choice keeps the deadline and the budget.",
    ReasonCode.SPOT_IN_EXPECTATION: "Time that interruptions are expected to add, and the break-even rate of spot.",
}
WARNINGS: dict[WarningCode, str] = {
    WarningCode.PCIE_MULTI_GPU: "The GPUs are linked by PCIe only, which can slow down training on all of them.",
    WarningCode.SOLD_FOR_INFERENCE: "The vendor positions this GPU for inference. Measure how well it trains.",
    WarningCode.ARM_HOST: "The host CPU is Arm: every library of the workload must exist for it.",
    WarningCode.PREVIEW: "The instance type is in preview: access must be granted and may be withdrawn.",
    WarningCode.CLOSED_TO_NEW: "The provider no longer admits new customers to this instance type.",
    WarningCode.PRICE_OLD: "The price was last observed more than 90 days before the catalog's day.",
    WarningCode.PRICE_UNDATED: "The day on which the price was observed is unknown.",
    WarningCode.PRICE_ASSUMED: "The price is carried over from another observation; it was not observed itself.",
    WarningCode.SPOT_CAN_BE_INTERRUPTED: "The provider can reclaim spot machines; the work must save and resume.",
    WarningCode.SPOT_DEARER: "On-demand costs less than spot in this region.",
    WarningCode.FEW_VCPUS: "The host has fewer vCPUs per GPU than the workload needs.",
    WarningCode.HOST_MEMORY_UNKNOWN: "The host memory is unknown, so the requirement was not checked.",
    WarningCode.PART_OF_A_CARD: "The GPU is only a part of a card.",
    WarningCode.GPU_MEMORY: "The job does not fit in the memory of each GPU, or may not fit.",
    WarningCode.HOST_BOUND: "The CPUs prepare samples more slowly than the GPUs can process them.",
    WarningCode.SLOW_READS: "The network delivers samples more slowly than the GPUs can process them.",
    WarningCode.LOCAL_STORAGE_SMALL: "The samples do not fit on the machine's local disks.",
    WarningCode.SLOW_NETWORK: "The nodes of the job are not on a fast RDMA network, or it is unknown whether they are.",
    WarningCode.SUPERSEDED: "A newer machine of the provider is faster, costs no more and has at least as much memory.",
    WarningCode.NO_FRAMEWORK: "Deep-learning frameworks are known not to run on the GPU, and none is known to.",
    WarningCode.SOFTWARE_PARTLY: "The software runs there only in part, or an optional library does not run there.",
    WarningCode.TENSOR_OVER_SLOW_LINKS: "Tensor parallelism crosses slow links, so every layer waits for them.",
    WarningCode.PRECISION_REDUCED: "The GPU runs the precision only at a token rate or by conversion.",
    WarningCode.MEASUREMENT_OTHER_SOFTWARE: "The measurement was made with other software than the workload requires.",
    WarningCode.MEASUREMENT_OLD: "The newest measurement under the workload's name is more than a year old.",
    WarningCode.EXTRAPOLATES: "No published run covers some property of the job, so the band is wider.",
}
ADVICE: dict[AdviceCode, str] = {
    AdviceCode.CURRENT_ENDS: "The current instance type is closed to new customers or retired: move its workload.",
    AdviceCode.NO_ACCELERATOR_NEEDED: "The workload does not benefit from a GPU; a machine without one is enough.",
    AdviceCode.SEPARATE_DEV_AND_TRAINING: "Develop on a machine without a GPU, and rent a GPU only for the runs.",
    AdviceCode.GRAPHICS: "A machine whose GPU the vendor positions for graphics.",
    AdviceCode.QUANTISATION_REQUIRED: "The GPU multiplies only in int8, so the model must be quantised for it.",
    AdviceCode.FRACTIONAL_GPU: "A part of a card, or an accelerator attached to a CPU machine, may be enough.",
    AdviceCode.TF32: "The GPU has TF32, which is faster than fp32 and needs no change of the code.",
    AdviceCode.TF32_OFF_BY_DEFAULT: "PyTorch disables TF32 for matrix products by default from version 1.12 on.",
    AdviceCode.MIXED_PRECISION: "The GPU is faster at 16 bits; training in 16 bits usually needs changes of the code.",
    AdviceCode.HALF_PRECISION: "The GPU serves faster at 16 bits, which is enough for most models.",
    AdviceCode.INT8: "The GPU serves faster in int8 once the model is quantised.",
    AdviceCode.CODE_CHANGE_REQUIRED: "Several GPUs train one model only with code that is written for it.",
    AdviceCode.INDEPENDENT_RUNS: "Independent runs take a GPU each and need no fast links.",
    AdviceCode.ONE_MODEL_PER_GPU: "Each GPU can serve a model of its own.",
    AdviceCode.GPU_DECODING: "Decoding on the GPU relieves the CPUs, which are the bottleneck.",
    AdviceCode.MIGRATION_PATH: "A larger machine with GPUs of the same architecture, for later.",
    AdviceCode.EVALUATE_NEXT: "The workload has no measurement yet: which two machines to measure first.",
    AdviceCode.MANAGED_SPOT: "The provider runs training on spot capacity and handles interruptions and checkpoints.",
    AdviceCode.MANAGED_TRAINING: "The provider runs training and bills only the run, not the time before and after it.",
    AdviceCode.IMAGE_ADVICE: "The provider's images include drivers and frameworks built for its machines.",
}
NOTES: dict[NoteCode, str] = {
    NoteCode.NAME_NOT_MEASURED: "No measurement exists under the workload's name by the catalog's day.",
    NoteCode.SPOT_LEFT_OUT: "Spot machines were left out because the workload is not fault-tolerant.",
    NoteCode.NEAREST: "No choice keeps both the deadline and the budget; the note has the nearest one on each side.",
    NoteCode.OBJECTIVE_DEFAULTED: "No objective was given, so `cheapest` was used.",
    NoteCode.PRICE_IGNORED: "No candidate has a known price, so the ranking is by hardware alone.",
    NoteCode.NO_AMOUNT: "No amount of work was given, so the ranking is by the cost of an hour.",
    NoteCode.NO_DEADLINE: "No deadline was given, so none was applied.",
    NoteCode.NOT_WEIGHED: "Fields that were read and checked but did not affect the ranking.",
    NoteCode.SOFTWARE_UNKNOWN: "Software without any rule about where it runs; it rejected nothing.",
}
REJECTIONS: dict[str, str] = {
    **FILTER_CODES,
    "precision": "The GPU does not run the precision at the requested support level.",
    "framework": "The framework is not known to run there.",
    "software_framework": "The workload's framework, in the given versions, is not known to run there.",
    "software_engine": "The workload's engine, in the given versions, is not known to run there.",
    "software_cuda": "The given CUDA toolkit does not build for the GPU: too old, too new, or not an NVIDIA GPU.",
    "software_platforms": "The code is written for none of the platforms that run there.",
    "software_libraries": "A library that the workload requires is not known to run there.",
    "custom_cuda_kernels": "The workload's own CUDA kernels do not run there as they are.",
    "numerics": "The GPU supports none of the requested precisions that the workload can tolerate.",
    "host_memory_gib": "The host has less memory than the workload requires.",
    "task": "No software does this task there.",
    "exclude": "The caller excluded it.",
    "region": "It is not offered in the requested regions.",
    "market": "It is not offered in the requested markets.",
    "max_price_age_days": "No known price is recent enough.",
    "price_unknown": "No price is known, and the objective needs one.",
    "no_gpu": "The instance type has no GPU, and the job cannot be estimated on CPUs.",
    "gpu_figures_unknown": "The GPU's memory, bandwidth or rates are unknown, so nothing can be estimated.",
    "global_batch_size": "The batch cannot be divided over so many GPUs.",
    "gpu_memory": "The job does not fit in the memory of its GPUs.",
    "host_memory": "The job does not fit in the host's memory.",
    "deadline_hours": "The job takes longer than allowed.",
    "not_measured": "No measurement under the workload's name applies to this instance type.",
    "budget_usd": "The whole job costs more than allowed wherever it meets the deadline.",
    "interruptions": "Spot interruptions are so frequent that the job would hardly ever finish.",
    "no_offer": "No offer is known on the catalog's day.",
    "max_usd_per_hour": "It costs more per hour than allowed.",
    "peak_unknown": "No peak rate is known at the precision, and the objective needs one.",
    "power_unknown": "No power rating is known, and the objective needs one.",
}


class CodesResponse(ResponseModel):
    """Every code that an answer can carry, with its meaning."""

    reasons: dict[str, str]
    warnings: dict[str, str]
    advice: dict[str, str]
    rejections: dict[str, str]
    notes: dict[str, str]


@router.get("/recommend/codes", summary="The codes of recommendations")
async def get_codes() -> CodesResponse:
    """Every code that an answer can carry, with its meaning. Codes are added, never changed in meaning."""
    return CodesResponse.model_validate(
        {"reasons": REASONS, "warnings": WARNINGS, "advice": ADVICE, "rejections": REJECTIONS, "notes": NOTES}
    )
