"""Requests that schemathesis generates get the answers that the OpenAPI document promises."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, TypeAlias

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.generation.feedback import NO_FEEDBACK
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python.asgi import ASGIClient, get_client
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from tests.api.documented import DOCUMENT
from tests.api.keys import bearer
from tests.server import Server

Generated: TypeAlias = Case[Any]

KNOWN = {
    "provider": ["aws", "gcp", "azure"],
    "region": ["us-east-1", "eu-central-1"],
    "instance": ["g5.xlarge", "aws/p4d.24xlarge", "p2.xlarge"],
    "family": ["g5", "p4d"],
    "series": ["g5"],
    "size": ["metal", "xlarge"],
    "facets": ["family", "gpu_count"],
    "gpu": ["a100", "t4", "h100-sxm5-80gb"],
    "gpu_vendor": ["nvidia", "amd"],
    "vendor": ["nvidia", "amd"],
    "gpu_kind": ["gpu", "tpu"],
    "kind": ["gpu", "tpu", "train_throughput"],
    "architecture": ["ampere", "hopper"],
    "precision": ["bf16", "fp16", "fp32"],
    "cpu_architecture": ["x86_64", "arm64"],
    "cpu_vendor": ["intel", "amd"],
    "interconnect": ["nvlink", "pcie"],
    "market": ["on_demand", "spot", "reserved"],
    "lifecycle": ["available", "retired"],
    "framework": ["pytorch", "tensorflow"],
    "software": ["pytorch", "cuda"],
    "service": ["ec2", "compute"],
    "sort": ["vcpus", "-usd_per_hour", "name", "memory_gb", "id"],
    "exclude": ["aws", "g5", "a100"],
    "country": ["DE", "US"],
    "baseline": ["g5.xlarge"],
    "current_instance": ["p3.8xlarge"],
    "weight_precision": ["int8"],
    "kv_cache_precision": ["fp8"],
    "workload": ["alexnet_train"],
    "machine": ["aws/p4d.24xlarge", "aws/g5.xlarge"],
    "model": ["llama-3.1-8b", "resnet-50", "mixtral-8x7b"],
    "optimizer": ["adamw", "sgd"],
    "managed_service": ["sagemaker-training"],
    "class": ["gp3", "s3-standard", "pd-ssd"],
}
"""Names of rows, which the document cannot list. Requests that use them are refused less often."""

BEYOND_A_SCHEMA = re.compile(
    r"No .* is called|lies in the future|The catalog begins in|Nothing was known on|is above m|The cursor"
    r"|needs? a precision|is after 'to'"
    r"|need workload.precision|There is no (column|facet)|needs at least one above 0"
    r"|The catalog of .* has no instance type"
    r"|should not be empty"  # between two commas
    r"|(Give|Send) (a|either) |An estimate needs|Nothing is known of|has no GPU|does not run"
    r"|description is incomplete|cannot"
    r"|needs? (its|a|samples)|must be |between \d|is given in|may be any of|The layout|each needs at least one sample"
    r"|both or neither"
    r"|needs the model's parameters|leave the parameters out|describes the whole model|belong to|No layout|more than"
    r"|Several providers"
    r"|has no offer of|is not sold as|No offer of|a price of its own|A load needs|unit of the rate|A run lasts"
    r"|That is .* combinations"
    r"|steps need|is not a version|nested more than|reads at (most|least)|a number beyond|a day is written"
    r"|names '.*' twice|are impossible on|The config does not have|has no tokens|An amount in tokens",
    re.DOTALL,
)
"""Sentences of refusals that the document allows: each states a rule that JSON Schema cannot express."""


def document(*, with_names: bool) -> dict[str, Any]:
    whole = deepcopy(DOCUMENT)
    del whole["components"]["securitySchemes"]  # the tests send a key themselves: schemathesis would leave it out
    if with_names:
        for operations in whole["paths"].values():
            for operation in operations.values():
                for parameter in operation["parameters"]:
                    fill(parameter["name"], parameter["schema"])
        for name, schema in whole["components"]["schemas"].items():
            if name in (
                "MeasurementRequest",
                "EstimateRequest",
                "MachineDescriptionRequest",
                "StorageRequest",
                "MatrixRequest",
            ) or (name.endswith("-Input") and "Software" not in name):
                for field, field_schema in schema.get("properties", {}).items():
                    fill(field, field_schema)
    return whole


def fill(name: str, schema: dict[str, Any]) -> None:
    for option in (schema, *schema.get("anyOf", [])):
        if name in KNOWN and option.get("type") == "array":
            option["items"] = {"enum": KNOWN[name]}
        elif name in KNOWN and option.get("type") == "string":
            option["enum"] = KNOWN[name]
        elif option.get("format") == "date":
            option["enum"] = ["2017-08-01", "2022-02-17", "2026-01-31"]


def accepts_what_the_document_allows(_context: Any, response: Any, case: Generated) -> None:
    """Replaces schemathesis's own check, which counts every refusal as a fault of the schema."""
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    if positive and 400 <= response.status_code < 500 and response.status_code not in (404, 405):
        detail = response.json()["detail"]
        assert BEYOND_A_SCHEMA.search(detail), f"The document allows a request that is refused: {detail}"


