"""Texts for people are in plain English, public names have docstrings, and variables are called by nouns.

`plain_english.toml` holds the words to avoid, and lists of files that are not finished yet. A finished file has to
leave its list.
"""

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RULES = tomllib.loads((ROOT / "tests" / "plain_english.toml").read_text(encoding="utf-8"))
WORDS = {re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE): instead for pattern, instead in RULES["words"].items()}
ANY_WORD = re.compile("|".join(word.pattern for word in WORDS), re.IGNORECASE)  # twenty searches in one
OPENING = re.compile(rf"(?:{'|'.join(RULES['rules']['docstring_openings'])})\b")
QUOTED = re.compile(r"`[^`]*`")
EXEMPT = {"docs/scenarios.md", "tests/test_plain_english.py"}
"""The sentences of docs/scenarios.md come from tests/scenarios, which are read there; this file quotes the words."""

Finding = str
Check = Callable[[Path], Iterator[Finding]]


def files(*patterns: str) -> list[str]:
    paths = {path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(paths - EXEMPT)


CODE = files("service/**/*.py")
TEXTS = [
    *CODE,
    *files("dev.py", "bench/**/*.py", "migrations/**/*.py", "tests/**/*.py"),
    *files("*.md", "docs/**/*.md", "tests/scenarios/*.toml"),
]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that stand as statements: docstrings of modules, classes and functions, and those below fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file, each with its line: sentences in strings, and comments."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from enumerate(re.sub(r"^```.*?^```", "", content, flags=re.MULTILINE | re.DOTALL).splitlines(), 1)
    elif path.suffix == ".toml":
        chapter = tomllib.loads(content)
        texts = [chapter["title"], chapter["about"]]
        texts += [text for scenario in chapter["scenario"] for text in (scenario["title"], scenario["why"])]
        yield from ((content[: content.find(text)].count("\n") + 1, text) for text in texts)
    else:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
                yield node.lineno, node.value
        for token in tokenize.generate_tokens(io.StringIO(content).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def named_things(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The names of functions and classes as words: those of tests are sentences."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name.replace("_", " ")


def plain_english(path: Path) -> Iterator[Finding]:
    named = named_things(tree_of(path)) if path.suffix == ".py" else ()
    for line, text in (*texts_of(path), *named):
        unquoted = QUOTED.sub("", text)
        for word, instead in WORDS.items() if ANY_WORD.search(unquoted) else ():
            if match := word.search(unquoted):
                yield f"{line}: '{match[0]}'; better: {instead}"
    if path.suffix == ".py":
        for node in docstrings(tree_of(path)):
            if match := OPENING.match(str(node.value)):
                yield f"{node.lineno}: a docstring opens with '{match[0]}'; start with the subject or the verb"


def has_docstrings(path: Path) -> Iterator[Finding]:
    for node in tree_of(path).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if not node.name.startswith("_") and not ast.get_docstring(node):
            yield f"{node.lineno}: {node.name} has no docstring"


def variable_names(path: Path) -> Iterator[Finding]:
    for node in ast.walk(tree_of(path)):
        name = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        if name in RULES["rules"]["variable_names"]:
            yield f"{getattr(node, 'lineno', 0)}: {name} does not say what it holds"


@pytest.mark.parametrize(("check", "paths"), [(plain_english, TEXTS), (has_docstrings, CODE), (variable_names, CODE)])
def test_every_file_keeps_the_rules_or_is_listed_as_unfinished(check: Check, paths: list[str]) -> None:
    unfinished = set(RULES["unfinished"][check.__name__])
    findings = {path: lines for path in paths if (lines := list(check(ROOT / path)))}
    faults = [f"{path}:{finding}" for path in findings if path not in unfinished for finding in findings[path]]
    assert not faults, "\n".join(faults)
    assert unfinished <= set(findings), f"Finished; take off the list: {sorted(unfinished - set(findings))}"


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('"""What was told by nobody."""', True),
        ('"""Of a GPU, its memory."""', True),
        ('"""Memory of a GPU in bytes."""', False),
        ("# dearer machines come last", True),
        ('raise ValueError("No price is to be had.")', True),
        ('"""Reads the field `told` of a request."""', False),
        ('KEY = "told"', False),
        ("# a number tells them apart", False),
        ("def test_a_price_that_nobody_knows() -> None: ...", True),
        ("class Seen: ...", True),
    ],
)
def test_the_rules_find_what_they_forbid(text: str, is_found: bool, tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(text, encoding="utf-8")
    assert bool(list(plain_english(path))) is is_found


def test_the_glossary_gives_each_word_one_meaning() -> None:
    lines = (ROOT / "GLOSSARY.md").read_text(encoding="utf-8").splitlines()
    words = [line.split("|")[1].strip() for line in lines if line.startswith("| ") and not line.startswith("| word ")]
    assert len(words) > 40
    assert sorted(words) == sorted(set(words))
