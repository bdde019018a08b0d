"""Adds instance types that the catalog lacks, if a feed states all of their hardware; other types wait."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

from service.db.feeds.read_facts import CatalogFacts
from service.domain.catalog.hardware import Gpu
from service.domain.catalog.names import fold_gpu
from service.feeds.checks import FRACTION_TOLERANCE, MEMORY_TOLERANCE
from service.feeds.listing import Listing, Specification

Record = dict[str, Any]

UNKNOWN_COLUMNS = (
    "interconnect_gb_per_second", "cpu_vendor", "cpu_model", "network_gbps", "network_baseline_gbps", "rdma",
    "gpudirect_rdma", "local_storage_gb", "bare_metal", "hypervisor", "cpu_fp32_tflops",
    "cpu_memory_bandwidth_gb_per_second", "cpu_baseline_share", "twin_of", "orderable",
)  # fmt: skip
NAMED_BY_FAMILY = ("aws", "gcp")
SERIES = re.compile(r"(?:\d+x?[_ ]?)?(.+)[._][^._]+")
"""Matches a name as the number of GPUs, the series (the group), and the size or tier."""

FIGURES = ("vcpus", "memory_gib", "gpu_count", "gpu_memory_gb")


def stated_hardware(listings: Sequence[Listing], facts: CatalogFacts) -> dict[tuple[str, str], Specification]:
    """Returns the hardware of each instance type that the catalog lacks, if all rows of the document agree on it."""
    stated: dict[tuple[str, str], Specification | None] = {}
    for listing in listings:
        name = (listing.provider, listing.name)
        if listing.reason or listing.hardware is None or name in facts.instance_types:
            continue
        stated[name] = listing.hardware if stated.get(name, listing.hardware) == listing.hardware else None
    return {name: hardware for name, hardware in stated.items() if hardware}


def new_rows(
    feed: str, hardware: Mapping[tuple[str, str], Specification], facts: CatalogFacts, source: str, day: date
) -> dict[str, list[Record]]:
    """Returns rows for instance types whose hardware is fully stated, and for their lifecycle."""
    types, events = [], []
    for (provider, name), stated in hardware.items():
        part = gpu_of(provider, name, stated, facts)
        if provider not in facts.providers or part is None or contradicted(feed, provider, name, stated, facts):
            continue
        gpu, count = part
        family = family_of(provider, name)
        types.append(
            {
                **dict.fromkeys(UNKNOWN_COLUMNS),
                "provider": provider,
                "name": name,
                "service": "ec2" if provider == "aws" else "compute",
                "family": family,
                "gpu": gpu.id if gpu else None,
                "gpu_count": count,
                "interconnect": "none" if count <= 1 else None,
                "vcpus": stated.vcpus,
                "memory_gib": stated.memory_gib,
                "cpu_architecture": stated.cpu_architecture,
                "source": source,
                "note": "entered by a feed; figures that it does not state are unknown",
            }
        )
        event = {"state": "available", "starts_on": day, "basis": "first_seen", "source": source}
        events.append({"provider": provider, "family": family, "name": name, "note": "first capture", **event})
    return {"instance_type": types, "lifecycle": events}


def gpu_of(provider: str, name: str, stated: Specification, facts: CatalogFacts) -> tuple[Gpu | None, int] | None:
    """Returns the GPU and how many there are; None if the hardware is not fully stated or the GPU is ambiguous.

    Between several GPUs of one name, the stated memory and the GPUs of other types in the series decide.
    """
    if not stated.vcpus or not stated.memory_gib or stated.gpu_count is None:
        return None
    if stated.gpu_count == 0:
        return None if stated.gpu_name else (None, 0)
    ids = facts.gpu_spellings.get(fold_gpu(stated.gpu_name or ""), ())
    candidates = [facts.gpus[id_] for id_ in ids if _has_memory(facts.gpus[id_], stated)]
    if len(candidates) > 1:
        siblings = _gpus_of_series(provider, series_of(provider, name), facts)
        candidates = [gpu for gpu in candidates if gpu.id in siblings]
    if len(candidates) != 1:
        return None
    (gpu,) = candidates
    if stated.gpu_count >= 1:
        return (gpu, int(stated.gpu_count)) if stated.gpu_count % 1 == 0 else None
    parts = [
        part
        for part in facts.gpus.values()
        if part.partition_of == gpu.id and abs(part.fraction - stated.gpu_count) <= FRACTION_TOLERANCE
    ]
    return (parts[0], 1) if len(parts) == 1 else None


def _has_memory(gpu: Gpu, stated: Specification) -> bool:
    if not stated.gpu_memory_gb or not gpu.memory_gb:
        return True
    return abs(stated.gpu_memory_gb / gpu.memory_gb - 1) <= MEMORY_TOLERANCE


def _gpus_of_series(provider: str, series: str, facts: CatalogFacts) -> set[str]:
    return {
        type_.gpu.id
        for type_ in facts.instance_types.values()
        if type_.gpu and type_.provider == provider and series_of(provider, type_.name) == series
    }


def series_of(provider: str, name: str) -> str:
    """Returns the part of a name that is common to types with the same GPU: `H100.80S` of `8H100.80S.176V`."""
    if provider in NAMED_BY_FAMILY:
        return family_of(provider, name)
    match = SERIES.fullmatch(name)
    return match[1] if match else name


def family_of(provider: str, name: str) -> str:
    """Returns the family in a name of AWS or Google Cloud; for other providers the whole name."""
    if provider == "aws":
        return name.partition(".")[0]
    return name.rpartition("-")[0] or name if provider == "gcp" else name


def contradicted(feed: str, provider: str, name: str, stated: Specification, facts: CatalogFacts) -> bool:
    """Returns whether another feed states other hardware for the type."""
    figures = asdict(stated)
    for other, values in facts.stated.get((provider, name), {}).items():
        pairs = [(figures[column], values[column]) for column in FIGURES]
        both = [(a, b) for a, b in pairs if isinstance(a, float | int) and isinstance(b, float | int)]
        if other != feed and any(abs(a - b) > MEMORY_TOLERANCE * max(a, b) for a, b in both):
            return True
    return False
