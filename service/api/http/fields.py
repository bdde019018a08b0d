"""Annotated fields that more than one endpoint shares: every string, number and list is bounded."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import date
from functools import cache
from inspect import cleandoc, getfile
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    Tag,
    create_model,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_before_validator_function

from service.domain.catalog.names import NO_LETTER_OR_DIGIT

MAX_VALUES = 100
LARGEST = 1e15
PYTHON_NONE = re.compile(r"\bNone\b")
WRITTEN_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def list_as_tuple(value: Any) -> Any:
    """Returns a list as a tuple. Fields are tuples, because pydantic would copy a mutable default for every request."""
    return tuple(value) if isinstance(value, list) else value


SEPARATOR = re.compile(r",(?! )")
"""A comma with a space after it belongs to a name, such as the region `Iceland, IS, EU`."""


def split_commas(value: Any) -> Any:
    """Splits `a,b`, which means the same as a repeated parameter. Null, as a relaxation sends it, is the empty list."""
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(SEPARATOR.split(value))
    if not isinstance(value, list):
        return value
    return tuple(part for item in value for part in (SEPARATOR.split(item) if isinstance(item, str) else [item]))


def one_day(value: Any) -> Any:
    """Reads YYYY-MM-DD only; pydantic by itself would also read 1645056000 and 2022-02-17T00:00:00 as days."""
    if isinstance(value, date):
        return value
    if not isinstance(value, str) or not WRITTEN_DAY.fullmatch(value):
        raise ValueError("a day is written YYYY-MM-DD")
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise ValueError("the calendar has no such day") from None


def whole(value: Any) -> Any:
    """Returns 5 for 5.0: in JSON both are the same number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


