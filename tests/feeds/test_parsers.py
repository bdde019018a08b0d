"""Documents as the providers send them become listings; every sample here is made up."""

import gzip
import io
import json
import zipfile
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.feeds.listing import Content, DocumentRefused, Listing
from service.feeds.registry import SOURCES


def parsed(feed: str, *bodies: str | bytes | object, part: str = "") -> Content:
    return SOURCES[feed].content([as_bytes(body) for body in bodies], part)


def as_bytes(body: str | bytes | object) -> bytes:
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def outcomes(content: Content) -> dict[tuple[str, str, str | None], tuple[str, str | None]]:
    """Price and reason of each listing, by name, market and term."""
    return {(each.name, each.market, each.term): (price(each), each.reason) for each in content.listings}


def price(listing: Listing) -> str:
    return "-" if listing.per_hour is None else f"{listing.per_hour.normalize():f}"


def refusal(feed: str, *bodies: str | bytes | object, part: str = "") -> str:
    with pytest.raises(DocumentRefused) as refused:
        parsed(feed, *bodies, part=part)
    return str(refused.value)


# Kinds of documents


@pytest.mark.parametrize("feed", SOURCES)
def test_a_page_of_a_proxy_is_refused_by_every_feed(feed: str) -> None:
    assert refusal(feed, "<!DOCTYPE html><html><body>Sign in</body></html>")


@pytest.mark.parametrize("feed", SOURCES)
@pytest.mark.parametrize("body", [b"", b"\x1f\x8b\x08broken", b"\xff\xfe", b"{", b"[]", b"null", b"PK\x03\x04"])
def test_broken_bytes_are_refused_and_never_crash(feed: str, body: bytes) -> None:
    assert refusal(feed, body)


SPOT_FILE = (
    b'{"config": {"rate": "perhr", "regions": [{"region": "us-east", "instanceTypes": [{"sizes": '
    b'[{"size": "g5.xlarge", "valueColumns": [{"name": "linux", "prices": {"USD": "1.5"}}]}]}]}]}}'
)


@given(position=st.integers(0, len(SPOT_FILE) - 1), byte=st.integers(0, 255))
def test_one_wrong_byte_is_refused_or_leaves_another_listing_and_never_crashes(position: int, byte: int) -> None:
    damaged = SPOT_FILE[:position] + bytes([byte]) + SPOT_FILE[position + 1 :]
    with suppress(DocumentRefused):
        assert SOURCES["aws-spot"].content([damaged], "").listings


# gpuhunt

GPUHUNT = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags\n"


def test_gpuhunt_names_regions_zones_and_markets() -> None:
    rows = (
        "a2-highgpu-1g,us-central1-a,3.5,12,85,1,A100,40,True,,nvidia,\n"
        "n1-standard-4,us-central1-a,0.5,4,15,2,T4,16,False,,nvidia,\n"
        "a4-highgpu-8g,us-central1-b,70,224,3968,8,B200,180,False,,nvidia,gcp-dws-calendar-mode gcp-a4\n"
        "v5litepod-8,us-west4-a,9,224,400,1,v5litepod-8,128,False,,google,\n"
    )
    content = parsed("gpuhunt", "20261120-7\n", GPUHUNT + rows, part="gcp")
    assert outcomes(content) == {
        ("a2-highgpu-1g", "spot", None): ("3.5", None),
        ("n1-standard-4+t4x2", "on_demand", None): ("0.5", None),
        ("a4-highgpu-8g", "reserved", "dws_calendar"): ("70", None),
        ("ct5lp-hightpu-8t", "on_demand", None): ("9", None),
    }
    assert {(each.region, each.zone) for each in content.listings} >= {("us-central1", "us-central1-a")}
    assert (content.version, content.published_at) == ("20261120-7", datetime(2026, 11, 20, tzinfo=UTC))


def test_gpuhunt_separates_secure_from_community_machines() -> None:
    rows = (
        "NVIDIA H100 80GB HBM3,US-TX-3,21,160,1800,8,H100,80,False,,nvidia,\nNVIDIA A40,CA,1,9,50,1,A40,48,False,,,\n"
    )
    content = parsed("gpuhunt", GPUHUNT + rows, part="runpod")
    assert [(each.name, each.region, each.zone) for each in content.listings] == [
        ("8x_H100-80GB-HBM3_SECURE", "US", "US-TX-3"),
        ("1x_A40_COMMUNITY", "CA", None),
    ]


