"""ETags of answers that depend on the catalog alone, so that a client need not fetch them twice."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fastapi import Request, Response
from pydantic import BaseModel

from service.domain.catalog.catalog import Catalog
from service.version import VERSION

_WEIGHT = re.compile(r"\s*q=([01](?:\.\d*)?)\s*")
"""The parameter of a media type in an `Accept` header that says how much a client wants it."""

_JSON_RANGES = ("application/json", "application/*", "*/*")
"""Ranges that contain JSON; the first of them in a header decides its weight."""

CACHE_CONTROL = "private, no-cache"
"""Clients may store an answer but must revalidate it, which the ETag makes cheap."""


def json_answer(answer: BaseModel, catalog: Catalog) -> Response:
    """Returns the answer to a GET that depends on this catalog alone, with its ETag."""
    return catalog_answer(answer.model_dump_json(), catalog, "application/json")


def catalog_answer(
    body: str | bytes, catalog: Catalog, media_type: str, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """Returns a response with a body that depends on this catalog alone, and its ETag."""
    # JSON and CSV at one address need tags of their own (RFC 9110, section 8.8.3.3).
    subtype = media_type.partition(";")[0].rpartition("/")[2]
    etag = f'"{catalog.identity}-{VERSION}-{subtype}"'
    shared = {"ETag": etag, "Cache-Control": CACHE_CONTROL, "Vary": "Accept, Authorization"}
    return Response(body, headers={**shared, **headers}, media_type=media_type)


def wants_csv(request: Request) -> bool:
    """Whether the client accepts CSV and does not prefer JSON (RFC 9110, section 12.5.1)."""
    accepted = request.headers.get("accept", "").lower()
    if "text/csv" not in accepted:
        return False
    weights = dict(map(_weighted, accepted.split(",")))
    csv = weights.get("text/csv", 0.0)
    json = next((weights[kind] for kind in _JSON_RANGES if kind in weights), 0.0)
    return csv > 0 and csv >= json


def _weighted(accepted: str) -> tuple[str, float]:
    """Returns a media type, or a range of them, of an `Accept` header, and its weight."""
    kind, *parameters = accepted.split(";")
    weights = (match[1] for parameter in parameters if (match := _WEIGHT.fullmatch(parameter)))
    return kind.strip(), float(next(weights, 1))


def unchanged(if_none_match: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Returns whether a client that sent `If-None-Match` has the answer with these headers already."""
    # If-None-Match compares weakly, so the mark of a weak tag does not count (RFC 9110, section 13.1.2).
    tags = [tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")]
    return b"*" in tags or any(name == b"etag" and value in tags for name, value in headers)
