"""The lists of codes are closed: what the code says stands in them, and what stands in them is said somewhere."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import service
from service.api.recommend.codes import ADVICE, NOTES, REASONS, REJECTIONS, WARNINGS
from service.domain.recommend.advice import ADVISERS
from service.domain.selection.constraints import Constraints, type_checks
from service.domain.selection.selection import OFFER_CODES
from tests.builders.catalogs import catalog

HOME = Path(service.__file__).parent
LISTS: dict[str, dict[Any, str]] = {"REASONS": REASONS, "WARNINGS": WARNINGS, "REJECTIONS": REJECTIONS, "NOTES": NOTES}
TELLERS = {"StatementResponse", "NoteResponse", "Check", "Obstacle"}
"""What takes a code as its first argument or as `code`."""

TOLD_IN = ("api/recommend/sentences.py", "api/recommend/host.py")
"""Warnings are told here as `found["code"] = …` or `{"code": …}`."""


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(HOME.rglob("*.py")):
        name = path.relative_to(HOME).as_posix()
        if path.name != "codes.py" and name.startswith(("api/", "domain/")):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def said() -> set[str]:
    """Every code that stands where a code is told."""
    found: list[ast.expr | None] = []
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TELLERS:
                found += [*node.args[:1], *(each.value for each in node.keywords if each.arg == "code")]
            if name in TOLD_IN and isinstance(node, ast.FunctionDef) and node.name in WARNERS:
                found += list(told_in(node))
    return {each.value for each in found if isinstance(each, ast.Constant) and isinstance(each.value, str)}


WARNERS = {
    "use_warnings", "lifecycle_warnings", "successor_warnings", "software_warnings", "network_warnings",
    "price_warnings", "spot_dearer", "host_warnings", "too_few_cores", "memory_unknown", "disks_too_small",
}  # fmt: skip


def told_in(function: ast.FunctionDef) -> Iterator[ast.expr | None]:
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            yield from node.keys
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield node.slice


def texts() -> set[str]:
    """Every text in the code, in whole or as the part of one that is put together."""
    return {
        node.value
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_what_is_said_stands_in_a_list() -> None:
    found = said()
    assert len(found) > 40, "the places where codes are told were not found"
    assert found - {code for codes in LISTS.values() for code in codes} == set()


def test_all_warners_are_read() -> None:
    functions = {
        node.name
        for name, tree in trees()
        if name in TOLD_IN
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    assert functions >= WARNERS
    assert {each for each in functions if each.endswith("_warnings")} <= WARNERS


PUT_TOGETHER = ("min_", "max_", "software_")
IN_BYTES = {"objective"}
"""Reasons that are written as they are encoded."""


@pytest.mark.parametrize("name", LISTS)
def test_what_stands_in_a_list_is_said(name: str) -> None:
    known = texts()
    for code in LISTS[name]:
        parts = {code, code.removesuffix("_unknown"), *(code.removeprefix(prefix) for prefix in PUT_TOGETHER)}
        assert parts & (known | IN_BYTES), f"{code} is never said"


def test_advice_is_just_what_advisers_give() -> None:
    assert list(ADVISERS) == list(ADVICE)


def test_constraints_have_listed_codes() -> None:
    asked = Constraints(
        words={"provider": ("gcp",)}, at_least={"vcpus": 1e9}, at_most={"gpu_count": -1}, flags={"rdma": False}
    )
    codes = [check.code for check in type_checks(asked, catalog())] + list(OFFER_CODES)
    assert set(codes) <= set(REJECTIONS)


@pytest.mark.parametrize("codes", [*LISTS.values(), ADVICE])
def test_each_code_has_its_sentence(codes: dict[str, str]) -> None:
    for code, sentence in codes.items():
        assert code == code.lower()
        assert sentence[0].isupper(), code
        assert sentence.endswith("."), code
