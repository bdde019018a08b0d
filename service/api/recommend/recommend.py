"""POST /recommend and its batch: ranked choices for a workload under constraints, and counted rejections."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Body, Request, Response
from pydantic import TypeAdapter, with_config

from service.api.http.batch import BatchRoute, RefusedItem, answered, items_of
from service.api.http.body import QuestionRoute
from service.api.http.computing import in_thread
from service.api.http.current import Pinned, catalog_on, visible_to_caller
from service.api.http.examples import QUESTION_BATCH, QUESTIONS
from service.api.http.fields import BUILT_AT_FIRST_USE, BodyModel
from service.api.http.query import refuse_query
from service.api.recommend.encoded import encoded
from service.api.recommend.request import RecommendRequest, hosted, in_full, to_question
from service.api.recommend.response import RecommendResponse, rendered
from service.db.live_catalog import PinnedCatalog
from service.domain.catalog.catalog import Catalog
from service.domain.recommend.recommend import recommend

router = APIRouter(tags=["decision"], route_class=QuestionRoute)
batch_router = APIRouter(tags=["decision"], route_class=BatchRoute)

MAX_QUICK_CHOICES = 20
"""Most choices of an answer on the event loop. Each takes about a quarter of a millisecond."""

REQUEST: TypeAdapter[RecommendRequest] = TypeAdapter(RecommendRequest)


class RecommendBatchRequest(BodyModel):
    """Many questions at once."""

    items: items_of("POST /recommend")  # type: ignore[valid-type]


@with_config(BUILT_AT_FIRST_USE)
@dataclass(frozen=True, slots=True)
class RecommendBatchResponse:
    """One entry per question, in the same order: an answer or a problem."""

    items: list[RecommendResponse | RefusedItem]


@router.post(
    "/recommend",
    summary="Recommend machines for a workload",
    response_model=RecommendResponse,
)
async def post_recommend(
    asked: Annotated[RecommendRequest, Body(openapi_examples=QUESTIONS)], request: Request
) -> Response:
    """Rank offers for a workload, and count the reasons why other instance types were rejected.

    With a model, choices are ranked by estimates of the whole job in dollars and hours (`basis: modelled`). Without a
    model, they are ranked by dollars per hour and the dense peak at the precision (`basis: peak`). If nothing matches,
    the answer has no choices and says why; that is not an error.
    """
    refuse_query(request)
    live = visible_to_caller(request)
    if _may_take_long(asked, live):
        return await in_thread(_answer_to, asked, live)
    return _answer_to(asked, live)


def _may_take_long(asked: RecommendRequest, live: PinnedCatalog) -> bool:
    """Returns whether the answer may take more than 20 ms, which is too long for the event loop.

    A thread costs 0.1 ms, a tenth of the time of a question without a model once the caches of the catalog are filled.
    """
    work = asked.workload
    small = work.model is None and work.name is None and asked.limit <= MAX_QUICK_CHOICES
    return not small or asked.as_of is not None or asked.known_at is not None or live.on(None).choices.is_empty


def _answer_to(asked: RecommendRequest, live: PinnedCatalog) -> Response:
    return Response(answer_in(asked, catalog_on(live, asked)), media_type="application/json")


@batch_router.post("/recommend/batch", summary="Recommend for many workloads", response_model=RecommendBatchResponse)
async def post_recommend_batch(
    asked: Annotated[RecommendBatchRequest, Body(openapi_examples=QUESTION_BATCH)], live: Pinned, request: Request
) -> Response:
    """Up to 1,000 questions, answered in order; a bad item has a `problem` and does not fail the others.

    A batch may use a limited number of CPU seconds and bytes. Further items have a `problem` with status 413; send them
    again.
    """
    refuse_query(request)

    def answer(item: RecommendRequest) -> bytes:
        return answer_in(item, catalog_on(live, item))

    return answered(asked.items, REQUEST, answer, request)


def answer_in(request: RecommendRequest, catalog: Catalog) -> bytes:
    """Returns the answer to a request as JSON. Raises `QuestionError`."""
    catalog = hosted(request, catalog)
    question = to_question(request, catalog)
    answer = recommend(question, catalog)
    response = rendered(in_full(request, question, catalog), answer, catalog)
    return encoded(response, answer.choices, catalog, together=request.constraints.same_placement)
