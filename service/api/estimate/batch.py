"""POST /estimate/batch: many estimates, each of its own, or one over every combination of some values."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import Field, WithJsonSchema, with_config

from service.api.estimate.cost_request import only_one
from service.api.estimate.estimate import ANSWER, EstimateResponse, response_of
from service.api.estimate.request import EstimateRequest, question_of
from service.api.estimate.what_if import ASKED, MatrixRequest, MatrixResponse, combinations, matrix
from service.api.http.batch import BatchRoute, Budget, RefusedItem, answered, in_thread_while_connected, items_of
from service.api.http.current import Pinned, catalog_on
from service.api.http.examples import ESTIMATE_BATCH
from service.api.http.fields import BUILT_AT_FIRST_USE, BodyModel, RequestModel
from service.domain.errors import QuestionError
from service.domain.estimate.estimate import estimate

router = APIRouter(tags=["decision"], route_class=BatchRoute)

Base = Annotated[
    dict[str, Any],
    Field(max_length=100),
    WithJsonSchema({"type": "object", "description": "What all combinations share of a body of POST /estimate."}),
]


class EstimateBatchRequest(BodyModel):
    """Many estimates at once: `items`, or a `base` and what to vary `over`."""

    items: items_of("POST /estimate") | None = None  # type: ignore[valid-type]
    base: Base | None = None
    over: MatrixRequest | None = None


@with_config(BUILT_AT_FIRST_USE)
@dataclass(frozen=True, slots=True)
class EstimateBatchResponse:
    """One entry per question, in the same order: an answer or a problem."""

    items: list[EstimateResponse | RefusedItem]


@router.post(
    "/estimate/batch",
    summary="Estimate many at once",
    operation_id="post_estimate_batch",  # names the union of the two responses in the OpenAPI document
    response_model=EstimateBatchResponse | MatrixResponse,
)
async def post_estimate_batch(
    body: Annotated[EstimateBatchRequest, Body(openapi_examples=ESTIMATE_BATCH)],
    _query: Annotated[RequestModel, Query()],
    live: Pinned,
    request: Request,
) -> Response:
    """Up to 1,000 estimates; a bad one has a `problem` and does not fail the others.

    `items` are answered in order. A `base` is answered for every combination of the values in `over`: machines, nodes,
    instances, hours, regions, zones, markets and managed services. Its answers are sorted by likely dollars; `pareto`
    marks those that no other answer beats in both time and cost. A batch may use a limited number of CPU seconds and
    bytes: further items have a `problem` with status 413, and a `base` that needs more is refused with that status.
    """

    def answer(item: EstimateRequest) -> bytes:
        catalog = catalog_on(live, item)
        return ANSWER.dump_json(response_of(item, estimate(question_of(item, catalog), catalog), catalog))

    only_one((("items", body.items), ("base", body.base)), "Give either items, or a base and what to vary over.")
    if body.items is not None:
        if body.over is not None:
            raise QuestionError("Send either `items`, or `base` with `over`.", field="over")
        return answered(body.items, ASKED, answer, request)
    if body.over is None:
        raise QuestionError("Give a list of values in `over` for each field of the base that varies.", field="over")
    base, cells = body.base or {}, combinations(body.over)

    def encoded(budget: Budget) -> bytes:
        with budget.charged():
            return matrix(base, cells, live, budget, request)

    return Response(await in_thread_while_connected(encoded, request), media_type="application/json")
