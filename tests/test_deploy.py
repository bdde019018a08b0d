"""The files under deploy/ use commands, settings, ports and routes that exist."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from service.api.http import observe
from service.app import build_app
from service.cli.main import instance_selector
from service.settings import PREFIX, Settings

DEPLOY = Path(__file__).parent.parent / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
TEXTS = sorted(path for path in DEPLOY.rglob("*") if path.suffix in (".yaml", ".cfg", ".service"))
METRIC = re.compile(r"\bselector_[a-z_]+")
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
    return set(build_app().openapi()["paths"])


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


def test_dashboard_and_alerts_use_metrics_that_exist() -> None:
    known = {name for metric in observe.REGISTRY.collect() for name in names_of(metric)}
    health = Path(observe.__file__).parents[1].joinpath("catalog", "health.py").read_text(encoding="utf-8")
    known |= set(METRIC.findall(health))
    dashboard = json.loads((DEPLOY / "monitoring" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = documents(DEPLOY / "monitoring" / "alerts.yaml")[0]["groups"]
    expressions += [rule["expr"] for group in rules for rule in group["rules"]]
    used = {name for expression in expressions for name in METRIC.findall(expression)}
    assert used
    assert used <= known


def names_of(metric: Any) -> list[str]:
    """The names under which a metric is exposed."""
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(metric.type, [""])
    return [metric.name + suffix for suffix in suffixes]