def test_a_gpuhunt_zip_holds_exactly_the_file_of_its_provider() -> None:
    def zipped(name: str) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(name, GPUHUNT + "m5.large,us-east-1,0.1,2,8,0,,,False,,,\n")
        return file.getvalue()

    assert len(parsed("gpuhunt", zipped("aws.csv"), part="aws").listings) == 1
    assert "exactly" in refusal("gpuhunt", zipped("azure.csv"), part="aws")
    damaged = bytearray(zipped("aws.csv"))
    damaged[60] ^= 1
    assert refusal("gpuhunt", bytes(damaged), part="aws")


# SkyPilot


def test_skypilot_adds_host_and_gpus_of_one_zone() -> None:
    content = parsed(
        "skypilot",
        "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n"
        "a2-highgpu-2g,24,170,,,,r,r-a,2,1\n"
        ",,,A100,2,x,r,r-a,5,3\n"
        ",,,A100,2,x,r,r-b,7,3\n"
        "a4-highgpu-8g,224,3968,,,,r,r-b,,0.0\n"
        ",,,B200,8,x,r,r-b,,26\n",
        part="gcp",
    )
    assert outcomes(content) == {
        ("a2-highgpu-2g", "on_demand", None): ("7", None),
        ("a2-highgpu-2g", "spot", None): ("4", None),
        ("a4-highgpu-8g", "on_demand", None): ("-", "absent_price"),
        ("a4-highgpu-8g", "spot", None): ("26", None),
    }
    assert {each.dated for each in content.listings} == {"unknown"}


SKYPILOT = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"
)


@pytest.mark.parametrize(
    ("prices", "on_demand", "spot"),
    [
        ("2,1", ("2", None), ("1", None)),
        ("2,", ("2", None), ("-", "absent_price")),
        ("2,0.00", ("2", None), ("-", "zero_for_none")),
        ("-2,1", ("-", "price_not_positive"), ("1", "row_unreadable")),
        ("2,nan", ("2", "row_unreadable"), ("-", "price_unreadable")),
    ],
)
def test_an_unreadable_price_makes_the_whole_skypilot_row_doubtful(prices: str, on_demand: Any, spot: Any) -> None:
    content = parsed("skypilot", f"{SKYPILOT}g5.xlarge,A10G,1,4,16,,{prices},us-east-1,use1-az2\n", part="aws")
    found = outcomes(content)
    assert (found["g5.xlarge", "on_demand", None], found["g5.xlarge", "spot", None]) == (on_demand, spot)


# Azure


def meter(**given: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "currencyCode": "USD",
        "retailPrice": 3.5,
        "armRegionName": "EastUS",
        "effectiveStartDate": "2026-11-01T00:00:00Z",
        "productName": "Virtual Machines NCadsA100v4 Series",
        "skuName": "NC24ads A100 v4",
        "meterName": "NC24ads A100 v4",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "armSkuName": "Standard_NC24ads_A100_v4",
    }
    return {**plain, **given}


def azure(*items: dict[str, object]) -> Content:
    return parsed("azure", {"BillingCurrency": "USD", "Items": list(items), "NextPageLink": None})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, None),
        ({"productName": "Virtual Machines NCadsA100v4 Series Windows"}, "another_product"),
        ({"productName": "Virtual Machines NCads H100 v5 Series Win"}, "another_product"),
        ({"productName": "NCSv3 Series Dedicated Host"}, "another_product"),
        ({"meterName": "NC24ads A100 v4 Low Priority"}, "another_product"),
        ({"type": "DevTestConsumption"}, "another_product"),
        ({"armSkuName": ""}, "another_product"),
        ({"armRegionName": "usgovvirginia"}, "no_region_for_customers"),
        ({"retailPrice": 0}, "price_not_positive"),
        ({"retailPrice": "7,346"}, "price_unreadable"),
        ({"unitOfMeasure": "100 Hours"}, "unit_unknown"),
        ({"currencyCode": None}, "currency_unknown"),
        ({"effectiveEndDate": "2026-10-01T00:00:00Z"}, "window_ends_before_it_begins"),
    ],
)
def test_azure_meters_of_other_products_are_left_out(given: dict[str, object], reason: str | None) -> None:
    (listing,) = azure(meter(**given)).listings
    assert listing.reason == reason


def test_an_azure_reservation_states_the_total_of_its_term() -> None:
    content = azure(meter(type="Reservation", reservationTerm="1 Year", retailPrice=8760))
    assert outcomes(content) == {("Standard_NC24ads_A100_v4", "reserved", "1y_reserved"): ("1", None)}


