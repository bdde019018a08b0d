"""Expectations of a scenario, and the check of an answer against them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
KEYS = ("instance", "name", "id", "code", "region", "market", "workload", "gpu", "value", "platform")
"""Fields by whose value an item of a list is found."""


def items_of(answer: Json) -> list[Json]:
    """The choices of a decision, or the items of a list."""
    items: list[Json] = answer.get("choices", answer.get("items", []))
    return items


def gpu_of(item: Json) -> Mapping[str, Any]:
    gpu = item.get("specs", item).get("gpu")
    return gpu if isinstance(gpu, dict) else {}


def instance_of(item: Json) -> str | None:
    named: str | None = item.get("instance") or item.get("name")
    return named.rpartition("/")[2] if named else None


VIEWS: Mapping[str, Callable[[Json], Any]] = {
    "instances": instance_of,
    "families": lambda item: item.get("specs", item).get("family"),
    "gpus": lambda item: gpu_of(item).get("id") or item.get("id"),
    "kinds": lambda item: gpu_of(item).get("kind") or item.get("kind") or "none",
    "markets": lambda item: item.get("market"),
    "providers": lambda item: item.get("provider") or item.get("id"),
    "workloads": lambda item: item.get("workload"),
}


def first(values: Sequence[Any], wanted: Any) -> bool:
    return bool(values) and values[0] in (wanted if isinstance(wanted, list) else [wanted])


def in_order(values: Sequence[Any], wanted: Sequence[Any]) -> bool:
    positions = [values.index(each) for each in wanted if each in values]
    return len(positions) == len(wanted) and positions == sorted(positions)


RELATIONS: Mapping[str, Callable[[list[Any], Any], bool]] = {
    "first": first,
    "last": lambda values, wanted: set(values[-len(wanted) :]) == set(wanted),
    "among": lambda values, wanted: set(wanted) <= set(values),
    "without": lambda values, wanted: not set(wanted) & set(values),
    "only": lambda values, wanted: set(values) == set(wanted),
    "no others than": lambda values, wanted: bool(values) and set(values) <= set(wanted),
    "order": in_order,
    "above": lambda values, pairs: all(in_order(values, pair) for pair in pairs),
}


def codes_of(statements: Sequence[Json]) -> set[str]:
    return {each["code"] for each in statements}


CODES: Mapping[str, Callable[[Json], set[str]]] = {
    "advice": lambda answer: codes_of(answer["advice"]),
    "notes": lambda answer: codes_of(answer["notes"]),
    "rejections": lambda answer: codes_of(answer["rejections"]),
    "grounds": lambda answer: {each["ground"] for each in answer["rejections"]},
    "reasons": lambda answer: codes_of(items_of(answer)[0]["reasons"]) if items_of(answer) else set(),
    "warnings": lambda answer: {code for item in items_of(answer) for code in codes_of(item["warnings"])},
}


def misses(answer: Json, expect: Json) -> Iterator[str]:
    """Yields a sentence for each expectation that the answer does not meet."""
    for name, wanted in expect.items():
        if name in VIEWS:
            values = list(dict.fromkeys(VIEWS[name](item) for item in items_of(answer)))
            for relation, held in wanted.items():
                if not RELATIONS[relation](values, held):
                    yield f"{name} {relation} {held}, but they are {values[:25]}"
        elif name in CODES:
            if lacking := set(wanted) - CODES[name](answer):
                yield f"{name} lack {sorted(lacking)}: {sorted(CODES[name](answer))}"
        else:
            yield from OTHERS[name](answer, wanted)


def warned(answer: Json, wanted: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields the warnings that the choices of a family, type or market lack."""
    for subject, codes in wanted.items():
        of_it = [
            item for item in items_of(answer) if subject in (instance_of(item), item["specs"]["family"], item["market"])
        ]
        if not of_it:
            yield f"{subject} is not among the choices"
        for item in of_it:
            if lacking := set(codes) - codes_of(item["warnings"]):
                yield f"{item['instance']} does not warn of {sorted(lacking)}"


def figures(answer: Json, wanted: Mapping[str, Any]) -> Iterator[str]:
    for path, figure in wanted.items():
        try:
            value = at(answer, path)
        except (LookupError, TypeError) as error:
            yield f"{path}: there is no {error}"
            continue
        if not agrees(value, figure):
            yield f"{path} is {value}, not {figure}"


def at(value: Any, path: str) -> Any:
    """The value at a path; a part of the path names an item of a list by its index or its name."""
    for part in path.split("/"):
        if isinstance(value, list):
            value = value[int(part)] if part.isdigit() else called(part, value)
        else:
            value = value[part]
    return value


def called(name: str, items: Sequence[Json]) -> Json:
    for item in items:
        if name in [str(item.get(key)) for key in KEYS] or instance_of(item) == name:
            return item
    raise LookupError(name)


def agrees(value: Any, wanted: Any) -> bool:
    """A figure as it is, or a table: `about` and `within`, `at_least`, `at_most`, `has` (a list or text), `unknown`."""
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    if value is None or "unknown" in wanted:
        return value is None and "unknown" in wanted
    checks: dict[str, Callable[[Any], bool]] = {
        "about": lambda limit: abs(value - limit) <= wanted["within"],
        "within": lambda _: True,
        "at_least": lambda limit: value >= limit,
        "at_most": lambda limit: value <= limit,
        "has": lambda each: all(one in value for one in each) if isinstance(each, list) else each in value,
    }
    return all(checks[name](limit) for name, limit in wanted.items())


def counted(answer: Json, wanted: int) -> Iterator[str]:
    if len(items_of(answer)) < wanted:
        yield f"only {len(items_of(answer))}"


def known(answer: Json, paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        try:
            if at(answer, path) is None:
                yield f"{path} is not known"
        except (LookupError, TypeError):
            yield f"there is no {path}"


def near(answer: Json, wanted: Sequence[str]) -> Iterator[str]:
    names = {name for error in answer["errors"] for name in error["near"]}
    if lacking := set(wanted) - names:
        yield f"near names lack {sorted(lacking)}: {sorted(names)}"


def grounded(answer: Json, wanted: Sequence[str]) -> Iterator[str]:
    grounds = {each["ground"] for each in answer["rejections"]}
    if not grounds or not grounds <= set(wanted):
        yield f"grounds are {sorted(grounds)}"


def differing(answer: Json, wanted: int) -> Iterator[str]:
    tops = {instance_of(item["choices"][0]) for item in items_of(answer)}
    if len(tops) < wanted:
        yield f"the first choices are {sorted(map(str, tops))}"


OTHERS: Mapping[str, Callable[[Json, Any], Iterator[str]]] = {
    "grounds only": grounded,
    "different first choices": differing,
    "warned": warned,
    "figures": figures,
    "at least so many": counted,
    "known": known,
    "near": near,
    "status": lambda _, __: iter(()),
}
