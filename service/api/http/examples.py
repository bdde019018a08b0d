"""Examples for the OpenAPI document: real answers of the seeded service, stored in the folder `examples`.

`instance-selector openapi --renew-examples` asks again and rewrites them; a test fails while they are out of date.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Protocol

FOLDER = Path(__file__).parent / "examples"
DAY = date(2026, 11, 1)
"""The day on which the examples are asked, so that answers stay the same."""

_REQUESTS = json.loads((Path(__file__).parent / "requests.json").read_text(encoding="utf-8"))
QUESTIONS: dict[str, Any] = _REQUESTS["post_recommend"]
QUESTION_BATCH: dict[str, Any] = _REQUESTS["post_recommend_batch"]
ESTIMATES: dict[str, Any] = _REQUESTS["post_estimate"]
ESTIMATE_BATCH: dict[str, Any] = _REQUESTS["post_estimate_batch"]
MEASUREMENTS: dict[str, Any] = _REQUESTS["post_measurements"]


@dataclass(frozen=True, slots=True)
class Example:
    """A request whose answer is stored."""

    operation: str
    name: str
    method: str
    target: str
    body: Any = None
    status: str = "200"

    @property
    def path(self) -> Path:
        """Returns the file of the answer."""
        return FOLDER / f"{self.operation}.{self.name}.json"

    @property
    def summary(self) -> str:
        """Returns the method and the target, the title of the example in Swagger UI."""
        return f"{self.method} {self.target}"

    def answer(self) -> Any:
        """Returns the recorded answer."""
        return json.loads(self.path.read_text(encoding="utf-8"))


EXAMPLES = (
    *(Example("post_recommend", name, "POST", "/recommend", question["value"]) for name, question in QUESTIONS.items()),
    *(Example("post_estimate", name, "POST", "/estimate", question["value"]) for name, question in ESTIMATES.items()),
    Example("post_recommend_batch", "two", "POST", "/recommend/batch", QUESTION_BATCH["two"]["value"]),
    *(
        Example("post_estimate_batch", name, "POST", "/estimate/batch", question["value"])
        for name, question in ESTIMATE_BATCH.items()
    ),
    Example("get_codes", "all", "GET", "/recommend/codes"),
    Example("get_instances", "bf16", "GET", "/instances?precision=bf16&region=us-east-1&sort=usd_per_hour&limit=1"),
    Example("get_instances", "misspelt", "GET", "/instances?precision=fp7", status="422"),
    Example("get_instance", "g5", "GET", "/instances/aws/g5.8xlarge"),
    Example("get_instance", "misspelt", "GET", "/instances/aws/g5.8xlrge", status="404"),
    Example("get_similar", "g5", "GET", "/instances/aws/g5.8xlarge/similar?limit=1"),
    Example("get_gpus", "bf16", "GET", "/gpus?precision=bf16&vendor=nvidia&sort=-memory_gb&limit=1"),
    Example("get_gpu", "a100", "GET", "/gpus/a100-sxm4-80gb"),
    Example("get_gpu", "misspelt", "GET", "/gpus/T100", status="404"),
    Example("get_models", "moe", "GET", "/models?family=moe&sort=-parameters&limit=1"),
    Example("get_model", "llama", "GET", "/models/llama-3.1-8b?context_tokens=8192"),
    Example("get_model", "misspelt", "GET", "/models/lama-3.1-8b", status="404"),
    Example("get_prices", "g5", "GET", "/prices?instance=g5.8xlarge&market=on_demand&limit=1"),
    Example(
        "get_price_changes",
        "p4d",
        "GET",
        "/prices/changes?from=2025-05-01&to=2025-07-01&instance=aws/p4d.24xlarge&market=on_demand&hours=100&limit=1",
    ),
    Example("get_compare", "g3", "GET", "/compare?instance=g3.4xlarge&baseline=g2.2xlarge&workload=alexnet_train"),
    Example(
        "get_measurements", "decode", "GET", "/measurements?model=llama-3-70b&gpu=h100&framework=tensorrt-llm&limit=1"
    ),
    Example("get_precisions", "first", "GET", "/precisions?limit=1"),
    Example("get_providers", "first", "GET", "/providers?limit=2"),
    Example("get_regions", "aws", "GET", "/regions?provider=aws&country=DE&limit=1"),
    Example("get_frameworks", "pytorch", "GET", "/frameworks?software=pytorch&limit=2"),
    Example("get_sources", "article", "GET", "/sources?source=article-g3-2017"),
    Example("get_catalog", "whole", "GET", "/catalog"),
    Example("get_unmapped", "none", "GET", "/catalog/unmapped?limit=1"),
    Example("get_feeds", "all", "GET", "/feeds"),
    Example("get_healthz", "alive", "GET", "/healthz"),
    Example("get_readyz", "ready", "GET", "/readyz"),
    Example("get_metrics", "all", "GET", "/metrics"),
    Example("post_measurements", "loop", "POST", "/measurements", MEASUREMENTS["loop"]["value"], status="201"),
)
"""Every example of the document. The request that writes comes last, because it changes the catalog for the others."""


def examples_of(operation: str) -> Iterator[Example]:
    """Returns the examples of an operation."""
    return (example for example in EXAMPLES if example.operation == operation)


class Client(Protocol):
    """A client of the service: httpx's, or Starlette's for tests."""

    def request(self, method: str, url: str, *, json: Any = ...) -> Any:
        """Sends a request and returns the response."""


def ask(example: Example, client: Client) -> Any:
    """Returns the current answer, without what differs at every start: times of day and counts of requests."""
    response = client.request(example.method, example.target, json=example.body)
    assert str(response.status_code) == example.status, f"{example.summary}: {response.text}"
    text = re.sub(r'("(?:checked|finished)_at":")[^"]*', rf"\g<1>{DAY}T00:00:00Z", response.text)
    text = re.sub(r"(?m)^(selector_\w+_(?:timestamp_seconds|cpu_seconds_total|created)) .*", r"\1 0.0", text)
    # These depend on earlier requests and on the machine.
    text = re.sub(r"(?m)^(?:# \w+ )?(?:selector_request|selector_refusals|process_)\w* ?.*\n", "", text)
    return text if response.headers["Content-Type"].startswith("text/") else json.loads(text)


def renew(client: Client) -> None:
    """Asks every example again and stores the answers."""
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for example in EXAMPLES:
        text = json.dumps(ask(example, client), indent=2, ensure_ascii=False)
        example.path.write_text(text + "\n", encoding="utf-8")
