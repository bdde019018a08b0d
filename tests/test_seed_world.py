"""The world as it was on the days of the articles, and what the seed must know."""

from datetime import date
from functools import cache

import numpy as np
import pytest

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu
from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.names import resolve_gpus
from service.domain.catalog.precision import FORMATS
from service.domain.catalog.reference import RDMA_FABRICS, RUN_KINDS
from service.domain.catalog.software_support import software_names
from service.domain.errors import UnknownName
from service.domain.jobs.software_names import software_name
from service.domain.jobs.stacks import STACKS
from service.domain.models.networks import network_flops, saved_values, written_values

IN_USE = ("available", "preview", "closed_to_new")


def states(catalog: Catalog, provider: str = "aws") -> dict[str, str | None]:
    """The state of each family that is not retired, from its machines."""
    found = {
        kind.family: kind.state_on(catalog.day)
        for kind in catalog.instance_types
        if kind.provider == provider and kind.gpu and kind.service in ("ec2", "compute")
    }
    return {family: state for family, state in found.items() if state in IN_USE}


@pytest.mark.parametrize(
    ("day", "there", "not_there"),
    [
        (date(2017, 8, 1), {"g2", "p2", "g3"}, {"p3", "g4dn", "p4d"}),
        (date(2021, 5, 16), {"p2", "g3", "p3", "p3dn", "g4dn", "g4ad", "inf1", "p4d"}, {"g5", "g5g", "dl1", "trn1"}),
        (date(2022, 2, 17), {"g5", "g5g", "dl1", "p4d", "p3", "trn1"}, {"p4de", "inf2", "p5"}),
        (date(2023, 6, 7), {"p4d", "p4de", "g5", "trn1", "inf1", "inf2"}, {"p5", "g6"}),
    ],
)
def test_the_families_of_a_day(history: CatalogHistory, day: date, there: set[str], not_there: set[str]) -> None:
    found = states(history.on(day))
    assert there <= set(found)
    assert not not_there & set(found)


def test_trn1_was_in_preview_before_it_was_available(history: CatalogHistory) -> None:
    assert states(history.on(date(2022, 2, 17)))["trn1"] == "preview"
    assert states(history.on(date(2023, 6, 7)))["trn1"] == "available"


def test_elastic_inference_was_closed_to_new_customers(history: CatalogHistory) -> None:
    service = next(each for each in history.reference.services if each.id == "elastic-inference")
    assert service.state_on(date(2023, 4, 14)) == "available"
    assert service.state_on(date(2023, 6, 7)) == "closed_to_new"


def test_all_cards_are_there_and_parts_of_cards_as_rows_of_their_own(history: CatalogHistory) -> None:
    gpus = history.reference.gpus.values()
    assert sum(gpu.partition_of is None for gpu in gpus) == 148
    parts = [gpu for gpu in gpus if gpu.partition_of]
    assert {gpu.partition_of for gpu in parts} >= {"l4-24gb", "a10-24gb", "a100-sxm4-40gb"}
    assert all(0 < gpu.fraction < 1 for gpu in parts)


def test_the_accelerated_types_of_ec2_are_there_with_a_few_that_have_no_gpu(history: CatalogHistory) -> None:
    ec2 = [kind for kind in history.instance_types if kind.service == "ec2"]
    assert sum(kind.gpu is not None for kind in ec2) == 103
    assert 15 <= sum(kind.gpu is None for kind in ec2) <= 40
    twins = [kind for kind in history.instance_types if kind.service == "sagemaker"]
    assert {kind.family for kind in twins} >= {"ml.p3", "ml.g4dn", "ml.g5", "ml.p4d"}


def test_many_sellers_are_there(history: CatalogHistory) -> None:
    sellers = {kind.provider for kind in history.instance_types}
    assert sellers >= {
        "aws", "azure", "gcp", "lambda", "runpod", "oci", "nebius", "coreweave", "verda", "hyperstack",
        "vast", "autodl",
    }  # fmt: skip


@cache
def levels() -> list[tuple[str, str, str]]:
    return [
        ("a10g-24gb", "fp64", "reduced"),
        ("t4-16gb", "fp64", "reduced"),
        ("gtx-1080-ti-11gb", "fp16", "reduced"),
        ("titan-xp-12gb", "fp16", "reduced"),
        ("p100-pcie-16gb", "fp16", "native"),
        ("t4-16gb", "bf16", "none"),
        ("v100-sxm2-16gb", "bf16", "none"),
        ("v100-sxm2-16gb", "tf32", "none"),
        ("v100-sxm2-16gb", "fp64", "native"),
        ("v100-sxm2-16gb", "int8", "native"),
        ("t4-16gb", "int8", "accelerated"),
        ("a10g-24gb", "bf16", "accelerated"),
        ("a100-sxm4-40gb", "fp64", "accelerated"),
        ("h100-sxm5-80gb", "fp8", "accelerated"),
        ("a100-sxm4-40gb", "fp8", "none"),
    ]


