"""Requirements on software, numerics and the host: the types that each rejects, and its smallest relaxation."""

from datetime import date
from typing import Any

import pytest

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.software_support import WorkKind
from service.domain.selection.relax import Check
from service.domain.selection.requirements import (
    Numerics,
    PrecisionRequirement,
    Requirement,
    Requirements,
    partly_run,
    precision_requirement,
    requirement_checks,
    run_in_full,
)
from service.domain.versions import versions_of
from tests.builders.catalogs import catalog, software_rule
from tests.builders.gpus import gpu, precision, rate
from tests.builders.instance_types import instance_type
from tests.builders.selection import names_of, relaxed_check

SIXTEEN = (rate("fp16", "accelerated", 100.0), rate("fp32", "native", 10.0))
K80 = instance_type("k80", gpu=gpu("k80-12gb", architecture="kepler", rates=(rate("fp32", "native", 4.0),)))
V100 = instance_type("v100", gpu=gpu("v100-16gb", architecture="volta", rates=SIXTEEN), memory_gib=None)
H100 = instance_type("h100", gpu=gpu("h100-80gb", architecture="hopper"), memory_gib=2000.0)
MI300X = gpu("mi300x-192gb", vendor="amd", architecture="cdna-3", platform="rocm")
MI300 = instance_type("mi300", gpu=MI300X, memory_gib=1000.0)
CPU = instance_type("cpu", gpu=None, memory_gib=16.0)
RULES = (
    software_rule("cuda", kind="toolkit"),
    software_rule("cuda", kind="toolkit", scope="architecture", scope_value="kepler", versions=">=6.5,<12.0"),
    software_rule("cuda", kind="toolkit", scope="architecture", scope_value="volta", versions=">=9.0,<13.0"),
    software_rule("cuda", kind="toolkit", scope="architecture", scope_value="hopper", versions=">=11.8"),
    software_rule("cuda", "no", kind="toolkit", scope_value="amd"),
    software_rule("rocm", kind="toolkit", scope_value="amd"),
    software_rule("cpu", kind="toolkit", scope="kind", scope_value="cpu"),
    software_rule("cpu", kind="toolkit", scope="kind", scope_value="gpu"),
    software_rule("pytorch"),
    software_rule(
        "pytorch", scope="architecture", scope_value="kepler", versions="<2.1", supported="partly", note="old"
    ),
    software_rule("pytorch", scope_value="amd", versions=">=1.8", valid_from=date(2021, 3, 4)),
    software_rule("pytorch", scope="kind", scope_value="cpu"),
    software_rule("dali", kind="library"),
    software_rule("nccl", kind="library", scope="architecture", scope_value="hopper"),
    software_rule("custom-cuda-kernels", kind="feature"),
    software_rule("custom-cuda-kernels", "partly", kind="feature", scope_value="amd"),
)


@pytest.fixture(scope="module")
def world() -> Catalog:
    return catalog(instance_types=(K80, V100, H100, MI300, CPU), software=RULES)


def the_check(of: Catalog, **needs: Any) -> Check:
    return next(iter(requirement_checks(Requirements(**needs), of)))


def wants(name: str, versions: str = "") -> Requirement:
    return Requirement(name, versions_of(versions, "f")) if versions else Requirement(name)


@pytest.mark.parametrize(
    ("asked", "out", "to", "admits"),
    [
        ("10.2", {"h100", "mi300", "cpu"}, ">=10.2,<=11.8", {"h100"}),
        ("12.1", {"k80", "mi300", "cpu"}, ">=6.5,<12.2", {"k80"}),
        (">=12.1", {"k80", "mi300", "cpu"}, ">=6.5", {"k80"}),
        ("11.8", {"mi300", "cpu"}, None, {"mi300", "cpu"}),
    ],
)
def test_cuda_has_a_floor_and_a_ceiling(
    world: Catalog, asked: str, out: set[str], to: str | None, admits: set[str]
) -> None:
    check = the_check(world, cuda=wants("cuda", asked))
    assert (check.code, check.ground) == ("software_cuda", "software")
    assert names_of(check.fails, world) == out
    found = relaxed_check(check, world, check.fails)
    assert found is not None
    assert found.to == {"workload.software.cuda": to}
    assert names_of(found.admitted.types, world) == admits


