"""All instance types at once against one machine at a time, and what the ranking by physics promises."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.db.engine import connect
from service.db.read_history import read_history
from service.domain.catalog.catalog import Catalog
from service.domain.jobs.job import Amount, Job
from service.domain.jobs.stacks import SoftwareStack
from service.domain.layouts.fleet_columns import types_that_fit_with
from service.domain.recommend.fleet import FleetEstimate, estimate_fleet, node_counts
from service.domain.recommend.job_checks import MAX_NODES, job_checks
from service.domain.typeset import TypeSet, types_where
from tests.oracles.fleet import NodeEstimate, checks_missed, estimate_on_nodes
from tests.strategies.catalogs import World
from tests.strategies.jobs import jobs, node_choices, physical_worlds

JOB_CODES = {
    "no_gpu",
    "gpu_figures_unknown",
    "precision",
    "global_batch_size",
    "gpu_memory",
    "kv_cache",
    "host_memory",
    "concurrency",
}


def members(types: TypeSet, catalog: Catalog) -> set[int]:
    return set(np.flatnonzero(catalog.mask(types)).tolist())


def agrees(found: FleetEstimate[Job], place: int, slow: Sequence[NodeEstimate]) -> None:
    """The rows of one type say what the loop over its numbers of nodes says."""
    for on_nodes, one in zip(found.options, slow, strict=True):
        assert bool(on_nodes.works[place]) == one.works
        if one.works:
            answer = (on_nodes.low, on_nodes.likely, on_nodes.high, on_nodes.hours, on_nodes.needed_bytes)
            assert [float(column[place]) for column in answer] == pytest.approx(
                [one.low, one.likely, one.high, one.hours, one.needed_bytes], rel=1e-6
            )
            assert not one.keeps_limits or on_nodes.fewest_instances[place] == one.instances


def reasons(found: FleetEstimate[Job], catalog: Catalog) -> list[set[str]]:
    """Per type, the checks that it fails."""
    failed: list[set[str]] = [set() for _ in catalog.instance_types]
    for check in job_checks(found):
        for place in members(check.fails, catalog):
            failed[place].add(check.code)
    return failed


numbers_of_nodes = st.integers(1, MAX_NODES)


@given(numbers_of_nodes, numbers_of_nodes, numbers_of_nodes)
def test_more_nodes_are_tried_under_a_higher_limit_and_none_fewer(one: int, another: int, third: int) -> None:
    least, most, more = sorted((one, another, third))
    tried = node_counts(least, most)
    assert tried[0] == least
    assert tried[-1] * 4 > most * 3 or tried[-1] == least
    assert list(tried) == sorted(set(tried))
    assert tried == tuple(count for count in node_counts(least, more) if count <= most)


def test_round_numbers_of_nodes_are_tried() -> None:
    for most in (5, 10, 20, 40, 80):
        assert node_counts(1, most)[-1] == most


@settings(max_examples=40)
@given(physical_worlds(), jobs(), node_choices)
def test_it_equals_the_loop_over_every_type_and_number_of_nodes(world: World, job: Job, nodes: tuple[int, ...]) -> None:
    catalog = world.catalog
    found = estimate_fleet(job, nodes, catalog)
    failed = reasons(found, catalog)
    for place, kind in enumerate(catalog.instance_types):
        slow = [estimate_on_nodes(job, kind, each, catalog) for each in nodes]
        agrees(found, place, slow)
        fails_one_check(failed[place], slow)


def fails_one_check(failed: set[str], slow: Sequence[NodeEstimate]) -> None:
    """Every type works or lacks one thing."""
    missing = checks_missed(slow)
    assert len(failed) == bool(missing)
    assert failed <= missing <= JOB_CODES


@settings(max_examples=60)
@given(physical_worlds(), jobs(), node_choices, st.sampled_from([0.5, 0.7, 0.89, 0.97]))
def test_what_fits_with_another_confidence_is_what_an_estimate_with_it_finds(
    world: World, job: Job, nodes: tuple[int, ...], confidence: float
) -> None:
    fits_with_the_types_of_an_estimate(world.catalog, job, nodes, confidence)


def fits_with_the_types_of_an_estimate(catalog: Catalog, job: Job, nodes: tuple[int, ...], confidence: float) -> None:
    found = estimate_fleet(job, nodes, catalog)
    other = estimate_fleet(replace(job, memory_confidence=confidence), nodes, catalog)
    runs = types_where(np.any([option.works for option in other.options], axis=0))
    assert types_that_fit_with(confidence, job, nodes, found.options, catalog.all_types, catalog) == runs


# The real catalog


@pytest.fixture(scope="module")
def seed(seeded_file: Path) -> Iterator[Catalog]:
    engine = connect(f"sqlite:///{seeded_file}")
    yield read_history(engine).on(date(2026, 7, 20))
    engine.dispose()


REAL: dict[str, dict[str, Any]] = {
    "training 8B": {"model": "llama-3-8b", "sequence_length": 4096, "global_batch": 64, "amount": Amount(tokens=1e9)},
    "training 70B in torchtitan": {
        "model": "llama-3-70b",
        "global_batch": 32,
        "software": SoftwareStack("torchtitan"),
        "amount": Amount(steps=100),
    },
    "LoRA": {"model": "llama-3-8b", "method": "lora", "precisions": ("bf16", "fp16"), "amount": Amount(samples=5e4)},
    "serving": {
        "task": "inference",
        "model": "llama-3-70b",
        "input_length": 512,
        "output_length": 128,
        "software": SoftwareStack("vllm"),
        "amount": Amount(tokens=1e8),
    },
    "int4 answers": {"task": "inference", "model": "llama-3-8b", "precisions": ("int4",), "output_length": 100.0},
    "pictures": {"model": "resnet-50", "global_batch": 6, "amount": Amount(samples=1.2e6)},
    "classified pictures": {"task": "inference", "model": "resnet-50", "amount": Amount(samples=1e6)},
    "static batches": {
        "task": "inference",
        "model": "llama-3-8b",
        "input_length": 2048,
        "output_length": 100.0,
        "precisions": ("fp32", "fp16"),
        "software": SoftwareStack("transformers"),
    },
    "experts": {"model": "mixtral-8x7b", "sequence_length": 2048, "global_batch": 64},
}


def job_called(name: str, catalog: Catalog) -> Job:
    answer = dict(REAL[name])
    return Job(**{"task": "training", **answer, "model": catalog.reference.models[answer.pop("model")]})


@pytest.mark.parametrize("name", REAL)
def test_it_equals_the_loop_on_machines_that_are_rented_out(seed: Catalog, name: str) -> None:
    job, nodes = job_called(name, seed), (1, 2, 3, 4)
    found = estimate_fleet(job, nodes, seed)
    failed = reasons(found, seed)
    for place in picked(seed):
        slow = [estimate_on_nodes(job, seed.instance_types[place], each, seed) for each in nodes]
        agrees(found, place, slow)
        fails_one_check(failed[place], slow)


@pytest.mark.parametrize("confidence", [0.55, 0.96])
@pytest.mark.parametrize("name", REAL)
def test_machines_that_are_rented_out_fit_with_another_confidence(seed: Catalog, name: str, confidence: float) -> None:
    job = job_called(name, seed)
    fits_with_the_types_of_an_estimate(seed, job, (1, 2, 4), confidence)
    fits_with_the_types_of_an_estimate(seed, replace(job, micro_batch=4), (1,), confidence)
    if job.model.generates and job.task == "inference":
        fits_with_the_types_of_an_estimate(seed, replace(job, concurrency=32.0), (1, 2), confidence)


def picked(catalog: Catalog, most: int = 30) -> Sequence[int]:
    """A type of each of so many GPUs, with few and with many of them."""
    seen: dict[Any, int] = {}
    for place, kind in enumerate(catalog.instance_types):
        if kind.gpu and kind.gpu_count:
            seen.setdefault((kind.gpu.id, kind.gpu_count > 2), place)
    places = list(seen.values())
    return places[:: max(1, len(places) // most)]
