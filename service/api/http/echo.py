"""A body as it was understood, as JSON: what was sent, and the default of every other field."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

NOTHING: Mapping[str, Any] = MappingProxyType({})


def echoed(model: BaseModel, filled: Mapping[str, Any] = NOTHING) -> bytes:
    """What `model_dump_json` writes, in less time where most fields stand at their defaults.

    `filled` holds what stands instead of the model's own values; of a part, what stands instead of the part's.
    """
    places, defaults = written(type(model))
    pieces, values = defaults.copy(), model.__dict__
    for name in {*model.model_fields_set, *filled}:
        value = values[name]
        if isinstance(value, BaseModel):
            told = echoed(value, filled.get(name, NOTHING))
        else:
            told = to_json(filled.get(name, value))
        pieces[places[name]] = b'"%b":%b' % (name.encode(), told)
    return b"{%b}" % b",".join(pieces)


@cache
def written(of: type[BaseModel]) -> tuple[dict[str, int], list[bytes]]:
    """Where each field stands, and all of them at their defaults; a field without one is empty."""
    defaults = [
        b""
        if field.is_required()
        else b'"%b":%b' % (name.encode(), to_json(field.get_default(call_default_factory=True, validated_data={})))
        for name, field in of.model_fields.items()
    ]
    return {name: place for place, name in enumerate(of.model_fields)}, defaults
