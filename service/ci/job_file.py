"""Reads a job from a file of YAML 1.2 or JSON: the body of `POST /estimate`, with the limits of the command line."""

from datetime import date
from math import isfinite
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError


class JobFileWrong(Exception):
    """The file, or a limit next to it, cannot be read as a job; the message says why."""


def read_job(text: str | bytes) -> dict[str, Any]:
    """Returns the body in a file of YAML or JSON, which is YAML too. Raises `JobFileWrong`."""
    try:
        # In YAML 1.2, "no" and "12:30" are texts; in 1.1 they are a boolean and a number.
        body = _plain(YAML(typ="safe", pure=True).load(text))
    except DuplicateKeyError as error:
        raise JobFileWrong(f"The file repeats a name: {error.problem}.") from None
    except (YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise JobFileWrong(f"The file is neither YAML nor JSON: {reason[:300]}") from None
    if not isinstance(body, dict):
        raise JobFileWrong("The file must hold the fields of POST /estimate, such as machine and workload.")
    return body


def with_limits(
    body: dict[str, Any], baseline: float | None = None, fail_above: float | None = None, budget: float | None = None
) -> dict[str, Any]:
    """Returns the body with the given limits, which override those of the file. Raises `JobFileWrong`."""
    for option, limit in (("--baseline", baseline), ("--fail-above", fail_above), ("--budget", budget)):
        if limit is not None and not isfinite(limit):
            raise JobFileWrong(f"{option} must be a finite number.")
    limits = {"usd": baseline, "fail_above_percent": fail_above}
    given = {name: value for name, value in limits.items() if value is not None}
    limited = body if budget is None else {**body, "budget_usd": budget}
    compared = body.get("baseline")
    if given:
        compared = {**(compared if isinstance(compared, dict) else {}), **given}
        limited = {**limited, "baseline": compared}
    # Without this check, the service would report a field that the caller of the command does not know.
    if isinstance(compared, dict) and "usd" not in compared:
        raise JobFileWrong("A percentage needs a baseline: --baseline, or baseline.usd in the file.")
    return limited


def _plain(value: Any) -> Any:
    """Returns the value as JSON has it, without the dates and the numbers as names that YAML allows.

    Raises `JobFileWrong` for a number that JSON does not have.
    """
    if isinstance(value, dict):
        # YAML allows a number as a name, JSON does not.
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        raise JobFileWrong("The file has a number that is not finite.")
    return value.isoformat() if isinstance(value, date) else value
