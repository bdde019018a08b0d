"""Clusters by the figures of their machines."""

from dataclasses import replace

import pytest

from service.domain.physics.cluster import cluster_of, cluster_of_instance
from service.domain.units import GIB
from tests.builders.gpus import gpu, unknown_gpu
from tests.builders.instance_types import instance_type


def test_links_and_network_are_rates_of_one_gpu_in_one_direction() -> None:
    """Eight GPUs share 400 Gbps, and 600 GB/s of NVSwitch are those of both directions."""
    cluster = cluster_of_instance(instance_type(), nodes=2)
    assert cluster.gpus == 16
    assert cluster.link_bytes_per_second == 300e9
    assert cluster.network_bytes_per_second == pytest.approx(400e9 / 8 / 8)
    assert cluster.vcpus_per_gpu == 12
    assert cluster.host_memory_bytes == 1152 * GIB


@pytest.mark.parametrize(("pcie_generation", "gb_per_second"), [(None, 24), (4, 24), (5, 50)])
def test_an_unknown_link_is_the_bus_of_the_gpu(pcie_generation: int | None, gb_per_second: float) -> None:
    assert cluster_of(unknown_gpu(pcie_generation=pcie_generation), 1).link_bytes_per_second == gb_per_second * 1e9


@pytest.mark.parametrize(
    ("form_factor", "given", "link", "gb_per_second"),
    [
        ("sxm4", None, "nvlink", 300),
        ("sxm4", "nvswitch", "nvswitch", 300),
        ("sxm4", "pcie", "pcie", 24),
        ("pcie", None, "pcie", 24),
        ("pcie", "nvlink", "nvlink", 300),
        ("pcie", "nvswitch", "nvswitch", 300),
    ],
)
def test_a_switch_has_the_rate_of_the_cards_and_a_pcie_card_has_a_bridge_only_if_it_is_said(
    form_factor: str, given: str | None, link: str, gb_per_second: float
) -> None:
    card = gpu(form_factor=form_factor, interconnect="nvlink", interconnect_gb_per_second=600.0)
    cluster = cluster_of(card, 8, interconnect=given)
    assert (cluster.interconnect, cluster.link_bytes_per_second) == (link, gb_per_second * 1e9)


def test_a_rack_links_the_gpus_of_several_nodes() -> None:
    rack = replace(gpu("gb200"), gpus_per_rack=72, gpus_per_tray=4)
    assert cluster_of(rack, 4, nodes=1).linked_gpus == 4
    assert cluster_of(rack, 4, nodes=4).linked_gpus == 16
    assert cluster_of(rack, 4, nodes=32).linked_gpus == 72
    assert cluster_of(rack, 1, nodes=32).linked_gpus == 1  # machines that rent out a part of a tray
    assert cluster_of(gpu(), 8, nodes=4).linked_gpus == 8
    assert [cluster_of(rack, 4, nodes=nodes).crosses_network for nodes in (1, 18, 19)] == [False, False, True]


def test_a_cluster_of_tpus_that_is_no_slice_is_several_equal_slices() -> None:
    pod = replace(gpu("tpu-v6e"), gpus_per_rack=256, gpus_per_tray=4, slices="1,4,8,16,32,64,128,256")
    linked = {nodes: cluster_of(pod, 4, nodes=nodes).linked_gpus for nodes in (1, 2, 3, 5, 7, 8, 10, 64, 128)}
    assert linked == {1: 4, 2: 8, 3: 4, 5: 4, 7: 4, 8: 32, 10: 8, 64: 256, 128: 256}
    assert cluster_of(pod, 4, nodes=10).crosses_network
    assert not cluster_of(pod, 4, nodes=8).crosses_network
    assert cluster_of(pod, 8, nodes=4).linked_gpus == 8  # hosts of eight chips form no slices of several hosts


def test_usable_memory_is_measured_or_a_share_of_the_label() -> None:
    assert cluster_of(gpu(usable_memory_gib=39.4), 1).usable_bytes == 39.4 * GIB
    assert cluster_of(gpu(usable_memory_gib=None, memory_gb=40.0), 1).usable_bytes == pytest.approx(39.0 * GIB)


def test_a_gpu_that_states_no_power_has_as_much_as_its_bandwidth_takes() -> None:
    assert cluster_of(gpu(tdp_watts=400.0), 1).watts == 400.0
    part = gpu(tdp_watts=None, memory_bandwidth_gb_per_second=1555.0 / 4)
    assert cluster_of(part, 1).watts == pytest.approx(2e-10 * 1555e9 / 4)


def test_an_unstated_network_is_assumed_for_each_host_of_a_machine() -> None:
    """A rack of 72 GPUs in trays of four has 18 hosts, whether it is one machine or 18."""
    rack, trays = (
        cluster_of(unknown_gpu(gpus_per_tray=4, gpus_per_rack=72), gpus, nodes) for gpus, nodes in ((72, 2), (4, 36))
    )
    assert rack.network_bytes_per_second == pytest.approx(trays.network_bytes_per_second)
    assert cluster_of(unknown_gpu(), 8, 2).network_gbps == pytest.approx(10)
