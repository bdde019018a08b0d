"""Answers whose choices are encoded once per catalog.

Questions that admit the same offers have the same choices. The domain computes these once, and this module keeps their
JSON.
"""

from pydantic import TypeAdapter

from service.api.recommend.response import ChoiceResponse, RecommendResponse, choice_response
from service.domain.catalog.catalog import Catalog
from service.domain.recommend.answer import Choice
from service.domain.recommend.recommend import MOST_KEPT

CHOICES: TypeAdapter[list[ChoiceResponse]] = TypeAdapter(list[ChoiceResponse])
RESPONSE: TypeAdapter[RecommendResponse] = TypeAdapter(RecommendResponse)
EMPTY = b'"choices":[]'
"""Occurs once in an answer without choices: within texts, quotes are escaped."""


def encoded(answer: RecommendResponse, choices: tuple[Choice, ...], catalog: Catalog, *, together: bool) -> bytes:
    """Returns the JSON of an answer that was rendered without its choices, with the choices."""
    # Choices that are compared with the caller's machine are in no other answer.
    if answer.current is None and len(choices) <= MOST_KEPT:
        json = catalog.derive(_encode, choices, together, cache=catalog.outlooks)
    else:
        json = _encode(catalog, choices, together)
    # Joined as bytes: decoding cached choices only to encode them again would cost more than their cache saves.
    return RESPONSE.dump_json(answer).replace(EMPTY, b'"choices":%b' % json, 1)


def _encode(catalog: Catalog, choices: tuple[Choice, ...], together: bool) -> bytes:
    return CHOICES.dump_json([choice_response(choice, catalog, together=together) for choice in choices])
