"""Renders an answer of `POST /estimate` for a terminal, a pull request or a program, and gives its exit code."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

PASSED, FAILED, UNANSWERED = 0, 1, 2

Answer = Mapping[str, Any]

MARKS = {"pass": "✅ pass", "fail": "❌ fail"}

HEADINGS = ("market", "region", "hours", "USD", "low", "high", "unknown")


def exit_code(answer: Answer) -> int:
    """Returns 0 if the job passes or has no limits, 1 if it fails, and 2 if its cost is unknown."""
    if answer["verdict"] is not None:
        if answer["verdict_of"]["usd"] is None:
            return UNANSWERED
        return PASSED if answer["verdict"] == "pass" else FAILED
    known = [each for each in answer["cost"] if each["usd"] is not None or (each["month"] or {}).get("usd") is not None]
    return PASSED if known else UNANSWERED


def as_json(answer: Answer) -> str:
    """Returns the answer itself, indented."""
    return json.dumps(answer, indent=2, ensure_ascii=False)


def as_table(answer: Answer) -> str:
    """Returns columns for a terminal."""
    lines = [*_conclusion(answer), "", _table([HEADINGS, *map(_cost_row, answer["cost"])], "plain")]
    entry = _decisive_entry(answer)
    if entry is not None and entry["parts"]:
        parts = _table(list(map(_part_row, _shown_parts(entry))), "plain")
        lines += ["", f"Parts of the bill, {_way_of(entry)}:", parts]
    return "\n".join([*lines, *_footnotes(answer)])


def as_markdown(answer: Answer) -> str:
    """Returns Markdown for a comment on a pull request."""
    lines = [f"### {MARKS.get(answer['verdict'], 'Cost')}", "", *_conclusion(answer), ""]
    lines += [_table([HEADINGS, *map(_cost_row, answer["cost"])], "pipe")]
    entry = _decisive_entry(answer)
    if entry is not None and entry["parts"]:
        lines += ["", f"<details><summary>Parts of the bill, {_way_of(entry)}</summary>", ""]
        lines += [_table([("part", "USD", "how"), *map(_part_row, _shown_parts(entry))], "pipe"), "", "</details>"]
    return "\n".join([*lines, *_footnotes(answer)])


FORMATS = {"table": as_table, "markdown": as_markdown, "json": as_json}


def _conclusion(answer: Answer) -> list[str]:
    if answer["verdict"] is not None:
        return [f"{answer['verdict']}: {answer['verdict_of']['sentence']}"]
    entry = _decisive_entry(answer)
    return ["There is no offer." if entry is None else entry["text"]]


def _decisive_entry(answer: Answer) -> Answer | None:
    """The entry that decided the verdict; without a verdict, the first."""
    of = answer["verdict_of"]
    wanted = {} if of is None else {name: of[name] for name in ("market", "term", "region")}
    entries: list[Answer] = answer["cost"]
    return next((each for each in entries if all(each[name] == value for name, value in wanted.items())), None)


def _way_of(entry: Answer) -> str:
    way = entry["term"] or entry["market"]
    return f"{way} through {entry['managed_service']}" if entry["managed_service"] else str(way)


def _cost_row(entry: Answer) -> tuple[str, ...]:
    usd = entry["usd"] or (entry["month"] or {}).get("usd")
    hours = "" if entry["hours"] is None else f"{entry['hours']['likely']:.4g}"
    if entry["usd"] is None and usd is not None:
        hours = "a month"
    low, likely, high = (
        ("", "unknown", "") if usd is None else (_amount(usd[case]) for case in ("low", "likely", "high"))
    )
    missing = "" if usd is not None and entry["usd"] is None else " ".join(entry["missing"])
    return (_way_of(entry), entry["region"] or "", hours, likely, low, high, missing)


def _shown_parts(entry: Answer) -> list[Answer]:
    """The parts that cost something or may do so, without rounding, which matters to programs only."""
    return [
        each
        for each in entry["parts"]
        if each["usd"] is None or (each["usd"]["high"] > 0 and each["name"] != "rounding")
    ]


def _part_row(part: Answer) -> tuple[str, ...]:
    usd = part["usd"]
    return (part["name"], "unknown" if usd is None else _amount(usd["likely"]), part["reason"] or part["text"])


def _amount(dollars: float) -> str:
    """Dollars with cents, or with six digits for less than a cent."""
    return f"{dollars:,.2f}" if dollars == 0 or abs(dollars) >= 0.01 else f"{dollars:.6f}"


def _footnotes(answer: Answer) -> list[str]:
    catalog = answer["catalog"]
    notes = [*(each["text"] for each in answer["warnings"]), *answer["notes"]]
    return ["", *notes, f"Catalog of {catalog['as_of']}, version {catalog['version']}."]


def _table(rows: Sequence[Sequence[str]], style: str) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows] if style == "pipe" else rows
    headers = escaped[0] if style == "pipe" else ()
    return tabulate(escaped[1:] if headers else escaped, headers, style, disable_numparse=True)
