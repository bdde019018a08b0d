"""The closed list of codes that recommendations use."""

from fastapi import APIRouter

from service.api.http.fields import ResponseModel
from service.domain.recommend.codes import ADVICE, NOTES, REASONS, REJECTIONS, WARNINGS

router = APIRouter(tags=["decision"])


class CodesResponse(ResponseModel):
    """Every code that an answer can carry, with what it means."""

    reasons: dict[str, str]
    warnings: dict[str, str]
    advice: dict[str, str]
    rejections: dict[str, str]
    notes: dict[str, str]


@router.get("/recommend/codes", summary="The codes of recommendations")
async def get_codes() -> CodesResponse:
    """Every code that an answer can carry, with its meaning. Codes are added, never changed in meaning."""
    return CodesResponse(reasons=REASONS, warnings=WARNINGS, advice=ADVICE, rejections=REJECTIONS, notes=NOTES)
