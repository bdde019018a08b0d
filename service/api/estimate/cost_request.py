"""The part of an estimate's body that is about cost: markets, storage, transfer, load and limits."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from service.api.catalog.filters import resolved
from service.api.http.fields import LARGEST, MAX_VALUES, Amount, AtLeastOne, BodyModel, Name, Names, Positive
from service.api.workload.workload import CheckpointRequest, ServingRequest, WorkloadRequest
from service.domain.bill.payment_options import service_known
from service.domain.bill.run import LONGEST_HOURS, Run, StoredData, TransferredData
from service.domain.bill.seller_terms import known_storage_class
from service.domain.bill.verdict import Gate
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.offer import Market
from service.domain.errors import QuestionError

Hours = Annotated[float, Field(gt=0, le=LONGEST_HOURS, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=1e-9, le=LARGEST, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class StorageRequest(BodyModel):
    """Data that is stored while the run lasts, or for a stated number of hours."""

    model_config = ConfigDict(serialize_by_alias=True)

    gib: Annotated[Amount, Field(description="Stored GiB; for block storage, on each machine.")]
    storage_class: Annotated[Name, Field(alias="class", description="The storage class, such as `gp3` or `pd-ssd`.")]
    hours: Annotated[Hours | None, Field(description="Hours of storage. Default: as long as the run lasts.")] = None
    what: Annotated[Name, Field(description="A name on the bill, such as `dataset` or `checkpoints`.")] = "volume"


def _one_or_several(value: Any) -> Any:
    """Returns one object, a list of objects, or null for none, as a tuple."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, dict) else value


Storages = Annotated[
    tuple[StorageRequest, ...],
    Field(max_length=MAX_VALUES),
    BeforeValidator(
        _one_or_several,
        json_schema_input_type=Annotated[list[StorageRequest], Field(max_length=MAX_VALUES)] | StorageRequest | None,
    ),
]


class BaselineRequest(BodyModel):
    """The cost of an earlier run, to compare with."""

    usd: Annotated[float, Field(ge=0.000001, le=LARGEST, allow_inf_nan=False, description="Cost in US dollars.")]
    fail_above_percent: Annotated[Amount, Field(description="Allowed increase in percent of `usd`.")] = 0


class BillingRequest(BodyModel):
    """Charges of a run apart from its work: set-up, idle time, data and a managed service."""

    managed_service: Name | None = None
    """The managed service that rents the machine, such as `sagemaker-training`; its surcharge is part of the bill.
    Default: none."""
    storage: Storages = ()
    """Stored data, as one object or a list, such as `{"gib": 500, "class": "gp3"}`. Default: none."""
    data_transfer_out_gb: Amount = 0
    """GB that are sent to the internet."""
    data_transfer_already_gb: Amount = 0
    """GB sent to the internet earlier in the month, which decide the price tier."""
    data_transfer_between_regions_gb: Amount = 0
    """GB that are sent to other regions."""
    data_transfer_between_zones_gb: Amount = 0
    """GB that are sent to other zones of the region."""
    setup_minutes: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] = 0
    """Minutes of boot and set-up, per machine."""
    commitments_held: Names = ()
    """Commitments that the caller pays for anyway, such as `1y_reserved_all_upfront`, or `reserved` for all. Under
    these, a bill has only the hours of the run; under any other commitment, whole terms."""
    idle_fraction: Share = 0
    """Share of the paid time in which nothing runs, below 1."""
    checkpoint: CheckpointRequest | None = None
    """How the run saves and resumes. Default: `workload.checkpoint`."""

    def checkpoint_of(self, work: WorkloadRequest | None) -> CheckpointRequest:
        """Returns the run's checkpoints, else the workload's."""
        if self.checkpoint is not None:
            return self.checkpoint
        return CheckpointRequest() if work is None else work.checkpoint


class CostRequest(BillingRequest):
    """The part of an estimate that is about cost: instances, markets, regions, prices and limits."""

    instances: AtLeastOne | None = None
    """Independent copies of the `nodes`. They share an amount of work, where several runs of training are whole; plain
    `hours` are those of each. Default: as many as a load needs, else `workload.concurrent_runs`."""
    region: Names = ()
    """Regions to price, see `/regions`. Default: the cheapest region of every market."""
    zone: Name | None = None
    """Id of the zone to price, such as `use1-az4`: its own prices, else those of its region. Default: the cheapest."""
    market: Names = ()
    """`on_demand`, `spot`, `reserved`, or a term such as `1y_reserved_all_upfront`. Default: every market, and every
    managed service."""
    usd_per_hour: dict[Market, Positive] | None = None
    """The caller's prices per machine and hour by market, such as `{"on_demand": 2.5}`. Rounding, interruptions and the
    prices of data are those of the seller, in the `region` if one is given. A price of `reserved` is that of a
    commitment that the caller holds, so that the bill has only the hours of the run. Default: those of the catalog."""
    load: Annotated[ServingRequest | None, Field(description="The same as `workload.serving`.")] = None
    baseline: BaselineRequest | None = None
    """An earlier cost with which the likely total is compared. Default: none."""
    budget_usd: Positive | None = None
    """Most US dollars that the likely total of the run, or of a month (730 hours) of a load, may be. Default: no
    budget."""


def run_of(body: BillingRequest, catalog: Catalog, nodes: int = 1, instances: int = 1) -> Run:
    """Returns the run that the body describes. Raises `UnknownName` for an unknown commitment or storage class."""
    prices = catalog.reference.storage_prices
    sent = (
        (body.data_transfer_out_gb, "internet", body.data_transfer_already_gb),
        (body.data_transfer_between_regions_gb, "region", 0.0),
        (body.data_transfer_between_zones_gb, "zone", 0.0),
    )
    return Run(
        nodes=nodes,
        instances=instances,
        setup_minutes=body.setup_minutes,
        idle_fraction=body.idle_fraction,
        stored=tuple(
            StoredData(data.what, data.gib, known_storage_class(prices, data.storage_class), data.hours)
            for data in body.storage
        ),
        # Without a transfer, an unknown price of transfers does not matter.
        sent=tuple([TransferredData(gb, destination, already) for gb, destination, already in sent if gb]),
        commitments_held=resolved("commitment", body.commitments_held, catalog, field="commitments_held"),
    )


def service_of(body: BillingRequest, task: str | None, catalog: Catalog) -> str | None:
    """Returns the managed service that the body names, if any. Raises `QuestionError` if it does not run the task."""
    return None if body.managed_service is None else service_known(catalog, body.managed_service, task)


def gate_of(body: CostRequest) -> Gate | None:
    """Returns the limits of the verdict; None without any."""
    baseline = body.baseline
    if baseline is None:
        return None if body.budget_usd is None else Gate(budget_usd=body.budget_usd)
    return Gate(baseline.usd, baseline.fail_above_percent, body.budget_usd)


def only_one(fields: Sequence[tuple[str, object]], needed: str) -> None:
    """Raises `QuestionError` unless exactly one of several fields has a value."""
    given = [name for name, value in fields if value is not None]
    if not given:
        raise QuestionError(needed, field=fields[0][0])
    if len(given) > 1:
        raise QuestionError(f"Give either {' or '.join(given)}, not both.", field=given[1])