@pytest.mark.parametrize(("gpu", "precision", "level"), levels())
def test_how_well_a_card_runs_a_precision(history: CatalogHistory, gpu: str, precision: str, level: str) -> None:
    assert history.reference.gpus[gpu].rates[precision].support == level


def test_before_ampere_no_nvidia_card_has_bf16_or_tf32(history: CatalogHistory) -> None:
    old = {"fermi", "kepler", "kepler-2-0", "maxwell", "maxwell-2-0", "pascal", "volta", "turing"}
    cards: list[Gpu] = [gpu for gpu in history.reference.gpus.values() if gpu.architecture in old]
    assert len(cards) > 20
    assert {gpu.rates[name].support for gpu in cards for name in ("bf16", "tf32")} == {"none"}


def test_flash_attention_and_the_fifth_pcie_are_facts_of_the_seed(history: CatalogHistory) -> None:
    gpus = history.reference.gpus.values()
    without = {gpu.architecture for gpu in gpus if not gpu.has_flash_attention}
    assert without == {"fermi", "kepler", "maxwell", "pascal", "turing", "volta"}
    newest = {gpu.architecture for gpu in gpus if gpu.pcie_generation == 5}
    assert newest == {"hopper", "blackwell", "blackwell-ultra", "cdna-3", "cdna-4"}


def test_a_bare_a100_names_several_cards_and_there_is_no_t100(history: CatalogHistory) -> None:
    aliases = history.reference.gpu_aliases
    assert {"a100-sxm4-40gb", "a100-sxm4-80gb"} <= set(aliases["a100"])
    assert "t100" not in aliases


@pytest.mark.parametrize(
    ("spelling", "ids"),
    [
        ("GTX-1080Ti-11GB", {"gtx-1080-ti-11gb"}),
        ("B200 192 GB", {"b200-sxm-180gb"}),
        ("NVIDIA_H800-SXM5_80GB", {"h800-sxm5-80gb"}),
        ("A100-80G", {"a100-sxm4-80gb", "a100-pcie-80gb"}),
        ("RTX-Pro-6000-Blackwell-96GB", {"rtx-pro-6000-workstation-96gb", "rtx-pro-6000-server-96gb"}),
    ],
)
def test_gpus_are_spelt_in_many_ways(history: CatalogHistory, spelling: str, ids: set[str]) -> None:
    assert set(resolve_gpus([spelling], history.on(date(2026, 11, 22)))) == ids


def test_no_gpu_is_taken_for_one_of_another_memory_size(history: CatalogHistory) -> None:
    with pytest.raises(UnknownName, match="No GPU is called 'A100-60GB'") as caught:
        resolve_gpus(["A100-60GB"], history.on(date(2026, 11, 22)))
    assert caught.value.near[0].startswith("a100")


@pytest.mark.parametrize(
    ("instance", "day", "usd"),
    [
        ("g2.2xlarge", date(2017, 8, 1), 0.65),
        ("p2.xlarge", date(2017, 8, 1), 0.90),
        ("g3.4xlarge", date(2017, 8, 1), 1.14),
        ("p3.2xlarge", date(2018, 9, 1), 3.06),
        ("g5.xlarge", date(2022, 2, 17), 1.006),
        ("p4d.24xlarge", date(2023, 6, 7), 32.7726),
        ("p4d.24xlarge", date(2026, 11, 21), 21.957642),
    ],
)
def test_what_a_machine_cost_on_a_day(history: CatalogHistory, instance: str, day: date, usd: float) -> None:
    catalog = history.on(day)
    offers = [catalog.offers.offer(place) for place in catalog.offers_of(catalog.index_of[f"aws/{instance}"])]
    found = [o.price for o in offers if o.region == "us-east-1" and o.market == "on_demand"]
    assert [price.listed[0] for price in found] == [round(usd * 1_000_000)]
    assert found[0].usd_per_hour == pytest.approx(usd, rel=0.01)


@pytest.mark.parametrize("provider", ["aws", "azure", "gcp", "lambda", "runpod", "vast"])
def test_large_sellers_have_prices_of_the_last_half_year_without_any_feed(
    history: CatalogHistory, provider: str
) -> None:
    catalog = history.on(date(2026, 11, 22))
    offers = catalog.offers
    of_provider = [each.provider == provider and each.gpu is not None for each in catalog.instance_types]
    recent = np.array(of_provider)[offers.instance_type] & ~offers.old
    assert recent.sum() >= 5


