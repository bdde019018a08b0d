"""The narrowest rule decides which software runs on an instance type, and for which versions."""

from dataclasses import replace

import pytest

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.reference import SoftwareRule
from service.domain.catalog.software_support import (
    Restriction,
    WorkKind,
    classical_libraries,
    code_change,
    frameworks_mask,
    mainstream_gpus_mask,
    platforms_of,
    restrictions_by_type,
    restrictions_on_gpu,
    software_mask,
    software_names,
    task_mask,
    usual_library,
)
from service.domain.versions import EVERY, Versions, known_versions
from tests.builders.catalogs import catalog, software_rule
from tests.builders.gpus import gpu
from tests.builders.instance_types import instance_type

A100 = gpu()
GPUS = {
    "a100": A100,
    "half an a100": gpu("a100-1of2", fraction=0.5, partition_of=A100.id),
    "mi300x": gpu("mi300x", vendor="amd", architecture="cdna3", platform="rocm"),
    "h100": gpu("h100", architecture="hopper"),
}
CPU = "no GPU"


def catalog_with(*rules: SoftwareRule) -> Catalog:
    types = [instance_type(name, gpu=card, gpu_count=1) for name, card in GPUS.items()]
    return catalog(instance_types=[*types, instance_type(CPU, gpu=None)], software=rules)


def runs_on(known: Catalog, software: str, versions: Versions | None = None) -> set[str]:
    mask = software_mask(known, software, versions) if versions else software_mask(known, software)
    return {each.name for each, runs in zip(known.instance_types, mask, strict=True) if runs}


@pytest.mark.parametrize(
    ("scope", "value", "where"),
    [
        ("kind", "gpu", set(GPUS)),
        ("kind", "cpu", {CPU}),
        ("vendor", "amd", {"mi300x"}),
        ("platform", "rocm", {"mi300x"}),
        ("platform", "cpu", {CPU}),
        ("architecture", "ampere", {"a100", "half an a100"}),
        ("gpu", A100.id, {"a100", "half an a100"}),
        ("gpu", "a100-1of2", {"half an a100"}),
        ("instance", "h100", {"h100"}),
    ],
)
def test_a_rule_holds_for_the_types_of_its_scope(scope: str, value: str, where: set[str]) -> None:
    assert runs_on(catalog_with(software_rule("pytorch", scope=scope, scope_value=value)), "pytorch") == where


def test_the_narrowest_rule_decides() -> None:
    known = catalog_with(
        software_rule("pytorch"),
        software_rule("pytorch", "no", scope="architecture", scope_value="ampere"),
        software_rule("pytorch", scope="gpu", scope_value="a100-1of2"),
    )
    assert runs_on(known, "pytorch") == {"h100", "half an a100"}


def test_versions_that_no_deciding_rule_covers_do_not_run() -> None:
    known = catalog_with(software_rule("pytorch", versions=">=1.8,<2.1"))
    nvidia = {"a100", "half an a100", "h100"}
    assert runs_on(known, "pytorch", known_versions("==2.0")) == nvidia
    assert runs_on(known, "pytorch", known_versions("==2.1")) == set()
    assert runs_on(known, "pytorch") == nvidia


def test_partial_support_counts_unless_full_support_is_asked_for() -> None:
    known = catalog_with(software_rule("jax", "partly"))
    assert runs_on(known, "jax") == {"a100", "half an a100", "h100"}
    assert not software_mask(known, "jax", enough=("yes",)).any()


def test_all_frameworks_must_run() -> None:
    known = catalog_with(software_rule("pytorch"), software_rule("jax", scope="architecture", scope_value="hopper"))
    both = frameworks_mask(known, ("pytorch", "jax"))
    assert [each.name for each, runs in zip(known.instance_types, both, strict=True) if runs] == ["h100"]


def test_a_task_is_excluded_only_by_a_rule_of_its_own_or_where_no_framework_runs() -> None:
    rules = software_rule("pytorch"), software_rule("pytorch", "no", scope_value="amd")
    known = catalog_with(*rules, replace(software_rule("nccl", "no", scope="gpu", scope_value="h100"), task="training"))
    able = dict(zip((each.name for each in known.instance_types), task_mask(known, "training"), strict=True))
    assert able == {"a100": True, "half an a100": True, "mi300x": False, "h100": False, CPU: True}
    serves = dict(zip((each.name for each in known.instance_types), task_mask(known, "inference"), strict=True))
    assert serves == {**able, "h100": True}


def test_names_are_those_of_the_kinds_asked_for() -> None:
    known = catalog_with(software_rule("vllm", kind="engine"), software_rule("pytorch"), software_rule("jax"))
    assert software_names(known, ("framework",)) == ["jax", "pytorch"]
    assert software_names(known) == ["jax", "pytorch", "vllm"]


def test_libraries_of_classical_machine_learning_have_a_rule_about_this_task() -> None:
    rules = (software_rule("cuml", task="classical"), software_rule("cuml"), software_rule("nccl"))
    known = catalog_with(*rules)
    assert classical_libraries(known) == {"cuml"}
    assert runs_on(known, "cuml") == runs_on(known, "nccl"), "The rule about the task says nothing about hardware."
    assert task_mask(known, "classical").all()


def test_a_gpu_is_mainstream_where_pytorch_runs_in_full_whatever_its_host() -> None:
    known = catalog_with(
        software_rule("pytorch"),
        software_rule("pytorch", "partly", scope="platform", scope_value="rocm"),
        software_rule("pytorch", "partly", scope="instance", scope_value="h100"),
    )
    in_full = dict(zip((each.name for each in known.instance_types), mainstream_gpus_mask(known).tolist(), strict=True))
    assert in_full == {"a100": True, "half an a100": True, "mi300x": False, "h100": True, CPU: False}


