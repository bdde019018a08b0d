"""The scenarios as they are written down, and the same as a document: `python -m tests.scenarios.render` prints it."""

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

HERE = Path(__file__).parent
DOCUMENT = HERE.parent.parent / "docs" / "scenarios.md"
STRENGTHS = {
    "must": "The answer has to be so.",
    "derived": "It follows from figures that are known.",
    "correction": "What is often said is wrong or out of date; the answer is the fact.",
    "prior": "A rule of thumb, which data may overrule; then the scenario says so and expects what the data say.",
    "soft": "A warning or a piece of advice accompanies the choices.",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One request and what its answer must hold."""

    method: str
    target: str
    body: Mapping[str, Any] | None
    expect: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Something that users believe or ask, as requests with their answers."""

    id: str
    title: str
    strength: str
    day: date
    why: str
    steps: tuple[Step, ...]
    case: str | None = None
    """The case of `cases.json` that it asks."""
    differs: str | None = None
    """The fact, with its source, by which the answer differs from what the case expects."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """The scenarios of one subject."""

    id: str
    title: str
    about: str
    scenarios: tuple[Scenario, ...]


def chapters() -> list[Chapter]:
    return sorted((read(path) for path in HERE.glob("*.toml")), key=lambda chapter: chapter.id)


def read(path: Path) -> Chapter:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    scenarios = tuple(scenario(each, table["as_of"]) for each in table["scenario"])
    return Chapter(path.stem, table["title"], table["about"], scenarios)


def scenario(table: Mapping[str, Any], usual_day: date) -> Scenario:
    day = table.get("as_of", usual_day)
    return Scenario(
        id=table["id"],
        title=table["title"],
        strength=table["strength"],
        day=day,
        why=table["why"],
        steps=tuple(step(each, day) for each in (table, *table.get("then", ()))),
        case=table.get("case"),
        differs=table.get("differs"),
    )


def step(table: Mapping[str, Any], day: date) -> Step:
    """The catalog's day is put into the query or the body, and a limit that hides nothing."""
    if "get" in table:
        target = table["get"]
        return Step("GET", f"{target}{'&' if '?' in target else '?'}as_of={day}", None, table["expect"])
    body: dict[str, Any] = dict(table["ask"])
    if table["post"] == "/recommend":
        body = {"limit": 100, **body}
    if table["post"] in ("/recommend", "/estimate"):
        body = {**body, "as_of": day.isoformat()}
    if table["post"] == "/measurements":
        body["items"] = [{"measured_at": day.isoformat(), **item} for item in body["items"]]
    elif "items" in body:
        limit = {"limit": 100} if table["post"] == "/recommend/batch" else {}
        body["items"] = [{**limit, **item, "as_of": day.isoformat()} for item in body["items"]]
    return Step("POST", table["post"], body, table["expect"])


def document() -> str:
    return "\n".join(lines()).strip() + "\n"


def lines() -> Iterator[str]:
    yield "# Scenarios"
    yield ""
    yield "Questions and beliefs of users as requests, and the expectations that the answers have to meet. They are"
    yield "written down in `tests/scenarios/*.toml`, run against the seed by `tests/scenarios/test_scenarios.py`, and"
    yield "rendered here by `python3 dev.py scenarios`."
    yield ""
    yield "| strength | means |"
    yield "|---|---|"
    yield from (f"| {name} | {meaning} |" for name, meaning in STRENGTHS.items())
    yield from counted_lines([each for chapter in chapters() for each in chapter.scenarios])
    for chapter in chapters():
        yield ""
        yield f"## {chapter.title}"
        yield ""
        yield chapter.about
        for each in chapter.scenarios:
            yield from scenario_lines(each)


STATES = {
    "holds": "the answer is as the question expects",
    "differs": "a fact with its source says otherwise, or data overrule a rule of thumb",
}


def state_of(scenario: Scenario) -> str:
    return "differs" if scenario.differs else "holds"


def counted_lines(scenarios: list[Scenario]) -> Iterator[str]:
    """How many scenarios of each strength hold, and how many differ."""
    yield ""
    yield f"| strength | {' | '.join(STATES)} |"
    yield f"|---|{'---|' * len(STATES)}"
    for strength in STRENGTHS:
        of_it = Counter(state_of(each) for each in scenarios if each.strength == strength)
        yield f"| {strength} | {' | '.join(str(of_it[state]) for state in STATES)} |"
    yield ""
    yield ", ".join(f"{state}: {meaning}" for state, meaning in STATES.items()).capitalize() + "."


def scenario_lines(scenario: Scenario) -> Iterator[str]:
    yield ""
    yield f"### {scenario.title}"
    yield ""
    yield f"*{scenario.strength}, {scenario.day.day} {scenario.day:%B %Y}: {state_of(scenario)}.* {scenario.why}"
    if scenario.differs:
        yield ""
        yield scenario.differs
    for each in scenario.steps:
        yield ""
        yield f"`{each.method} {unquote(each.target)}`"
        if each.body is not None:
            yield "```json"
            yield json.dumps({name: value for name, value in each.body.items() if name != "limit"}, ensure_ascii=False)
            yield "```"
        yield ""
        yield "| of the answer | is |"
        yield "|---|---|"
        yield from (f"| {name} | {value} |" for name, value in expectation_rows(each.expect))


def expectation_rows(expect: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in expect.items():
        if name == "figures":
            yield from ((f"`{path}`", figure_words(figure)) for path, figure in value.items())
        elif isinstance(value, dict):
            yield from ((f"{name}: {relation}", words(held)) for relation, held in value.items())
        else:
            yield name, words(value)


def figure_words(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {held}" for name, held in value.items())
    return words(value)


def words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(" above ".join(each) if isinstance(each, list) else words(each) for each in value)
    return json.dumps(value) if isinstance(value, bool) or value is None else f"{value}"


# The systems, a line each

SYSTEMS = HERE / "systems.json"
SYSTEMS_DOCUMENT = DOCUMENT.with_name("systems.md")


def systems() -> list[tuple[str, Step]]:
    """Returns each system and principle by its name, with the request that shows it."""
    rows = json.loads(SYSTEMS.read_text(encoding="utf-8"))
    return [
        (
            row["system"],
            Step("GET", row["get"], None, row["expect"])
            if "get" in row
            else Step("POST", row["post"], row["ask"], row["expect"]),
        )
        for row in rows
    ]


def systems_document() -> str:
    """Returns docs/systems.md: a question and its answer for each system."""
    lines = [
        "# Systems",
        "",
        "Instance types, GPUs, services, software and principles that the guides speak of: each with a question to the",
        "service and what its answer holds. `tests/scenarios/test_systems.py` asks every line.",
        "",
        "| system | question | answer |",
        "|---|---|---|",
    ]
    for name, step in systems():
        asked = {key: value for key, value in (step.body or {}).items() if key != "limit"}
        question = f"`{step.method} {unquote(step.target)}`" + (f" `{json.dumps(asked)}`" if asked else "")
        answer = "; ".join(f"{path}: {value}" for path, value in expectation_rows(step.expect))
        lines.append(f"| {name} | {question} | {answer} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    SYSTEMS_DOCUMENT.write_text(systems_document(), encoding="utf-8")
    sys.stdout.write(document())
