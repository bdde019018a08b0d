"""Reads a job from a file of YAML 1.2 or JSON: the body of `POST /estimate`, with the limits of the command line."""

from datetime import date
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError


class JobFileWrong(Exception):
    """The file cannot be read as a job; the message says why."""


def read_job(text: str | bytes) -> dict[str, Any]:
    """Returns the body that the file holds, since JSON is YAML too. Raises `JobFileWrong`."""
    try:
        # YAML 1.2, where "no" and "12:30" are texts, and not a boolean and a number as in 1.1.
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
    limits = {"usd": baseline, "fail_above_percent": fail_above}
    given = {name: value for name, value in limits.items() if value is not None}
    limited = body if budget is None else {**body, "budget_usd": budget}
    compared = body.get("baseline")
    if given:
        compared = {**(compared if isinstance(compared, dict) else {}), **given}
        limited = {**limited, "baseline": compared}
    # Checked here: the service would report a field that the command line never named.
    if isinstance(compared, dict) and "usd" not in compared:
        raise JobFileWrong("A percentage needs a baseline: --baseline, or baseline.usd in the file.")
    return limited


def _plain(value: Any) -> Any:
    """The value as JSON has it: YAML reads a day as a date, and allows numbers as names."""
    if isinstance(value, dict):
        # YAML allows a number as a name, JSON does not.
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value