def test_a_method_of_training_needs_its_library_at_least_in_part() -> None:
    known = catalog_with(
        software_rule("pytorch"),
        software_rule("bitsandbytes", "partly", kind="library", scope="architecture", scope_value="ampere"),
        software_rule("bitsandbytes", "no", kind="library", scope="architecture", scope_value="hopper"),
    )
    names = [each.name for each in known.instance_types]
    runs = {
        method: dict(
            zip(names, mainstream_gpus_mask(known, usual_library("training", method, ())).tolist(), strict=True)
        )
        for method in ("lora", "qlora")
    }
    assert runs["lora"]["h100"]
    assert runs["qlora"]["a100"]
    assert not runs["qlora"]["h100"]


@pytest.mark.parametrize(
    ("formats", "library"),
    [
        (("nf4",), "bitsandbytes"),
        (("nf4", "nf4-dq"), "bitsandbytes"),
        (("nf4", "bf16"), None),
        (("int4",), None),
        ((), None),
    ],
)
def test_formats_that_only_a_library_has_kernels_for_need_it(formats: tuple[str, ...], library: str | None) -> None:
    assert usual_library("inference", None, formats) == library
    assert usual_library("training", None, formats) is None


def test_code_changes_only_on_platforms_that_it_is_not_written_for() -> None:
    port = {"scope": "platform", "scope_value": "rocm", "code_change": "Build it with HIP."}
    known = catalog_with(software_rule("pytorch"), software_rule("pytorch", **port), software_rule("jax"))
    mi300x = GPUS["mi300x"]
    assert code_change(None, (), mi300x, known) == "Build it with HIP."
    assert code_change("pytorch", ("rocm",), mi300x, known) is None
    assert code_change("pytorch", ("cuda",), mi300x, known) == "Build it with HIP."
    assert code_change("jax", (), mi300x, known) is None
    assert code_change(None, (), A100, known) is None


def test_each_platform_has_the_rules_about_one_of_its_gpus_or_machines() -> None:
    of_kind, of_machine = (
        software_rule(scope="kind", scope_value="gpu"),
        software_rule(scope="instance", scope_value=CPU),
    )
    card = software_rule(scope="gpu", scope_value="mi300x")
    platforms = platforms_of([of_kind, of_machine, card], catalog_with())
    assert platforms == {"cpu": [of_machine], "cuda": [of_kind], "rocm": [of_kind, card]}


CNN_IN_TRAINING = WorkKind("training", "cnn")
IN_4_BITS = WorkKind("inference", "llm", ("nvfp4",))


def restricted(known: Catalog, kind: WorkKind, software: str = "vllm", versions: Versions = EVERY) -> dict[str, str]:
    by_type = restrictions_by_type(known, software, versions, kind)
    there = {type_.name: by_type.on(index) for index, type_ in enumerate(known.instance_types)}
    return {name: restrictions[0].supported for name, restrictions in there.items() if restrictions}


def test_rules_about_families_and_formats_restrict_such_work_alone() -> None:
    known = catalog_with(
        software_rule("vllm"),
        software_rule("vllm", "no", formats="mxfp4,nvfp4", note="too old"),
        software_rule("vllm", formats="nvfp4", scope="architecture", scope_value="hopper"),
        software_rule("rocm", "no", kind="toolkit", scope_value="amd", task="training", families="cnn,detection"),
        software_rule("jax", "no", families="cnn"),
    )
    assert restricted(known, IN_4_BITS) == {"a100": "no", "half an a100": "no"}
    assert restricted(known, IN_4_BITS._replace(formats=("nvfp4", "int4"))) == {}
    assert restricted(known, IN_4_BITS._replace(formats=())) == {}
    assert restricted(known, CNN_IN_TRAINING) == {"mi300x": "no"}
    assert restricted(known, CNN_IN_TRAINING._replace(family="llm")) == {}
    assert restricted(known, CNN_IN_TRAINING._replace(task="inference")) == {}
    assert restrictions_on_gpu(known, "vllm", EVERY, IN_4_BITS, A100.id) == (
        Restriction("vllm", "format", "no", "too old"),
    )
    assert restrictions_on_gpu(known, "vllm", EVERY, IN_4_BITS, None) == ()
    assert runs_on(known, "vllm") == {"a100", "half an a100", "h100"}
    assert list(task_mask(known, "training")) == [True] * 5


def test_a_restriction_of_some_versions_says_nothing_about_others() -> None:
    known = catalog_with(software_rule("vllm", "partly", formats="nvfp4", versions="<0.9"))
    assert restricted(known, IN_4_BITS, versions=known_versions("==0.8")) == dict.fromkeys(
        ("a100", "half an a100", "h100"), "partly"
    )
    assert restricted(known, IN_4_BITS, versions=known_versions("==0.9")) == {}


def test_a_gpu_that_does_a_kind_of_work_in_part_is_none_of_the_mainstream() -> None:
    known = catalog_with(
        software_rule(),
        software_rule(scope_value="amd"),
        software_rule("rocm", "partly", kind="toolkit", scope_value="amd", families="cnn"),
    )
    in_full = mainstream_gpus_mask(known, None, CNN_IN_TRAINING)
    assert {each.name for each, full in zip(known.instance_types, in_full, strict=True) if full} == {
        "a100",
        "half an a100",
        "h100",
    }


def test_a_rule_of_some_builds_covers_these_versions_of_cuda_alone() -> None:
    known = catalog_with(software_rule(cuda=">=12.6,<12.7"))
    assert software_mask(known, "pytorch", EVERY, known_versions("==12.6"))[0]
    assert not software_mask(known, "pytorch", EVERY, known_versions("==12.8"))[0]
