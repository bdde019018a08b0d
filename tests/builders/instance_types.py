"""Instance types and their lifecycle: every default is sane, so that a test names only what matters to it."""

from dataclasses import replace
from datetime import date
from typing import Any

from service.domain.catalog.hardware import InstanceType, LifecycleEvent, LifecycleState
from tests.builders.gpus import gpu as a100
from tests.builders.sources import SOURCE


def event(state: LifecycleState = "available", starts_on: date = date(2020, 11, 2)) -> LifecycleEvent:
    return LifecycleEvent(state, starts_on, basis="published", source=SOURCE, note=None)


def unknown_instance_type(name: str, **given: Any) -> InstanceType:
    """A machine without a GPU, available since 2020, of which no figure is known."""
    plain = InstanceType(
        provider="aws",
        name=name,
        service="ec2",
        family=name.partition(".")[0],
        gpu=None,
        gpu_count=0,
        interconnect="none",
        interconnect_gb_per_second=None,
        vcpus=None,
        cpu_architecture=None,
        cpu_vendor=None,
        cpu_model=None,
        memory_gib=None,
        network_gbps=None,
        network_baseline_gbps=None,
        rdma=None,
        gpudirect_rdma=None,
        local_storage_gb=None,
        bare_metal=None,
        hypervisor=None,
        orderable=None,
        cpu_fp32_tflops=None,
        cpu_memory_bandwidth_gb_per_second=None,
        cpu_baseline_share=None,
        twin_of=None,
        source=SOURCE,
        note=None,
        lifecycle=(event(),),
    )
    return replace(plain, **given)


def instance_type(name: str = "p4d.24xlarge", **given: Any) -> InstanceType:
    """A machine of eight A100s, available since 2020. `gpu=None` makes it a machine without GPUs."""
    gpu = given.setdefault("gpu", a100())
    count = given.setdefault("gpu_count", 8 if gpu else 0)
    p4d: dict[str, Any] = {
        "interconnect": "nvswitch" if count > 1 else "none",
        "interconnect_gb_per_second": 600.0 if count > 1 else None,
        "vcpus": 96.0,
        "cpu_architecture": "x86_64",
        "cpu_vendor": "intel",
        "cpu_model": "Xeon Platinum 8275CL",
        "memory_gib": 1152.0,
        "network_gbps": 400.0,
        "rdma": True,
        "gpudirect_rdma": True,
        "local_storage_gb": 8000.0,
        "bare_metal": False,
    }
    return unknown_instance_type(name, **{**p4d, **given})
