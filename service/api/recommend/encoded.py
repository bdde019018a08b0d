"""Answers whose choices are encoded once per catalog.

The domain shares the choice of equal offers and equal work; this file keeps its JSON.
"""

from pydantic import TypeAdapter

from service.api.recommend.response import ChoiceResponse, RecommendResponse, choice_response
from service.domain.catalog.catalog import Catalog
from service.domain.recommend.answer import Choice

CHOICE: TypeAdapter[ChoiceResponse] = TypeAdapter(ChoiceResponse)
RESPONSE: TypeAdapter[RecommendResponse] = TypeAdapter(RecommendResponse)
EMPTY = b'"choices":[]'
"""Occurs once in an answer without choices: within texts, quotes are escaped."""


def encoded(answer: RecommendResponse, choices: tuple[Choice, ...], catalog: Catalog, *, together: bool) -> bytes:
    """Returns the JSON of an answer that was rendered without its choices, with the choices."""
    # Joined as bytes: decoding a cached choice only to encode it again would cost more than its cache saves.
    parts = [_encoded_choice(choice, catalog, together=together) for choice in choices]
    return RESPONSE.dump_json(answer).replace(EMPTY, b'"choices":[%b]' % b",".join(parts), 1)


def _encoded_choice(choice: Choice, catalog: Catalog, *, together: bool) -> bytes:
    if choice.comparison is not None:
        return _encode(catalog, choice, together)  # compared with the caller's machine, it is in no other answer
    return catalog.derive(_encode, choice, together, cache=catalog.shown)


def _encode(catalog: Catalog, choice: Choice, together: bool) -> bytes:
    return CHOICE.dump_json(choice_response(choice, catalog, together=together))
