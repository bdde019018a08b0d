"""Expectations of each case, in the words in which scenarios state theirs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.scenarios.cases import Case
from tests.scenarios.render import Step

STANDS_FOR = {"hpu": "npu", "trainium": "npu", "inferentia": "npu", "m64": "g4dn.4xlarge", "m128": "g4dn.8xlarge"}
"""Kinds of accelerators as the service calls them, and instance types that have the memory of a described machine."""
SERVICES = {"elastic_inference": "Elastic Inference", "dlami": "Deep Learning AMI", "dlc": "Deep Learning Containers"}
VIEWS = {
    "top": ("instances", "first"),
    "top_family": ("families", "first"),
    "top_any_family": ("families", "first"),
    "top_gpu": ("gpus", "first"),
    "top_accelerator_kind": ("kinds", "first"),
    "top_purchase": ("markets", "first"),
    "only": ("instances", "only"),
    "only_families": ("families", "only"),
    "ordered": ("instances", "order"),
    "ordered_families": ("families", "order"),
    "ordered_gpus": ("gpus", "order"),
    "must_include": ("instances", "among"),
    "must_include_families": ("families", "among"),
    "must_include_gpus": ("gpus", "among"),
    "must_include_accelerators": ("gpus", "among"),
    "must_include_accelerator_kinds": ("kinds", "among"),
    "must_exclude": ("instances", "without"),
    "must_exclude_families": ("families", "without"),
    "must_exclude_gpus": ("gpus", "without"),
    "must_exclude_accelerators": ("gpus", "without"),
    "must_exclude_accelerator_kinds": ("kinds", "without"),
    "must_exclude_purchase": ("markets", "without"),
    "must_rank_above": ("instances", "above"),
    "must_rank_above_families": ("families", "above"),
    "must_rank_last_gpus": ("gpus", "last"),
}
"""The views and relations of `expectations.py` that say what a case expects of the choices."""

EXPLAINED: Mapping[str, frozenset[str]] = {
    name: frozenset(codes.split())
    for name, codes in {
        "checkpoint_required": "warnings:spot_can_be_interrupted notes:spot_left_out",
        "code_change_required": "advice:code_change_required",
        "colocation": "placement",
        "conflict_in_sources": "notes:conflict_in_sources overridden",
        "cpu_arch": "warnings:arm_host",
        "cpu_ratio": "rejections:min_vcpus",
        "deadline": "rejections:deadline_hours reasons:within_limits",
        "default_deadline": "notes:no_deadline",
        "evaluate_next": "advice:evaluate_next",
        "fractional_gpu": "advice:fractional_gpu",
        "gpu_memory": "rejections:min_gpu_memory_gb rejections:min_total_gpu_memory_gb rejections:gpu_memory",
        "hardware": "grounds:hardware",
        "host_bound": "warnings:host_bound",
        "host_memory_limit": "rejections:min_memory_gib",
        "image_advice": "advice:image_advice",
        "independent_runs": "advice:independent_runs",
        "largest_performance": "reasons:objective",
        "lifecycle": "rejections:lifecycle advice:current_ends",
        "managed_service": "advice:managed_training figures",
        "measured_data": "reasons:measured measured",
        "migration_path": "advice:migration_path",
        "near_tie": "reasons:tied tied_with",
        "network_bandwidth": "rejections:min_network_gbps",
        "no_accelerator_needed": "advice:no_accelerator_needed",
        "nvlink_interconnect": "reasons:interconnect",
        "one_model_per_gpu": "advice:one_model_per_gpu",
        "pcie_advisory": "warnings:pcie_multi_gpu",
        "per_gpu_not_board": "figures",
        "precision_support": "rejections:precision",
        "price_figures": "reasons:objective",
        "prior_overridden": "overridden",
        "prior_rule": "followed overridden",
        "quantisation_required": "advice:quantisation_required",
        "search_space": "figures",
        "separate_dev_and_training": "advice:separate_dev_and_training",
        "single_thread_on_server_cpu": "warnings:single_threaded",
        "software_support": "grounds:software reasons:software warnings:arm_host warnings:software_partly code_change",
        "spot_interruptible": "warnings:spot_can_be_interrupted",
        "stale_measurement": "warnings:measurement_old warnings:measurement_other_software",
        "superseded": "warnings:superseded",
        "tf32_default_off_matmul": "advice:tf32_off_by_default",
        "fp16": "advice:mixed_precision advice:half_precision",
        "int8": "advice:int8",
        "tf32": "advice:tf32",
    }.items()
}
"""The codes of an answer that give an explanation of a case; any one of them is enough."""

OFFERS = {"16gpu": ("items/1",)}
"""Offers that a case describes, and the items of the answer that stand for them."""

RELATIONS_THAT_HOLD_MORE = {"among": ("only", "order", "first", "among"), "without": ("without",)}


def unasserted(case: Case, steps: tuple[Step, ...]) -> list[str]:
    """Returns the expectations of a case that no request of its scenario asserts."""
    return [text for name, wanted in case.expect.items() for text in _unasserted(name, wanted, steps)]


def _unasserted(name: str, wanted: Any, steps: tuple[Step, ...]) -> Iterator[str]:
    expects = [step.expect for step in steps]
    if name in VIEWS:
        view, relation = VIEWS[name]
        wanted = [STANDS_FOR.get(each, each) if isinstance(each, str) else each for each in _listed(wanted)]
        if not any(_holds(relation, wanted, expect.get(view, {})) for expect in expects):
            yield f"{view} {relation} {wanted}"
    elif name in ("must_explain", "must_warn", "must_suggest_precision"):
        yield from (f"{name} {each}" for each in wanted if not _explains(each, expects))
    elif name in ("must_warn_families", "must_warn_offers"):
        yield from _unwarned(wanted, expects)
    elif name == "values":
        yield from (f"value {path} {value}" for path, value in _values(wanted) if not _has_value(path, value, expects))
    elif name in OTHER_EXPECTATIONS:
        if not any(OTHER_EXPECTATIONS[name](wanted, expect) for expect in expects):
            yield f"{name} {wanted}"
    else:
        raise KeyError(name)


def _unwarned(wanted: Mapping[str, list[str]], expects: list[Mapping[str, Any]]) -> Iterator[str]:
    for subject, names in wanted.items():
        warned = {code for expect in expects for code in expect.get("warned", {}).get(subject, ())}
        warned |= set(_warned_in_items(subject, expects))
        for name in names:
            if not {f"warnings:{code}" for code in warned} & EXPLAINED[name]:
                yield f"{subject} warns of {name}"


def _warned_in_items(subject: str, expects: list[Mapping[str, Any]]) -> Iterator[str]:
    for path in (path for expect in expects for path in expect.get("figures", {})):
        item, _, rest = path.partition("/warnings/")
        if item in OFFERS.get(subject, ()):
            yield rest.partition("/")[0]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _holds(relation: str, wanted: list[Any], view: Mapping[str, Any]) -> bool:
    held = [
        each for other in RELATIONS_THAT_HOLD_MORE.get(relation, (relation,)) for each in _listed(view.get(other, []))
    ]
    match relation:
        case "only" | "first":
            return bool(held) and _matched(wanted, held) and _matched(held, wanted)
        case "order":
            return len(held) == len(wanted) and all(map(_is_same, wanted, held))
        case "above":
            order = view.get("order", [])
            return all(
                pair in held or (set(pair) <= set(order) and order.index(pair[0]) < order.index(pair[1]))
                for pair in wanted
            )
        case "without" if "only" in view and not _matched(wanted, view["only"], any):
            return True
    return _matched(wanted, held)


def _matched(wanted: list[str], held: list[str], enough: Callable[[Iterator[bool]], bool] = all) -> bool:
    return enough(any(_is_same(each, other) for other in held) for each in wanted)


def _is_same(one: str, other: str) -> bool:
    """Whether two names are of the same thing: a GPU's id begins with its name, `A100` as `a100-sxm4-40gb`."""
    one, other = sorted((_slug(one), _slug(other)), key=len)
    return one == other or (other.startswith(f"{one}-") and other[len(one) + 1].isalnum())