def test_an_azure_price_holds_in_its_window() -> None:
    (listing,) = azure(meter(effectiveEndDate="2026-11-30T23:59:59Z")).listings
    assert (listing.region, listing.effective_from) == ("eastus", datetime(2026, 11, 1, tzinfo=UTC))
    assert listing.ends_at == datetime(2026, 12, 1, tzinfo=UTC)


def test_azure_spot_at_the_full_price_is_not_sold_and_two_prices_are_refused() -> None:
    spot = meter(skuName="NC24ads A100 v4 Spot", meterName="NC24ads A100 v4 Spot")
    assert [each.reason for each in azure(meter(), spot).listings] == ["spot_not_sold", None]
    clash = azure(meter(), meter(retailPrice=3.6))
    assert [each.reason for each in clash.listings] == ["two_prices_in_force"] * 2


# AWS


def test_an_aws_map_may_be_compressed_without_a_header() -> None:
    entry = {"price": "55.04", "Instance Type": "p5.48xlarge", "Operating System": "Linux", "Memory": "2,048 GiB"}
    body = {
        "manifest": {"hawkFilePublicationDate": "2026-11-18T17:45:21Z"},
        "regions": {"EU (Ireland)": {"a": entry}, "US West (Los Angeles)": {"b": {**entry, "price": "0"}}},
    }
    content = parsed("aws-on-demand", gzip.compress(json.dumps(body).encode()))
    assert [(each.region, each.zone, price(each)) for each in content.listings] == [
        ("us-west-2", "us-west-2-lax-1", "-"),
        ("Europe (Ireland)", None, "55.04"),
    ]


def test_aws_spot_prices_are_read_from_json_and_from_jsonp() -> None:
    column = [{"name": "linux", "prices": {"USD": "1.5"}}, {"name": "mswin", "prices": {"USD": "2"}}]
    region = {"region": "eu-ireland", "instanceTypes": [{"sizes": [{"size": "g5.xlarge", "valueColumns": column}]}]}
    text = json.dumps({"config": {"rate": "perhr", "regions": [region]}})
    for body in (text, f"callback({text});"):
        kept = [each for each in parsed("aws-spot", body).listings if each.reason is None]
        assert [(each.region, price(each)) for each in kept] == [("eu-west-1", "1.5")]
    assert "perhr" in refusal("aws-spot", {"config": {"rate": "permonth", "regions": [region]}})


# Oracle, Google, ECB


def test_an_oracle_shape_costs_its_gpus_and_half_if_it_can_be_preempted() -> None:
    prices = {
        "items": [
            {
                "partNumber": "B1",
                "metricName": "GPU Per Hour",
                "currencyCodeLocalizations": [
                    {"currencyCode": "USD", "prices": [{"model": "PAY_AS_YOU_GO", "value": 10}]}
                ],
            }
        ]
    }
    shape = {"name": "BM.GPU.X.4 (NVL72)", "gpuQty": 4, "allowPreemptible": True}
    shapes = {"items": [{**shape, "products": [{"type": {"value": "ocpu"}, "partNumber": "B1", "qty": 10}]}]}
    content = parsed("oci", shapes, prices)
    assert outcomes(content) == {
        ("BM.GPU.X.4", "on_demand", None): ("40", None),
        ("BM.GPU.X.4", "spot", None): ("20", None),
    }


def test_cyclenerd_commitments_are_hours_of_a_month() -> None:
    document = (
        "about: {timestamp: 1795060931}\n"
        "compute:\n  instance:\n    a2-highgpu-1g: {a100: 1, cpu: 12, ram: 85, cost: {us-central1: "
        "{hour: 3.5, hour_spot: 0, month_1y: 1460}}}\n"
    )
    content = parsed("cyclenerd", document)
    assert outcomes(content) == {
        ("a2-highgpu-1g", "on_demand", None): ("3.5", None),
        ("a2-highgpu-1g", "spot", None): ("-", "zero_for_none"),
        ("a2-highgpu-1g", "reserved", "1y_committed_use"): ("2", None),
    }


@pytest.mark.parametrize(
    "body",
    [
        '<E><Cube time="2026-11-20"><Cube currency="USD" rate="1.16"/></Cube></E>',
        "Date,USD,CNY,\n2026-11-20,1.16,N/A,\n",
        "KEY,CURRENCY,CURRENCY_DENOM,TIME_PERIOD,OBS_VALUE\nx,USD,EUR,2026-11-20,1.16\n",
    ],
)
def test_the_ecb_has_three_formats(body: str) -> None:
    (rate,) = parsed("ecb", body).rates
    assert (rate.currency, rate.on, rate.per_euro) == ("USD", date(2026, 11, 20), Decimal("1.16"))


