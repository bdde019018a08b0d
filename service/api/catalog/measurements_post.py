"""POST /measurements: measurements of callers; all of a request are stored, or none."""

from datetime import date
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request
from pydantic import BeforeValidator, Field, StringConstraints

from service.api.access.scopes import KeyedItemsRoute, needs, require_scope
from service.api.catalog.measurements import MeasurementResponse
from service.api.http.body import MAX_ITEMS
from service.api.http.current import EARLIEST, Live, caller_of
from service.api.http.examples import MEASUREMENTS
from service.api.http.fields import (
    LARGEST,
    AtLeastOne,
    AtLeastOneOfMany,
    BodyModel,
    Day,
    Name,
    Named,
    Positive,
    RequestModel,
    ResponseModel,
    whole,
)
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.names import resolve, resolve_instance
from service.domain.catalog.reference import Measurement
from service.domain.catalog.software_support import software_names
from service.domain.errors import QuestionError
from service.domain.evidence.measurement_id import identified, most_samples_per_second, samples_per_second
from service.domain.jobs.stacks import UNKNOWN, software_called
from service.domain.versions import split_requirement

router = APIRouter(tags=["catalog"], route_class=KeyedItemsRoute)

LOWEST_RATE = 1e-9
MAX_BATCH_SIZE = 1_000_000_000
UNNAMED_SOURCE = "sent"
LOOP = ("steps", "seconds", "batch_size", "world_size")
"""Fields that describe a training loop, from which the rate follows."""

PrintedName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Text = Annotated[str, StringConstraints(max_length=1000, pattern=r"^[^\x00]*$")]
Rate = Annotated[float, Field(ge=LOWEST_RATE, le=LARGEST, allow_inf_nan=False)]
UsdPerHour = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]
Steps = Annotated[int, Field(ge=1, le=1_000_000_000_000), BeforeValidator(whole)]
Workers = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(whole)]


class NamedWorkloadRequest(BodyModel):
    """The name of a workload, as an object."""

    name: Annotated[PrintedName, Field(description="The name of the workload.")]


class SoftwareUsedRequest(BodyModel):
    """The software of the measurement."""

    framework: Annotated[
        PrintedName | None, Field(description="The framework and its version, such as `pytorch==2.0`.")
    ] = None


class MeasurementRequest(BodyModel):
    """One measurement: of which workload, on which machine, and how fast, as a rate or as the time of a loop."""

    name: PrintedName | None = None
    """The name of the workload; or send `workload`."""
    workload: Named[PrintedName, NamedWorkloadRequest] | None = None
    """The name of the workload, as a text or as an object with `name`; or send `name`."""
    machine: Name
    """The instance type, as `name` or `provider/name`."""
    nodes: AtLeastOne = 1
    """Machines of this type that ran it together."""
    precision: Name | None = None
    """The number format of the multiplications, see `/precisions`. Null: unknown."""
    software: SoftwareUsedRequest = SoftwareUsedRequest()
    samples_per_second: Rate | None = None
    """Samples per second of all nodes together."""
    steps: Steps | None = None
    """With `seconds`, `batch_size` and `world_size`: the rate is computed from them."""
    seconds: Positive | None = None
    """Seconds that all `steps` took."""
    batch_size: AtLeastOneOfMany | None = None
    """Samples per step: of each worker if `steps` is sent, else of all workers together."""
    world_size: Workers | None = None
    """Number of workers, each with its own batch."""
    usd_per_hour: UsdPerHour | None = None
    """Price paid for one machine."""
    watts: Positive | None = None
    """Power that one machine drew."""
    measured_at: Day | None = None
    """The day of the measurement. Default: today, in UTC."""
    source: PrintedName = UNNAMED_SOURCE
    """Who or what measured."""
    note: Text | None = None
    """A remark, which is shown with the measurement."""
    public: bool = False
    """Whether every caller sees and uses it; needs a key with the scope `admin`, too."""


class MeasurementsPostRequest(BodyModel):
    """Measurements to store."""

    items: Annotated[list[MeasurementRequest], Field(min_length=1, max_length=MAX_ITEMS)]


class MeasurementsPostResponse(ResponseModel):
    """The measurements as stored, in the order in which they were sent."""

    items: list[MeasurementResponse]


@router.post(
    "/measurements",
    summary="Send measurements",
    status_code=201,
    response_model=MeasurementsPostResponse,
    openapi_extra=needs("measurements"),
)
def post_measurements(
    sent: Annotated[MeasurementsPostRequest, Body(openapi_examples=MEASUREMENTS)],
    _query: Annotated[RequestModel, Query()],
    live: Live,
    request: Request,
) -> MeasurementsPostResponse:
    """Store measurements of named workloads; every process of the service uses them within seconds.

    Measurements belong to the owner of the key: unless they are `public`, no other caller sees them or gets an answer
    that rests on them.

    All items are stored, or none. A measurement that is sent twice is stored once, so a client that lost the answer can
    send the request again; with `measured_at`, that also holds on a later day.
    """
    catalog, key = live.on(None), caller_of(request)
    assert key is not None, "the route takes a key"
    if any(item.public for item in sent.items):
        require_scope(key, "admin")
    items = [_measurement_of(item, catalog, key.owner, f"items.{index}") for index, item in enumerate(sent.items)]
    kept = live.add_measurements(items, key=key.id, most=request.app.state.measurements_per_key)
    catalog = live.on(None)
    return MeasurementsPostResponse(items=[MeasurementResponse.of(row, catalog) for row in kept])


