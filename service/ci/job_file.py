"""A job as a file of YAML or JSON: the body of `POST /estimate`, with the limits of the command line put into it."""

import re
from collections.abc import Hashable
from datetime import date
from typing import Any

import yaml

LIMITS = {"baseline": ("baseline", "usd"), "fail_above": ("baseline", "fail_above_percent"), "budget": ("budget_usd",)}


class JobFileWrong(Exception):
    """The file cannot be read as a job; the sentence says why."""


class Loader(yaml.SafeLoader):
    """YAML as people mean it: `2e9` is a number, a day is written out, and a name stands only once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [key.value for key, _ in node.value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise JobFileWrong(f"The file names '{twice}' twice.")
        return super().construct_mapping(node, deep)


# YAML 1.1, which PyYAML reads, takes 2e9 for text, as it has neither point nor sign.
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d[\d_]*(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_job(text: str) -> dict[str, Any]:
    """The body that the file holds; JSON is YAML too. Raises `JobFileWrong`."""
    try:
        # The loader is a safe one: it makes nothing but plain values.
        found = plain(yaml.load(text, Loader))  # noqa: S506
    except (yaml.YAMLError, RecursionError) as error:
        told = " ".join(str(error).split())
        raise JobFileWrong(f"The file is neither YAML nor JSON: {told[:300]}") from None
    if not isinstance(found, dict):
        raise JobFileWrong("The file must hold the fields of POST /estimate, such as machine and workload.")
    return found


def plain(value: Any) -> Any:
    """What JSON can hold: YAML reads a day as a date, and a number as a name."""
    if isinstance(value, dict):
        return {str(name): plain(held) for name, held in value.items()}
    if isinstance(value, list):
        return [plain(held) for held in value]
    return value.isoformat() if isinstance(value, date) else value


def with_limits(body: dict[str, Any], **limits: float | None) -> dict[str, Any]:
    """The body under the limits that are told; they go before those of the file. Raises `JobFileWrong`."""
    for name, value in limits.items():
        if value is None:
            continue
        *above, last = LIMITS[name]
        place = body
        for step in above:
            held = place.get(step)
            place[step] = place = dict(held) if isinstance(held, dict) else {}
        place[last] = value
    baseline = body.get("baseline")
    if isinstance(baseline, dict) and "usd" not in baseline:
        raise JobFileWrong("A percentage needs a baseline: --baseline, or baseline.usd in the file.")
    return body
