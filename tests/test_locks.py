"""The lock files agree with pyproject.toml and with each other, and name no package index."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dev import IMAGE_LOCK, LOCK, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = PROJECT["dependency-groups"]


def pinned(lock: str) -> set[str]:
    return set(re.findall(r"^\S+==\S+", lock, re.MULTILINE))


def missing(wanted: list[str], lock: str) -> set[str]:
    names = {pin.split("==")[0] for pin in pinned(lock)}
    return {str(canonicalize_name(Requirement(line).name)) for line in wanted} - names


def test_the_lock_has_every_dependency() -> None:
    dev_tools = [line for line in GROUPS["dev"] if isinstance(line, str)]
    assert not missing(PROJECT["project"]["dependencies"] + dev_tools, LOCK.read_text())


def test_the_lock_of_the_image_has_what_runs_and_what_builds() -> None:
    assert not missing(PROJECT["project"]["dependencies"] + GROUPS["build"], IMAGE_LOCK.read_text())
    assert missing(["pytest"], IMAGE_LOCK.read_text())


def test_the_image_gets_the_versions_that_were_tested() -> None:
    assert pinned(IMAGE_LOCK.read_text()) <= pinned(LOCK.read_text())


@pytest.mark.parametrize("lock", [LOCK, IMAGE_LOCK])
def test_a_lock_names_no_index(lock: Path) -> None:
    assert not re.search(r"://|^\s*--(?!hash)", lock.read_text(), re.MULTILINE)
