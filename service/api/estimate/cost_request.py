"""What a cost depends on beside the workload and the machine, as it is sent, and the same as a run of the domain."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from service.api.http.fields import LARGEST, MOST_VALUES, Amount, AtLeastOne, BodyModel, Name, Positive, split_commas
from service.api.workload.workload import CheckpointRequest, WorkloadRequest
from service.domain.band import Band
from service.domain.bill.run import LONGEST_HOURS, BilledRun, StoredData, TransferredData
from service.domain.bill.serving import Load
from service.domain.errors import QuestionError

Hours = Annotated[float, Field(gt=0, le=LONGEST_HOURS, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=1e-9, le=LARGEST, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


def one_or_more(value: Any) -> Any:
    """A name, names between commas, a list of names, or null for none."""
    return () if value is None else split_commas(value)


OneOrMore = Annotated[
    tuple[Name, ...],
    Field(max_length=MOST_VALUES),
    BeforeValidator(
        one_or_more, json_schema_input_type=Annotated[list[Name], Field(max_length=MOST_VALUES)] | Name | None
    ),
]


class StorageRequest(BodyModel):
    """Something kept while the run lasts, or for hours of its own."""

    gib: Amount
    storage_class: Annotated[Name, Field(alias="class", description="Such as `gp3`, `s3-standard` or `pd-ssd`.")]
    hours: Annotated[Hours | None, Field(description="Left out: as long as the run lasts.")] = None
    what: Annotated[Name, Field(description="For the bill, such as `dataset` or `checkpoints`.")] = "volume"


def one_or_several(value: Any) -> Any:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, dict) else value


Storages = Annotated[
    tuple[StorageRequest, ...],
    Field(max_length=MOST_VALUES),
    BeforeValidator(
        one_or_several,
        json_schema_input_type=Annotated[list[StorageRequest], Field(max_length=MOST_VALUES)] | StorageRequest | None,
    ),
]


class BaselineRequest(BodyModel):
    """What the run cost before, for a gate."""

    usd: Annotated[float, Field(ge=0.000001, le=LARGEST, allow_inf_nan=False)]
    fail_above_percent: Annotated[Amount, Field(description="How much more is allowed.")] = 0


class LoadRequest(BodyModel):
    """Requests or answered tokens per second to serve for a month of 730 hours, day and night."""

    requests_per_second: Positive | None = None
    tokens_per_second: Annotated[Positive | None, Field(description="Tokens of the answers.")] = None
    utilisation: Annotated[
        float, Field(ge=0.01, le=1, description="The share of what a replica can do that it is loaded to.")
    ] = 1.0
    max_seconds_to_first_token: Annotated[Positive | None, Field(description="Of the likely figure.")] = None
    max_seconds_per_output_token: Annotated[Positive | None, Field(description="Of the likely figure.")] = None


class MeasuredRateRequest(BodyModel):
    """What one gang of nodes was seen to do, and how much there is to do: it takes the place of the physics."""

    samples_per_second: Rate | None = None
    tokens_per_second: Rate | None = None
    samples: Annotated[Positive | None, Field(description="Of one epoch, where epochs are told.")] = None
    tokens: Positive | None = None
    epochs: Positive | None = None


class CostRequest(BodyModel):
    """What a run costs beside its hours, in which markets and regions, and what it may cost."""

    instances: Annotated[
        AtLeastOne,
        Field(description="Independent gangs of `nodes`: they share the amount of work, and each runs plain `hours`."),
    ] = 1
    region: Annotated[OneOrMore, Field(description="Left out: the cheapest region of every market.")] = ()
    market: Annotated[
        OneOrMore,
        Field(
            description="`on_demand`, `spot`, `reserved`, or a term such as `1y_reserved_no_upfront`. "
            "Left out: every market side by side, and managed services too."
        ),
    ] = ()
    managed_service: Annotated[
        Name | None, Field(description="Rent through it, such as `sagemaker-training`; its premium is a part.")
    ] = None
    storage: Annotated[Storages, Field(description="One, or a list.")] = ()
    data_transfer_out_gb: Annotated[Amount, Field(description="To the internet.")] = 0
    data_transfer_already_gb: Annotated[Amount, Field(description="Sent out earlier in the month: tiers go by it.")] = 0
    data_transfer_between_regions_gb: Amount = 0
    data_transfer_between_zones_gb: Amount = 0
    setup_minutes: Annotated[
        float, Field(ge=0, le=1_000_000, allow_inf_nan=False, description="Boot and set-up, per machine.")
    ] = 0
    idle_fraction: Annotated[Share, Field(description="The share of paid time in which nothing runs.")] = 0
    checkpoint: Annotated[
        CheckpointRequest | None, Field(description="How the run saves and resumes; a workload may tell it too.")
    ] = None
    load: LoadRequest | None = None
    baseline: Annotated[BaselineRequest | None, Field(description="The verdict compares with it.")] = None
    budget_usd: Annotated[Positive | None, Field(description="The verdict fails above it.")] = None


def run_of(asked: CostRequest, hours: Band, nodes: int, basis: str) -> BilledRun:
    """The run whose work takes each machine so many hours."""
    sent = (
        (asked.data_transfer_out_gb, "internet", asked.data_transfer_already_gb),
        (asked.data_transfer_between_regions_gb, "region", 0.0),
        (asked.data_transfer_between_zones_gb, "zone", 0.0),
    )
    return BilledRun(
        hours=hours,
        nodes=nodes,
        instances=asked.instances,
        setup_minutes=asked.setup_minutes,
        idle_fraction=asked.idle_fraction,
        stored=tuple(StoredData(each.what, each.gib, each.storage_class, each.hours) for each in asked.storage),
        sent=tuple(TransferredData(gb, destination, already) for gb, destination, already in sent if gb),
        basis=basis,
    )


def checkpoint_told(asked: CostRequest, work: WorkloadRequest | None) -> CheckpointRequest:
    return asked.checkpoint or (work.checkpoint if work is not None else CheckpointRequest())


def load_of(asked: LoadRequest) -> Load:
    """Raises `QuestionError` unless the load is told in one unit."""
    if (asked.requests_per_second is None) == (asked.tokens_per_second is None):
        raise QuestionError("Tell either load.requests_per_second or load.tokens_per_second.", field="load")
    return Load(**{name: getattr(asked, name) for name in LoadRequest.model_fields})


def only_one(told: Sequence[tuple[str, object]], needed: str) -> None:
    """Raises `QuestionError` unless exactly one of several ways was taken."""
    given = [name for name, value in told if value is not None]
    if not given:
        raise QuestionError(needed, field=told[0][0])
    if len(given) > 1:
        raise QuestionError(f"Tell either {' or '.join(given)}, not both.", field=given[1])
