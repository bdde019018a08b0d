"""Bodies with some of their numbers at the ends of what the OpenAPI document allows."""

import sys
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any


class Edges:
    """Moves numbers of a body to an end of their range, and adds some that were left out."""

    def __init__(self, schemas: Mapping[str, Any], random: Random) -> None:
        self._schemas = schemas
        self._random = random

    def moved(self, body: dict[str, Any], schema: str, chance: float) -> dict[str, Any]:
        return self._moved(body, {"$ref": f"#/components/schemas/{schema}"}, chance)

    def _moved(self, body: dict[str, Any], schema: Mapping[str, Any], chance: float) -> dict[str, Any]:
        body = dict(body)
        for each in self._alternatives(schema):
            for name, field in each.get("properties", {}).items():
                if isinstance(body.get(name), dict):
                    body[name] = self._moved(body[name], field, chance)
                    continue
                ends = [end for one in self._alternatives(field) for end in ends_of(one)]
                if ends and self._random.random() < (chance if name in body else chance / 10):
                    body[name] = self._random.choice(ends)
        return body

    def _alternatives(self, schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        if "$ref" in schema:
            yield from self._alternatives(self._schemas[schema["$ref"].rpartition("/")[2]])
        elif "anyOf" in schema:
            for each in schema["anyOf"]:
                yield from self._alternatives(each)
        else:
            yield schema


def ends_of(schema: Mapping[str, Any]) -> list[float]:
    """Above an end that is not allowed itself stands the least number above 0: all such ends are 0."""
    if schema.get("type") not in ("number", "integer"):
        return []
    ends = [schema[end] for end in ("minimum", "maximum") if end in schema]
    return [*ends, sys.float_info.min * sys.float_info.epsilon] if "exclusiveMinimum" in schema else ends
