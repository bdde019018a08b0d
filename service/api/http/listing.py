"""Pages of a list as JSON or CSV, with a cursor to the next page."""

import base64
import csv
import hashlib
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import numpy as np
from fastapi import Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel

from service.api.http.current import CatalogStamp, stamp
from service.api.http.etag import catalog_answer, wants_csv
from service.api.http.fields import PageRequest, ResponseModel
from service.api.http.usual_words import suggested
from service.domain.cache import Cache
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import with_near
from service.domain.errors import CursorExpired, QuestionError

Item = TypeVar("Item")
Shown = TypeVar("Shown", bound=BaseModel)
_START = b'{"items":['


class Page(ResponseModel, Generic[Item]):
    """A page of a list."""

    items: list[Item]
    total: int
    """Items of the whole list."""
    next_cursor: str | None
    """Send it as `cursor` to get the next page; null on the last page."""
    catalog: CatalogStamp


Rows = Sequence[Any] | NDArray[Any]
"""The whole list in order: values, or an array of numbers that stand for values."""


def page_answer(
    request: Request,
    query: PageRequest,
    catalog: Catalog,
    rows: Rows,
    item: type[Shown],
    response_of: Callable[[Any], Shown],
    *,
    key: Callable[[Any], str] = attrgetter("id"),
    page: Callable[..., BaseModel] = Page,
    encoded_items: Cache | None = None,
) -> Response:
    """Returns the page of `rows` that was asked for, as JSON, or as CSV if the client accepts that.

    `response_of` shows a row as an `item`. `key` names a row uniquely, and stays the same when the catalog changes.
    `page` builds the answer around the items. `encoded_items`, a cache of the catalog, keeps the JSON of each row.
    """
    start = _start_of_page(query, rows, key)
    shown = _listed(rows[start : start + query.limit])
    end = start + len(shown)
    next_cursor = _cursor(query, end - 1, key(shown[-1])) if shown and end < len(rows) else None
    if wants_csv(request):
        return _csv_answer(item, [response_of(row) for row in shown], catalog, next_cursor)
    envelope = page(items=[], total=len(rows), next_cursor=next_cursor, catalog=stamp(catalog)).model_dump_json()

    def encoded(row: Any) -> bytes:
        return response_of(row).model_dump_json().encode()

    items = encoded_items.get_or_compute_each(shown, encoded) if encoded_items else map(encoded, shown)
    body = b"".join((_START, b",".join(items), envelope.encode()[len(_START) :]))
    return catalog_answer(body, catalog, "application/json")


def _listed(rows: Rows) -> list[Any]:
    """Returns the rows as Python values; a row of an array with several columns is a tuple."""
    if not isinstance(rows, np.ndarray):
        return list(rows)
    return rows.tolist() if rows.ndim == 1 else list(map(tuple, rows.tolist()))


# A cursor names the question and the last item of its page, so it survives a change of the catalog as long as that item
# does.


def _digest(query: PageRequest) -> str:
    # Limit and cursor may differ between the pages of one question.
    question = query.model_dump_json(exclude={"cursor", "limit"})
    return hashlib.sha256(f"{type(query).__name__}{question}".encode()).hexdigest()[:16]


def _start_of_page(query: PageRequest, rows: Rows, key: Callable[[Any], str]) -> int:
    """Returns the index after the item that the cursor names, even if the item has moved."""
    if query.cursor is None:
        return 0
    digest, index, last = _read_cursor(query.cursor)
    if digest != _digest(query):
        raise QuestionError("The cursor belongs to another question: its filters or order differ.", field="cursor")
    # The item has rarely moved, so its old place is tried before the whole list.
    for start, rows_there in ((index, rows[index : index + 1]), (0, rows)):
        for offset, row in enumerate(_listed(rows_there)):
            if key(row) == last:
                return start + offset + 1
    raise CursorExpired(
        "The catalog has changed and no longer has the cursor's item; start again without a cursor.", field="cursor"
    )


def _cursor(query: PageRequest, index: int, key: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([_digest(query), index, key]).encode()).decode()


def _read_cursor(cursor: str) -> tuple[str, int, str]:
    try:
        digest, index, last = json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True))
        if isinstance(digest, str) and isinstance(index, int) and index >= 0 and isinstance(last, str):
            return digest, index, last
    except (ValueError, TypeError, RecursionError):
        pass
    raise QuestionError("The cursor was not issued by this service.", field="cursor")


