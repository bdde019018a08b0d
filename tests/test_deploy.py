"""The files under deploy/ use commands, settings, ports and routes that exist."""

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from ruamel.yaml import YAML

from service.cli.main import instance_selector
from service.settings import PREFIX, Settings
from tests.api.documented import DOCUMENT
from tests.server import Server

DEPLOY = Path(__file__).parent.parent / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
TEXTS = sorted(path for path in DEPLOY.rglob("*") if path.suffix in (".yaml", ".cfg", ".service"))
METRIC = re.compile(r"\b(?:selector|process)_[a-z_]+")
ALERTS = DEPLOY / "monitoring" / "alerts.yaml"
OF_FEEDS = {"selector_feed_age_seconds"}
"""Exposed once a feed has been read; tests/api/catalog/test_feeds.py shows the others of its kind."""
needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is missing: apt install prometheus")
VALIDATORS = {
    "kubernetes": ("kubernetes-validate", "--strict"),
    "compose": ("check-jsonschema", "--builtin-schema", "vendor.compose-spec"),
}
RESOURCES = [path for path in MANIFESTS if path.name != "kustomization.yaml"]
"""The kustomization is read by kubectl alone, and Kubernetes has no schema for it."""


def documents(path: Path) -> list[Any]:
    return list(YAML(typ="safe", pure=True).load_all(path.read_text(encoding="utf-8")))


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in MANIFESTS:
        for document in documents(path):
            template = document.get("spec", {}).get("template", {})
            for container in template.get("spec", {}).get("containers", []):
                yield document["kind"], container


def routes() -> set[str]:
    return set(DOCUMENT["paths"])


def faults_of(kind: str, *paths: Path) -> str:
    """Returns the output of the validator for a kind of file if it refuses the files, and an empty text otherwise."""
    program, *options = VALIDATORS[kind]
    command = [str(Path(sys.executable).with_name(program)), *options, *map(str, paths)]
    result = subprocess.run(command, capture_output=True, text=True)
    return result.stdout + result.stderr if result.returncode else ""


def test_kubernetes_accepts_every_manifest() -> None:
    assert not faults_of("kubernetes", *RESOURCES)


def test_compose_accepts_its_file() -> None:
    assert not faults_of("compose", DEPLOY / "compose.yaml")


@pytest.mark.parametrize(
    ("kind", "name", "field", "misspelt"),
    [
        ("kubernetes", "kubernetes/deployment.yaml", "failureThreshold", "failureTreshold"),
        ("kubernetes", "kubernetes/network-policy.yaml", "podSelector:", "podSelektor:"),
        ("compose", "compose.yaml", "stop_grace_period", "stop_grace_periods"),
    ],
)
def test_the_validators_refuse_a_misspelt_field(
    kind: str, name: str, field: str, misspelt: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text((DEPLOY / name).read_text(encoding="utf-8").replace(field, misspelt), encoding="utf-8")
    assert misspelt.rstrip(":") in faults_of(kind, path)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_setting_exists(path: Path) -> None:
    names = set(re.findall(rf"{PREFIX}[A-Z_]+", path.read_text(encoding="utf-8")))
    assert names <= {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}


def test_every_command_exists() -> None:
    compose = documents(DEPLOY / "compose.yaml")[0]["services"].values()
    commands = [service["command"] for service in compose if "command" in service]
    commands += [container["args"] for _, container in containers()]
    commands += re.findall(r"instance-selector (\w+)", (DEPLOY / "instance-selector.service").read_text())
    assert len(commands) >= 6
    for command in commands:
        context = instance_selector.make_context(
            "instance-selector", [command] if isinstance(command, str) else command
        )
        name, found, options = instance_selector.resolve_command(context, context._protected_args + context.args)
        assert found is not None, name
        found.make_context(name, options, parent=context)


def test_probes_ask_routes_on_the_port_of_the_container() -> None:
    (deployment,) = [container for kind, container in containers() if kind == "Deployment"]
    port = deployment["ports"][0]
    assert port["containerPort"] == Settings.model_fields["port"].default
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        request = deployment[probe]["httpGet"]
        assert request["path"] in routes()
        assert request["port"] == port["name"]
    checked = re.findall(
        r"httpchk GET (\S+)", (DEPLOY / "haproxy.cfg").read_text() + (DEPLOY / "compose.yaml").read_text()
    )
    assert checked == ["/readyz", "/readyz"]
    assert "/readyz" in routes()


def test_a_replica_has_time_to_drain_before_it_is_killed() -> None:
    deployment = documents(DEPLOY / "kubernetes" / "deployment.yaml")[0]["spec"]["template"]["spec"]
    settings = {entry["name"]: float(entry["value"]) for entry in deployment["containers"][0]["env"]}
    needed = settings["SELECTOR_DRAIN_SECONDS"] + settings["SELECTOR_GRACE_SECONDS"]
    assert deployment["terminationGracePeriodSeconds"] > needed
    probe = deployment["containers"][0]["readinessProbe"]
    assert settings["SELECTOR_DRAIN_SECONDS"] > probe["periodSeconds"] * probe["failureThreshold"]


def test_haproxy_lets_a_draining_replica_finish_its_answers() -> None:
    servers = re.findall(r"^ *(?:default-)?server .*$", (DEPLOY / "haproxy.cfg").read_text(), re.MULTILINE)
    assert len(servers) == 4
    assert not [line for line in servers if "shutdown-sessions" in line]


def test_selectors_match_the_pods() -> None:
    deployment = documents(DEPLOY / "kubernetes" / "deployment.yaml")[0]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    service = documents(DEPLOY / "kubernetes" / "service.yaml")[0]["spec"]
    budget = documents(DEPLOY / "kubernetes" / "disruption-budget.yaml")[0]["spec"]
    policy = documents(DEPLOY / "kubernetes" / "network-policy.yaml")[0]["spec"]
    for selector in (
        deployment["selector"]["matchLabels"],
        service["selector"],
        budget["selector"]["matchLabels"],
        policy["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_kustomization_lists_every_manifest() -> None:
    listed = documents(DEPLOY / "kubernetes" / "kustomization.yaml")[0]["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == [path.name for path in MANIFESTS]


def metrics_in(expressions: Iterable[str]) -> set[str]:
    return {name for expression in expressions for name in METRIC.findall(expression)}


def test_dashboard_and_alerts_use_metrics_that_a_server_exposes(server: Server) -> None:
    httpx2.get(f"{server.url}/gpus")
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as connection:
        connection.sendall(b"not HTTP\r\n\r\n")
        assert b" 400 " in connection.recv(4096)
    exposed = metrics_in(httpx2.get(f"{server.url}/metrics").text.splitlines()) | OF_FEEDS
    dashboard = json.loads((DEPLOY / "monitoring" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    shown = metrics_in(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    rules = documents(ALERTS)[0]["groups"]
    watched = metrics_in(rule["expr"] for group in rules for rule in group["rules"])
    assert len(shown) >= 9
    assert len(watched) >= 6
    assert shown <= exposed
    assert watched <= exposed


@needs_promtool
def test_prometheus_accepts_the_alert_rules() -> None:
    checked = promtool("check", "rules", str(ALERTS))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(documents(ALERTS)[0]['groups'][0]['rules'])} rules found" in checked.stdout


@needs_promtool
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path / "alerts.yaml")
    shutil.copy(Path(__file__).with_name("alerts.yaml"), tmp_path / "tests.yaml")
    checked = promtool("test", "rules", str(tmp_path / "tests.yaml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True)
