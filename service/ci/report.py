"""An answer of `POST /estimate` for a terminal, a pull request or another program, and the exit code with it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

PASSED, FAILED, UNANSWERED = 0, 1, 2

Answer = Mapping[str, Any]

MARKS = {"pass": "✅ pass", "fail": "❌ fail"}


def exit_code(answer: Answer) -> int:
    """0: it passes, or nothing was asked of it; 1: it fails; 2: the cost is not known."""
    if answer["verdict"] is not None:
        if answer["verdict_of"]["usd"] is None:
            return UNANSWERED
        return PASSED if answer["verdict"] == "pass" else FAILED
    known = [each for each in answer["cost"] if each["usd"] is not None or (each["month"] or {}).get("usd") is not None]
    return PASSED if known else UNANSWERED


def as_json(answer: Answer) -> str:
    return json.dumps(answer, indent=2, ensure_ascii=False)


def as_table(answer: Answer) -> str:
    """Columns for a terminal."""
    told = [*conclusion(answer), ""]
    told += columns([HEADINGS, *(row_of(each) for each in answer["cost"])])
    entry = spoken_of(answer)
    if entry is not None and entry["parts"]:
        told += ["", f"Of which, {way_of(entry)}:", *columns([part_row(each) for each in parts_told(entry)])]
    return "\n".join([*told, *footnotes(answer)])


def as_markdown(answer: Answer) -> str:
    """For a comment on a pull request."""
    told = [f"### {MARKS.get(answer['verdict'], 'Cost')}", "", *conclusion(answer), ""]
    told += markdown_table([HEADINGS, *(row_of(each) for each in answer["cost"])])
    entry = spoken_of(answer)
    if entry is not None and entry["parts"]:
        told += ["", f"<details><summary>The bill, {way_of(entry)}</summary>", ""]
        told += [*markdown_table([("part", "USD", "how"), *(part_row(each) for each in parts_told(entry))]), ""]
        told += ["</details>"]
    return "\n".join([*told, *footnotes(answer)])


FORMATS = {"table": as_table, "markdown": as_markdown, "json": as_json}

HEADINGS = ("market", "region", "hours", "USD", "low", "high", "not known")


def conclusion(answer: Answer) -> list[str]:
    if answer["verdict"] is not None:
        return [f"{answer['verdict']}: {answer['verdict_of']['sentence']}"]
    entry = spoken_of(answer)
    return ["Nothing is offered." if entry is None else entry["text"]]


def spoken_of(answer: Answer) -> Answer | None:
    """The entry that the verdict speaks of; without a verdict the first."""
    of = answer["verdict_of"]
    wanted = {} if of is None else {name: of[name] for name in ("market", "term", "region")}
    entries: list[Answer] = answer["cost"]
    return next((each for each in entries if all(each[name] == value for name, value in wanted.items())), None)


def way_of(entry: Answer) -> str:
    way = entry["term"] or entry["market"]
    return f"{way} through {entry['managed_service']}" if entry["managed_service"] else str(way)


def row_of(entry: Answer) -> tuple[str, ...]:
    usd = entry["usd"] or (entry["month"] or {}).get("usd")
    hours = "" if entry["hours"] is None else f"{entry['hours']['likely']:.4g}"
    if entry["usd"] is None and usd is not None:
        hours = "a month"
    low, likely, high = (
        ("", "not known", "") if usd is None else (amount(usd[case]) for case in ("low", "likely", "high"))
    )
    missing = "" if usd is not None and entry["usd"] is None else " ".join(entry["missing"])
    return (way_of(entry), entry["region"] or "", hours, likely, low, high, missing)


def parts_told(entry: Answer) -> list[Answer]:
    """The parts that cost something, or would if it were known; a millionth of rounding is for programs."""
    return [
        each
        for each in entry["parts"]
        if each["usd"] is None or (each["usd"]["high"] > 0 and each["name"] != "rounding")
    ]


def part_row(part: Answer) -> tuple[str, ...]:
    usd = part["usd"]
    return (part["name"], "not known" if usd is None else amount(usd["likely"]), part["reason"] or part["text"])


def amount(dollars: float) -> str:
    """Cents, and for less than one as many digits as it takes."""
    return f"{dollars:,.2f}" if dollars == 0 or abs(dollars) >= 0.01 else f"{dollars:.6f}"


def footnotes(answer: Answer) -> list[str]:
    catalog = answer["catalog"]
    notes = [*(each["text"] for each in answer["warnings"]), *answer["notes"]]
    return ["", *notes, f"Catalog of {catalog['as_of']}, version {catalog['version']}."]


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))] if rows else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]