def _measurement_of(sent: MeasurementRequest, catalog: Catalog, owner: str, field: str) -> Measurement:
    """Returns the measurement with the names of the catalog. Raises `QuestionError`."""
    machine = resolve_instance(sent.machine, catalog, f"{field}.machine")
    precision = (
        sent.precision and resolve("precision", [sent.precision], catalog.reference.precisions, f"{field}.precision")[0]
    )
    instance_type = catalog.instance_types[catalog.index_of[machine]]
    rate, batch_size, seconds_per_batch = _speed_of(sent, field)
    _require_possible(rate, instance_type, sent, field)
    software = sent.software.framework
    return identified(
        Measurement(
            id="",
            workload=_workload_of(sent, field),
            framework=software and _framework_of(software, f"{field}.software.framework", catalog),
            machine=machine,
            gpu_count=instance_type.gpu_count,
            precision=precision,
            batch_size=batch_size,
            seconds_per_batch=seconds_per_batch,
            samples_per_second=rate,
            usd_per_hour=sent.usd_per_hour,
            watts=sent.watts,
            measured_on=_day_of(sent, catalog.day, f"{field}.measured_at"),
            source=sent.source,
            note=sent.note,
            nodes=sent.nodes,
            software=software,
            owner=None if sent.public else owner,
        )
    )


def _workload_of(sent: MeasurementRequest, field: str) -> str:
    named = sent.workload.name if isinstance(sent.workload, NamedWorkloadRequest) else sent.workload
    if (named is None) == (sent.name is None):
        raise QuestionError(f"Send either {field}.name or {field}.workload.", field=f"{field}.name")
    return named or sent.name or ""


def _speed_of(sent: MeasurementRequest, field: str) -> tuple[float, int | None, float | None]:
    """Returns samples per second, samples per step, and seconds per step if the time of a loop was sent."""
    values = {name: getattr(sent, name) for name in LOOP}
    loop = any(values[name] is not None for name in LOOP if name != "batch_size")
    if loop == (sent.samples_per_second is not None):
        raise QuestionError(
            f"Send either {field}.samples_per_second, or all of steps, seconds, batch_size and world_size.",
            field=f"{field}.samples_per_second",
        )
    if sent.samples_per_second is not None:
        return sent.samples_per_second, sent.batch_size, None
    if sent.steps is None or sent.seconds is None or sent.batch_size is None or sent.world_size is None:
        missing = next(name for name in LOOP if values[name] is None)
        raise QuestionError(
            f"'{field}.{missing}' is missing: steps need {', '.join(LOOP[1:])}.", field=f"{field}.{missing}"
        )
    batch_size = sent.batch_size * sent.world_size
    if batch_size > MAX_BATCH_SIZE:
        raise QuestionError(f"batch_size x world_size must be at most {MAX_BATCH_SIZE:,}.", field=f"{field}.batch_size")
    rate = samples_per_second(sent.steps, sent.seconds, sent.batch_size, sent.world_size)
    if not LOWEST_RATE <= rate <= LARGEST:
        raise QuestionError(
            f"That is {rate:.3g} samples per second; the rate must be between {LOWEST_RATE:g} and {LARGEST:g}.",
            field=f"{field}.seconds",
        )
    return rate, batch_size, sent.seconds / sent.steps


def _require_possible(rate: float, instance_type: InstanceType, sent: MeasurementRequest, field: str) -> None:
    """Raises `QuestionError` for a rate above what the memory of the machine could deliver."""
    most = most_samples_per_second(instance_type, sent.nodes)
    if most is not None and rate > most:
        wrong = "samples_per_second" if sent.samples_per_second is not None else "seconds"
        raise QuestionError(
            f"{rate:.3g} samples per second are impossible on {sent.nodes} x {instance_type.id}: the GPUs read at most "
            f"{most:.3g} bytes per second from their memory, and a sample takes at least one.",
            field=f"{field}.{wrong}",
        )


def _framework_of(text: str, field: str, catalog: Catalog) -> str:
    """Returns the name of the software in the catalog, or as it was sent if the catalog has none."""
    name, _ = split_requirement(text, field)
    line = software_called(name).line
    known = catalog.derive(software_names)
    return name if name in known or line == UNKNOWN.line else line


def _day_of(sent: MeasurementRequest, today: date, field: str) -> date:
    day = sent.measured_at or today
    if day > today:
        raise QuestionError(f"{day} lies in the future; today is {today} in UTC.", field=field)
    if day < EARLIEST:
        raise QuestionError(f"The catalog begins in {EARLIEST.year}.", field=field)
    return day
