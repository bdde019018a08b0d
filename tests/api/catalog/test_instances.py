"""GET /instances and its neighbours: every filter leaves just what it says, in the order asked for."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import all_items, get_json, names, offers_of

Item = dict[str, Any]
Predicate = Callable[[Item], bool]
ANY_STATE = "/instances?lifecycle=announced,preview,available,closed_to_new,retired"
RUNS = ("accelerated", "native")


def gpu(item: Item, name: str) -> Any:
    return item["gpu"][name] if item["gpu"] else None


def runs(item: Item, precision: str, levels: tuple[str, ...] = RUNS) -> bool:
    if not item["gpu"]:  # the vector units of CPUs hold fp64 as well as fp32
        return precision in ("fp32", "fp64") and item["cpu_fp32_tflops"] is not None and "native" in levels
    return item["gpu"]["precisions"].get(precision, {}).get("support") in levels


def whole_gpus(item: Item) -> float:
    return item["gpu"]["count"] * item["gpu"]["fraction"] if item["gpu"] else 0


def vcpus_per_gpu(item: Item) -> float | None:
    return item["vcpus"] / item["gpu"]["count"] if item["vcpus"] is not None and item["gpu"] else None


def tflops(item: Item, precision: str) -> float | None:
    peak = item["gpu"]["precisions"].get(precision, {}).get("tflops") if runs(item, precision) else None
    return None if peak is None else peak * item["gpu"]["count"]


def usd_per_hour(item: Item) -> float | None:
    return item["price"]["usd_per_hour"] if item["price"] else None


NUMBERS: dict[str, Callable[[Item], float | None]] = {
    "gpu_count": whole_gpus,
    "gpu_memory_gb": lambda item: gpu(item, "memory_gb"),
    "total_gpu_memory_gb": lambda item: gpu(item, "total_memory_gb"),
    "tensor_core_generation": lambda item: gpu(item, "tensor_core_generation"),
    "vcpus": lambda item: item["vcpus"],
    "memory_gib": lambda item: item["memory_gib"],
    "network_gbps": lambda item: item["network_gbps"],
    "local_storage_gb": lambda item: item["local_storage_gb"],
    "memory_bandwidth_gb_per_second": lambda item: gpu(item, "memory_bandwidth_gb_per_second"),
}


def within(side: str, name: str, limit: float) -> Predicate:
    def passes(item: Item) -> bool:
        value = NUMBERS[name](item)
        return value is not None and (value >= limit if side == "min" else value <= limit)

    return passes


FILTERS: dict[str, Predicate] = {
    "provider=aws": lambda item: item["provider"] == "aws",
    "provider=AWS": lambda item: item["provider"] == "aws",
    "provider=aws,gcp": lambda item: item["provider"] in ("aws", "gcp"),
    "provider=aws&provider=gcp": lambda item: item["provider"] in ("aws", "gcp"),
    "instance=g5.xlarge,aws/p4d.24xlarge": lambda item: item["name"] in ("g5.xlarge", "p4d.24xlarge"),
    "service=sagemaker": lambda item: item["service"] == "sagemaker",
    "family=g5": lambda item: item["family"] == "g5",
    "gpu=t4-16gb": lambda item: gpu(item, "id") == "t4-16gb",
    "gpu=T4": lambda item: gpu(item, "id") == "t4-16gb",
    "gpu=a100": lambda item: str(gpu(item, "id")).startswith("a100"),
    "gpu_vendor=amd,intel": lambda item: gpu(item, "vendor") in ("amd", "intel"),
    "gpu_kind=npu": lambda item: gpu(item, "kind") == "npu",
    "architecture=ampere": lambda item: gpu(item, "architecture") == "ampere",
    "cpu_architecture=arm64": lambda item: item["cpu"]["architecture"] == "arm64",
    "cpu_vendor=amd": lambda item: item["cpu"]["vendor"] == "amd",
    "interconnect=nvswitch": lambda item: gpu(item, "interconnect") == "nvswitch",
    "interconnect=nvlink": lambda item: gpu(item, "interconnect") in ("nvlink", "nvswitch"),
    "lifecycle=retired,closed_to_new": lambda item: item["lifecycle"] in ("retired", "closed_to_new"),
    "rdma=true": lambda item: item["rdma"] is True,
    "rdma=false": lambda item: item["rdma"] is False,
    "gpudirect_rdma=true": lambda item: item["gpudirect_rdma"] is True,
    "bare_metal=true": lambda item: item["bare_metal"] is True,
    "precision=bf16": lambda item: runs(item, "bf16"),
    "precision=bf16,fp64": lambda item: runs(item, "bf16") and runs(item, "fp64"),
    "precision=fp8&precision_support=accelerated": lambda item: runs(item, "fp8", ("accelerated",)),
    "precision=fp64&precision_support=any": lambda item: runs(item, "fp64", (*RUNS, "reduced")),
    "q=A10G": lambda item: str(gpu(item, "id")).startswith("a10g"),
    "q=aws g5 48xlarge": lambda item: item["provider"] == "aws" and "g5" in item["name"] and "48xl" in item["name"],
    "q=EFA": lambda item: item["provider"] == "aws" and item["rdma"] is True,
    "q=h100 InfiniBand": lambda item: (
        item["provider"] in ("azure", "coreweave", "crusoe", "nebius", "voltage-park")
        and item["rdma"] is True
        and str(gpu(item, "id")).startswith("h100")
    ),
    "q=nvswitch": lambda item: gpu(item, "interconnect") == "nvswitch",
    "min_vcpus=8&max_vcpus=16&provider=aws": lambda item: (
        item["provider"] == "aws" and item["vcpus"] is not None and 8 <= item["vcpus"] <= 16
    ),
    "min_tflops=1000&precision=bf16": lambda item: (tflops(item, "bf16") or 0) >= 1000,
    "max_tflops=100&precision=bf16": lambda item: 0 < (tflops(item, "bf16") or 0) <= 100,
    "max_vcpus_per_gpu=4": lambda item: vcpus_per_gpu(item) is not None and (vcpus_per_gpu(item) or 0) <= 4,
    "min_vcpus_per_gpu=48": lambda item: (vcpus_per_gpu(item) or 0) >= 48,
    **{
        f"{side}_{name}={value}": within(side, name, value)
        for name in NUMBERS
        for side in ("min", "max")
        for value in (1, 16, 96, 800)
    },
}


@cache
def every_instance(client: TestClient) -> tuple[Item, ...]:
    return tuple(all_items(client, "/instances"))


@pytest.mark.parametrize("query", FILTERS)
def test_a_filter_leaves_just_what_it_says(client: TestClient, query: str) -> None:
    every = all_items(client, ANY_STATE) if "lifecycle" in query else list(every_instance(client))
    expected = names([item for item in every if FILTERS[query](item)])
    assert names(all_items(client, f"/instances?{query}")) == expected


def test_most_filters_of_this_table_leave_some_and_not_all(client: TestClient) -> None:
    totals = [get_json(client, f"/instances?limit=1&{query}")["total"] for query in FILTERS]
    telling = [total for total in totals if 0 < total < len(every_instance(client))]
    assert len(telling) > 0.8 * len(totals)


def test_by_default_a_list_shows_what_is_in_use(client: TestClient) -> None:
    states = {item["lifecycle"] for item in every_instance(client)}
    assert "available" in states
    assert states <= {"available", "closed_to_new", "preview"}


# Offers


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        ("region=us-east-1", lambda price: price["region"] == "us-east-1"),
        ("region=us-east-1,eu-west-1", lambda price: price["region"] in ("us-east-1", "eu-west-1")),
        ("market=spot", lambda price: price["market"] == "spot"),
        ("region=us-east-1&market=spot", lambda price: price["region"] == "us-east-1" and price["market"] == "spot"),
    ],
)
def test_a_filter_of_offers_asks_one_offer_for_all(client: TestClient, query: str, passes: Predicate) -> None:
    offers = [price for price in all_items(client, "/prices") if passes(price)]
    in_use = names(list(every_instance(client)))
    expected = {f"{price['provider']}/{price['instance']}" for price in offers} & in_use
    found = all_items(client, f"/instances?{query}")
    assert names(found) == expected
    assert found
    assert all(passes(item["price"]) for item in found)


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        ("country=JP", lambda region: region["country"] == "JP"),
        ("country=de,fr", lambda region: region["country"] in ("DE", "FR")),
        ("country=United%20Kingdom,usa", lambda region: region["country"] in ("GB", "US")),
        ("continent=Oceania", lambda region: region["continent"] == "oceania"),
        (
            "continent=north%20america&country=CA,JP",
            lambda region: region["continent"] == "north america" and region["country"] == "CA",
        ),
    ],
)
def test_a_filter_of_countries_asks_for_an_offer_in_one_of_their_regions(
    client: TestClient, query: str, passes: Predicate
) -> None:
    known = {(region["provider"], region["id"]): region for region in all_items(client, "/regions")}
    offers = [
        (price["provider"], price["instance"], price["region"])
        for price in all_items(client, "/prices?market=on_demand,spot")
    ]
    there = {f"{seller}/{name}" for seller, name, where in offers if where and passes(known[seller, where])}
    found = all_items(client, f"/instances?{query}")
    assert names(found) == there & names(list(every_instance(client)))
    assert 0 < len(found) < len(every_instance(client))
    assert all(passes(known[item["provider"], item["price"]["region"]]) for item in found)


@pytest.mark.parametrize("seller_class", ["hyperscaler", "neocloud", "marketplace", "reseller"])
def test_a_class_of_sellers_leaves_the_machines_of_its_providers(client: TestClient, seller_class: str) -> None:
    sellers = {each["id"]: each for each in all_items(client, "/providers")}

    def class_of_owner(item: dict[str, Any]) -> str | None:
        suffix = sellers[item["provider"]]["third_party_suffix"]
        of_third_party = suffix is not None and item["name"].endswith(suffix)
        return "marketplace" if of_third_party else sellers[item["provider"]]["seller_class"]

    found = all_items(client, f"/instances?seller_class={seller_class}")
    assert seller_class in {seller["seller_class"] for seller in sellers.values()}
    assert names(found) == names([item for item in every_instance(client) if class_of_owner(item) == seller_class])


def test_machines_of_third_parties_are_of_the_class_marketplace(client: TestClient) -> None:
    found = [item["name"] for item in all_items(client, "/instances?provider=runpod&seller_class=marketplace")]
    assert len(found) > 10
    assert all(name.endswith("_COMMUNITY") for name in found)


def test_the_price_is_the_lowest_on_demand_one(client: TestClient) -> None:
    for item in all_items(client, "/instances?provider=aws,lambda,vast"):
        offers = offers_of(client, f"{item['provider']}/{item['name']}")
        if offers:
            assert item["price"]["usd_per_hour"] == min(each["usd_per_hour"] for each in offers)
            assert item["price"]["market"] == "on_demand"


def test_the_price_limit_asks_for_the_believed_price(client: TestClient) -> None:
    found = names(all_items(client, "/instances?provider=vast,runpod&max_usd_per_hour=0.5"))
    sold = {
        name
        for name in names(all_items(client, "/instances?provider=vast,runpod"))
        if any(
            offer["usd_per_hour"] <= 0.5
            for market in ("on_demand", "spot", "reserved")
            for offer in offers_of(client, name, market)
        )
    }
    assert found == sold
    assert found


def test_names_that_no_provider_takes_in_an_order_are_filtered(client: TestClient) -> None:
    taken, not_taken = (
        names(all_items(client, f"/instances?orderable={flag}&lifecycle=available,closed_to_new,retired"))
        for flag in ("true", "false")
    )
    assert {"aws/p4d.24xlarge", "gcp/a2-highgpu-1g"} <= taken
    assert {"gcp/n1-highmem-16+t4x2", "tensordock/rtx-a4000"} <= not_taken
    assert not any("+" in name for name in taken)


def test_recorded_prices_are_those_that_were_listed(client: TestClient) -> None:
    (listed,) = all_items(client, "/prices?instance=aws/p4d.24xlarge&region=us-east-1&market=on_demand")
    (offer,) = (each for each in offers_of(client, "aws/p4d.24xlarge") if each["region"] == "us-east-1")
    assert offer["listed_usd_per_hour"] == listed["usd_per_hour"]
    assert offer["usd_per_hour_low"] < offer["usd_per_hour"] < offer["usd_per_hour_high"]


def test_a_price_without_a_day_has_no_age(client: TestClient) -> None:
    found = all_items(client, "/instances?max_price_age_days=60")
    assert found
    assert len(found) < len(every_instance(client))
    for item in found:
        assert item["price"]["observed_on"] >= "2026-09-02"


# Order


@pytest.mark.parametrize("column", [*NUMBERS, "usd_per_hour"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_sorting_puts_what_is_not_known_last(client: TestClient, column: str, sign: str) -> None:
    read = NUMBERS.get(column) or usd_per_hour
    values = [read(item) for item in all_items(client, f"/instances?sort={sign}{column}")]
    known = [value for value in values if value is not None]
    assert values[: len(known)] == sorted(known, reverse=sign == "-")
    assert len(values) == len(every_instance(client))


def test_the_name_decides_what_is_even(client: TestClient) -> None:
    for target in ("/instances?sort=vcpus", "/instances?sort=-vcpus"):
        for one, other in pairwise(all_items(client, target)):
            if one["vcpus"] == other["vcpus"]:
                assert (one["provider"], one["name"]) < (other["provider"], other["name"])


def test_columns_are_sorted_by_in_their_order(client: TestClient) -> None:
    items = all_items(client, "/instances?provider=aws&sort=-gpu_count,memory_gib,-name")
    keys = [(-whole_gpus(item), item["memory_gib"], item["name"]) for item in items]
    by_two = [key[:2] for key in keys]
    assert by_two == sorted(by_two)
    for one, other in pairwise(keys):
        assert one[:2] != other[:2] or one[2] > other[2]


def test_sorting_by_rate_and_rate_per_dollar(client: TestClient) -> None:
    items = all_items(client, "/instances?precision=bf16&sort=-tflops&provider=aws")
    rates = [rate for item in items if (rate := tflops(item, "bf16")) is not None]
    assert rates == sorted(rates, reverse=True)
    items = all_items(client, "/instances?precision=bf16&sort=-tflops_per_usd&provider=aws")
    per_usd = [
        rate / item["price"]["usd_per_hour"]
        for item in items
        if item["price"] and item["price"]["usd_per_hour"] and (rate := tflops(item, "bf16"))
    ]
    assert per_usd == sorted(per_usd, reverse=True)


# The promises of the design


def test_on_the_day_of_an_article_bf16_meant_ampere(client: TestClient) -> None:
    items = all_items(client, "/instances?precision=bf16&provider=aws&as_of=2022-02-17")
    families = {item["family"] for item in items}
    assert {"p4d", "g5"} <= families
    assert not families & {"p3", "p3dn", "g4dn", "p2", "g3", "p5", "g6"}


def test_one_in_full(client: TestClient) -> None:
    detail = get_json(client, "/instances/aws/g5.12xlarge")
    assert detail["gpu"]["count"] == 4
    assert detail["precisions"]["bf16"]["support"] == "accelerated"
    assert detail["precisions"]["bf16"]["source"]
    assert {"available"} <= {event["state"] for event in detail["lifecycle_events"]}
    prices = all_items(client, "/prices?instance=g5.12xlarge")
    assert len(detail["offers"]) == len(prices)
    assert sorted(str(offer["usd_per_hour"]) for offer in detail["offers"]) == sorted(
        str(price["usd_per_hour"]) for price in prices
    )
    before = client.get("/instances/aws/g5.12xlarge?as_of=2020-01-01")
    assert before.status_code == 404


def test_evidence_stands_with_its_machine(client: TestClient) -> None:
    evidence = get_json(client, "/instances/aws/g3.4xlarge")["evidence"]
    assert "alexnet-g3-4xlarge-2017" in {each["id"] for each in evidence}
    assert get_json(client, "/instances/aws/g3.4xlarge?as_of=2017-07-31")["evidence"] == []


def test_similar_types_are_the_nearest(client: TestClient) -> None:
    answer = get_json(client, "/instances/aws/g5.12xlarge/similar?limit=20")
    distances = [item["distance"] for item in answer["items"]]
    assert distances == sorted(distances)
    assert len(distances) == 20
    assert "aws/g5.12xlarge" not in names([item["instance"] for item in answer["items"]])
    for item in answer["items"]:
        assert all(change["there"] > change["here"] for change in item["gains"])
        assert all(change["there"] < change["here"] for change in item["loses"])


# GPUs


def test_an_alias_is_answered_with_every_card_it_may_mean(client: TestClient) -> None:
    several = get_json(client, "/gpus/a100")
    assert several["ambiguous"]
    assert {"a100-sxm4-40gb", "a100-sxm4-80gb"} <= {item["id"] for item in several["items"]}
    one = get_json(client, "/gpus/A100-SXM4-40GB")
    assert not one["ambiguous"]
    assert [item["id"] for item in one["items"]] == ["a100-sxm4-40gb"]
    unknown = client.get("/gpus/T100")
    assert unknown.status_code == 404
    assert "t4" in unknown.json()["errors"][0]["near"]


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        ("vendor=amd", lambda item: item["vendor"] == "amd"),
        ("kind=tpu,npu", lambda item: item["kind"] in ("tpu", "npu")),
        ("architecture=hopper", lambda item: item["architecture"] == "hopper"),
        ("min_memory_gb=80", lambda item: (item["memory_gb"] or 0) >= 80),
        (
            "precision=fp8,bf16",
            lambda item: all(item["precisions"].get(name, {}).get("support") in RUNS for name in ("fp8", "bf16")),
        ),
        (
            "precision=fp64&precision_support=any",
            lambda item: item["precisions"].get("fp64", {}).get("support") in (*RUNS, "reduced"),
        ),
    ],
)
def test_a_filter_of_gpus(client: TestClient, query: str, passes: Predicate) -> None:
    every = all_items(client, "/gpus")
    expected = [item["id"] for item in every if passes(item)]
    assert [item["id"] for item in all_items(client, f"/gpus?{query}")] == expected
    assert 0 < len(expected) < len(every)


@pytest.mark.parametrize(
    ("name", "cards"),
    [
        ("GTX 10 series", {"gtx-1070-8gb", "gtx-1080-8gb", "gtx-1080-ti-11gb"}),
        ("HPU", {"gaudi-32gb", "gaudi2-96gb", "gaudi3-128gb"}),
    ],
)
def test_the_name_of_a_series_means_each_of_its_cards(client: TestClient, name: str, cards: set[str]) -> None:
    assert {item["id"] for item in get_json(client, f"/gpus/{name}")["items"]} == cards


def test_a_search_finds_the_cpu_of_a_machine_and_that_of_a_region(client: TestClient) -> None:
    of_machines = all_items(client, "/instances?q=EPYC 7R32&as_of=2022-02-17")
    assert {item["family"] for item in of_machines} == {"g4ad", "g5"}
    of_regions = all_items(client, "/instances?q=epyc 7763&provider=autodl&as_of=2022-03-04")
    assert {item["gpu"]["id"] for item in of_regions} == {"a100-sxm4-40gb", "a100-sxm4-80gb"}


def test_the_place_in_the_brackets_of_a_name_finds_the_region(client: TestClient) -> None:
    by_place, by_id = (
        all_items(client, f"/instances?provider=aws&region={region}") for region in ("frankfurt", "eu-central-1")
    )
    assert names(by_place) == names(by_id) != set()


def test_gpus_that_do_not_run_a_precision_come_behind_those_of_unknown_rate(client: TestClient) -> None:
    gpus = all_items(client, "/gpus?provider=autodl&sort=-fp16_tflops&as_of=2022-03-04")
    assert [item["id"] for item in gpus[-3:]] == ["mlu270-16gb", "gtx-1080-ti-11gb", "titan-xp-12gb"]


def test_a_place_on_the_timeline_is_a_filter_and_a_column(client: TestClient) -> None:
    newest = all_items(client, "/gpus?min_released_year=2022&max_released_year=2022&sort=-released_on,id")
    days = [item["released_on"] for item in newest]
    assert days == sorted(days, reverse=True)
    assert {day[:4] for day in days} == {"2022"}
    later = all_items(client, "/instances?provider=aws&service=ec2&min_launched_year=2021&as_of=2022-02-17")
    every = all_items(client, "/instances?provider=aws&service=ec2&as_of=2022-02-17")
    assert names(later) == names([item for item in every if (item["launched_on"] or "") >= "2021"]) != set()
    fifth = all_items(client, "/instances?letters=g&min_generation=5&service=ec2&as_of=2022-02-17")
    assert {item["family"] for item in fifth} == {"g5", "g5g"}


def test_a_type_shows_its_hypervisor_and_what_supersedes_it(client: TestClient) -> None:
    p2, p3dn, metal = (
        get_json(client, f"/instances/aws/{name}?as_of=2022-02-17")
        for name in ("p2.xlarge", "p3dn.24xlarge", "g4dn.metal")
    )
    assert [each["hypervisor"] for each in (p2, p3dn, metal)] == ["xen", "nitro", "none"]
    assert p2["superseded_by"] == "aws/g4dn.xlarge"
    assert p3dn["superseded_by"] is None


def test_gpus_of_a_provider_are_those_it_rents_out(client: TestClient) -> None:
    rented = {item["gpu"]["id"] for item in all_items(client, f"{ANY_STATE}&provider=aws") if item["gpu"]}
    assert {item["id"] for item in all_items(client, "/gpus?provider=aws")} == rented


@pytest.mark.parametrize("sign", ["", "-"])
def test_gpus_in_order(client: TestClient, sign: str) -> None:
    items = all_items(client, f"/gpus?sort={sign}memory_gb,id")
    known = [item["memory_gb"] for item in items if item["memory_gb"] is not None]
    assert [item["memory_gb"] for item in items][: len(known)] == sorted(known, reverse=sign == "-")
    for one, other in pairwise(items):
        assert one["memory_gb"] != other["memory_gb"] or one["id"] < other["id"]


# Prices


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        ("provider=aws", lambda item: item["provider"] == "aws"),
        ("instance=g5.xlarge", lambda item: item["instance"] == "g5.xlarge"),
        ("region=us-east-1,eu-west-1", lambda item: item["region"] in ("us-east-1", "eu-west-1")),
        ("market=spot", lambda item: item["market"] == "spot"),
    ],
)
def test_a_filter_of_prices(client: TestClient, query: str, passes: Predicate) -> None:
    every = all_items(client, "/prices")
    expected = [item for item in every if passes(item)]
    assert all_items(client, f"/prices?{query}") == expected
    assert 0 < len(expected) < len(every)


def test_prices_of_a_zone(client: TestClient) -> None:
    every = all_items(client, "/prices")
    zone = next(item["zone"] for item in every if item["zone"])
    assert all_items(client, f"/prices?zone={zone}") == [item for item in every if item["zone"] == zone]


def test_prices_of_a_day_are_those_in_force(client: TestClient) -> None:
    history = all_items(client, "/prices?provider=aws&from=2006-01-01")
    for day in ("2019-06-01", "2022-02-17", "2026-10-01"):
        begun = [item for item in history if item["valid_from"] <= day]
        in_force = [item for item in begun if item["valid_to"] is None or item["valid_to"] > day]
        found = all_items(client, f"/prices?provider=aws&as_of={day}")
        assert found == in_force


def test_history_is_what_overlaps_the_span(client: TestClient) -> None:
    every = all_items(client, "/prices?provider=aws&from=2006-01-01")
    assert len(every) > len(all_items(client, "/prices?provider=aws"))
    found = all_items(client, "/prices?provider=aws&from=2019-01-01&to=2021-01-01")
    assert found == [
        item
        for item in every
        if item["valid_from"] <= "2021-01-01" and (item["valid_to"] is None or item["valid_to"] > "2019-01-01")
    ]
    assert found
    assert all_items(client, "/prices?provider=aws&from=2006-01-01&as_of=2015-01-01") == [
        item for item in every if item["valid_from"] <= "2015-01-01"
    ]


def test_an_unknown_price_is_null_with_its_reason(client: TestClient) -> None:
    unknown = [item for item in all_items(client, "/prices") if item["usd_per_hour"] is None]
    assert unknown
    assert all(item["unknown_because"] for item in unknown)
    assert all(item["unknown_because"] is None for item in all_items(client, "/prices") if item["usd_per_hour"])


# Comparing


def ratios(client: TestClient, query: str) -> dict[str, Any]:
    answer = get_json(client, f"/compare?{query}")
    return {row["instance"].removeprefix("aws/"): row for row in answer["items"]}


def test_the_numbers_of_the_g3_article(client: TestClient) -> None:
    machines = "instance=g2.2xlarge,g3.4xlarge,p2.xlarge&baseline=g2.2xlarge&as_of=2017-08-01"
    rows = ratios(client, f"{machines}&workload=alexnet_train")
    assert {name: round(row["speed_per_cost"], 2) for name, row in rows.items()} == pytest.approx(
        {"g2.2xlarge": 1.0, "g3.4xlarge": 1.72, "p2.xlarge": 1.54}, abs=0.02
    )
    assert rows["g3.4xlarge"]["relative_speed"] == pytest.approx(1089.36 / 363.12)
    assert rows["g3.4xlarge"]["relative_cost"] == pytest.approx(1.14 / 0.65)
    assert rows["g3.4xlarge"]["batch_size"] == 512
    assert {row["basis"] for row in rows.values()} == {"measured"}
    rows = ratios(client, f"{machines}&workload=rnn_train")
    assert rows["g3.4xlarge"]["relative_speed"] == pytest.approx(4177 / 1834)
    assert rows["p2.xlarge"]["relative_speed"] == pytest.approx(2675 / 1834)


PRINTED = {
    "alexnet_train": {
        "g2.2xlarge": (1.0, 1.0, 1.0), "p2.xlarge": (2.14, 1.38, 1.54), "g3.4xlarge": (3.02, 1.75, 1.72),
    },
    "rnn_train": {
        "g2.2xlarge": (1.0, 1.0, 1.0), "p2.xlarge": (1.46, 1.38, 1.05), "g3.4xlarge": (2.28, 1.75, 1.30),
    },
}  # fmt: skip
"""Relative speed, relative cost and speed per cost, as the article prints them."""


@pytest.mark.parametrize("workload", PRINTED)
def test_the_tables_of_the_g3_article_to_the_printed_digit(client: TestClient, workload: str) -> None:
    """3.02 and 1.72 of AlexNet on G3 the article has from seconds it does not print: 1.41 / 0.47 is 3.00."""
    machines = "instance=g2.2xlarge,p2.xlarge,g3.4xlarge&baseline=g2.2xlarge&as_of=2017-08-01"
    rows = ratios(client, f"{machines}&workload={workload}")
    for name, printed in PRINTED[workload].items():
        row = rows[name]
        found = tuple(round(row[key], 2) for key in ("relative_speed", "relative_cost", "speed_per_cost"))
        if (workload, name) == ("alexnet_train", "g3.4xlarge"):
            assert found == pytest.approx(printed, abs=0.021)
            assert 1.405 / 0.475 <= printed[0] <= 1.415 / 0.465
        else:
            assert found == printed


def test_samples_per_dollar_of_the_g3_article(client: TestClient) -> None:
    rows = ratios(client, "instance=g2.2xlarge,p2.xlarge,g3.4xlarge&workload=alexnet_train&as_of=2017-08-01")
    found = {name: row["samples_per_usd"] for name, row in rows.items()}
    assert found == pytest.approx({"g2.2xlarge": 2_011_129, "p2.xlarge": 3_103_030, "g3.4xlarge": 3_440_090}, rel=1e-4)


def test_what_was_not_measured_has_no_ratio_and_a_note(client: TestClient) -> None:
    answer = get_json(client, "/compare?instance=g3.4xlarge,g5.xlarge&workload=alexnet_train")
    assert answer["items"][1]["relative_speed"] is None
    assert "aws/g5.xlarge" in answer["notes"][0]


def test_without_a_workload_peaks_are_compared(client: TestClient) -> None:
    rows = ratios(client, "instance=g5.xlarge,p4d.24xlarge&baseline=g5.xlarge&precision=bf16&region=us-east-1")
    fast, slow = rows["p4d.24xlarge"], rows["g5.xlarge"]
    assert {row["basis"] for row in rows.values()} == {"peak"}
    assert fast["relative_speed"] == pytest.approx(fast["speed"] / slow["speed"])
    assert fast["relative_cost"] == pytest.approx(fast["usd_per_hour"] / slow["usd_per_hour"])
    assert fast["speed_per_cost"] == pytest.approx(fast["relative_speed"] / fast["relative_cost"])
    assert fast["price"]["region"] == slow["price"]["region"] == "us-east-1"


def test_a_measured_machine_is_compared_with_its_data_sheet(client: TestClient) -> None:
    answer = get_json(
        client, "/compare?instance=g2.2xlarge,g3.4xlarge&baseline=g2.2xlarge&workload=alexnet_train&as_of=2017-08-01"
    )
    g3 = answer["items"][1]
    assert g3["relative_peak"] == pytest.approx(4.83 / 2.46, rel=0.01)  # TFLOPS in fp32
    assert g3["speed_per_peak"] == pytest.approx(g3["relative_speed"] / g3["relative_peak"])


def test_a_machine_without_a_measurement_still_has_a_relative_cost(client: TestClient) -> None:
    answer = get_json(client, "/compare?instance=g3.4xlarge,p3.2xlarge&workload=alexnet_train&as_of=2018-08-01")
    assert answer["items"][1]["relative_cost"] is not None
    (note,) = answer["notes"]
    assert note.startswith("aws/p3.2xlarge has no measurement")
    assert note.endswith("so its relative speed is unknown.")


def test_the_baseline_need_not_be_among_the_rows(client: TestClient) -> None:
    rows = ratios(client, "instance=g3.4xlarge&baseline=g2.2xlarge&workload=alexnet_train&as_of=2017-08-01")
    assert list(rows) == ["g3.4xlarge"]
    assert rows["g3.4xlarge"]["speed_per_cost"] == pytest.approx(1.72, abs=0.02)


# Successors of GPUs, and FPGAs


def test_a_gpu_names_its_successor_from_the_day_on_which_that_is_out(client: TestClient) -> None:
    def successor(gpu: str, day: str) -> str | None:
        items = get_json(client, f"/gpus/{gpu}?as_of={day}")["items"]
        named: str | None = items[0]["successor"]
        return named

    assert successor("k80-12gb", "2022-02-17") == "p100-pcie-16gb"
    assert successor("t4-16gb", "2022-02-17") is None
    assert successor("t4-16gb", "2023-06-07") == "l4-24gb"
    assert successor("h100-sxm5-80gb", "2024-06-01") is None
    assert successor("h100-sxm5-80gb", "2025-06-01") == "h200-sxm-141gb"


def test_tpus_list_the_slices_of_their_pods_and_services_the_machines_that_they_rent(client: TestClient) -> None:
    slices = {each["id"]: each["slices"] for each in all_items(client, "/gpus?kind=tpu")}
    assert slices["tpu-v5e-16gb"] == [1, 4, 8, 16, 32, 64, 128, 256]
    assert not slices["tpu-v7-192gb"]
    [aws] = all_items(client, "/providers?provider=aws")
    machines = {each["id"]: each["machines"] for each in aws["services"]}
    assert {"g5", "trn2.48xlarge"} <= set(machines["sagemaker-training"])
    assert "g5g" not in machines["sagemaker-training"]
    assert machines["deep-learning-ami"] == []


def test_a_comparison_says_why_a_speed_is_unknown(client: TestClient) -> None:
    answer = get_json(client, "/compare?instance=aws/p5.48xlarge&baseline=aws/p3.16xlarge&precision=bf16")
    assert answer["items"][0]["relative_speed"] is None
    (note,) = answer["notes"]
    assert note.startswith("aws/p3.16xlarge has no bf16: the NVIDIA V100 SXM2 16GB does not run it natively, so no")
    answer = get_json(client, "/compare?instance=aws/p5.48xlarge,aws/c5.2xlarge&precision=bf16")
    assert answer["notes"] == [
        "aws/c5.2xlarge has no GPU whose peak could be compared, so its relative speed is unknown."
    ]


def test_no_chain_of_successors_returns_or_goes_back_in_time(client: TestClient) -> None:
    gpus = {each["id"]: each for each in all_items(client, "/gpus")}
    for gpu in gpus.values():
        if gpu["successor"] is not None:
            newer = gpus[gpu["successor"]]["released_on"]
            assert gpu["released_on"][: len(newer)] <= newer, gpu["id"]
            assert gpu["successor"] != gpu["id"]


def test_fpgas_are_listed_and_do_no_deep_learning(client: TestClient) -> None:
    listed = all_items(client, "/instances?gpu_kind=fpga&as_of=2022-02-17")
    assert {each["name"]: each["gpu"]["count"] for each in listed} == {
        "f1.16xlarge": 8,
        "f1.2xlarge": 1,
        "f1.4xlarge": 2,
    }
    for task in ("training", "inference", "development"):
        assert not all_items(client, f"/instances?gpu_kind=fpga&task={task}&as_of=2022-02-17")


def test_a_name_of_the_path_is_no_near_name_of_a_query_parameter(client: TestClient) -> None:
    answer = client.get("/instances/azure/Standard_NC6/similar?provider=aws")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["near"] == []


# Vocabulary


def test_the_vocabulary_narrows(client: TestClient) -> None:
    assert {each["provider"] for each in all_items(client, "/regions?provider=gcp")} == {"gcp"}
    for name in ("de", "Germany"):
        assert {each["country"] for each in all_items(client, f"/regions?country={name}")} == {"DE"}
    assert {each["continent"] for each in all_items(client, "/regions?continent=Europe")} == {"europe"}
    assert [each["id"] for each in all_items(client, "/frameworks?software=PyTorch")] == ["pytorch"]
    assert "bf16" in {each["id"] for each in all_items(client, "/precisions")}
    aws = next(each for each in all_items(client, "/providers") if each["id"] == "aws")
    assert aws["instance_types"] > 50
    assert any(service["id"].startswith("sagemaker") for service in aws["services"])


# Commitments


def test_a_price_of_a_commitment_is_shown_only_where_it_is_asked_for(client: TestClient) -> None:
    for query in ("", "&max_usd_per_hour=12", "&region=us-east-1", "&sort=usd_per_hour", "&max_price_age_days=60"):
        items = all_items(client, f"/instances?provider=aws{query}")
        assert {item["price"]["market"] for item in items if item["price"]} <= {"on_demand", "spot"}
    reserved = all_items(client, "/instances?provider=aws&market=reserved")
    assert len(reserved) > 5
    assert all(item["price"]["market"] == "reserved" and item["price"]["term"] for item in reserved)
    assert get_json(client, "/instances?instance=aws/g5.xlarge")["items"][0]["price"]["term"] is None


def test_a_limit_is_not_met_by_the_price_of_a_commitment(client: TestClient) -> None:
    for item in all_items(client, "/instances?provider=aws&market=reserved"):
        name, reserved = f"aws/{item['name']}", item["price"]["usd_per_hour"]
        prices = all_items(client, f"/prices?instance={name}&market=on_demand,spot")
        hourly = min((each["usd_per_hour"] for each in prices if each["usd_per_hour"]), default=None)
        if hourly is not None and reserved < hourly:
            break
    else:
        pytest.skip("Spot is cheaper than any commitment in this seed.")
    query = f"/instances?instance={name}&max_usd_per_hour={(reserved + hourly) / 2}"
    assert get_json(client, query)["items"] == []
    assert len(get_json(client, f"{query}&market=reserved")["items"]) == 1


def test_no_choice_commits_to_a_term_unless_it_is_asked(client: TestClient) -> None:
    body = {"workload": {"task": "training", "fault_tolerant": True}, "per": "offer", "limit": 100}
    choices = client.post("/recommend", json=body).json()["choices"]
    assert {choice["market"] for choice in choices} == {"on_demand", "spot"}


def test_every_region_can_be_named_together_with_another(client: TestClient) -> None:
    """Some have commas in their names."""
    for region in all_items(client, "/regions"):
        get_json(client, f"/instances?limit=1&region={region['id']},us-east-1")


def test_facets_count_the_whole_list(client: TestClient) -> None:
    page = get_json(client, "/instances?provider=aws&facets=family,gpu_memory_gb,lifecycle&limit=1")
    items = all_items(client, "/instances?provider=aws")
    columns: dict[str, Callable[[Item], Any]] = {
        "family": lambda item: item["family"],
        "gpu_memory_gb": lambda item: gpu(item, "memory_gb"),
        "lifecycle": lambda item: item["lifecycle"],
    }
    for name, read in columns.items():
        counted = {each["value"]: each["count"] for each in page["facets"][name]}
        assert counted == Counter(read(item) for item in items)
        assert [*counted][:-1] == sorted(value for value in counted if value is not None)[: len(counted) - 1]


def test_facets_are_null_where_none_is_asked_for_and_an_unknown_one_is_refused(client: TestClient) -> None:
    assert get_json(client, "/instances?limit=1")["facets"] is None
    answer = client.get("/instances?facets=gpu_memory")
    assert answer.status_code == 422
    assert "gpu_memory_gb" in answer.json()["errors"][0]["near"]


def test_series_size_and_tensor_cores_leave_what_they_say(client: TestClient) -> None:
    assert {item["family"] for item in all_items(client, "/instances?series=g5&service=ec2")} == {"g5", "g5g"}
    assert {item["name"].rpartition(".")[2] for item in all_items(client, "/instances?size=metal")} == {"metal"}
    for item in all_items(client, "/instances?tensor_cores=true"):
        assert gpu(item, "vendor") == "nvidia"
        assert runs(item, "fp16", ("accelerated",))
    assert "t4-16gb" not in {gpu(item, "id") for item in all_items(client, "/instances?tensor_cores=false")}
    assert {gpu(item, "vendor") for item in all_items(client, "/instances?sparsity=true")} >= {"nvidia", "amd"}
    assert "v100-sxm2-16gb" not in {gpu(item, "id") for item in all_items(client, "/instances?sparsity=true")}


def test_gpus_are_sorted_by_what_they_really_run(client: TestClient) -> None:
    asked = "/gpus?gpu=titan-xp-12gb,v100-sxm2-16gb,a100-sxm4-40gb"
    assert [item["id"] for item in get_json(client, f"{asked}&sort=-fp16_tflops")["items"]] == [
        "a100-sxm4-40gb", "v100-sxm2-16gb", "titan-xp-12gb",
    ]  # fmt: skip
    slow_first = get_json(client, f"{asked}&sort=fp16_tflops&precision_support=any")["items"]
    assert slow_first[0]["id"] == "titan-xp-12gb"
    assert get_json(client, f"{asked}&sort=fp16_tflops")["items"][-1]["id"] == "titan-xp-12gb"
    refused = client.get("/gpus?sort=fp17_tflops")
    assert refused.status_code == 422
    assert "fp16_tflops" in refused.json()["errors"][0]["near"]


def test_a_board_is_the_sum_of_its_gpus(client: TestClient) -> None:
    for item in all_items(client, "/gpus"):
        if (board := item["board"]) is None:
            continue
        for figure in ("memory_gb", "cores", "memory_bandwidth_gb_per_second", "tdp_watts"):
            one = item[figure]
            assert board[figure] == (None if one is None else one * board["gpus"])
    assert {item["id"] for item in all_items(client, "/gpus") if item["board"] and item["board"]["gpus"] > 1} == {
        "a16-16gb", "k520-4gb", "k80-12gb", "m60-8gb", "max-1550-64gb", "mi250-64gb", "mi250x-64gb",
    }  # fmt: skip


def test_cores_at_the_boost_clock_make_the_fp32_rate(client: TestClient) -> None:
    """2 operations per core and cycle; some makers count a dual issue or a matrix unit, which is twice that."""
    for item in all_items(client, "/gpus?vendor=nvidia"):
        peak = item["precisions"].get("fp32", {}).get("dense_tflops")
        if peak and item["cores"] and item["boost_clock_mhz"] and not item["partition_of"]:
            assert 2 * item["cores"] * item["boost_clock_mhz"] / 1e6 == pytest.approx(peak, rel=0.07), item["id"]


@pytest.mark.parametrize(("word", "near"), [("amazon", "Amazon Web Services"), ("google", "Google Cloud")])
def test_a_provider_is_found_by_its_name_and_has_near_names(client: TestClient, word: str, near: str) -> None:
    refused = client.get("/instances", params={"provider": word})
    assert refused.json()["errors"][0]["near"] == [near]
    by_name = client.get("/instances", params={"provider": near, "limit": 5}).json()["items"]
    id_ = {"amazon": "aws", "google": "gcp"}[word]
    assert by_name == client.get("/instances", params={"provider": id_, "limit": 5}).json()["items"]
    for constraint in ("provider", "exclude"):
        question = {"workload": {"task": "training"}, "constraints": {constraint: near}}
        same = {**question, "constraints": {constraint: id_}}
        counts = [client.post("/recommend", json=each).json()["counts"] for each in (question, same)]
        assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("family=G4", "family=g4dn,g4ad"),
        ("family=P4", "family=p4d"),
        ("family=g5", "family=g5"),  # G5g is of the series and no part of the family
        ("cpu_architecture=Arm", "cpu_architecture=arm64"),
        ("cpu_architecture=amd64", "cpu_architecture=x86_64"),
        ("cpu_vendor=Graviton2", "cpu_vendor=aws"),
        ("architecture=NeuronCore V1", "architecture=neuroncore-v1"),
        ("provider=autodl&region=Inner Mongolia", "provider=autodl&region=inner-mongolia-a"),
        ("provider=autodl&region=beijing", "provider=autodl&region=beijing-a"),
    ],
)
def test_filters_take_the_names_that_people_use(client: TestClient, asked: str, meant: str) -> None:
    found, expected = (names(all_items(client, f"/instances?{query}&as_of=2022-03-04")) for query in (asked, meant))
    assert found == expected
    assert found


def test_a_place_means_the_regions_of_every_seller_there(client: TestClient) -> None:
    sellers = {item["provider"] for item in all_items(client, "/instances?region=Tokyo")}
    assert len(sellers) > 1
    assert "autodl" in {item["provider"] for item in all_items(client, "/instances?region=Beijing&as_of=2022-03-04")}


@pytest.mark.parametrize("path", ["aws/P3.2XLARGE", "AWS/p3.2xlarge"])
def test_an_instance_type_is_found_in_capitals(client: TestClient, path: str) -> None:
    assert get_json(client, f"/instances/{path}")["name"] == "p3.2xlarge"
    assert get_json(client, f"/instances/{path}/similar") == get_json(client, "/instances/aws/p3.2xlarge/similar")


@pytest.mark.parametrize(
    ("words", "some", "none"),
    [
        ("us west", {"us-west-2", "us-west1", "westus2", "US-WEST-01"}, {"us-gov-west-1", "us-east-1"}),
        ("US-West", {"us-west-2", "us-west1", "westus2"}, {"us-gov-west-1"}),
        ("West US", {"westus"}, {"westus2", "us-west-2"}),  # the name of one region
        ("us-west-2", {"us-west-2"}, {"us-west1"}),
        ("Europe West", {"westeurope", "europe-west4"}, {"eu-west-1"}),
    ],
)
def test_words_mean_the_regions_that_differ_in_numbers_alone(
    client: TestClient, words: str, some: set[str], none: set[str]
) -> None:
    found = {each["region"] for each in all_items(client, f"/prices?region={words}&market=on_demand")}
    assert some <= found
    assert not none & found


@pytest.mark.parametrize("place", ["Tokyo", "London", "Frankfurt", "Singapore"])
def test_a_place_finds_the_regions_of_aws_and_azure_there(client: TestClient, place: str) -> None:
    assert {"aws", "azure"} <= {item["provider"] for item in all_items(client, f"/instances?region={place}")}


@pytest.mark.parametrize(
    ("place", "filter_"),
    [("Germany", "country=DE"), ("us", "country=US"), ("US", "country=US"), ("Europe", "continent=europe")],
)
def test_a_country_or_a_continent_means_all_regions_there(client: TestClient, place: str, filter_: str) -> None:
    """Vast calls a region Germany and RunPod one US: who writes that means the others there as well."""
    found = names(all_items(client, f"/instances?region={place}"))
    assert found == names(all_items(client, f"/instances?{filter_}"))
    assert {"aws", "azure"} <= {each.partition("/")[0] for each in found}


@pytest.mark.parametrize(
    ("group", "inside", "outside"),
    [
        ("EU", {"IE", "DE", "SE"}, {"GB", "CH", "NO"}),
        ("EEA", {"DE", "NO"}, {"GB", "CH", "AE"}),
        ("dach", {"DE", "CH"}, {"FR"}),
        ("Nordics", {"SE", "NO", "FI"}, {"DE"}),
    ],
)
def test_a_group_of_countries_means_all_of_their_regions(
    client: TestClient, group: str, inside: set[str], outside: set[str]
) -> None:
    regions = all_items(client, f"/regions?region={group}")
    countries = {region["country"] for region in regions}
    assert inside <= countries
    assert not outside & countries
    of_countries = "country=" + ",".join(sorted(countries))
    offered = names(all_items(client, f"/instances?{of_countries}"))
    assert names(all_items(client, f"/instances?region={group}")) == offered
    assert names(all_items(client, f"/instances?country={group}")) == offered


def test_lists_of_regions_and_providers_are_filtered_by_their_own_names(client: TestClient) -> None:
    regions = all_items(client, "/regions?region=us-east-1,Germany")
    expected = [each for each in all_items(client, "/regions") if each["id"] == "us-east-1" or each["country"] == "DE"]
    assert regions == expected
    assert len(regions) > 3
    assert [each["id"] for each in all_items(client, "/providers?provider=Google Cloud,aws")] == ["aws", "gcp"]


def test_a_place_that_is_no_region_is_answered_with_the_places_that_are(client: TestClient) -> None:
    answer = client.get("/instances?region=EMEA")
    assert answer.status_code == 422
    assert "a continent, such as Europe" in answer.json()["errors"][0]["message"]


def test_unknown_regions_alone_reject_no_machine_without_an_offer(client: TestClient) -> None:
    every = names(all_items(client, "/instances"))
    assert names(all_items(client, "/instances?allow_unknown_region=true")) == every
    assert names(all_items(client, "/instances?allow_unknown_region=true&market=on_demand")) < every
