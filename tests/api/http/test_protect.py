"""Answers protect browsers, and the service answers only for the hosts that it is set to."""

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service.api.http import examples
from service.app import create_app
from service.settings import Settings


@pytest.fixture(scope="module")
def restricted(seeded_file: Path) -> Iterator[TestClient]:
    settings = Settings(database_url=f"sqlite:///{seeded_file}", allowed_hosts="selector.example.org, *.internal")
    client = TestClient(create_app(settings, today=lambda: examples.DAY))
    yield client
    client.close()


@pytest.mark.parametrize("target", ["/healthz", "/instances?limit=1", "/nothing", "/docs", "/openapi.json", "/"])
def test_every_answer_forbids_sniffing_and_framing(client: TestClient, target: str) -> None:
    headers = client.get(target, follow_redirects=False).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "server" not in headers


def test_the_page_may_run_its_own_scripts_and_no_others(client: TestClient) -> None:
    page = client.get("/docs")
    scripts = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    assert scripts
    policy = page.headers["Content-Security-Policy"]
    for script in scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    (allowed,) = re.findall(r"script-src ([^;]*);", policy)
    assert "unsafe" not in allowed


@pytest.mark.parametrize("host", ["selector.example.org", "Selector.Example.org:8443", "a.internal", "a.b.internal:80"])
def test_an_allowed_host_is_answered(restricted: TestClient, host: str) -> None:
    assert restricted.get("/precisions", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["", "evil.org", "selector.example.org.evil.org", "internal", "[::1]:80", "127.0.0.1"])
def test_another_host_is_refused(restricted: TestClient, host: str) -> None:
    answer = restricted.get("/precisions", headers={"Host": host})
    assert answer.status_code == 421
    assert answer.json()["errors"][0]["field"] == "Host"


def test_probes_do_not_need_the_name(restricted: TestClient) -> None:
    assert restricted.get("/readyz", headers={"Host": "10.0.0.7:8000"}).status_code == 200


def test_no_redirect_depends_on_the_host(client: TestClient) -> None:
    answer = client.get("/instances/", headers={"Host": "evil.org"}, follow_redirects=False)
    assert answer.status_code == 404
    assert client.get("/", follow_redirects=False).headers["location"] == "/docs"
