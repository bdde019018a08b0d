"""One estimate for every combination of machines, nodes, markets and other fields, sorted by dollars."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Annotated, Any

from fastapi import Request
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, with_config

from service.api.estimate.cost_request import Hours
from service.api.estimate.estimate import EstimateResponse, response_of
from service.api.estimate.request import EstimateRequest, MachineDescriptionRequest, question_of
from service.api.estimate.response import BandResponse, MoneyResponse, shown
from service.api.http.batch import Budget
from service.api.http.body import MAX_ITEMS
from service.api.http.current import catalog_on
from service.api.http.fields import BUILT_AT_FIRST_USE, AtLeastOne, BodyModel, Described, Name, Named, list_as_tuple
from service.api.http.problems import ProblemDocument, document_of, invalid_item
from service.db.live_catalog import PinnedCatalog
from service.domain.errors import QuestionError
from service.domain.estimate.estimate import EstimateQuestion
from service.domain.estimate.what_if import Combination, what_if

ASKED: TypeAdapter[EstimateRequest] = TypeAdapter(EstimateRequest)


def _values_of(value: Any) -> Any:
    """Returns the type of a list of values that a field takes in turn."""
    return (
        Annotated[tuple[value, ...], Field(min_length=1, max_length=MAX_ITEMS), BeforeValidator(list_as_tuple)] | None
    )


class MatrixRequest(BodyModel):
    """Lists of values for fields of the base. Every combination is estimated, at most 1,000."""

    machine: _values_of(Named[Name, MachineDescriptionRequest]) = None  # type: ignore[valid-type]
    nodes: _values_of(AtLeastOne) = None  # type: ignore[valid-type]
    instances: _values_of(AtLeastOne) = None  # type: ignore[valid-type]
    hours: _values_of(Hours) = None  # type: ignore[valid-type]
    region: _values_of(Name) = None  # type: ignore[valid-type]
    zone: _values_of(Name) = None  # type: ignore[valid-type]
    market: _values_of(Name) = None  # type: ignore[valid-type]
    managed_service: _values_of(Name) = None  # type: ignore[valid-type]


@with_config(BUILT_AT_FIRST_USE)
@dataclass(frozen=True, slots=True)
class CombinationResponse(Described):
    """The answer to one combination. Its figures are those of its cheapest on-demand entry, else of its cheapest.

    A combination that cannot be answered has a `problem` and no figures.
    """

    over: dict[str, Any]
    """The values of the varied fields."""
    fits: bool | None
    """Whether the job fits in the memory of its GPUs and of its host; null without a job or an answer."""
    hours: BandResponse | None
    """Calendar hours where they are known, else hours of use."""
    usd: MoneyResponse | None
    """The total of the entry; null: unknown, or a load, which has no end."""
    usd_per_month: MoneyResponse | None
    """The dollars of a month of a load; null for other work, and if unknown."""
    usd_complete: bool
    """False: `usd` is a lower bound or null."""
    pareto: bool
    """Whether no other combination is at least as fast and as cheap, and better in one; for loads by the seconds of a
    request and the dollars of a month.
    """
    answer: EstimateResponse | None
    """The answer of `POST /estimate`; null if there is a `problem`."""
    problem: ProblemDocument | None
    """Why the combination cannot be answered; null if it is."""


@with_config(BUILT_AT_FIRST_USE)
@dataclass(frozen=True, slots=True)
class MatrixResponse:
    """Combinations sorted by likely dollars (of a month for a load); unknown costs, then refused ones, come last."""

    items: list[CombinationResponse]


COMBINATION: TypeAdapter[CombinationResponse] = TypeAdapter(CombinationResponse)


def combinations(over: MatrixRequest) -> list[dict[str, Any]]:
    """Returns every combination of the values. Raises `QuestionError` for no values, and for too many combinations."""
    values: dict[str, Sequence[Any]] = {
        name: getattr(over, name) for name in MatrixRequest.model_fields if getattr(over, name)
    }
    if not values:
        names = ", ".join(MatrixRequest.model_fields)
        raise QuestionError(f"Give a list of values for one or more of {names}.", field="over")
    count = prod(map(len, values.values()))
    # Counted before they are built: a few lists of a thousand values have more combinations than memory.
    if count > MAX_ITEMS:
        raise QuestionError(f"That is {count:,} combinations, and at most {MAX_ITEMS:,} are answered.", field="over")
    return [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]


def matrix(
    base: dict[str, Any], cells: list[dict[str, Any]], live: PinnedCatalog, budget: Budget, request: Request
) -> bytes:
    """Returns the answers to a base with the values of every cell, as JSON. Raises `BudgetSpent`."""
    bodies: dict[int, EstimateRequest] = {}
    questions, problems, catalog = {}, {}, live.on(None)
    for index, cell in enumerate(cells):
        budget.require()
        body = {**base, **cell}
        try:
            bodies[index] = ASKED.validate_python(body)
            catalog = catalog_on(live, bodies[index])
            questions[index] = question_of(bodies[index], catalog)
        except ValidationError as error:
            problems[index] = invalid_item(error, body, request)
        except QuestionError as error:
            problems[index] = document_of(error, request.scope)
    answered, refused = what_if(_while_left(questions, budget), catalog)
    problems |= {index: document_of(error, request.scope) for index, error in refused.items()}
    encoded = []
    for combination in answered:
        index = combination.index
        answer = response_of(bodies[index], combination.answer, catalog)
        encoded.append(COMBINATION.dump_json(_combination(cells[index], combination, answer)))
        budget.charge(encoded[-1])
        budget.require()
    encoded += [COMBINATION.dump_json(_refused(cells[index], problems[index])) for index in sorted(problems)]
    return b'{"items":[%b]}' % b",".join(encoded)


def _while_left(questions: Mapping[int, EstimateQuestion], budget: Budget) -> Iterator[tuple[int, EstimateQuestion]]:
    for item in questions.items():
        budget.require()
        yield item


def _combination(cell: dict[str, Any], combination: Combination, answer: EstimateResponse) -> CombinationResponse:
    bill = combination.bill
    return CombinationResponse(
        over=_over(cell),
        fits=answer.fits,
        hours=shown(combination.hours),
        usd=None if bill is None else shown(bill.usd),
        usd_per_month=None if bill is None else shown(bill.month),
        usd_complete=bill is not None and not bill.missing,
        pareto=combination.on_front,
        answer=answer,
        problem=None,
    )


def _refused(cell: dict[str, Any], problem: ProblemDocument) -> CombinationResponse:
    return CombinationResponse(_over(cell), None, None, None, None, False, False, None, problem)  # noqa: FBT003


def _over(cell: dict[str, Any]) -> dict[str, Any]:
    return {name: value.model_dump() if isinstance(value, BodyModel) else value for name, value in cell.items()}
