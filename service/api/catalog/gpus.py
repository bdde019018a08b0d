"""GPUs with their precisions; a name that several GPUs share is answered with all of them."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.catalog.filters import Precisions, PrecisionSupport, resolved
from service.api.catalog.instances import PrecisionDetailResponse
from service.api.http.current import CatalogStamp, Pinned, catalog_on, stamp
from service.api.http.etag import json_answer
from service.api.http.fields import Amount, Columns, DayRequest, Name, Names, PageRequest, ResponseModel, copy_of
from service.api.http.listing import Page, attribute_reader, having, page_answer, require_range, sorted_by, within
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu
from service.domain.catalog.names import resolve_gpus
from service.domain.errors import NotFound, UnknownName

router = APIRouter(tags=["catalog"])


_NOT_SHOWN = (
    "gpus_per_board",
    "gpus_per_rack",
    "gpus_per_tray",
    "slices",
    "pcie_generation",
    "consumer",
    "has_flash_attention",
    "rates",
)


class BoardResponse(ResponseModel):
    """Totals of the physical board, which may hold several GPUs: figures of one GPU times `gpus`; null: unknown."""

    gpus: int
    memory_gb: float | None
    cores: int | None
    memory_bandwidth_gb_per_second: float | None
    tdp_watts: float | None

    @classmethod
    def of(cls, gpu: Gpu) -> "BoardResponse | None":
        """Returns the board that carries this GPU; None if the number of GPUs per board is unknown."""
        count = gpu.gpus_per_board
        if count is None:
            return None
        figures = {name: getattr(gpu, name) for name in cls.model_fields if name != "gpus"}
        return cls(gpus=count, **{name: figure and count * figure for name, figure in figures.items()})


class GpuResponse(copy_of(Gpu, *_NOT_SHOWN), ResponseModel):  # type: ignore[misc]
    """A GPU, which may be a part of a card. All figures are of one GPU; null: unknown."""

    slices: list[int]
    """Numbers of chips of the slices of a TPU pod; empty: unknown, or the GPU is no TPU."""
    board: BoardResponse | None
    """Totals of the board, which may hold several GPUs."""
    successor: str | None
    """The newer GPU that replaces it, if released by the catalog's day."""
    instance_types: int
    """How many instance types on the catalog's day have this GPU."""
    precisions: dict[str, PrecisionDetailResponse]
    """By the id of the precision, see `/precisions`; one that is missing is unknown."""

    @classmethod
    def of(cls, gpu: Gpu, catalog: Catalog) -> "GpuResponse":
        """Returns the GPU with the number of instance types that have it."""
        return cls.like(
            gpu,
            slices=list(gpu.slice_sizes),
            board=BoardResponse.of(gpu),
            successor=_successor(gpu, catalog),
            instance_types=sum(type_.gpu is not None and type_.gpu.id == gpu.id for type_ in catalog.instance_types),
            precisions=gpu.rates,
        )


def _successor(gpu: Gpu, catalog: Catalog) -> str | None:
    """Returns the successor, unless it was released after the catalog's day."""
    newer = None if gpu.successor is None else catalog.reference.gpus[gpu.successor]
    released = None if newer is None else newer.released_on
    # The date of a release may be a month or a year only; as text it compares with a day all the same.
    return gpu.successor if released is not None and released <= catalog.day.isoformat() else None


class GpusRequest(PageRequest):
    """Which GPUs to list, and in which order."""

    gpu: Annotated[Names, Field(description="Ids, names or aliases; `a100` finds every A100 card.")] = ()
    vendor: Annotated[Names, Field(description="Makers of the chip, such as `nvidia`.")] = ()
    kind: Annotated[Names, Field(description="`gpu`, `tpu`, `npu` or `fpga`.")] = ()
    platform: Annotated[Names, Field(description="Toolkits of its code, such as `cuda` or `rocm`.")] = ()
    architecture: Annotated[Names, Field(description="Architectures, such as `hopper` or `cdna-3`.")] = ()
    precision: Annotated[Precisions, Field(description="Number formats, all of which it must run.")] = ()
    precision_support: Annotated[
        PrecisionSupport,
        Field(
            description="How well the GPU must run the precisions: `accelerated` by matrix units, at least "
            "`native`, or `any` rate."
        ),
    ] = "native"
    min_memory_gb: Annotated[Amount | None, Field(description="Memory of one GPU in GB, at least.")] = None
    max_memory_gb: Annotated[Amount | None, Field(description="Memory of one GPU in GB, at most.")] = None
    min_released_year: Annotated[Amount | None, Field(description="Released in this year or later.")] = None
    max_released_year: Annotated[Amount | None, Field(description="Released in this year or earlier.")] = None
    tensor_cores: Annotated[bool | None, Field(description="Whether it has tensor cores.")] = None
    provider: Annotated[Names, Field(description="Providers that rent it out on the catalog's day.")] = ()
    sort: Annotated[
        Columns,
        Field(
            description="`id`, `released_on`, any numeric column, or a dense peak such as `fp16_tflops`; `-` for "
            "descending. A GPU without the requested `precision_support` has no peak and comes last."
        ),
    ] = ()


