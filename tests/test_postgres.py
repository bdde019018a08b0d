"""The tests' own Postgres server leaves nothing behind."""

import subprocess
import sys
import time
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

from tests.postgres import running_server

HOLD_A_SERVER = """
from tests.postgres import running_server

with running_server() as url:
    print(url, flush=True)
    input()
"""


def home(url: str) -> Path:
    return Path(str(make_url(url).query["host"]))


def test_each_database_answers(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    engine.dispose()


def test_a_server_is_gone_after_use() -> None:
    with running_server() as url:
        assert home(url).exists()
    assert not home(url).exists()


def test_a_server_is_gone_when_its_tests_are_killed() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD_A_SERVER], stdin=pipe, stdout=pipe, text=True) as tests:
        assert tests.stdout
        url = tests.stdout.readline().strip()
        tests.kill()
    for _ in range(100):
        if not home(url).exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{home(url)} is still there after ten seconds.")
