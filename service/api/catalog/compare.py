"""Instance types side by side against a baseline: relative speed, relative cost, and speed per cost."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.api.catalog.filters import resolved
from service.api.catalog.instance_type import InstanceResponse, PriceResponse, instance_item
from service.api.catalog.instances import default_offer
from service.api.http.current import CatalogStamp, Live, catalog_on, stamp
from service.api.http.etag import json_answer
from service.api.http.fields import MOST_VALUES, DayRequest, Name, Names, ResponseModel, SplitAtCommas
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve, resolve_instances
from service.domain.recommend.compare import Comparison, compare

router = APIRouter(tags=["catalog"])


class CompareRequest(DayRequest):
    """What to compare, and by what."""

    instance: Annotated[
        tuple[Name, ...],
        Field(min_length=1, max_length=MOST_VALUES),
        SplitAtCommas,
        Field(description="Instance types, as `name` or `provider/name`.", json_schema_extra={"minItems": 1}),
    ]
    baseline: Annotated[Name | None, Field(description="What the ratios refer to; left out: the first instance.")] = (
        None
    )
    workload: Annotated[Name | None, Field(description="The name of a measured workload.")] = None
    precision: Annotated[Name | None, Field(description="Left out: the fastest usual precision of each GPU.")] = None
    region: Names = ()


class ComparedInstanceResponse(ResponseModel):
    """One instance type against the baseline; a ratio is null where one of its figures is not known."""

    instance: str
    basis: Literal["measured", "peak"]
    speed: float | None = Field(description="Samples per second when measured; else dense peak in TFLOPS.")
    speed_unit: Literal["samples_per_second", "tflops"]
    precision: str | None
    batch_size: int | None
    usd_per_hour: float | None
    price: PriceResponse | None
    relative_speed: float | None
    relative_cost: float | None
    speed_per_cost: float | None
    samples_per_usd: float | None
    evidence: list[str] = Field(description="Ids of the measurements used.")
    specs: InstanceResponse


class ComparisonResponse(ResponseModel):
    """The rows in the order asked for, and what they refer to."""

    baseline: str
    items: list[ComparedInstanceResponse]
    notes: list[str]
    catalog: CatalogStamp


@router.get(
    "/compare",
    summary="Compare instance types",
    response_model=ComparisonResponse,
)
async def get_compare(asked: Annotated[CompareRequest, Query()], live: Live) -> Response:
    """Relative speed, relative cost and speed per cost: measured for a named workload, else by peak."""
    catalog = catalog_on(live, asked.as_of)
    instances = resolve_instances(asked.instance, catalog)
    baseline = resolve_instances([asked.baseline], catalog, "baseline")[0] if asked.baseline else instances[0]
    workloads = {seen.workload for seen in catalog.measurements}
    workload = resolve("workload", [asked.workload], workloads, "workload")[0] if asked.workload else None
    precision = resolved("precision", [asked.precision], catalog)[0] if asked.precision else None
    regions = resolved("region", asked.region, catalog)
    everyone = tuple(dict.fromkeys([*instances, baseline]))
    found = compare(catalog, everyone, baseline, workload, precision, regions)
    rows = [compare_row(each, catalog) for each in found if each.instance in instances]
    notes = [
        f"{each.instance} has no measurement of '{workload}', so its ratios are not known."
        for each in found
        if workload and each.speed is None
    ]
    told = ComparisonResponse(baseline=baseline, items=rows, notes=notes, catalog=stamp(catalog))
    return json_answer(told.model_dump_json().encode(), catalog)


def compare_row(found: Comparison, catalog: Catalog) -> ComparedInstanceResponse:
    place = catalog.place_of[found.instance]
    item = instance_item(catalog, place, default_offer(catalog, place))
    return ComparedInstanceResponse(
        instance=found.instance,
        basis="measured" if found.measured else "peak",
        speed=found.speed,
        speed_unit="samples_per_second" if found.measured else "tflops",
        precision=found.precision,
        batch_size=found.batch_size,
        usd_per_hour=found.usd_per_hour,
        price=None if found.offer is None else PriceResponse.of(found.offer),
        relative_speed=found.relative_speed,
        relative_cost=found.relative_cost,
        speed_per_cost=found.speed_per_cost,
        samples_per_usd=found.samples_per_usd,
        evidence=list(found.evidence),
        specs=InstanceResponse.model_validate_json(item),
    )
