"""The README's commands give what stands under them."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx2

from service.settings import Settings
from tests.api.keys import TOKEN
from tests.server import Server

README = Path(__file__).parent.parent / "README.md"
PAIR = re.compile(r"```sh\n(curl .*?)\n```\n```json\n(.*?)\n```", re.DOTALL)


def commands() -> list[tuple[str, Any]]:
    """Each curl command of the README with the excerpt that stands under it."""
    pairs: list[tuple[str, Any]] = []
    for shell, excerpts in PAIR.findall(README.read_text(encoding="utf-8")):
        lines = re.split(r"\n(?=curl )", shell)
        answers = [excerpts] if len(lines) == 1 else excerpts.splitlines()
        pairs.extend(zip(lines, map(json.loads, answers), strict=True))
    return pairs


def ask(command: str, base_url: str) -> Any:
    """The answer to the command, from the server of the test."""
    url, body, headers = "", None, {}
    words = iter(shlex.split(command.replace("$SELECTOR_DEVELOPMENT_KEY", TOKEN))[1:])
    for word in words:
        match word:
            case "-d":
                body = next(words)
            case "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            case _:
                url = word.replace("http://127.0.0.1:8000", base_url)
    if body is None:
        return httpx2.get(url, headers=headers).json()
    return httpx2.post(url, content=body, headers=headers).json()


def assert_holds(whole: Any, excerpt: Any, where: str = "answer") -> None:
    """Every name of an excerpt is in the whole with its value; a list may go on."""
    if isinstance(excerpt, dict):
        for name, value in excerpt.items():
            assert_holds(whole[name], value, f"{where}.{name}")
    elif isinstance(excerpt, list):
        assert len(whole) >= len(excerpt), where
        for index, value in enumerate(excerpt):
            assert_holds(whole[index], value, f"{where}[{index}]")
    else:
        assert whole == excerpt, where


def test_it_names_as_many_providers_as_the_seed_has() -> None:
    header, *rows = (README.parent / "seed" / "providers.csv").read_text(encoding="utf-8").splitlines()
    assert header.startswith("id,")
    assert f"{len(rows)} providers" in README.read_text(encoding="utf-8")


def test_there_are_commands_to_try() -> None:
    assert len(commands()) >= 5


def test_each_command_gives_what_the_readme_says(server_to_write: Server) -> None:
    """In a reader's order: what one of them measures, a later one compares."""
    for command, excerpt in commands():
        assert_holds(ask(command, server_to_write.url), excerpt, command)


def test_the_readme_lists_every_setting() -> None:
    text = README.read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        assert f"`SELECTOR_{name.upper()}`" in text
        default = str(field.default).lower() if isinstance(field.default, bool) else field.default
        assert f"`{default}`" in text