NUMERIC = (
    "memory_gb", "usable_memory_gib", "memory_bandwidth_gb_per_second", "tdp_watts", "cores", "base_clock_mhz",
    "boost_clock_mhz", "tensor_core_generation", "interconnect_gb_per_second", "fraction",
)  # fmt: skip
PEAK = "_tflops"


@router.get("/gpus", summary="List GPUs", response_model=Page[GpuResponse])
def get_gpus(request: Request, query: Annotated[GpusRequest, Query()], live: Pinned) -> Response:
    """Every GPU, TPU and NPU of the catalog with its precisions."""
    catalog = catalog_on(live, query)
    peaks = [name.removeprefix("-").removesuffix(PEAK) for name in query.sort if name.endswith(PEAK)]
    gpus = sorted(_filtered(query, catalog), key=lambda gpu: (sum(map(gpu.is_unfit_for, peaks)), gpu.id))
    rows = sorted_by(query.sort, partial(_reader_of, query.precision_support, catalog), gpus)
    return page_answer(request, query, catalog, rows, GpuResponse, partial(GpuResponse.of, catalog=catalog))


def _filtered(query: GpusRequest, catalog: Catalog) -> list[Gpu]:
    require_range("memory_gb", query.min_memory_gb, query.max_memory_gb)
    require_range("released_year", query.min_released_year, query.max_released_year)
    named = {
        "id": resolved("gpu", query.gpu, catalog),
        "vendor": resolved("gpu_vendor", query.vendor, catalog, field="vendor"),
        "kind": resolved("gpu_kind", query.kind, catalog, field="kind"),
        "platform": resolved("platform", query.platform, catalog),
        "architecture": resolved("architecture", query.architecture, catalog),
    }
    precisions = resolved("precision", query.precision, catalog)
    providers = resolved("provider", query.provider, catalog)
    # Not every GPU of the catalog is for rent on its day.
    rented = {type_.gpu.id for type_ in catalog.instance_types if type_.gpu and type_.provider in providers}
    return [
        gpu
        for gpu in having(named, catalog.reference.gpus.values())
        if (not providers or gpu.id in rented)
        and within(gpu.memory_gb, query.min_memory_gb, query.max_memory_gb)
        and within(gpu.released_year, query.min_released_year, query.max_released_year)
        and (query.tensor_cores is None or gpu.has_tensor_cores == query.tensor_cores)
        and all(gpu.runs(precision, query.precision_support) for precision in precisions)
    ]


def _reader_of(support: PrecisionSupport, catalog: Catalog, column: str) -> Callable[[Gpu], Any]:
    """Returns a function that reads a column of a GPU; a peak is None where the GPU lacks the requested support."""
    precision = column.removesuffix(PEAK)
    if column.endswith(PEAK) and precision in catalog.reference.precisions:
        return lambda gpu: gpu.tflops(precision) if gpu.runs(precision, support) else None
    peaks = (precision + PEAK for precision in catalog.reference.precisions)
    return attribute_reader(("id", "released_on", *NUMERIC, *peaks), column)


class GpuCandidatesResponse(ResponseModel):
    """The GPUs that a name may mean; one for an id, several for a name such as `a100`."""

    asked: Annotated[str, Field(description="The name in the path.")]
    ambiguous: Annotated[bool, Field(description="Whether the name means several GPUs.")]
    items: list[GpuResponse]
    catalog: CatalogStamp


@router.get("/gpus/{id}", summary="One GPU, or all that a name may mean", response_model=GpuCandidatesResponse)
def get_gpu(id: Name, query: Annotated[DayRequest, Query()], live: Pinned) -> Response:  # noqa: A002
    """An id answers with one GPU; an alias such as `a100` answers with every card it may mean."""
    catalog = catalog_on(live, query)
    try:
        ids = resolve_gpus([id], catalog, "id")
    except UnknownName as error:
        raise NotFound(error.sentence, field="id", near=error.near) from None
    answer = GpuCandidatesResponse(
        asked=id,
        ambiguous=len(ids) > 1,
        items=[GpuResponse.of(catalog.reference.gpus[gpu], catalog) for gpu in ids],
        catalog=stamp(catalog),
    )
    return json_answer(answer, catalog)
