"""The sentences of problems are plain, and name what the service takes instead."""

import pytest
from fastapi import FastAPI

from tests.api.raw_asgi import call, get


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("/instances?gpu_vendor=nvidea", "No GPU vendor is called 'nvidea'. Did you mean nvidia?"),
        ("/instances?gpu=none", "No GPU is called 'none'. Machines without a GPU have a `max_gpu_count` of 0."),
        ("/frameworks?software=pytorhc&limit=0", "'limit' should be at least 1."),
        ("/instances?limit=many", "'limit' should be a whole number."),
        ("/instances?limit=501", "'limit' should be at most 500."),
        ("/instances?min_vcpus=1e16", "'min_vcpus' should be at most 1,000,000,000,000,000."),
        ("/instances?min_vcpus=nan", "'min_vcpus' should be a finite number."),
        ("/instances?min_vcpus=many&max_vcpus=2", "'min_vcpus' should be a number."),
        ("/instances?rdma=perhaps", "'rdma' should be true or false."),
        ("/instances?provider=", "'provider' should not be empty."),
        ("/instances?q=" + "x" * 201, "'q' should have at most 200 characters."),
        ("/instances?gpu=" + "a100," * 100 + "t4", "'gpu' should have at most 100 items; it has 101."),
        (
            "/instances?precision_support=nativ",
            "'precision_support' should be 'accelerated', 'native' or 'any'. Did you mean native?",
        ),
        ("/prices?from=2020-01-02&to=2019-01-01", "'from' (2020-01-02) is after 'to' (2019-01-01)."),
        (
            "/prices?from=2020-01-02&as_of=2019-01-01",
            "2020-01-02 lies in the future; the catalog is that of 2019-01-01.",
        ),
        ("/prices?to=2030-01-01", "2030-01-01 lies in the future; the catalog is that of 2026-11-01."),
        ("/prices/changes?from=1999-01-01", "The catalog begins in 2006."),
        (
            "/instances?instance=p5.48xlarge&as_of=2023-06-07",
            "The catalog of 2023-06-07 has no instance type 'p5.48xlarge': it is known from 2023-07-26 on.",
        ),
        ("/instances?as_of=2023-02-29", "'as_of': the calendar has no such day."),
        ("/instances?as_of=yesterday", "'as_of': a day is written YYYY-MM-DD."),
        ("/prices/changes", "'from' is missing."),
        ("/instances?limit=5&limit=6", "'limit' takes one value and is given more than once."),
        (
            "/prices/changes?fron=2026-01-01",
            "There is no query parameter 'fron'. Did you mean from? There is 1 more error.",
        ),
        ("/gpus?colour=red&shape=round", "There is no query parameter 'colour'. There is 1 more error."),
        ("/gpus?a=1&b=2&c=3", "There is no query parameter 'a'. There are 2 more errors."),
    ],
)
def test_a_refusal_is_a_plain_sentence(app: FastAPI, target: str, sentence: str) -> None:
    assert get(app, target).json()["detail"] == sentence


@pytest.mark.parametrize(("target", "near"), [("/offers", "/prices"), ("/codes", "/recommend/codes")])
def test_an_address_by_another_name_gets_the_one_that_it_means_alone(app: FastAPI, target: str, near: str) -> None:
    assert get(app, target).json()["detail"].startswith(f"There is nothing at this address. Did you mean {near}? ")


@pytest.mark.parametrize(("target", "near"), [("/instances/", "/instances"), ("/price", "/prices")])
def test_a_misspelt_address_gets_near_ones(app: FastAPI, target: str, near: str) -> None:
    answer = get(app, target)
    assert answer.status == 404
    assert f"Did you mean {near}" in answer.json()["detail"]


@pytest.mark.parametrize("target", ["/instances/gcp/p4d.24xlarge", "/instances?instance=gcp/p4d.24xlarge"])
def test_near_instance_types_are_named_with_their_provider_as_the_unknown_one_was(app: FastAPI, target: str) -> None:
    near = get(app, target).near
    assert near[0] == "aws/p4d.24xlarge"
    assert all("/" in name for name in near)


@pytest.mark.parametrize(
    ("path", "header", "sentence"),
    [
        ("/instances", "GET, HEAD", "This address does not accept PUT: send GET or HEAD."),
        ("/measurements", "GET, HEAD, POST", "This address does not accept PUT: send GET, HEAD or POST."),
    ],
)
def test_every_method_that_an_address_takes_is_named(app: FastAPI, path: str, header: str, sentence: str) -> None:
    answer = call(app, "PUT", path)
    assert (answer.headers["allow"], answer.json()["detail"]) == (header, sentence)
