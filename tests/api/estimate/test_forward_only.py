"""After the domain has answered an estimate, the API only renders."""

import ast
from collections.abc import Iterator
from importlib import import_module
from inspect import getsource, isfunction
from types import ModuleType

import pytest

from service.api.estimate import cost_response, estimate, response, sentences, what_if


def functions_of_the_domain(module: ModuleType) -> Iterator[str]:
    """Names of the functions that a module imports from the domain."""
    for node in ast.walk(ast.parse(getsource(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("service.domain"):
            source = import_module(node.module or "")
            yield from (name.name for name in node.names if isfunction(getattr(source, name.name)))


@pytest.mark.parametrize("module", [response, cost_response, sentences])
def test_a_module_that_renders_imports_no_function_but_the_one_that_prints_exact_money(module: ModuleType) -> None:
    assert set(functions_of_the_domain(module)) <= {"number"}


@pytest.mark.parametrize(("module", "function"), [(estimate, "estimate"), (what_if, "what_if")])
def test_a_question_is_one_call_of_the_domain(module: ModuleType, function: str) -> None:
    assert set(functions_of_the_domain(module)) == {function}
    calls = [
        node.func.id
        for node in ast.walk(ast.parse(getsource(module)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert calls.count(function) == 1
