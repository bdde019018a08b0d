"""Renders an answer of `POST /estimate` for a terminal, a pull request or a program, and gives its exit code."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

from service.api.http.figures import dollars, readable

PASSED, FAILED, UNANSWERED = 0, 1, 2

Answer = Mapping[str, Any]

MARKS = {"pass": "✅ pass", "fail": "❌ fail", "unknown": "❔ unknown"}

CODES = {"pass": PASSED, "fail": FAILED, "unknown": UNANSWERED}
"""Exit codes by verdict."""

HEADINGS = ("market", "region", "hours", "USD", "low", "high", "unknown")


def exit_code(answer: Answer) -> int:
    """Returns 0 if the job passes or has no limits, 1 if it fails, and 2 if an unknown cost decides."""
    if answer["verdict"] is not None:
        return CODES[answer["verdict"]]
    return PASSED if any(_usd_of(entry) is not None for entry in answer["cost"]) else UNANSWERED


def as_json(answer: Answer) -> str:
    """Returns the answer itself, indented."""
    return json.dumps(answer, indent=2, ensure_ascii=False)


def as_table(answer: Answer) -> str:
    """Returns the answer as columns for a terminal."""
    lines = [*_conclusion(answer), "", _table([HEADINGS, *map(_cost_row, answer["cost"])], "plain")]
    entry = _decisive_entry(answer)
    if entry is not None and entry["parts"]:
        lines += ["", f"Parts of the bill, {_way_of(entry)}:", _table(_part_rows(entry), "plain")]
    return "\n".join([*lines, *_footnotes(answer)])


def as_markdown(answer: Answer) -> str:
    """Returns Markdown for a comment on a pull request."""
    lines = [f"### {MARKS.get(answer['verdict'], 'Cost')}", "", *_conclusion(answer), ""]
    lines += [_table([HEADINGS, *map(_cost_row, answer["cost"])], "pipe")]
    entry = _decisive_entry(answer)
    if entry is not None and entry["parts"]:
        lines += ["", f"<details><summary>Parts of the bill, {_way_of(entry)}</summary>", ""]
        lines += [_table([("part", "USD", "how"), *_part_rows(entry)], "pipe"), "", "</details>"]
    return "\n".join([*lines, *_footnotes(answer)])


FORMATS = {"table": as_table, "markdown": as_markdown, "json": as_json}


def _conclusion(answer: Answer) -> list[str]:
    if answer["verdict"] is not None:
        return [f"{answer['verdict']}: {answer['verdict_of']['sentence']}"]
    entry = _decisive_entry(answer)
    return ["There is no offer." if entry is None else entry["text"]]


def _decisive_entry(answer: Answer) -> Answer | None:
    """Returns the entry that decided the verdict; without a verdict, the first."""
    decisive = answer["verdict_of"]
    entries: list[Answer] = answer["cost"]
    # Market, term and region name several entries if services are priced too; the plain one, which is judged, comes
    # first.
    for entry in entries:
        if decisive is None or all(entry[name] == decisive[name] for name in ("market", "term", "region")):
            return entry
    return None


def _way_of(entry: Answer) -> str:
    way = entry["term"] or entry["market"]
    return f"{way} through {entry['managed_service']}" if entry["managed_service"] else str(way)


def _usd_of(entry: Answer) -> Any:
    """Returns the dollars of a job, or of a month of a load; None if unknown."""
    return entry["usd"] or (entry["month"] or {}).get("usd")


def _cost_row(entry: Answer) -> tuple[str, ...]:
    usd = _usd_of(entry)
    likely, low, high = ("unknown", "", "") if usd is None else map(dollars, (usd["likely"], usd["low"], usd["high"]))
    hours = "" if entry["hours"] is None else readable(entry["hours"]["likely"], 4)
    missing = " ".join(entry["missing"])
    if usd is not None and entry["usd"] is None:
        hours, missing = "a month", ""
    return (_way_of(entry), entry["region"] or "", hours, likely, low, high, missing)


def _part_rows(entry: Answer) -> list[tuple[str, ...]]:
    """Returns the parts that may cost something, except for the rounding, which only programs need."""
    rows: list[tuple[str, ...]] = []
    for part in entry["parts"]:
        usd = part["usd"]
        if usd is None or (usd["high"] > 0 and part["name"] != "rounding"):
            amount = "unknown" if usd is None else dollars(usd["likely"])
            rows.append((part["name"], amount, part["reason"] or part["text"]))
    return rows


def _footnotes(answer: Answer) -> list[str]:
    catalog = answer["catalog"]
    notes = [*(warning["text"] for warning in answer["warnings"]), *answer["notes"]]
    return ["", *notes, f"Catalog of {catalog['as_of']}, version {catalog['version']}."]


def _table(rows: Sequence[Sequence[str]], style: str) -> str:
    if style == "plain":
        return tabulate(rows, (), style, disable_numparse=True)
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]  # a plain | would end the cell
    return tabulate(body, head, style, disable_numparse=True)
