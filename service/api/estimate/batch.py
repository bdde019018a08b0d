"""POST /estimate/batch: many estimates, each of its own, or one over every combination of some values."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import Field, TypeAdapter, ValidationError, WithJsonSchema

from service.api.estimate.cost_request import only_one
from service.api.estimate.estimate import ANSWER, EstimateRequest, EstimateResponse, appraised_on, estimate
from service.api.estimate.what_if import MatrixRequest, MatrixResponse, combinations, matrix
from service.api.http.batch import RefusedItem, answered, items_of
from service.api.http.body import JsonItemsRoute
from service.api.http.current import Live, catalog_on
from service.api.http.examples import ESTIMATE_BATCH
from service.api.http.fields import BodyModel, RequestModel
from service.api.http.problems import ProblemDocument, document_of, invalid
from service.db.live_catalog import PinnedCatalog
from service.domain.catalog.catalog import Catalog
from service.domain.errors import QuestionError
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.physics.cluster import Cluster

router = APIRouter(tags=["decision"], route_class=JsonItemsRoute)

Base = Annotated[
    dict[str, Any],
    Field(max_length=100),
    WithJsonSchema({"type": "object", "description": "A body of POST /estimate."}),
]


class EstimateBatchRequest(BodyModel):
    """Many estimates at once: `items`, or a `base` and what to vary `over`."""

    items: items_of("POST /estimate") | None = None  # type: ignore[valid-type]
    base: Base | None = None
    over: MatrixRequest | None = None


@dataclass(frozen=True, slots=True)
class EstimateBatchResponse:
    """In the order of the questions: each an answer, or a problem."""

    items: list[EstimateResponse | RefusedItem]


ASKED: TypeAdapter[EstimateRequest] = TypeAdapter(EstimateRequest)
MATRIX = TypeAdapter(MatrixResponse)


@router.post("/estimate/batch", summary="Estimate many at once", response_model=EstimateBatchResponse | MatrixResponse)
async def post_estimate_batch(
    asked: Annotated[EstimateBatchRequest, Body(openapi_examples=ESTIMATE_BATCH)],
    _query: Annotated[RequestModel, Query()],
    live: Live,
    request: Request,
) -> Response:
    """Up to 1,000 estimates; a bad one has a `problem` and does not fail the others.

    `items` are answered in order. A `base` is asked with every combination of the values `over` which machines, nodes,
    instances, hours, regions, markets and managed services vary; its answers are sorted by likely dollars, and marked
    where no other is both as quick and as cheap.
    """

    pinned = live.pinned()

    def answer(each: EstimateRequest) -> bytes:
        return ANSWER.dump_json(estimate(each, catalog_on(pinned, each.as_of)))

    only_one((("items", asked.items), ("base", asked.base)), "Tell either items, or a base and what to vary over.")
    if asked.items is not None:
        if asked.over is not None:
            raise QuestionError("Tell either items or over: a base is what varies.", field="over")
        return await answered(asked.items, ASKED, answer, request)
    if asked.over is None:
        raise QuestionError("Tell a list of values in over: what the base shall vary.", field="over")
    cells = combinations(asked.over)
    asking = Varied(asked.base or {}, pinned, request)
    return Response(MATRIX.dump_json(await matrix(cells, asking.answer)), media_type="application/json")


class Varied:
    """Answers the combinations of a base; the physics of a machine is worked out once for all its markets."""

    def __init__(self, base: dict[str, Any], live: PinnedCatalog, request: Request) -> None:
        self._base, self._live, self._request = base, live, request
        self._kept: dict[tuple[str, int], JobEstimate] = {}

    def answer(self, cell: dict[str, Any]) -> EstimateResponse | ProblemDocument:
        body = {**self._base, **cell}
        try:
            asked = ASKED.validate_python(body)
            return estimate(asked, catalog_on(self._live, asked.as_of), self._appraised)
        except ValidationError as error:
            found = [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]
            return invalid(found, body, self._request)
        except QuestionError as error:
            return document_of(error)

    def _appraised(self, asked: EstimateRequest, machine: Cluster | None, catalog: Catalog) -> JobEstimate:
        key = (repr(asked.machine), asked.nodes)
        if key not in self._kept:
            self._kept[key] = appraised_on(asked, machine, catalog)
        return self._kept[key]