SplitAtCommas = BeforeValidator(
    split_commas, json_schema_input_type=Annotated[list[Name], Field(max_length=MAX_VALUES)] | Name | None
)
Names = Annotated[tuple[Name, ...], Field(max_length=MAX_VALUES), SplitAtCommas]
Columns = Annotated[Names, AfterValidator(lambda names: tuple(map(str.lower, names)))]
"""Columns to sort by, in capitals or not."""
Amount = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
Gbps = Annotated[float, Field(ge=0.001, le=1_000_000, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(whole)]
AtLeastOneOfMany = Annotated[int, Field(ge=1, le=100_000_000), BeforeValidator(whole)]
AtLeastOne = Annotated[int, Field(ge=1, le=10_000), BeforeValidator(whole)]
N = TypeVar("N")
D = TypeVar("D")
Named = Annotated[
    Annotated[N, Tag("name")] | Annotated[D, Tag("described")],
    Discriminator(lambda value: "described" if isinstance(value, dict | BaseModel) else "name"),
]
"""A name or a description. The discriminator decides which one was sent, so that an error is about that form alone."""
Day = Annotated[date, BeforeValidator(one_day)]

AsOf = Annotated[
    Day | None,
    Field(description="The day whose catalog answers: lifecycle, prices, software and evidence. Default: today."),
]

KnownAt = Annotated[
    Day | None,
    Field(
        description="Ignore prices and instance types that this installation imported after the end of this day (UTC). "
        "`as_of` then defaults to this day. Default: today."
    ),
]


BUILT_AT_FIRST_USE = ConfigDict(defer_build=True)
"""The validator and the serializer of an answer are built when they are first needed: all of them together take a
twentieth of the start."""


class Described:
    """A class whose fields are described in the OpenAPI document by the docstrings below them, where they have one."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Returns the JSON schema with the docstrings. They are read here, because a server rarely needs them."""
        json_schema = handler(schema)
        properties = handler.resolve_ref_schema(json_schema)["properties"]
        for name, text in _texts_below_fields(cls).items():
            if name in properties:
                properties[name]["description"] = text
        return json_schema


class ClosedList:
    """The words that a field may have, each by its letters and digits in lower case."""

    __slots__ = ("words",)

    def __init__(self, words: Iterable[str]) -> None:
        self.words = {_letters_and_digits(word): word for word in words}

    def __call__(self, value: Any) -> Any:
        """Returns the word that a value means, whatever its case and separators; a value without one as it is."""
        return self.words.get(_letters_and_digits(value), value) if isinstance(value, str) else value


def _letters_and_digits(word: str) -> str:
    return NO_LETTER_OR_DIGIT.sub("", word.lower())


def _in_any_spelling(schema: Any) -> Any:
    """Returns a part of a core schema in which closed lists take their words in any case and with any separators."""
    match schema:
        case {"type": "literal", "expected": [str(), *_] as words}:
            return no_info_before_validator_function(ClosedList(words), schema)
        case {"type": "function-before", "function": {"function": ClosedList()}}:
            return schema  # the schema of a model that is a part of this one
        case dict():
            return {key: _in_any_spelling(part) for key, part in schema.items()}
        case list():
            return [_in_any_spelling(part) for part in schema]
    return schema


class RequestModel(BaseModel):
    """A request, or a part of one. It refuses fields that it does not know, and reads `QLoRA` as the word `qlora`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Returns the core schema, in which every field with a closed list of words reads them in any spelling."""
        return cast(CoreSchema, _in_any_spelling(handler(source)))


class BodyModel(Described, RequestModel):
    """A JSON body, or a part of one: a number in quotes is text, and `true` is not a number."""

    model_config = ConfigDict(strict=True)


class ResponseModel(Described, BaseModel):
    """An answer, or a part of one, in which every field is always present. A part can be made from a domain value."""

    model_config = ConfigDict(frozen=True, from_attributes=True, populate_by_name=True, **BUILT_AT_FIRST_USE)

    @classmethod
    def like(cls, value: object, /, **more: object) -> Self:
        """Returns a response with the attributes of the value that have the same names, and with `more`."""
        same = {name: getattr(value, name) for name in cls.model_fields if name not in more}
        return cls(**same, **more)


def copy_of(value_class: Any, *without: str, only: Collection[str] = ()) -> Any:
    """Returns a base class of responses with the fields of a dataclass, without those named, or `only` with some.

    It has the name and the module of the dataclass, by which the docstrings below its fields are looked up.
    """
    copied: dict[str, Any] = {
        field.name: (field.type, ...)
        for field in fields(value_class)
        if field.name not in without and (not only or field.name in only)
    }
    return create_model(value_class.__name__, __base__=ResponseModel, __module__=value_class.__module__, **copied)


def _texts_below_fields(described: type[Described]) -> dict[str, str]:
    """Returns the docstring below each field of a class and its bases. A field that is stated again has its own."""
    texts: dict[str, str | None] = {}
    for base in reversed(described.__mro__):
        if issubclass(base, Described):
            texts |= _texts_by_class(getfile(base)).get(base.__name__, {})
    return {name: text for name, text in texts.items() if text is not None}


@cache
def _texts_by_class(path: str) -> dict[str, dict[str, str | None]]:
    """Returns the docstring below each field of each class in a file, with JSON's word for None."""
    classes = [
        node for node in ast.parse(Path(path).read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)
    ]
    return {node.name: dict(_texts_in(node)) for node in classes}


def _texts_in(node: ast.ClassDef) -> Iterator[tuple[str, str | None]]:
    for field, below in pairwise([*node.body, ast.Pass()]):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, PYTHON_NONE.sub("null", cleandoc(text)).replace("\n", " ")
            case ast.AnnAssign(target=ast.Name(id=name)), _:
                yield name, None


class DayRequest(RequestModel):
    """A question about the catalog of a day."""

    as_of: AsOf = None
    known_at: KnownAt = None


class PageRequest(DayRequest):
    """Which page of a list."""

    limit: Annotated[int, Field(ge=1, le=500, description="Most items on a page.")] = 50
    cursor: Annotated[
        str | None, Field(max_length=1000, description="`next_cursor` of the previous page. Default: the first page.")
    ] = None


@dataclass(slots=True)
class StatementResponse:
    """A code of `GET /recommend/codes`, and its sentence with the figures."""

    code: str
    text: str


@dataclass(slots=True)
class NoteResponse:
    """A remark on the whole answer, with a code of `GET /recommend/codes`."""

    code: str
    text: str
    fields: Annotated[list[str], Field(description="The fields of the question that the note concerns.")]
