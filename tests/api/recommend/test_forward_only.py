"""After the domain has answered, the API only renders: no module that renders the answer calls the domain."""

import ast
from collections.abc import Iterator
from importlib import import_module
from inspect import getsource, isfunction
from types import ModuleType

import pytest

from service.api.recommend import recommend, response, sentences


def names_of_the_domain(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yields what a module imports from the domain."""
    for node in ast.walk(ast.parse(getsource(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("service.domain"):
            source = import_module(node.module or "")
            yield from ((name.name, getattr(source, name.name)) for name in node.names)


@pytest.mark.parametrize("module", [response, sentences])
def test_what_renders_the_answer_imports_values_of_the_domain_and_no_functions(module: ModuleType) -> None:
    names = dict(names_of_the_domain(module))
    assert "Statement" in names or "Answer" in names, "the imports were not read"
    assert not [name for name, value in names.items() if isfunction(value) or isinstance(value, ModuleType)]


def test_the_handlers_call_one_function_of_the_domain() -> None:
    functions = {name for name, value in names_of_the_domain(recommend) if isfunction(value)}
    assert functions == {"recommend"}


def calls(function: object) -> list[str]:
    """The functions that a function calls, in the order in which it does."""
    tree = ast.parse(getsource(function))  # type: ignore[arg-type]
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return [node.func.id for node in found if isinstance(node.func, ast.Name)]


def test_the_domain_is_called_once_and_after_it_nothing_but_rendering() -> None:
    called = calls(recommend.answer_in)
    assert called.count("recommend") == 1
    assert set(called) == {"to_question", "recommend", "in_full", "rendered"}
