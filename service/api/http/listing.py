"""Lists: one page of encoded items, as JSON or CSV, with a cursor to the next."""

import base64
import csv
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from fastapi import Request, Response

from service.api.http.current import CatalogStamp, stamp_json
from service.api.http.etag import json_answer, wants_csv
from service.api.http.fields import PageRequest, ResponseModel
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import near_names
from service.domain.errors import CursorExpired, QuestionError

Item = TypeVar("Item")


class Page(ResponseModel, Generic[Item]):
    """A page of a list."""

    items: list[Item]
    total: int
    next_cursor: str | None
    catalog: CatalogStamp


def page_answer(
    request: Request,
    asked: PageRequest,
    catalog: Catalog,
    total: int,
    key: Callable[[int], str],
    encode: Callable[[slice], Sequence[bytes]],
    beside: bytes = b"",
) -> Response:
    """A page of a list in order: `key` gives the unique key of the item at a place, `encode` the JSON of some.

    `beside` is what an answer has more than its items, a field with its comma.
    """
    start = place_after(asked, total, key)
    end = min(start + asked.limit, total)
    items = encode(slice(start, end)) if start < end else ()
    more = make_cursor(asked, end - 1, key) if start < end < total else None
    if wants_csv(request):
        return csv_answer(items, catalog, more)
    told = (total, json.dumps(more).encode(), beside, stamp_json(catalog))
    tail = b'],"total":%d,"next_cursor":%b,%b"catalog":%b}' % told
    return json_answer(b"".join((b'{"items":[', b",".join(items), tail)), catalog)


# A cursor names the question and the last item seen, so it survives a change of the catalog as long as that item does.


def digest(asked: PageRequest) -> str:
    question = asked.model_dump_json(exclude={"cursor", "limit"})
    return hashlib.sha256(f"{type(asked).__name__}{question}".encode()).hexdigest()[:16]


def make_cursor(asked: PageRequest, place: int, key: Callable[[int], str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([digest(asked), place, key(place)]).encode()).decode()


def place_after(asked: PageRequest, total: int, key: Callable[[int], str]) -> int:
    """Where the page begins: after the item that the cursor names, wherever that stands by now."""
    if asked.cursor is None:
        return 0
    question, place, last = read_cursor(asked.cursor)
    if question != digest(asked):
        raise QuestionError("The cursor belongs to another question: its filters or order differ.", field="cursor")
    if place < total and key(place) == last:
        return place + 1
    for moved in range(total):
        if key(moved) == last:
            return moved + 1
    raise CursorExpired(
        "The catalog has changed and the cursor's place in it is gone; start again without a cursor.", field="cursor"
    )


def read_cursor(cursor: str) -> tuple[str, int, str]:
    try:
        question, place, last = json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
        if isinstance(question, str) and isinstance(place, int) and place >= 0 and isinstance(last, str):
            return question, place, last
    except (ValueError, TypeError, RecursionError):
        pass
    raise QuestionError("The cursor is not one that this service gave out.", field="cursor")


# CSV


def csv_answer(items: Sequence[bytes], catalog: Catalog, more: str | None) -> Response:
    """One line an item; nested names are joined by dots. The next page's cursor stands in a header."""
    rows = [flatten(json.loads(item)) for item in items]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    headers = {"X-Next-Cursor": more} if more else {}
    return json_answer(text.getvalue().encode(), catalog, media_type="text/csv; charset=utf-8", headers=headers)


def flatten(item: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in item.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            flat[prefix + name] = ";".join(part if isinstance(part, str) else json.dumps(part) for part in value)
        else:
            flat[prefix + name] = value
    return flat


def in_order(columns: Sequence[str], sortable: Sequence[str], items: list[Item]) -> list[Item]:
    """By the columns asked for, unknown values last; even ones stay as they stand. Raises `QuestionError`."""
    ordered = items
    for column in reversed(columns):
        name, descending = column.removeprefix("-"), column.startswith("-")
        if name not in sortable:
            raise QuestionError(
                f"There is no column '{name}' to sort by. Known: {', '.join(sortable)}.",
                field="sort",
                near=near_names(name, sortable),
            )
        known = [each for each in ordered if getattr(each, name) is not None]
        unknown = [each for each in ordered if getattr(each, name) is None]
        ordered = sorted(known, key=lambda each: getattr(each, name), reverse=descending) + unknown
    return ordered