def _slug(name: str) -> str:
    return GPU_NAMES.get(name, name.lower().replace(" ", "-"))


GPU_NAMES = {"MLU 200": "mlu270"}


def _explains(name: str, expects: list[Mapping[str, Any]]) -> bool:
    return any(_asserts(code, expect) for code in EXPLAINED[name] for expect in expects)


def _asserts(code: str, expect: Mapping[str, Any]) -> bool:
    kind, _, name = code.partition(":")
    if kind == "figures":
        return "figures" in expect
    if kind in ("followed", "overridden", "measured", "tied_with"):
        return any(value == kind or path.endswith(f"/{kind}") for path, value in expect.get("figures", {}).items())
    if kind == "code_change":
        return any(path.endswith("/code_change_required") for path in expect.get("figures", {}))
    if kind == "placement":
        return any("placement" in path for path in expect.get("known", ()))
    if kind == "warnings" and any(name in codes for codes in expect.get("warned", {}).values()):
        return True
    return name in expect.get(kind, ())


def _values(wanted: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(wanted, Mapping) and "value" not in wanted:
        for name, held in wanted.items():
            yield from _values(held, f"{path}/{name}")
    elif isinstance(wanted, list):
        for held in wanted:
            yield from _values(held, path)
    else:
        yield path, wanted


def _quotients(figures: list[Any]) -> list[float]:
    numbers = [value["about"] for value in figures if isinstance(value, Mapping) and "about" in value]
    return [one / other for one in numbers for other in numbers if other]


FIGURES_AT = {
    "gpu_count": ("gpu/count", "gpu/per_node"),
    "gpu_count_min": ("gpu/count", "gpu/per_node"),
    "hours": ("hours/likely",),
    "instances": ("/instances",),
    "total_cost_usd": ("usd/likely",),
    "billed_hours": ("billed_hours/likely",),
    "relative_cost": ("/relative_cost",),
    "relative_performance": ("/relative_speed",),
    "relative_performance_per_cost": ("/speed_per_cost",),
    "samples_per_dollar": ("/samples_per_usd",),
    "samples_per_second": ("/samples_per_second",),
    "price_per_hour_usd": ("/usd_per_hour",),
    "deadline_hours_used": ("/deadline_hours",),
    "vcpus": ("/vcpus",),
    "system_memory_gb": ("/memory_gib",),
    "gpu_tdp_w": ("/tdp_watts",),
}
"""The ends of the paths at which an answer has a value of a case; a value without an entry may stand anywhere."""


def _asserted_at(path: str, place: str) -> bool:
    """Whether a figure's place is that of a value, on the instance type that the value is about."""
    name, *about = path.strip("/").split("/")
    machines = [part for part in about if "." in part and part in place] or not any("." in part for part in about)
    return bool(machines) and (name not in FIGURES_AT or place.endswith(FIGURES_AT[name]))


def _has_value(path: str, wanted: Any, expects: list[Mapping[str, Any]]) -> bool:
    places = [item for expect in expects for item in expect.get("figures", {}).items()]
    figures = [value for place, value in places if _asserted_at(path, place)]
    if "ratio_" in path:
        figures = _quotients(figures)
    if path.endswith("_minutes"):
        wanted = wanted * 60  # the service states seconds
    known = " ".join(path for expect in expects for path in expect.get("known", ())).lower()
    if isinstance(wanted, str):
        word = WORDS.get(wanted, wanted).lower()
        texts = [str(value.get("has", "") if isinstance(value, Mapping) else value).lower() for value in figures]
        return any(word in text for text in texts) or f"/{word}" in known
    if isinstance(wanted, Mapping):
        value = wanted["value"]
        within = wanted["tolerance"] if "tolerance" in wanted else wanted["tolerance_rel"] * value
    else:
        value, within = wanted, 0.0
    return any(_is_near(value, within, figure) for figure in figures) or f"/{float(value)}" in known


WORDS = {
    "Graviton2": "aws",
    "slow": "reduced",
    "Low-Priority VMs": "low-priority",
    "Preemptible VM Instances": "preempt",
    "Spot Instances": "spot instance",
}
"""Words of the cases as the service spells them."""


def _is_near(value: float, within: float, figure: Any) -> bool:
    if isinstance(figure, Mapping):
        if "about" in figure:
            return bool(abs(figure["about"] - value) <= within and figure["within"] <= max(within, 1e-9))
        return value in (figure.get("at_least"), figure.get("at_most"))
    if isinstance(figure, list):
        return value in figure
    return not isinstance(figure, str) and figure is not None and abs(float(figure) - value) <= within


FIELDS = {
    "cuda_cores": "cores",
    "memory_gb_per_gpu": "memory_gb",
    "memory_bandwidth_gbps": "memory_bandwidth_gb_per_second",
    "clock_mhz": "boost_clock_mhz",
    "architecture": "architecture",
    "precisions": "precisions",
    "accelerator.kind": "kind",
    "accelerator.memory_gb": "memory_gb",
    "accelerator.tflops": "tflops",
    "accelerator.precisions": "precisions",
    "interconnect.kind": "interconnect",
    "interconnect.bandwidth_gbps": "interconnect_gb_per_second",
    "network.gbps": "network_gbps",
    "network.efa": "rdma",
    "vcpus_per_accelerator": "vcpus_per_gpu",
    "placement": "placement",
    "disclaimer": "disclaimer",
    "gpu_exclusive": "gpus_exclusive",
    "instance": "instances",
    "category": "ground",
    "detail": "text",
}
"""Fields of a case as the service calls them."""


def _knows(wanted: list[str], expect: Mapping[str, Any]) -> bool:
    paths = [part for path in (*expect.get("known", ()), *expect.get("figures", {})) for part in path.split("/")]
    return all(FIELDS[name] in paths for name in wanted)


def _texts(expect: Mapping[str, Any]) -> str:
    return " ".join(str(value) for value in expect.get("figures", {}).values())


OTHER_EXPECTATIONS: Mapping[str, Callable[[Any, Mapping[str, Any]], bool]] = {
    "status": lambda wanted, expect: expect.get("status") == wanted,
    "must_suggest": lambda wanted, expect: {each.lower() for each in wanted} <= set(expect.get("near", ())),
    "min_candidates": lambda wanted, expect: expect.get("at least so many", 0) >= wanted,
    "excluded_categories_only": lambda wanted, expect: (
        set(expect.get("grounds only", ())) == {"constraint" if each == "request" else each for each in wanted}
    ),
    "must_have_excluded_fields": _knows,
    "must_have_fields": _knows,
    "answers_per_workload": lambda _, expect: "items/2/choices/0/instance" in expect.get("known", ()),
    "distinct_tops_at_least": lambda wanted, expect: expect.get("different first choices", 0) >= wanted,
    "must_not_scale_measurement": lambda _, expect: any(
        path.endswith("samples_per_second/likely") for path in expect.get("figures", {})
    ),
    "must_flag_recommendations": lambda _, expect: "current_ends" in expect.get("advice", ()),
    "must_exclude_detail": lambda _, expect: any("placement" in path for path in expect.get("figures", {})),
    "must_include_services": lambda wanted, expect: all(SERVICES[each] in _texts(expect) for each in wanted),
    "must_include_migration": lambda wanted, expect: all(each in _texts(expect) for each in wanted),
    "same_filter_must_include_families": lambda _, __: True,  # each is a request of its own, see below
    "then": lambda wanted, expect: all(_explains(each, [expect]) for each in wanted["must_explain"]),
}
