"""Clusters as columns."""

from dataclasses import replace

import numpy as np

from service.domain.layouts.cluster_table import cluster_table, distinct
from tests.builders.clusters import cluster
from tests.builders.gpus import gpu_with_peaks

ONE = cluster(gpus=1)
EIGHT = cluster()
EIGHT_WITH_HOST = replace(EIGHT, host_memory_bytes=1e12)


def test_equal_hardware_is_kept_once() -> None:
    known, index = distinct([EIGHT, ONE, EIGHT, EIGHT_WITH_HOST])
    assert known == (EIGHT, ONE, EIGHT_WITH_HOST)
    assert index.tolist() == [0, 1, 0, 2]


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
    assert [shape.indices.tolist() for shape in table.shapes_of(None)] == [[0, 1], [2]]
    assert [shape.size for shape in table.shapes_of(np.array([False, False, True]))] == [(1, 1, 1)]
    alone, every = table.without_hosts(None)
    assert (len(alone), every, table.row_by_gpus.tolist()) == (2, None, [0, 0, 1])
    alone, wanted = table.without_hosts(np.array([False, True, False]))
    assert [shape.indices.tolist() for shape in alone.shapes_of(wanted)] == [[0]]


def test_clusters_of_different_gpus_have_a_shape_in_common() -> None:
    other = cluster(replace(gpu_with_peaks(), id="another"))
    table = cluster_table([EIGHT, other])
    assert [shape.indices.tolist() for shape in table.shapes] == [[0, 1]]
    assert table.gpu_type.tolist() == [0, 1]