def refuses_what_the_document_forbids(context: Any, response: Any, case: Generated) -> None:
    """Accepts 414 as a refusal, unlike schemathesis's own check: a long list of names makes a long URL."""
    if response.status_code != 414:
        negative_data_rejection(context, response, case)


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    refuses_what_the_document_forbids,
    accepts_what_the_document_allows,
    unsupported_method,
    allow_header_conformance,
]
"""All checks but those of authentication, required headers and created resources, which the service does not have."""

OPERATIONS = [f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods]


@pytest.fixture(scope="module")
def named() -> BaseSchema:
    return schemathesis.openapi.from_dict(document(with_names=True))


@pytest.fixture(scope="module")
def plain() -> BaseSchema:
    found = schemathesis.openapi.from_dict(document(with_names=False))
    # The boundaries of each field are thousands of cases: the app in this process gets them, and the server a few
    # requests of each kind.
    found.config.phases.coverage.enabled = False
    return found


def send_all(check: Callable[[Generated], None], operation: str, schema: BaseSchema) -> None:
    """Calls a check with every request that is generated for an operation.

    `schema.parametrize()` would generate the requests of all operations while tests are collected, which takes each
    worker ten seconds.
    """
    method, path = operation.split()
    send = build_operation_test(
        config=schema.config, operation=schema[path][method], test_func=check, given_kwargs={}, feedback=NO_FEEDBACK
    )
    send()


def bounded(examples: int) -> Any:
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def session(app_to_write: FastAPI) -> Iterator[ASGIClient]:
    """Yields a client of the app without its lifespan. One client for all cases, and none looks for a proxy."""

    async def bare(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await app_to_write(scope, receive, send)
            return
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})

    with get_client(bare) as client:
        client.trust_env = False
        yield client


def never_asks_for_a_key(_context: Any, response: Any, _case: Generated) -> None:
    assert response.status_code not in (401, 403)


def asks_for_a_key_where_the_document_does(_context: Any, response: Any, case: Generated) -> None:
    """Without a key, an operation answers 401 if and only if the document names a scope."""
    assert (response.status_code == 401) == ("security" in case.operation.definition.raw)


WITHOUT_A_KEY = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    asks_for_a_key_where_the_document_does,
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_in_process(operation: str, named: BaseSchema, session: ASGIClient) -> None:
    @bounded(20)  # type: ignore[untyped-decorator]
    def check(case: Generated) -> None:
        answer = case.call(app=session.app, session=session, headers=bearer())
        case.validate_response(answer, checks=[*CHECKS, never_asks_for_a_key])

    send_all(check, operation, named)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_over_http(operation: str, plain: BaseSchema, server_to_write: Server) -> None:
    url = server_to_write.url

    # Hypothesis takes longer to write a large body than the service to answer, so each is sent with and without a key.
    @bounded(5)  # type: ignore[untyped-decorator]
    def check(case: Generated) -> None:
        case.validate_response(case.call(base_url=url, headers=bearer()), checks=[*CHECKS, never_asks_for_a_key])
        case.validate_response(case.call(base_url=url), checks=WITHOUT_A_KEY)

    send_all(check, operation, plain)
