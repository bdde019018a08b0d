"""The filters that `GET /instances` and `POST /recommend` share, as fields and as domain constraints."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from service.api.http.fields import Amount, Names, RequestModel
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import INTERCONNECTS
from service.domain.catalog.names import resolve, resolve_gpus, resolve_instances
from service.domain.catalog.offer import MARKETS
from service.domain.catalog.software_support import software_names
from service.domain.errors import QuestionError
from service.domain.selection.constraints import Constraints

RANGES = (
    "gpu_count", "gpu_memory_gb", "total_gpu_memory_gb", "vcpus", "memory_gib", "network_gbps", "local_storage_gb",
    "tflops", "memory_bandwidth_gb_per_second", "vcpus_per_gpu",
)  # fmt: skip
LIMITS = tuple((name, f"min_{name}", f"max_{name}") for name in RANGES)
NOTHING: tuple[object, ...] = (None, ())
FLAGS = ("rdma", "gpudirect_rdma", "bare_metal", "tensor_cores", "sparsity")
WORDS = (
    "provider", "instance", "service", "family", "series", "size", "gpu", "gpu_vendor", "gpu_kind", "architecture",
    "cpu_architecture", "cpu_vendor", "interconnect", "lifecycle",
)  # fmt: skip
LIFECYCLES = ("announced", "preview", "available", "closed_to_new", "retired")

Task = Literal["training", "inference", "hpc", "graphics", "development", "classical", "sequential"]
PrecisionSupport = Literal["accelerated", "native", "any"]


class InstanceFilters(RequestModel):
    """What a machine must be. Several values of one filter: any of them."""

    provider: Annotated[Names, Field(description="Provider ids, see `/providers`.")] = ()
    region: Annotated[Names, Field(description="Region ids, see `/regions`.")] = ()
    instance: Annotated[Names, Field(description="Instance types, as `name` or `provider/name`.")] = ()
    service: Annotated[Names, Field(description="`ec2` or `sagemaker` at AWS; `compute` elsewhere.")] = ()
    family: Annotated[Names, Field(description="Families, such as `g5`.")] = ()
    series: Annotated[
        Names, Field(description="Letters and generation of a name that is built so: `g5` finds G5 and G5g.")
    ] = ()
    size: Annotated[Names, Field(description="The size of a name that is built so, such as `metal` or `xlarge`.")] = ()
    gpu: Annotated[Names, Field(description="GPU ids, names or aliases; `a100` finds every A100 card.")] = ()
    gpu_vendor: Names = ()
    gpu_kind: Annotated[Names, Field(description="`gpu`, `tpu` or `npu`.")] = ()
    architecture: Annotated[Names, Field(description="GPU architectures, such as `ampere`.")] = ()
    cpu_architecture: Annotated[Names, Field(description="`x86_64` or `arm64`.")] = ()
    cpu_vendor: Names = ()
    interconnect: Annotated[
        Names, Field(description="How the GPUs of one machine are linked; `nvlink` finds `nvswitch` too.")
    ] = ()
    market: Annotated[Names, Field(description="`on_demand`, `spot` or `reserved`.")] = ()
    lifecycle: Annotated[Names, Field(description="States on the catalog's day.")] = ()
    framework: Annotated[Names, Field(description="Software that must be known to run there: all of them.")] = ()
    min_gpu_count: Annotated[
        Amount | None, Field(description="Whole cards; a part of a card counts as its fraction.")
    ] = None
    max_gpu_count: Amount | None = None
    min_gpu_memory_gb: Annotated[Amount | None, Field(description="Of one GPU, by the maker's label.")] = None
    max_gpu_memory_gb: Amount | None = None
    min_total_gpu_memory_gb: Amount | None = None
    max_total_gpu_memory_gb: Amount | None = None
    min_vcpus: Amount | None = None
    max_vcpus: Amount | None = None
    min_memory_gib: Annotated[Amount | None, Field(description="Host memory.")] = None
    max_memory_gib: Amount | None = None
    min_network_gbps: Amount | None = None
    max_network_gbps: Amount | None = None
    min_local_storage_gb: Amount | None = None
    max_local_storage_gb: Amount | None = None
    min_tflops: Annotated[Amount | None, Field(description="Dense peak of all GPUs at the first precision named.")] = (
        None
    )
    max_tflops: Amount | None = None
    min_memory_bandwidth_gb_per_second: Annotated[Amount | None, Field(description="Of one GPU.")] = None
    max_memory_bandwidth_gb_per_second: Amount | None = None
    min_vcpus_per_gpu: Amount | None = None
    max_vcpus_per_gpu: Amount | None = None
    max_usd_per_hour: Amount | None = None
    max_price_age_days: Annotated[Amount | None, Field(description="A price without a day has no age and fails.")] = (
        None
    )
    rdma: Annotated[bool | None, Field(description="An OS-bypass fabric: EFA, InfiniBand or RoCE.")] = None
    gpudirect_rdma: bool | None = None
    bare_metal: bool | None = None
    tensor_cores: Annotated[bool | None, Field(description="NVIDIA's name; other makers: `precision_support`.")] = None
    sparsity: Annotated[bool | None, Field(description="A higher peak where weights are zero in a fixed pattern.")] = (
        None
    )


def known_words(catalog: Catalog, name: str) -> tuple[str, ...]:
    """What a word filter may hold: closed vocabularies of the service, else what the tables hold."""
    match name:
        case "interconnect":
            return INTERCONNECTS
        case "lifecycle":
            return LIFECYCLES
        case "provider":
            return tuple(catalog.reference.providers)
        case "gpu_vendor" | "architecture" | "gpu_kind":
            attribute = {"gpu_vendor": "vendor", "gpu_kind": "kind"}.get(name, name)
            return tuple(sorted({getattr(gpu, attribute) for gpu in catalog.reference.gpus.values()}))
        case _:
            return catalog.columns.words[name].words


def resolved(name: str, asked: Sequence[str], catalog: Catalog, prefix: str = "", field: str = "") -> tuple[str, ...]:
    """A filter's values in the catalog's own words. Raises `UnknownName` with near names.

    `field` is what the caller named it, where that is not the filter's own name.
    """
    if not asked:
        return ()
    key = ("resolved", name, tuple(asked))
    return catalog.memory.get_or_compute(key, lambda: resolve_filter(name, asked, catalog, field or prefix + name))


def resolve_filter(name: str, asked: Sequence[str], catalog: Catalog, field: str) -> tuple[str, ...]:
    match name:
        case "gpu":
            return resolve_gpus(asked, catalog, field)
        case "instance":
            return resolve_instances(asked, catalog, field)
        case "market":
            return resolve("market", asked, MARKETS, field)
        case "region":
            return resolve("region", asked, region_names(catalog), field)
        case "precision":
            return resolve("precision", asked, catalog.reference.precisions, field)
        case "framework":
            names = catalog.memory.get_or_compute("software_names", lambda: software_names(catalog))
            return resolve("framework", asked, names, field)
        case _:
            return resolve(name.replace("_", " "), asked, known_words(catalog, name), field)


def region_names(catalog: Catalog) -> dict[str, None]:
    """In their own order, so that near names come alike in every process."""
    return catalog.memory.get_or_compute(
        "regions", lambda: dict.fromkeys(region.id for region in catalog.reference.regions)
    )


def constraints_of(
    filters: InstanceFilters,
    catalog: Catalog,
    *,
    prefix: str = "",
    usual: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    **more: Any,
) -> Constraints:
    """The filters in the catalog's own words; `usual` holds of what is left open. Raises `QuestionError`."""
    asked = filters.__dict__
    told = {name for name in filters.model_fields_set if asked[name] not in NOTHING}
    words = {name: resolved(name, asked[name], catalog, prefix) for name in WORDS if name in told}
    at_least, at_most = {}, {}
    for name, least, most in LIMITS:
        if least in told:
            at_least[name] = asked[least]
        if most in told:
            at_most[name] = asked[most]
            if least in told and asked[least] > asked[most]:
                raise QuestionError(
                    f"{least} ({asked[least]:g}) is above {most} ({asked[most]:g}), so nothing can match.",
                    field=f"{prefix}{least}",
                )
    return Constraints(
        words={**{name: usual[name] for name in usual if name in WORDS}, **words},
        at_least=at_least,
        at_most=at_most,
        flags={name: asked[name] for name in FLAGS if name in told},
        framework=resolved("framework", asked["framework"], catalog, prefix),
        region=resolved("region", asked["region"], catalog, prefix),
        market=usual.get("market") or resolved("market", asked["market"], catalog, prefix),
        max_usd_per_hour=asked["max_usd_per_hour"],
        max_price_age_days=asked["max_price_age_days"],
        **more,
    )
