"""Instance types side by side against a baseline: relative speed, relative cost, and speed per cost."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.api.catalog.filters import resolved
from service.api.catalog.instance_type import InstanceResponse, PriceResponse, instance_response
from service.api.http.current import CatalogStamp, Pinned, catalog_on, stamp
from service.api.http.etag import json_answer
from service.api.http.fields import MAX_VALUES, DayRequest, Name, Names, ResponseModel, SplitAtCommas
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve, resolve_instances
from service.domain.estimate.compare import Comparison, compare

router = APIRouter(tags=["catalog"])


class CompareRequest(DayRequest):
    """Instance types to compare, and the figures to compare them by."""

    instance: Annotated[
        tuple[Name, ...],
        Field(min_length=1, max_length=MAX_VALUES),
        SplitAtCommas,
        Field(description="Instance types, as `name` or `provider/name`.", json_schema_extra={"minItems": 1}),
    ]
    baseline: Annotated[
        Name | None, Field(description="The instance type that ratios refer to. Default: the first instance.")
    ] = None
    workload: Annotated[Name | None, Field(description="The name of a measured workload.")] = None
    precision: Annotated[Name | None, Field(description="Default: the fastest usual precision of each GPU.")] = None
    region: Annotated[Names, Field(description="Regions whose prices count, see `/regions`. Default: all.")] = ()


class ComparedInstanceResponse(ResponseModel):
    """One instance type against the baseline; a ratio is null if one of its figures is unknown."""

    instance: str
    """The instance type, as `provider/name`."""
    basis: Literal["measured", "peak"]
    """`measured` under the name of `workload`; `peak`: the dense peak of the machine."""
    speed: float | None
    """Samples per second when measured; else dense peak in TFLOPS."""
    speed_unit: Literal["samples_per_second", "tflops"]
    """`samples_per_second` if `basis` is `measured`, else 10^12 operations per second."""
    precision: str | None = Field(description="The precision of the measurement or of the peak; null: unknown.")
    batch_size: int | None
    """Samples per step of the measurement; null: not stated, or without a measurement."""
    usd_per_hour: float | None
    """`usd_per_hour` of `price`; null: unknown."""
    price: PriceResponse | None
    """The lowest on-demand price in the regions asked for, or else the lowest spot price; null: no offer."""
    relative_speed: float | None
    """`speed` over that of the baseline."""
    relative_cost: float | None
    """`usd_per_hour` over that of the baseline."""
    relative_peak: float | None
    """Dense peak by the data sheets, over that of the baseline."""
    speed_per_peak: float | None
    """Relative speed over relative peak; below 1, the speed-up is less than the data sheets suggest."""
    speed_per_cost: float | None
    """`relative_speed` over `relative_cost`."""
    samples_per_usd: float | None
    """Null unless measured."""
    evidence: list[str]
    """Ids of the measurements used."""
    specs: InstanceResponse
    """The instance type as a list shows it, whose `price` is that of all regions."""

    @classmethod
    def of(cls, row: Comparison, catalog: Catalog) -> "ComparedInstanceResponse":
        """Returns the row with the instance type and its default offer."""
        return cls.like(
            row,
            basis="measured" if row.measured else "peak",
            speed_unit="samples_per_second" if row.measured else "tflops",
            price=None if row.offer is None else PriceResponse.of(row.offer),
            specs=instance_response(catalog, catalog.index_of[row.instance]),
        )


class ComparisonResponse(ResponseModel):
    """The instance types in the order of the request, and the baseline of their ratios."""

    baseline: str = Field(description="The instance type that the ratios refer to, as `provider/name`.")
    items: list[ComparedInstanceResponse]
    notes: list[str] = Field(description="Why the speed is unknown: a sentence for each instance type without one.")
    catalog: CatalogStamp


@router.get("/compare", summary="Compare instance types", response_model=ComparisonResponse)
def get_compare(query: Annotated[CompareRequest, Query()], live: Pinned) -> Response:
    """Relative speed, relative cost and speed per cost: measured for a named workload, else by peak."""
    catalog = catalog_on(live, query)
    instances = resolve_instances(query.instance, catalog)
    baseline = resolve_instances([query.baseline], catalog, "baseline")[0] if query.baseline else instances[0]
    workloads = {measurement.workload for measurement in catalog.measurements}
    workload = resolve("workload", [query.workload], workloads, "workload")[0] if query.workload else None
    precision = resolved("precision", [query.precision], catalog)[0] if query.precision else None
    regions = resolved("region", query.region, catalog)
    # The baseline is computed even if it is not listed, because every ratio refers to it.
    compared = tuple(dict.fromkeys([*instances, baseline]))
    comparisons = compare(catalog, compared, baseline, workload, precision, regions)
    answer = ComparisonResponse(
        baseline=baseline,
        items=[ComparedInstanceResponse.of(row, catalog) for row in comparisons if row.instance in instances],
        notes=[
            f"{_why_unknown(row.instance, workload, precision, catalog)}, so "
            f"{'no relative speed is known' if row.instance == baseline else 'its relative speed is unknown'}."
            for row in comparisons
            if row.speed is None
        ],
        catalog=stamp(catalog),
    )
    return json_answer(answer, catalog)


def _why_unknown(instance: str, workload: str | None, precision: str | None, catalog: Catalog) -> str:
    """Returns the start of a sentence on an instance type without a speed."""
    if workload is not None:
        return f"{instance} has no measurement of '{workload}' on a single machine"
    gpu = catalog.instance_types[catalog.index_of[instance]].gpu
    if gpu is None:
        return f"{instance} has no GPU whose peak could be compared"
    if precision is not None and gpu.rate_at(precision) is not None and not gpu.runs(precision):
        return f"{instance} has no {precision}: the {gpu.name} does not run it natively"
    return f"{instance} has no known peak{f' in {precision}' if precision else ''} of its {gpu.name}"
