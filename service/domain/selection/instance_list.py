"""Lists of instance types that pass constraints, with their default offers, sorting, and counts of values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices, Mask
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.names import fold_gpu, near_names
from service.domain.catalog.offer import BY_THE_HOUR
from service.domain.catalog.reference import RDMA_FABRICS
from service.domain.errors import QuestionError
from service.domain.selection.constraints import Constraints, type_checks
from service.domain.selection.filters import INCLUDED_WORDS
from service.domain.selection.offers import offers_of_types
from service.domain.selection.selection import select
from service.domain.typeset import union

UNIQUE_COLUMNS = ("instance",)
"""Columns in which every value occurs only once, so that counts say nothing."""


def sort_columns(catalog: Catalog) -> tuple[str, ...]:
    """Returns the names of the columns that `list_instances` can sort by."""
    return (*catalog.columns.numbers, "usd_per_hour", "tflops", "tflops_per_usd", "name")


def list_instances(constraints: Constraints, words: str | None, sort: Sequence[str], catalog: Catalog) -> Indices:
    """Returns a row per instance type that passes: its index, and the index of its default offer (-1: none).

    All of `words` must occur in the names, family, CPU, GPU, links or network of a type. `sort` has names of
    `sort_columns`; a leading `-` sorts descending. Raises `QuestionError` for a peak without a precision.
    """
    types, offers = _admitted(constraints, catalog)
    if words:
        matches = _matching(words, catalog)[types]
        types, offers = types[matches], offers[matches]
    if sort:
        keys: list[NDArray[Any]] = [types]  # ties are in the order of names
        for column in reversed(sort):
            values = _column(column.removeprefix("-"), constraints, catalog, types, offers)
            keys.append(-values if column.startswith("-") else values)  # NaN sorts last either way
        order = np.lexsort(keys)
        types, offers = types[order], offers[order]
    return np.array((types, offers)).T


def _admitted(constraints: Constraints, catalog: Catalog) -> tuple[Indices, Indices]:
    if constraints.limits_offers:
        by_the_hour = constraints._replace(market=constraints.market or BY_THE_HOUR)
        return offers_of_types(select(by_the_hour, catalog).admitted)
    failing = union(check.fails for check in type_checks(constraints, catalog))
    types = np.flatnonzero(catalog.mask(catalog.all_types & ~failing))
    return types, catalog.default_offers[types]


def _matching(words: str, catalog: Catalog) -> Mask:
    """Returns a mask of the types of which some name contains each word of a text; case does not matter."""
    spellings = [{word, fold_gpu(word)} for word in words.lower().split()]
    texts = catalog.derive(_searched_texts)
    return np.array([all(any(word in text for word in spelling) for spelling in spellings) for text in texts], np.bool_)


def _searched_texts(catalog: Catalog) -> list[str]:
    return [" ".join(_names_of(instance_type, catalog)).lower() for instance_type in catalog.instance_types]


def _names_of(instance_type: InstanceType, catalog: Catalog) -> tuple[str, ...]:
    gpu = instance_type.gpu
    of_gpu = (gpu.id, gpu.name, gpu.vendor, gpu.architecture, *gpu.aliases) if gpu else ()
    folded = map(fold_gpu, of_gpu)
    cpus = (instance_type.cpu_model or "", *(cpu.cpu_model for _, cpu in catalog.reference.cpus_of(instance_type)))
    links = (*_names_of_links(instance_type), *_names_of_network(instance_type, catalog))
    return (instance_type.id, instance_type.family, instance_type.service, *of_gpu, *folded, *cpus, *links)


def _names_of_links(instance_type: InstanceType) -> tuple[str, ...]:
    """Returns the name of the links between the GPUs, and the words that include it."""
    interconnect = instance_type.interconnect
    if interconnect is None or interconnect == "none":
        return ()
    including = INCLUDED_WORDS["interconnect"].items()
    return (interconnect, *(word for word, included in including if interconnect in included))


def _names_of_network(instance_type: InstanceType, catalog: Catalog) -> tuple[str, ...]:
    """Returns the names of the network if it has RDMA."""
    if not instance_type.rdma:
        return ()
    provider = catalog.reference.providers.get(instance_type.provider)
    fabric = None if provider is None else provider.rdma_fabric
    return ("rdma",) if fabric is None else ("rdma", fabric, RDMA_FABRICS.get(fabric, ""))


def _column(name: str, constraints: Constraints, catalog: Catalog, types: Indices, offers: Indices) -> Floats | Indices:
    match name:
        case "name":
            return types
        case "usd_per_hour":
            return catalog.offers.usd_per_hour_at(offers)
        case "tflops":
            return _tflops(name, constraints, catalog, types)
        case "tflops_per_usd":
            return _tflops(name, constraints, catalog, types) / catalog.offers.usd_per_hour_at(offers)
        case _:
            return catalog.columns.numbers[name][types]


def _tflops(name: str, constraints: Constraints, catalog: Catalog, types: Indices) -> Floats:
    if not constraints.precision_all:
        raise QuestionError(f"Sorting by {name} needs a precision: add one, such as precision=bf16.", field="sort")
    return catalog.columns.tflops[constraints.precision_all[0]][types]


def count_values(column: str, types: Indices, catalog: Catalog) -> list[tuple[str | float | None, int]]:
    """Returns the values of a column among some instance types with their counts, sorted, unknown (None) last.

    Raises `QuestionError` for a column that does not exist, or in which every value occurs once.
    """
    words, numbers = catalog.columns.words, catalog.columns.numbers
    values: list[str | float | None]
    if column in words and column not in UNIQUE_COLUMNS:
        codes, counts = np.unique(words[column].codes[types], return_counts=True)
        values = [None if code < 0 else words[column].words[code] for code in codes.tolist()]
    elif column in numbers:
        figures, counts = np.unique(numbers[column][types], return_counts=True)
        values = [None if np.isnan(figure) else figure for figure in figures.tolist()]
    else:
        known = sorted({*words, *numbers} - {*UNIQUE_COLUMNS})
        raise QuestionError(
            f"There is no facet '{column}'. Known: {', '.join(known)}.", field="facets", near=near_names(column, known)
        )
    return sorted(zip(values, counts.tolist(), strict=True), key=lambda counted: counted[0] is None)