# CSV


def _csv_answer(
    kind: type[BaseModel], items: Sequence[BaseModel], catalog: Catalog, next_cursor: str | None
) -> Response:
    """Returns the names of the columns and a line per item of a kind; nested names are joined by dots.

    A header of the answer has the cursor of the next page.
    """
    rows = [_flatten(item.model_dump(mode="json")) for item in items]
    names = dict.fromkeys((*_columns(kind), *(name for row in rows for name in row)))
    # The fields of an object are columns, whether an item of the page has the object or null.
    objects = {name[:end] for name in names for end, letter in enumerate(name) if letter == "."}
    text = io.StringIO()
    writer = csv.DictWriter(
        text, [name for name in names if name not in objects], extrasaction="ignore", lineterminator="\r\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    headers = {"X-Next-Cursor": next_cursor} if next_cursor else {}
    return catalog_answer(text.getvalue(), catalog, "text/csv; charset=utf-8", headers)


def _columns(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yields the columns that every page has: the names of the fields, and in place of an object its own fields.

    A map, such as the precisions of a GPU, is left out: its names depend on the items.
    """
    for name, field in model.model_fields.items():
        kind = field.annotation
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        inner = next((member for member in kinds if isinstance(member, type) and issubclass(member, BaseModel)), None)
        if inner is not None:
            yield from _columns(inner, f"{prefix}{name}.")
        elif all(get_origin(member) is not dict for member in kinds):
            yield prefix + name


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            flat[prefix + name] = ";".join(part if isinstance(part, str) else json.dumps(part) for part in value)
        else:
            flat[prefix + name] = value
    return flat


# Filtering and sorting


def having(
    words: Mapping[str, Collection[Any]],
    rows: Iterable[Item],
    reader_of: Callable[[str], Callable[[Item], Any]] = attrgetter,
) -> list[Item]:
    """Returns the rows whose value in each column is one of the words for that column; no words admit every value.

    `reader_of` returns the function that reads a column, by default an attribute.
    """
    readers = [(reader_of(name), admitted) for name, admitted in words.items() if admitted]
    return [row for row in rows if all(value_of(row) in admitted for value_of, admitted in readers)]


def mentions(text: str | None, names: Iterable[str | None]) -> bool:
    """Returns whether every word of a search text is part of the names; case does not matter."""
    if not text:
        return True
    searched = "\n".join(filter(None, names)).lower()
    return all(word in searched for word in text.lower().split())


def within(value: float | None, low: float | None, high: float | None) -> bool:
    """Returns whether a value is between two limits; an unknown value only passes where there is no limit."""
    if value is None:
        return low is None and high is None
    return (low is None or value >= low) and (high is None or value <= high)


def require_range(name: str, low: float | None, high: float | None, prefix: str = "") -> None:
    """Raises `QuestionError` for a minimum above the maximum, because an empty list would hide the mistake."""
    if low is not None and high is not None and low > high:
        sentence = f"min_{name} ({low:g}) is above max_{name} ({high:g}), so nothing can match."
        raise QuestionError(sentence, field=f"{prefix}min_{name}")


def sorted_by(
    columns: Sequence[str], reader_of: Callable[[str], Callable[[Item], Any]], items: list[Item]
) -> list[Item]:
    """Sorts by the columns, `-` for descending; unknown values come last, and ties keep their order.

    `reader_of` returns the function that reads a column, and raises `QuestionError` if there is no such column.
    """
    for name in reversed(columns):
        value_of = reader_of(name.removeprefix("-"))
        known = [item for item in items if value_of(item) is not None]
        unknown = [item for item in items if value_of(item) is None]
        items = sorted(known, key=value_of, reverse=name.startswith("-")) + unknown
    return items


def attribute_reader(sortable: Collection[str], name: str) -> Callable[[Any], Any]:
    """Returns a function that reads the attribute of this name. Raises `QuestionError` if it is not `sortable`."""
    require_column(name, sortable)
    return attrgetter(name)


def require_column(name: str, sortable: Collection[str]) -> None:
    """Raises `QuestionError` with near names if a list cannot be sorted by the column."""
    if name not in sortable:
        near = suggested(name, sortable)
        known = "" if near else f" Known: {', '.join(sortable)}."
        sentence = with_near(f"There is no column '{name}' to sort by.{known}", near)
        raise QuestionError(sentence, field="sort", near=near)