def test_a_framework_is_asked_in_its_versions_and_on_the_day(world: Catalog) -> None:
    check = the_check(world, framework=wants("pytorch", ">=2.3"))
    assert names_of(check.fails, world) == {"k80"}
    found = relaxed_check(check, world, check.fails)
    assert found is not None
    assert found.to == {"workload.software.framework": "pytorch"}
    before = catalog(instance_types=(V100, MI300), software=RULES, day=date(2021, 1, 1))
    assert names_of(the_check(before, framework=wants("pytorch", ">=1.8")).fails, before) == {"mi300"}


def test_a_stack_that_physics_rests_on_is_not_relaxed(world: Catalog) -> None:
    check = the_check(world, framework=wants("pytorch", ">=2.3"), of_a_job=True)
    assert relaxed_check(check, world, check.fails) is None


@pytest.mark.parametrize(
    ("platforms", "suffices", "admitted"),
    [
        (("cuda",), False, {"k80", "v100", "h100"}),
        (("rocm", "cpu"), False, {"mi300", "cpu"}),
        (("rocm", "cpu"), True, {"k80", "v100", "h100", "mi300", "cpu"}),
        (("cpu",), False, {"k80", "v100", "h100", "mi300", "cpu"}),
    ],
)
def test_any_platform_will_do_and_cpus_only_count_alone(
    world: Catalog, platforms: tuple[str, ...], suffices: bool, admitted: set[str]
) -> None:
    check = the_check(world, platforms=platforms, cpu_suffices=suffices)
    assert names_of(world.all_types & ~check.fails, world) == admitted


def test_the_platform_of_the_preferred_type_is_added(world: Catalog) -> None:
    check = the_check(world, platforms=("rocm",))
    found = relaxed_check(check, world, check.fails, preferred=lambda _: world.index_of["aws/v100"])
    assert found is not None
    assert found.to == {"workload.software.platforms": ["rocm", "cuda"]}
    assert names_of(found.admitted.types, world) == {"k80", "v100", "h100"}
    cpu = relaxed_check(check, world, check.fails & (1 << world.index_of["aws/cpu"]))
    assert cpu is not None
    assert cpu.to == {"workload.software.platforms": ["rocm", "cpu"]}


def test_all_libraries_must_run_and_own_kernels_as_they_are(world: Catalog) -> None:
    both = (wants("dali"), wants("nccl"))
    assert names_of(the_check(world, libraries=both).fails, world) == {"k80", "v100", "mi300", "cpu"}
    kernels = the_check(world, custom_cuda_kernels=True)
    assert names_of(kernels.fails, world) == {"mi300", "cpu"}
    found = relaxed_check(kernels, world, kernels.fails)
    assert found is not None
    assert found.to == {"workload.software.custom_cuda_kernels": False}


def test_too_little_host_memory_is_a_ceiling_and_unknown_memory_passes(world: Catalog) -> None:
    check = the_check(world, host_memory_gib=1500.0)
    assert (check.code, check.ground) == ("host_memory_gib", "hardware")
    assert names_of(check.fails, world) == {"k80", "mi300", "cpu"}
    found = relaxed_check(check, world, check.fails)
    assert found is not None
    assert found.to == {"workload.host.memory_gib": 1152.0}
    assert names_of(found.admitted.types, world) == {"k80"}


def test_types_without_a_tolerated_precision_are_rejected(world: Catalog) -> None:
    required = PrecisionRequirement(Numerics(min_bits=16, fp16_overflows=True), ("fp16", "bf16"), ("bf16",))
    check = the_check(world, precision=required)
    assert names_of(check.fails, world) == {"k80", "v100", "cpu"}
    found = relaxed_check(check, world, check.fails)
    assert found is not None
    assert found.to == {"workload.numerics.fp16_overflows": False}
    assert names_of(found.admitted.types, world) == {"v100"}
    assert relaxed_check(check, world, check.fails & ~found.admitted.types) is None


def test_without_limits_on_formats_nothing_is_required(world: Catalog) -> None:
    required = PrecisionRequirement(Numerics(fp16_overflows=True), ("fp16", "bf16"), ("bf16",))
    found = relaxed_check(the_check(world, precision=required), world)
    assert found is not None
    assert names_of(found.admitted.types, world) == {"k80", "v100", "cpu"}


