"""Data flows forward only: a request is read, the domain answers with one call, and the rest only renders."""

import ast
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("estimate", "recommend", "workload")
"""Rooms of the API that ask the domain a question. Handlers of `catalog` list what the domain holds."""

READS_REQUESTS = {
    "estimate/cost_request.py", "estimate/request.py", "recommend/request.py", "workload/job.py",
    "workload/requirements.py", "workload/serving.py",
}  # fmt: skip
"""Modules that turn a request into a question: they resolve names before the domain answers."""

ASKS = {
    "estimate/estimate.py": "estimate",
    "estimate/batch.py": "estimate",
    "estimate/what_if.py": "what_if",
    "estimate/price_changes.py": "price_changes",
    "recommend/recommend.py": "recommend",
}
"""Modules that ask the domain, and the one function that each of them calls once."""

PRINTS = {"number", "either", "with_near"}
"""Functions of the domain that only print a value: exact money as a JSON number, and names as alternatives."""


def path_of(module: str) -> Path:
    return ROOT / "service" / "api" / module


MODULES = [
    f"{room}/{path.name}" for room in ROOMS for path in sorted(path_of(room).glob("*.py")) if path.name != "__init__.py"
]
RENDERS = [module for module in MODULES if module not in READS_REQUESTS | set(ASKS)]


def names_of_the_domain(module: str) -> Iterator[tuple[str, object]]:
    """Yields what a module imports from the domain, under the name that it has in the module."""
    for node in ast.walk(ast.parse(path_of(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("service.domain"):
            source = import_module(node.module or "")
            yield from ((name.asname or name.name, getattr(source, name.name)) for name in node.names)
        elif isinstance(node, ast.Import):
            yield from ((name.name, import_module(name.name)) for name in node.names if "service.domain" in name.name)


def functions_of_the_domain(module: str) -> set[str]:
    """Names by which a module could call the domain: functions, and modules that hold them."""
    names = dict(names_of_the_domain(module))
    return {name for name, value in names.items() if isfunction(value) or isinstance(value, ModuleType)} - PRINTS


def calls(module: str) -> Counter[str]:
    """How often a module calls each plain name."""
    nodes = ast.walk(ast.parse(path_of(module).read_text(encoding="utf-8")))
    return Counter(node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))


def handles_post(module: str) -> bool:
    nodes = ast.walk(ast.parse(path_of(module).read_text(encoding="utf-8")))
    return any(isinstance(node, ast.Attribute) and node.attr == "post" for node in nodes)


@pytest.mark.parametrize("module", RENDERS)
def test_modules_that_render_import_no_function_of_the_domain(module: str) -> None:
    assert functions_of_the_domain(module) == set()


def test_the_imports_of_these_modules_are_read() -> None:
    assert dict(names_of_the_domain("recommend/response.py"))
    assert functions_of_the_domain("estimate/request.py")


@pytest.mark.parametrize("module", sorted(ASKS))
def test_a_question_is_one_call_of_the_domain(module: str) -> None:
    assert functions_of_the_domain(module) == {ASKS[module]}
    assert calls(module)[ASKS[module]] == 1


def test_every_post_handler_asks_the_domain_once() -> None:
    assert {module for module in MODULES if handles_post(module)} <= set(ASKS)


def test_a_recommendation_is_read_answered_and_rendered() -> None:
    tree = ast.parse(path_of("recommend/recommend.py").read_text(encoding="utf-8"))
    [answer_in] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "answer_in"]
    called = [node.func.id for node in ast.walk(answer_in) if isinstance(node, ast.Call) and hasattr(node.func, "id")]
    assert set(called) == {"hosted", "to_question", "recommend", "in_full", "rendered", "encoded"}
