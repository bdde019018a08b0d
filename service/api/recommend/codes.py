"""The closed list of codes that recommendations use, and GET /recommend/codes."""

from typing import Annotated

from fastapi import APIRouter, Query

from service.api.http.fields import RequestModel, ResponseModel
from service.domain.codes import AdviceCode, NoteCode, ReasonCode, RejectionCode, WarningCode
from service.domain.selection.filters import FILTER_CODES

router = APIRouter(tags=["decision"])

REJECTIONS: dict[str, str] = {**FILTER_CODES, **{code.value: code.meaning for code in RejectionCode}}


class CodesResponse(ResponseModel):
    """Every code that an answer can have, with its meaning."""

    reasons: dict[str, str]
    warnings: dict[str, str]
    advice: dict[str, str]
    rejections: dict[str, str]
    notes: dict[str, str]


@router.get("/recommend/codes", summary="The codes of recommendations")
async def get_codes(_query: Annotated[RequestModel, Query()]) -> CodesResponse:
    """Every code that an answer can have, with its meaning. New codes may be added; a meaning never changes."""
    lists = {"reasons": ReasonCode, "warnings": WarningCode, "advice": AdviceCode, "notes": NoteCode}
    meanings = {name: {code.value: code.meaning for code in codes} for name, codes in lists.items()}
    return CodesResponse(**meanings, rejections=REJECTIONS)
