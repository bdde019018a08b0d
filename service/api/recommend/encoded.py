"""Encodes answers, and keeps the JSON of their choices: questions that admit the same offers share it."""

from pydantic import TypeAdapter

from service.api.http.fields import BUILT_AT_FIRST_USE
from service.api.recommend.response import ChoiceResponse, RecommendResponse, choice_response
from service.domain.catalog.catalog import Catalog
from service.domain.recommend.answer import Choice
from service.domain.recommend.recommend import MOST_KEPT

CHOICES: TypeAdapter[list[ChoiceResponse]] = TypeAdapter(list[ChoiceResponse], config=BUILT_AT_FIRST_USE)
RESPONSE: TypeAdapter[RecommendResponse] = TypeAdapter(RecommendResponse)
EMPTY = b'"choices":[]'
"""Occurs once in the JSON of an answer without choices, because quotes within texts are escaped."""


def encoded(answer: RecommendResponse, choices: tuple[Choice, ...], catalog: Catalog, *, together: bool) -> bytes:
    """Returns the JSON of an answer together with its choices, which `answer` itself does not have."""
    # No other answer has choices that are compared with this caller's current machine.
    if answer.current is None and len(choices) <= MOST_KEPT:
        json = catalog.derive(_encode, choices, together, cache=catalog.outlooks)
    else:
        json = _encode(catalog, choices, together)
    # The bytes are joined, because decoding and encoding cached choices again would cost more than the cache saves.
    return RESPONSE.dump_json(answer).replace(EMPTY, b'"choices":%b' % json, 1)


def _encode(catalog: Catalog, choices: tuple[Choice, ...], together: bool) -> bytes:
    return CHOICES.dump_json([choice_response(choice, catalog, together=together) for choice in choices])