def test_prices_of_autodl_are_unknown_with_a_reason_and_its_hosts_scale_with_the_count(history: CatalogHistory) -> None:
    catalog = history.on(date(2022, 3, 4))
    places = [place for place, kind in enumerate(catalog.instance_types) if kind.provider == "autodl"]
    assert places
    for place in places:
        for offer in catalog.offers_of(place):
            price = catalog.offers.offer(offer).price
            assert price.usd_per_hour is None
            assert price.note
    regions = {region.id: region for region in history.reference.regions if region.provider == "autodl"}
    assert {cpu.cpu_model for cpu in regions["inner-mongolia-a"].cpus} == {"AMD EPYC 7543", "AMD EPYC 7763"}


def test_part_of_a_card_counts_as_its_fraction(history: CatalogHistory) -> None:
    catalog = history.on(date(2026, 11, 21))
    small = catalog.instance_types[catalog.index_of["aws/g6f.large"]]
    assert small.whole_gpus == 0.125
    assert small.gpu is not None
    assert small.gpu.partition_of == "l4-24gb"


def test_every_precision_has_a_number_format_of_its_size(history: CatalogHistory) -> None:
    assert history.reference.precisions.keys() == FORMATS.keys()
    for precision in history.reference.precisions.values():
        assert precision.bits <= FORMATS[precision.id].stored_bits < precision.bits + 1  # block scales take the rest


def test_rules_say_where_every_stack_runs_that_a_request_may_name(history: CatalogHistory) -> None:
    with_rules = software_names(history.on(date(2026, 11, 1)))
    without = {stack.id for stack in STACKS if not software_name(stack.id, with_rules)}
    of_published_runs = {"mlperf-training", "mlperf-serving", "early-vllm", "early-pytorch-ngc", "pytorch-1", "hai-llm"}
    assert without == of_published_runs, "any other stack needs rows in seed/software_support.csv"


def test_published_runs_are_there_with_their_sources(history: CatalogHistory) -> None:
    known = history.reference
    assert len(known.published_runs) == 3933
    assert {run.source for run in known.published_runs} <= set(known.sources)
    assert {run.kind for run in known.published_runs} == set(RUN_KINDS)
    assert {run.framework for run in known.published_runs} - {None} <= {stack.id for stack in STACKS}
    assert history.on(date(2015, 12, 31)).published_runs == ()
    assert len(history.on(date(2026, 11, 24)).published_runs) == 3933


def test_every_diffusion_model_says_how_many_layers_it_starts(history: CatalogHistory) -> None:
    """The U-Net of Stable Diffusion XL starts 15 times as many kernels as ResNet-50, which a network without a number
    is taken to be.
    """
    diffusion = [model for model in history.reference.models.values() if model.family == "diffusion"]
    assert all(model.weight_layers for model in diffusion)
    assert history.reference.models["stable-diffusion-xl"].weight_layers == 794
    assert history.reference.models["resnet-50"].weight_layers == 54


def test_segmentation_has_its_values_counted(history: CatalogHistory) -> None:
    """SegFormer B0 trains on two images in 2.1 GB (MMSegmentation), of which 1.3 GB are values of 32 bits."""
    models = history.reference.models
    assert 8 * saved_values(models["segformer-b0"]) == pytest.approx(1.3e9, rel=0.03)
    assert [models[f"segformer-b{size}"].weight_layers for size in range(6)] == [64, 64, 119, 203, 294, 371]
    assert written_values(models["unet3d"]) == pytest.approx(452.8e6)


def test_the_work_of_a_detector_is_that_of_an_image_of_coco(history: CatalogHistory) -> None:
    """180 billion multiply-accumulates of Faster R-CNN (arXiv 2005.12872, table 1). On any image, RetinaNet on
    ResNet-50 does as much work for a value as it does on 800x800: 303 GFLOPs for 187 million values.
    """
    models = history.reference.models
    assert network_flops(models["faster-rcnn-resnet50-fpn"]) == pytest.approx(2 * 180e9, rel=0.02)
    retinanet = models["retinanet-resnet50-fpn"]
    assert network_flops(retinanet) / written_values(retinanet) == pytest.approx(303.08e9 / 187e6, rel=0.01)
    assert network_flops(models["mlperf-ssd"]) == pytest.approx(403e9)


def test_every_network_with_rdma_has_a_name(history: CatalogHistory) -> None:
    catalog = history.on(date(2026, 11, 1))
    providers = {each.provider for each in catalog.instance_types if each.rdma}
    assert len(providers) > 5
    assert {catalog.reference.providers[provider].rdma_fabric for provider in providers} <= RDMA_FABRICS.keys()
