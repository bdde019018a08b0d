"""Clusters as columns."""

from dataclasses import replace

import numpy as np
import pytest

from service.domain.calibration.coefficients import Column, Levels
from service.domain.layouts.cluster_table import ClusterTable, Machines, cluster_table, distinct
from service.domain.physics.cluster import cluster_of
from service.domain.physics.features import hardware_features
from tests.builders.clusters import cluster
from tests.builders.gpus import gpu, gpu_with_peaks

ONE = cluster(gpus=1)
EIGHT = cluster()
EIGHT_WITH_HOST = replace(EIGHT, host_memory_bytes=1e12)


def test_equal_hardware_is_kept_once() -> None:
    known, index = distinct([EIGHT, ONE, EIGHT, EIGHT_WITH_HOST])
    assert known == (EIGHT, ONE, EIGHT_WITH_HOST)
    assert index.tolist() == [0, 1, 0, 2]


def test_a_network_that_is_not_stated_keeps_hardware_apart() -> None:
    """On several nodes, one copy of a model may cross a stated network alone."""
    unstated = replace(ONE, network_known=False)
    assert distinct([ONE, unstated])[0] == (ONE, unstated)


def test_a_row_holds_the_figures_of_its_cluster() -> None:
    table = cluster_table([EIGHT_WITH_HOST, ONE])
    assert table.gpus.tolist() == [8.0, 1.0]
    assert np.isnan(table.host_memory_bytes).tolist() == [False, True]
    assert table.unit_seconds["network"].tolist() == [
        1 / EIGHT.network_bytes_per_second,
        1 / ONE.network_bytes_per_second,
    ]
    assert len(cluster_table([])) == 0


def test_clusters_that_differ_in_hosts_alone_share_one_search() -> None:
    table = cluster_table([EIGHT, EIGHT_WITH_HOST, ONE])
    assert [shape.indices.tolist() for shape in table.shapes()] == [[0, 1], [2]]
    sizes, size = table.rows(np.array([2, 0])).own_sizes()
    assert [sizes[index] for index in size] == [(1, 1, 1), (8, 8, 8)]
    assert (len(table.without_hosts), table.row_by_gpus.tolist()) == (2, [0, 0, 1])


@pytest.mark.parametrize("indices", [[], [1], [0, 1], [2, 3], [1, 3], [0, 1, 2, 3]])
def test_some_rows_of_a_table_are_the_table_of_these_clusters(indices: list[int]) -> None:
    other = cluster(replace(gpu_with_peaks(), id="another"), gpus=2)
    known = [ONE, EIGHT, other, EIGHT_WITH_HOST]
    rows, alone = cluster_table(known).rows(np.array(indices, np.int64)), cluster_table([known[row] for row in indices])
    for name in ("clusters", "nodes", "gpus_per_node", "linked_gpus", "usable_bytes"):
        assert list(getattr(rows, name)) == list(getattr(alone, name)), name
    for name, seconds in alone.unit_seconds.items():
        assert list(rows.unit_seconds[name]) == list(seconds)
    for name, column in alone.features.items():
        assert levels(rows.features[name]) == levels(column)
    assert indices_by_size(rows) == indices_by_size(alone)
    assert [rows.gpu_types[number] for number in rows.gpu_type] == [each.gpu for each in rows.clusters]
    assert len(rows.gpu_types) == len(alone.gpu_types)
    by_gpus = [rows.without_hosts.clusters[row] for row in rows.row_by_gpus]
    assert [each.gpu for each in by_gpus] == [each.gpu for each in rows.clusters]
    assert [each.gpus for each in by_gpus] == [each.gpus for each in rows.clusters]
    assert len(rows.without_hosts) == len(alone.without_hosts)


def test_a_node_in_clusters_of_several_sizes_has_the_figures_of_each() -> None:
    tray = cluster(replace(gpu_with_peaks(), id="tray", gpus_per_tray=4, gpus_per_rack=72), gpus=4)
    sliced = cluster(replace(tray.gpu, id="sliced", slices="4,8,16,32,64"), gpus=4)
    known, nodes = [ONE, EIGHT, replace(EIGHT, network_known=False), tray, sliced, EIGHT_WITH_HOST], (1, 3, 32)
    of_one_size = np.arange(len(known))
    table = Machines.of(known).in_clusters(np.tile(of_one_size, len(nodes)), np.repeat(nodes, len(known)))
    assert table.clusters == [replace(each, nodes=number) for number in nodes for each in known]
    without_hosts = table.without_hosts.clusters
    for row, each in enumerate(table.clusters):
        assert (table.gpus[row], table.linked_gpus[row]) == (each.gpus, each.linked_gpus)
        # Only data parallelism may cross a network that is not stated, so a copy of a model stays on linked GPUs.
        of_a_copy = each.gpus if each.network_known else each.linked_gpus
        assert table.sizes[table.size[row]] == (each.gpus, each.linked_gpus, of_a_copy)
        assert {name: levels(column)[row] for name, column in table.features.items()} == hardware_features(each)
        assert without_hosts[table.row_by_gpus[row]] == replace(each, host_memory_bytes=None)


@pytest.mark.parametrize(("network_gbps", "gpus"), [(None, 8), (400.0, 32)])
def test_a_copy_of_a_model_stays_inside_a_node_if_the_network_is_unknown(network_gbps: float | None, gpus: int) -> None:
    table = cluster_table([cluster_of(gpu(), 8, nodes=4, network_gbps=network_gbps)])
    assert table.sizes == ((32, 8, gpus),)


def levels(column: Column) -> list[object]:
    return [column.names[code] for code in column.codes] if isinstance(column, Levels) else list(column)


def test_clusters_of_different_gpus_have_a_shape_in_common() -> None:
    other = cluster(replace(gpu_with_peaks(), id="another"))
    table = cluster_table([EIGHT, other])
    assert [shape.indices.tolist() for shape in table.shapes()] == [[0, 1]]
    assert table.gpu_type.tolist() == [0, 1]


def indices_by_size(table: ClusterTable) -> dict[tuple[int, int, int], list[int]]:
    return {shape.size: shape.indices.tolist() for shape in table.shapes()}
