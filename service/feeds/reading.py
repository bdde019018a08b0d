"""Reads CSV, JSON, YAML and XML of feeds, and refuses a document in another format with a sentence."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any
from xml.etree.ElementTree import Element, ParseError

from service.feeds.listing import DocumentRefused

GZIP_MAGIC = b"\x1f\x8b"
LARGEST_INFLATED = 1 << 30
CHUNK = 1 << 20

Cells = dict[str, str]


def plain(body: bytes) -> bytes:
    """Returns the body without gzip, which some servers use without saying so. Raises `DocumentRefused`."""
    if not body.startswith(GZIP_MAGIC):
        return body
    try:
        with gzip.open(io.BytesIO(body)) as file:
            parts, size = [], 0
            while part := file.read(CHUNK):
                size += len(part)
                if size > LARGEST_INFLATED:
                    raise DocumentRefused("The document is larger than 1 GiB when it is decompressed.")
                parts.append(part)
    except (OSError, EOFError, zlib.error) as error:
        raise DocumentRefused(f"The gzip of the document is broken: {error}.") from None
    return b"".join(parts)


def text_of(body: bytes) -> str:
    """Returns the text of a body. Raises `DocumentRefused`."""
    try:
        text = plain(body).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DocumentRefused("The document is not text in UTF-8.") from None
    if text.lstrip()[:1] == "<" and "<html" in text[:400].lower():
        raise DocumentRefused("The document is a page in HTML, perhaps of a proxy.")
    return text


def json_of(body: bytes) -> Any:
    """Returns the JSON of a body, with exact decimals. Raises `DocumentRefused`."""
    try:
        return json.loads(text_of(body), parse_float=Decimal)
    except ValueError as error:
        raise DocumentRefused(f"The document is not JSON: {error}.") from None


def object_of(body: bytes, *names: str) -> dict[str, Any]:
    """Returns the JSON object of a body. Raises `DocumentRefused` if it lacks a member with one of these names."""
    content = json_of(body)
    if not isinstance(content, dict):
        raise DocumentRefused("The document is not a JSON object.")
    for name in names:
        if name not in content:
            raise DocumentRefused(f"The document has no {name}.")
    return content


def items_of(content: Any, name: str) -> list[dict[str, Any]]:
    """Returns the objects of a list. Raises `DocumentRefused`."""
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise DocumentRefused(f"{name} is not a list of objects.")
    return content


def rows_of(lines: Iterator[str], needed: Sequence[str]) -> Iterator[Cells | None]:
    """Yields the cells of each line by the names of the header; None for a line with too few or too many cells.

    Raises `DocumentRefused` if the header lacks a needed column.
    """
    reader = csv.reader(lines)
    header = next(reader, [])
    for name in needed:
        if name not in header:
            raise DocumentRefused(f"The header of the document has no {name}.")
    try:
        for cells in reader:
            if cells:
                yield dict(zip(header, cells, strict=True)) if len(cells) == len(header) else None
    except csv.Error as error:
        raise DocumentRefused(f"The document is not CSV: {error}.") from None


def table_of(body: bytes, *needed: str) -> Iterator[Cells | None]:
    """Yields the cells of each line of a CSV document, as `rows_of` does. Raises `DocumentRefused`."""
    return rows_of(iter(text_of(body).splitlines()), needed)


def xml_of(body: bytes) -> Element:
    """Returns the root of an XML document without declarations of its own. Raises `DocumentRefused`."""
    from xml.etree.ElementTree import fromstring

    text = text_of(body)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise DocumentRefused("The document declares entities, which no feed does.")
    try:
        return fromstring(text.encode())  # noqa: S314 - entities are refused above
    except ParseError as error:
        raise DocumentRefused(f"The document is not XML: {error}.") from None


def yaml_of(body: bytes) -> Any:
    """Returns the content of a YAML document. Raises `DocumentRefused`."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=False).load(text_of(body))
    except (YAMLError, ValueError) as error:
        raise DocumentRefused(f"The document is not YAML: {str(error).splitlines()[0]}.") from None