def test_if_peaks_rank_a_relaxation_admits_only_types_with_a_known_peak() -> None:
    rates = {
        "known": (rate("fp16", "accelerated", 90.0),),
        "one known": (rate("fp16", "accelerated", None), rate("fp32", "native", 10.0)),
        "unknown": (rate("fp16", "accelerated", None),),
    }
    world = catalog(instance_types=tuple(instance_type(name, gpu=gpu(name, rates=rates[name])) for name in rates))
    required = PrecisionRequirement(Numerics(min_bits=17), ("fp16", "fp32"), (), needs_peak=True)
    check = the_check(world, precision=required)
    found = relaxed_check(check, world, check.fails)
    assert found is not None
    assert names_of(found.admitted.types, world) == {"known", "one known"}


def test_partial_support_is_reported_with_its_note(world: Catalog) -> None:
    k80, h100 = world.index_of["aws/k80"], world.index_of["aws/h100"]
    needs = Requirements(framework=wants("pytorch"), optional=(wants("nccl"),))
    assert partly_run(needs, k80, world) == [("pytorch", "old"), ("nccl", None)]
    assert partly_run(needs, h100, world) == []


def test_the_note_of_partial_support_is_that_of_the_versions_asked_for() -> None:
    world = catalog(
        instance_types=(K80,),
        software=(
            software_rule("pytorch", versions="<2.8", note="in every binary"),
            software_rule("pytorch", "partly", versions=">=2.8", note="in some builds"),
        ),
    )
    assert partly_run(Requirements(framework=wants("pytorch", "2.8")), 0, world) == [("pytorch", "in some builds")]


def test_a_framework_without_a_build_for_a_version_of_cuda_fails_by_cuda() -> None:
    world = catalog(
        instance_types=(K80, H100),
        software=(
            software_rule("cuda", kind="toolkit"),
            software_rule("pytorch"),
            software_rule("pytorch", scope="architecture", scope_value="kepler", cuda=">=12.6,<12.7"),
        ),
    )
    asked, framework = wants("cuda", "12.8"), wants("pytorch")._replace(cuda=versions_of("12.8", "f"))
    needs = Requirements(framework=framework, cuda=asked, of_a_job=True)
    by_framework, by_cuda = (check for check in requirement_checks(needs, world) if check.code.startswith("software_"))
    assert by_framework.fails == 0
    assert names_of(by_cuda.fails, world) == {"k80"}
    found = relaxed_check(by_cuda, world, by_cuda.fails)
    assert found is not None
    assert found.to == {"workload.software.cuda": ">=12.6,<12.9"}


def test_the_family_and_the_format_of_a_job_have_checks_of_their_own() -> None:
    world = catalog(
        instance_types=(V100, H100, MI300),
        software=(
            software_rule("vllm"),
            software_rule("vllm", "no", scope="architecture", scope_value="volta", formats="nvfp4"),
            software_rule("rocm", "no", kind="toolkit", scope_value="amd", families="llm"),
        ),
    )
    needs = Requirements(engine=wants("vllm"), kind=WorkKind("inference", "llm", ("nvfp4",)), of_a_job=True)
    checks = {check.code: check for check in requirement_checks(needs, world)}
    assert names_of(checks["software_model"].fails, world) == {"mi300"}
    assert checks["software_model"].about == ("llm",)
    assert names_of(checks["software_format"].fails, world) == {"v100"}
    assert checks["software_format"].about == ("nvfp4",)
    assert run_in_full(needs, world.index_of[H100.id], world) == ["vllm"]
    assert run_in_full(needs, world.index_of[V100.id], world) == []


def test_numerics_tolerate_formats_with_enough_bits_and_range() -> None:
    ranges = {"fp16": 5, "bf16": 8, "fp32": 8}
    gpus = (instance_type("any", gpu=gpu("any", rates=tuple(rate(name) for name in ranges))),)
    precisions = {name: precision(name, exponent_bits=bits) for name, bits in ranges.items()}
    world = catalog(instance_types=gpus, precisions=precisions)
    assert Numerics(fp16_overflows=True).tolerated(ranges, world) == ("bf16", "fp32")
    wide = Numerics(min_bits=32, fp16_overflows=True)
    assert wide.tolerated(ranges, world) == ("fp32",)
    assert list(wide.relaxed(ranges, world)) == [
        ("fp16_overflows", Numerics(min_bits=32)),
        ("min_bits", Numerics(min_bits=16, fp16_overflows=True)),
    ]


def test_usual_precisions_that_are_not_tolerated_are_replaced_by_wider_ones(world: Catalog) -> None:
    required = precision_requirement(Numerics(min_bits=32), (), ("fp16",), world)
    assert required is not None
    assert required.tolerated == ("fp32",)
    assert required.free
    assert precision_requirement(Numerics(), ("fp16",), (), world) is None
