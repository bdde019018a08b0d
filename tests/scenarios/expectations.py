"""What a scenario may expect of an answer, and how that is held against it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Told = Mapping[str, Any]
KEYS = ("instance", "name", "id", "code", "region", "market", "workload", "gpu", "value")
"""What an item of a list is found by."""


def items_of(answer: Told) -> list[Told]:
    """The choices of a decision, or the items of a list."""
    found: list[Told] = answer.get("choices", answer.get("items", []))
    return found


def gpu_of(item: Told) -> Mapping[str, Any]:
    gpu = item.get("specs", item).get("gpu")
    return gpu if isinstance(gpu, dict) else {}


def instance_of(item: Told) -> str | None:
    named: str | None = item.get("instance") or item.get("name")
    return named.rpartition("/")[2] if named else None


VIEWS: Mapping[str, Callable[[Told], Any]] = {
    "instances": instance_of,
    "families": lambda item: item.get("specs", item).get("family"),
    "gpus": lambda item: gpu_of(item).get("id") or item.get("id"),
    "kinds": lambda item: gpu_of(item).get("kind") or item.get("kind") or "none",
    "markets": lambda item: item.get("market"),
    "providers": lambda item: item.get("provider") or item.get("id"),
    "workloads": lambda item: item.get("workload"),
}


def first(seen: Sequence[Any], wanted: Any) -> bool:
    return bool(seen) and seen[0] in (wanted if isinstance(wanted, list) else [wanted])


def in_order(seen: Sequence[Any], wanted: Sequence[Any]) -> bool:
    places = [seen.index(each) for each in wanted if each in seen]
    return len(places) == len(wanted) and places == sorted(places)


RELATIONS: Mapping[str, Callable[[list[Any], Any], bool]] = {
    "first": first,
    "last": lambda seen, wanted: set(seen[-len(wanted) :]) == set(wanted),
    "among": lambda seen, wanted: set(wanted) <= set(seen),
    "without": lambda seen, wanted: not set(wanted) & set(seen),
    "only": lambda seen, wanted: set(seen) == set(wanted),
    "no others than": lambda seen, wanted: bool(seen) and set(seen) <= set(wanted),
    "order": in_order,
    "above": lambda seen, pairs: all(in_order(seen, pair) for pair in pairs),
}


def codes_of(statements: Sequence[Told]) -> set[str]:
    return {each["code"] for each in statements}


CODES: Mapping[str, Callable[[Told], set[str]]] = {
    "advice": lambda answer: codes_of(answer["advice"]),
    "notes": lambda answer: codes_of(answer["notes"]),
    "rejections": lambda answer: codes_of(answer["rejections"]),
    "grounds": lambda answer: {each["ground"] for each in answer["rejections"]},
    "reasons": lambda answer: codes_of(items_of(answer)[0]["reasons"]) if items_of(answer) else set(),
    "warnings": lambda answer: {code for item in items_of(answer) for code in codes_of(item["warnings"])},
}


def misses(answer: Told, expect: Told) -> Iterator[str]:
    """What the answer does not hold of what is expected."""
    for name, wanted in expect.items():
        if name in VIEWS:
            seen = list(dict.fromkeys(VIEWS[name](item) for item in items_of(answer)))
            for relation, held in wanted.items():
                if not RELATIONS[relation](seen, held):
                    yield f"{name} {relation} {held}, but they are {seen[:25]}"
        elif name in CODES:
            if lacking := set(wanted) - CODES[name](answer):
                yield f"{name} lack {sorted(lacking)}: {sorted(CODES[name](answer))}"
        else:
            yield from OTHERS[name](answer, wanted)


def warned(answer: Told, wanted: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Each choice of a family, type or market says what is to be known of it."""
    for subject, codes in wanted.items():
        of_it = [
            item for item in items_of(answer) if subject in (instance_of(item), item["specs"]["family"], item["market"])
        ]
        if not of_it:
            yield f"{subject} is not among the choices"
        for item in of_it:
            if lacking := set(codes) - codes_of(item["warnings"]):
                yield f"{item['instance']} does not warn of {sorted(lacking)}"


def figures(answer: Told, wanted: Mapping[str, Any]) -> Iterator[str]:
    for path, figure in wanted.items():
        try:
            found = at(answer, path)
        except LookupError as error:
            yield f"{path}: there is no {error}"
            continue
        if not agrees(found, figure):
            yield f"{path} is {found}, not {figure}"


def at(value: Any, path: str) -> Any:
    """What stands there; an item of a list is named by its place or by what it is called."""
    for part in path.split("/"):
        if isinstance(value, list):
            value = value[int(part)] if part.isdigit() else called(part, value)
        else:
            value = value[part]
    return value


def called(name: str, items: Sequence[Told]) -> Told:
    for item in items:
        if name in [str(item.get(key)) for key in KEYS] or instance_of(item) == name:
            return item
    raise LookupError(name)


def agrees(found: Any, wanted: Any) -> bool:
    """A figure as it is, or a table: `about` and `within`, `at_least`, `at_most`, `has` (a list or text), `unknown`."""
    if not isinstance(wanted, dict):
        return bool(found == wanted)
    if found is None or "unknown" in wanted:
        return found is None and "unknown" in wanted
    checks: dict[str, Callable[[Any], bool]] = {
        "about": lambda limit: abs(found - limit) <= wanted["within"],
        "within": lambda _: True,
        "at_least": lambda limit: found >= limit,
        "at_most": lambda limit: found <= limit,
        "has": lambda each: all(one in found for one in each) if isinstance(each, list) else each in found,
    }
    return all(checks[name](limit) for name, limit in wanted.items())


def counted(answer: Told, wanted: int) -> Iterator[str]:
    if len(items_of(answer)) < wanted:
        yield f"only {len(items_of(answer))}"


def known(answer: Told, paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        try:
            if at(answer, path) is None:
                yield f"{path} is not known"
        except LookupError:
            yield f"there is no {path}"


def near(answer: Told, wanted: Sequence[str]) -> Iterator[str]:
    told = {name for error in answer["errors"] for name in error["near"]}
    if lacking := set(wanted) - told:
        yield f"near names lack {sorted(lacking)}: {sorted(told)}"


OTHERS: Mapping[str, Callable[[Told, Any], Iterator[str]]] = {
    "warned": warned,
    "figures": figures,
    "at least so many": counted,
    "known": known,
    "near": near,
    "status": lambda _, __: iter(()),
}
