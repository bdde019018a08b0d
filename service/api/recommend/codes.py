"""The closed list of codes that recommendations use, and GET /recommend/codes."""

from typing import Annotated

from fastapi import APIRouter, Query

from service.api.http.fields import RequestModel, ResponseModel
from service.domain.codes import AdviceCode, NoteCode, ReasonCode, WarningCode
from service.domain.jobs.serving import MOST_INSTANCES
from service.domain.selection.filters import FILTER_CODES

router = APIRouter(tags=["decision"])

REJECTIONS: dict[str, str] = {
    **FILTER_CODES,
    "precision": "The GPU does not run the precision at the requested support level.",
    "framework": "The framework is not known to run there.",
    "software_framework": "The workload's framework, in the given versions, is not known to run there.",
    "software_engine": "The workload's engine, in the given versions, is not known to run there.",
    "software_model": "The software there is not known to do the task with models of the workload's family.",
    "software_format": "The workload's engine is not known to run weights in their format there.",
    "software_cuda": "The given CUDA toolkit does not build for the GPU: too old, too new, or not an NVIDIA GPU. Or "
    "the framework has no build with it for the GPU.",
    "software_platforms": "The code is written for none of the platforms that run there.",
    "software_libraries": "A library or feature that the workload requires is not known to run there.",
    "custom_cuda_kernels": "The workload's own CUDA kernels do not run there as they are.",
    "numerics": "The GPU supports none of the requested precisions that the workload can tolerate.",
    "host_memory_gib": "The host has less memory than the workload requires.",
    "task": "No software does this task there.",
    "exclude": "The caller excluded it.",
    "managed_service": "The managed service does not rent it out.",
    "region": "The catalog has no offer of it in the requested regions.",
    "country": "The catalog has no offer of it in the requested countries.",
    "continent": "The catalog has no offer of it on the requested continents.",
    "region_unknown": "Its prices name no region, or a region of unknown country, so it is not known whether it is "
    "offered where requested.",
    "market": "The catalog has no offer of it in the requested markets.",
    "spot_price_unknown": "The provider sells spot machines, and no spot price of the type is known on that day.",
    "max_price_age_days": "No known price is recent enough.",
    "price_unknown": "No price is known, and the objective needs one.",
    "growth": "The provider has no machine of the same architecture with fast links between its GPUs, so the work "
    "cannot grow there.",
    "no_cluster_there": "The machines are those of a marketplace, each of another owner, and form no cluster.",
    "mainstream": "The question names no software, platform or hardware, so PyTorch is assumed, which does not run in "
    "full on this GPU or does not train there with the requested method.",
    "without_gpu": "It has no GPU, and the question does not ask for such machines: by the platform `cpu`, by "
    "a `max_gpu_count` of 0, by name, or by a library that runs on every kind of device.",
    "no_gpu": "The instance type has no GPU, and the job cannot be estimated on CPUs.",
    "gpu_figures_unknown": "The GPU's memory, bandwidth or rates are unknown, so nothing can be estimated.",
    "global_batch_size": "The batch cannot be divided over so many GPUs.",
    "gpu_memory": "The job does not fit in the memory of its GPUs.",
    "host_memory": "The job does not fit in the host's memory.",
    "concurrency": "Fewer requests run at once than the workload asks for.",
    "layout": "The fixed parts of the layout do not divide the job over the GPUs.",
    "kv_cache": "The GPUs hold the weights, and not the cache of a single request.",
    "too_slow_first_token": "The first token takes longer than allowed, on any allowed number of instances.",
    "too_slow_per_token": "A token takes longer than allowed, on any allowed number of instances.",
    "too_slow_per_request": "A request takes longer than allowed, on any allowed number of instances.",
    "max_instances": f"The load takes more instances than `max_instances` allows, which is {MOST_INSTANCES:,} by "
    "default.",
    "deadline_hours": "The job takes longer than allowed.",
    "not_measured": "No measurement under the workload's name applies to this instance type.",
    "budget_usd": "The whole job, or a month of the load, costs more than allowed wherever it keeps the other limits.",
    "usd_per_million_tokens": "A million tokens cost more than allowed wherever the other limits are kept.",
    "cost_unknown": "A part of the cost is unknown, so it cannot be shown to keep the limits in dollars.",
    "interruptions": "Spot interruptions are so frequent that the job would hardly ever finish.",
    "no_offer": "No offer is known on the catalog's day.",
    "max_usd_per_hour": "It costs more per hour than allowed.",
    "usd_per_hour_unknown": "The price per hour is unknown, so it cannot be shown to pass the constraint.",
    "peak_unknown": "No peak rate is known at the precision, and the objective needs one.",
    "power_unknown": "No power rating is known, and the objective needs one.",
}


class CodesResponse(ResponseModel):
    """Every code that an answer can have, with its meaning."""

    reasons: dict[str, str]
    warnings: dict[str, str]
    advice: dict[str, str]
    rejections: dict[str, str]
    notes: dict[str, str]


@router.get("/recommend/codes", summary="The codes of recommendations")
async def get_codes(_query: Annotated[RequestModel, Query()]) -> CodesResponse:
    """Every code that an answer can have, with its meaning. New codes may be added; a meaning never changes."""
    lists = {"reasons": ReasonCode, "warnings": WarningCode, "advice": AdviceCode, "notes": NoteCode}
    meanings = {name: {code.value: code.meaning for code in codes} for name, codes in lists.items()}
    return CodesResponse(**meanings, rejections=REJECTIONS)
