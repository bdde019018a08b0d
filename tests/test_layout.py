"""How the code is laid out: small folders, one class per name, and tests that share through helpers."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).parent.parent
FILES_IN_A_FOLDER = 16
LINES_OF_A_FILE = 550
MEDIAN_LINES, LONG_LINES = 6, 18
"""Lines of the body of a function without its docstring: the median, and the 90th percentile."""


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported_modules(path: Path) -> Iterator[str]:
    """The modules that a file imports, and those that its `from` imports may name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def is_test_module(module: str) -> bool:
    last = module.rpartition(".")[2]
    return module.startswith("tests.") and (last.startswith("test_") or last == "conftest")


def test_no_test_imports_another_test() -> None:
    imports = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in python_files("tests", "bench")
        for module in imported_modules(path)
        if any(is_test_module(module.rsplit(".", depth)[0]) for depth in range(2))
    }
    assert not imports, "Shared parts belong in tests/builders, tests/oracles or a fixture."


def test_no_folder_has_more_files_than_a_reader_can_scan() -> None:
    sizes = Counter(path.parent for path in python_files("service", "tests", "bench"))
    assert {str(folder): size for folder, size in sizes.items() if size > FILES_IN_A_FOLDER} == {}


def test_every_class_name_of_the_service_stands_once() -> None:
    places = defaultdict(list)
    for path in python_files("service"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_files_and_functions_stay_short() -> None:
    files = python_files("service")
    long = {str(path) for path in files if path.read_text(encoding="utf-8").count("\n") > LINES_OF_A_FILE}
    assert not long
    lengths = [length for path in files for length in lengths_of_functions(path)]
    assert median(lengths) <= MEDIAN_LINES
    assert quantiles(lengths, n=10)[-1] <= LONG_LINES


def lengths_of_functions(path: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            yield (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
