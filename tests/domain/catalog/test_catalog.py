"""Instance types and offers as columns: their order, unknown values, and the facts of the day."""

from dataclasses import replace
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.columns import Category
from service.domain.catalog.reference import Region
from tests.builders.catalogs import catalog, provider, software_rule
from tests.builders.gpus import gpu, rate
from tests.builders.instance_types import instance_type
from tests.builders.offers import priced
from tests.builders.sources import SOURCE

P4D = instance_type("p4d.24xlarge")
M5 = instance_type("m5.large", gpu=None, vcpus=2.0, network_gbps=None, rdma=None)


def test_offers_of_a_type_start_with_the_cheapest_on_demand_and_end_with_reserved_and_unknown_prices() -> None:
    offers = catalog(
        priced(P4D, 1.0, market="reserved", term="1yr_all"),
        priced(P4D, 3.0, market="spot"),
        priced(P4D, None, region="us-west-2"),
        priced(P4D, 32.0, region="us-west-2", zone="us-west-2a"),
        priced(P4D, 30.0),
    ).offers
    order = [(offers.offer(index).market, offers.offer(index).price.usd_per_hour) for index in range(len(offers))]
    assert order == [
        ("on_demand", 30.0),
        ("on_demand", 32.0),
        ("spot", 3.0),
        ("on_demand", None),
        ("reserved", 1.0),
    ]


def test_the_default_offer_is_the_first_one_without_a_commitment() -> None:
    known = catalog(
        priced(M5, 0.1, market="reserved", term="1yr_all"),
        priced(P4D, 30.0),
        priced(P4D, 20.0, region="us-west-2"),
        instance_types=[instance_type("p5.48xlarge")],
    )
    assert [each.name for each in known.instance_types] == ["m5.large", "p4d.24xlarge", "p5.48xlarge"]
    reserved_only, cheapest, without_offer = known.default_offers.tolist()
    assert (reserved_only, without_offer) == (-1, -1)
    assert known.offers.offer(cheapest).price.usd_per_hour == 20.0
    assert catalog(instance_types=[P4D]).default_offers.tolist() == [-1]


def test_prices_at_indices_are_unknown_where_there_is_no_offer() -> None:
    offers = catalog(priced(P4D, 30.0), priced(P4D, None, region="us-west-2")).offers
    assert offers.usd_per_hour_at(np.array([-1, 0, 1])).tolist() == pytest.approx([np.nan, 30.0, np.nan], nan_ok=True)
    assert np.isnan(catalog(instance_types=[P4D]).offers.usd_per_hour_at(np.array([-1]))).all()


def test_unknown_figures_and_flags_are_marked_in_their_columns() -> None:
    columns = catalog(instance_types=[M5, P4D]).columns
    assert columns.numbers["network_gbps"].tolist() == pytest.approx([np.nan, 400.0], nan_ok=True)
    assert columns.flags["rdma"].tolist() == [-1, 1]
    assert columns.words["gpu"].codes.tolist() == [-1, 0]
    assert columns.numbers["gpu_count"].tolist() == [0.0, 8.0]


def test_the_country_of_an_offer_is_that_of_its_own_sellers_region() -> None:
    other = instance_type("gpu-1", provider="acme")
    known = catalog(
        priced(P4D, 30.0, region="north"),
        priced(P4D, 31.0, region="south"),
        priced(P4D, 32.0, region=None),
        priced(other, 1.0, region="north"),
        regions=(
            Region("acme", "north", None, "NO", "europe", SOURCE, ()),
            Region("aws", "north", None, "CA", "north america", SOURCE, ()),
            Region("aws", "south", None, None, None, SOURCE, ()),
        ),
    )
    countries, prices = known.offer_words["country"], known.offers.usd_per_hour.tolist()
    found = {prices[row]: code < 0 or countries.words[code] for row, code in enumerate(countries.codes.tolist())}
    assert found == {1.0: "NO", 30.0: "CA", 31.0: True, 32.0: True}  # True: unknown
    assert known.offer_words["continent"].among(["europe"]).tolist() == [True, False, False, False]


def test_a_class_of_sellers_is_unknown_where_the_provider_has_none() -> None:
    other = instance_type("gpu-1", provider="acme")
    providers = {"aws": provider("aws", seller_class="hyperscaler"), "acme": provider("acme")}
    assert catalog(instance_types=[P4D, other], providers=providers).columns.words["seller_class"].codes.tolist() == [
        -1,
        0,
    ]


def test_peaks_are_those_of_all_gpus_of_a_machine() -> None:
    card = gpu(rates=[rate("bf16", dense_tflops=312.0), rate("fp64", None, None)])
    columns = catalog(instance_types=[instance_type(gpu=card, gpu_count=8)]).columns
    assert columns.tflops["bf16"].tolist() == [2496.0]
    assert np.isnan(columns.tflops["fp64"]).all()
    assert columns.support["fp64"].tolist() == [-1]


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (["a"], [True, False, False, True]),
        (["a", "c"], [True, False, True, True]),
        (["absent"], [False] * 4),
        (["absent", "c"], [False, False, True, False]),
        ([], [False] * 4),
    ],
)
def test_a_category_finds_words_and_never_the_unknown(wanted: list[str], where: list[bool]) -> None:
    assert Category.of(["a", None, "c", "a"]).among(wanted).tolist() == where


def test_software_rules_hold_only_in_their_days() -> None:
    rules = (
        software_rule("pytorch", valid_from=date(2024, 6, 2)),
        software_rule("tensorflow", valid_to=date(2024, 6, 1)),
        software_rule("jax"),
    )
    known = catalog(instance_types=[P4D], software=rules)
    assert [rule.software for rule in known.software] == ["jax"]


def test_the_span_of_observations_leaves_out_prices_without_a_day() -> None:
    days = date(2024, 5, 20), None, date(2023, 1, 1)
    known = catalog(*(priced(region=f"r{index}", observed_on=day) for index, day in enumerate(days)))
    assert known.observed_span == (date(2023, 1, 1), date(2024, 5, 20))
    assert catalog(priced(observed_on=None)).observed_span == (None, None)
    assert int(known.undated.sum()) == 1


def test_a_catalog_with_assumed_hosts_is_the_one_of_such_types() -> None:
    """Unknown figures of types with GPUs are assumed, and what was computed before is the same for the new types."""
    known, unknown = instance_type("known", vcpus=96.0), instance_type("unknown", vcpus=None, memory_gib=None)
    given = catalog(priced(known, 30.0), priced(unknown, 20.0), priced(M5, 0.1))
    names = [name for name, value in vars(Catalog).items() if isinstance(value, cached_property)]
    before = {name: plain(getattr(given, name)) for name in names}
    hosted = given.with_hosts(8.0, None)
    vcpus = {each.name: each.vcpus for each in hosted.instance_types}
    assert vcpus == {"known": 96.0, "unknown": 64.0, "m5.large": 2.0}
    at = hosted.index_of["aws/unknown"]
    assert (hosted.columns.numbers["vcpus"][at], hosted.instance_types[at].memory_gib) == (64.0, None)
    computed_again = replace(hosted)
    for name in names:
        np.testing.assert_equal(plain(getattr(hosted, name)), before[name])
        np.testing.assert_equal(plain(getattr(computed_again, name)), before[name])


def plain(value: Any) -> Any:
    """A cached value of a catalog in a form that numpy compares, with NaN equal to NaN."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return (value.codes, value.words) if isinstance(value, Category) else value
