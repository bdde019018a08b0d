"""One estimate over machines, markets, regions and nodes, sorted by dollars."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Annotated, Any

from fastapi import Request
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from service.api.estimate.cost_request import Hours
from service.api.estimate.estimate import EstimateResponse, response_of
from service.api.estimate.request import EstimateRequest, MachineDescriptionRequest, question_of
from service.api.estimate.response import BandResponse, MoneyResponse, shown
from service.api.http.batch import MOST_ITEMS, Budget
from service.api.http.current import catalog_on
from service.api.http.fields import AtLeastOne, BodyModel, Name, Named, standing
from service.api.http.problems import ProblemDocument, document_of, invalid
from service.db.live_catalog import PinnedCatalog
from service.domain.bill.estimate import EstimateQuestion
from service.domain.bill.what_if import Combination, what_if
from service.domain.errors import QuestionError

ASKED: TypeAdapter[EstimateRequest] = TypeAdapter(EstimateRequest)


def _values_of(value: Any) -> Any:
    """A list of values that a field takes in turn."""
    return Annotated[tuple[value, ...], Field(min_length=1, max_length=MOST_ITEMS), BeforeValidator(standing)] | None


class MatrixRequest(BodyModel):
    """Values that fields of the base take in turn. Every combination is estimated, at most 1,000."""

    machine: _values_of(Named[Name, MachineDescriptionRequest]) = None  # type: ignore[valid-type]
    nodes: _values_of(AtLeastOne) = None  # type: ignore[valid-type]
    instances: _values_of(AtLeastOne) = None  # type: ignore[valid-type]
    hours: _values_of(Hours) = None  # type: ignore[valid-type]
    region: _values_of(Name) = None  # type: ignore[valid-type]
    market: _values_of(Name) = None  # type: ignore[valid-type]
    managed_service: _values_of(Name) = None  # type: ignore[valid-type]


@dataclass(frozen=True, slots=True)
class CombinationResponse:
    """One combination, with figures of its on-demand entry or, without one, of the cheapest.

    A `problem` has no figures.
    """

    over: Annotated[dict[str, Any], Field(description="The values that the fields took.")]
    fits: bool | None
    hours: Annotated[BandResponse | None, Field(description="Calendar hours where they are known, else hours of use.")]
    usd: MoneyResponse | None
    usd_complete: Annotated[bool, Field(description="False: `usd` is a lower bound or null.")]
    pareto: Annotated[bool, Field(description="No other is both as quick and as cheap, by the likely figures.")]
    answer: EstimateResponse | None
    problem: ProblemDocument | None


@dataclass(frozen=True, slots=True)
class MatrixResponse:
    """Combinations by likely dollars; then those whose cost is not known, then those that cannot be answered."""

    items: list[CombinationResponse]


COMBINATION: TypeAdapter[CombinationResponse] = TypeAdapter(CombinationResponse)


def combinations(over: MatrixRequest) -> list[dict[str, Any]]:
    """Returns every combination of the values. Raises `QuestionError` for none, and for more than a batch holds."""
    values: dict[str, Sequence[Any]] = {
        name: getattr(over, name) for name in MatrixRequest.model_fields if getattr(over, name)
    }
    if not values:
        names = ", ".join(MatrixRequest.model_fields)
        raise QuestionError(f"Give a list of values of {names}, or of several of these.", field="over")
    count = prod(map(len, values.values()))
    # Counted before they are built: a few lists of a thousand values have more combinations than memory.
    if count > MOST_ITEMS:
        raise QuestionError(f"That is {count:,} combinations; more than {MOST_ITEMS:,} are not answered.", field="over")
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
            errors = [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]
            problems[index] = invalid(errors, body, request, item=True)
        except QuestionError as error:
            problems[index] = document_of(error)
    answered, refused = what_if(_while_left(questions, budget), catalog)
    problems |= {index: document_of(error) for index, error in refused.items()}
    encoded = []
    for each in answered:
        answer = response_of(bodies[each.index], each.answer, catalog)
        encoded.append(COMBINATION.dump_json(_combination(cells[each.index], each, answer)))
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
        usd_complete=bill is not None and not bill.missing,
        pareto=combination.on_front,
        answer=answer,
        problem=None,
    )


def _refused(cell: dict[str, Any], problem: ProblemDocument) -> CombinationResponse:
    return CombinationResponse(_over(cell), None, None, None, False, False, None, problem)  # noqa: FBT003


def _over(cell: dict[str, Any]) -> dict[str, Any]:
    return {name: value.model_dump() if isinstance(value, BodyModel) else value for name, value in cell.items()}