@pytest.mark.parametrize("rate", ["0.1", "-1", "nan", ""])
def test_an_impossible_exchange_rate_refuses_the_document(rate: str) -> None:
    assert refusal("ecb", f'<E><Cube time="2026-11-20"><Cube currency="USD" rate="{rate}"/></Cube></E>')


# Smaller sellers


def test_runpod_sells_each_available_number_of_gpus() -> None:
    gpu = {
        "id": "NVIDIA A40",
        "memoryInGb": 48,
        "securePrice": 0,
        "communityPrice": 0.4,
        "lowestPrice": {"minVcpu": 9, "minMemory": 50, "availableGpuCounts": [1, 4]},
    }
    content = parsed("runpod", {"data": {"gpuTypes": [gpu]}})
    kept = {(each.name, price(each)) for each in content.listings if each.reason is None}
    assert kept == {("1x_A40_COMMUNITY", "0.4"), ("4x_A40_COMMUNITY", "1.6")}
    assert "errors" in refusal("runpod", {"errors": [{"message": "no"}], "data": None})


def test_vast_hosts_become_a_median_for_each_place() -> None:
    host = {
        "gpu_name": "H200",
        "num_gpus": 1,
        "gpu_ram": 143771,
        "cpu_cores_effective": 24,
        "geolocation": "France, FR",
        "verification": "verified",
        "min_bid": None,
    }
    offers = [{**host, "dph_total": value} for value in (2, 3, 9)]
    offers += [{**host, "dph_total": 1, "verification": "unverified"}, {**host, "dph_total": 1, "geolocation": None}]
    offers.append({**host, "dph_total": 4, "geolocation": ", US"})
    content = parsed("vast", {"offers": offers})
    assert [(price(each), each.region, each.reason) for each in content.listings] == [
        ("1", "France, FR", "another_product"),
        ("1", None, "row_unreadable"),
        ("3", "France, FR", None),
        ("4", "US", None),
    ]


def test_a_place_of_vast_without_a_city_is_its_country() -> None:
    rows = '1x-RTX_4090,RTX4090,1,16,64,,0.40,,", US, NA",\n1x-RTX_5090,RTX5090,1,16,64,,0.50,,"Texas, US, NA",\n'
    content = parsed("skypilot", f"{SKYPILOT}{rows}", part="vast")
    assert {each.region for each in content.listings} == {"US, NA", "Texas, US, NA"}


def test_a_cudo_machine_costs_its_parts() -> None:
    parts = {"gpuPriceHr": {"value": "0.25"}, "vcpuPriceHr": {"value": "0.01"}, "memoryGibPriceHr": {"value": "0.02"}}
    machine = {"gpuModel": "RTX A4000", "dataCenterId": "x-1", "minVcpu": 2, "minMemoryGib": 4, **parts}
    (listing,) = parsed("cudo", {"machineTypes": [machine]}).listings
    assert (listing.name, price(listing)) == ("1x RTX A4000", "0.35")


def test_vultr_plans_are_priced_in_each_location() -> None:
    plan = {"id": "vcg-1", "vcpu_count": 4, "ram": 8192, "hourly_cost": 0.5, "locations": ["ewr", "ord"]}
    content = parsed("vultr", {"plans": [plan], "meta": {}})
    assert [(each.region, price(each)) for each in content.listings] == [("ewr", "0.5"), ("ord", "0.5")]


def test_verda_prices_are_text_and_memory_is_a_total() -> None:
    item = {
        "instance_type": "8B300.240V",
        "price_per_hour": "55.92",
        "spot_price": "",
        "cpu": {"number_of_cores": 240},
        "gpu": {"description": "8x B300 SXM6 268GB", "number_of_gpus": 8},
        "gpu_memory": {"size_in_gigabytes": 2144},
        "memory": {"size_in_gigabytes": 2200},
    }
    content = parsed("verda", [item])
    hardware = content.listings[-1].hardware
    assert hardware is not None
    assert (hardware.gpu_name, hardware.gpu_memory_gb) == ("B300 SXM6", 268)
    assert outcomes(content)["8B300.240V", "spot", None] == ("-", "absent_price")
