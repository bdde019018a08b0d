"""Feeds that need a key: their documents become listings, and nothing but their own server gets the key.

Every sample here is made up, in the format that the seller documents.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select

from service.cli.main import main
from service.db.feeds.read_feeds import feed_statuses
from service.db.tables import IMPORT_RUN
from service.domain.catalog.resolution import Feed
from service.feeds.fetch import Fetcher, FetchLimits
from service.feeds.listing import DocumentRefused, Listing
from service.feeds.refresh import Upstream, fetch_to, refresh
from service.feeds.registry import SOURCES
from tests.feeds.feed_server import FeedServer, feed_server, reply

KEY = "a-secret-of-the-operator"
KEYED = [id_ for id_, source in SOURCES.items() if source.key_header]
QUICK = FetchLimits(tries=1, read_seconds=2)


def parsed(feed: str, *documents: object) -> tuple[Listing, ...]:
    return tuple(SOURCES[feed].content([json.dumps(each).encode() for each in documents], "").listings)


def priced(listings: tuple[Listing, ...]) -> list[tuple[str, str | None, str, str]]:
    """Name, region, market, and the price or the reason why there is none."""
    return [
        (each.name, each.region, each.market, each.reason or f"{each.per_hour or 0:.2f}".removesuffix(".00"))
        for each in listings
    ]


# Parsers


def lambda_type(**given: object) -> dict[str, object]:
    plain = {
        "name": "gpu_16x_b300_sxm6",
        "gpu_description": "B300 (288 GB SXM6)",
        "price_cents_per_hour": 9999,
        "specs": {"vcpus": 400, "memory_gib": 4000, "storage_gib": 40000, "gpus": 16},
    }
    return {"instance_type": {**plain, **given}, "regions_with_capacity_available": []}


def test_lambda_prices_are_whole_cents_and_hold_without_capacity() -> None:
    (listing,) = parsed("lambda", {"data": {"a": lambda_type()}})
    assert (listing.name, listing.region, str(listing.per_hour)) == ("gpu_16x_b300_sxm6", None, "99.99")
    assert listing.hardware is not None
    assert (listing.hardware.gpu_name, listing.hardware.gpu_count) == ("B300 SXM6", 16)
    assert (listing.hardware.gpu_memory_gb, listing.hardware.memory_gib) == (288, 4000)


def test_a_lambda_price_in_text_may_be_dollars_and_is_not_read_as_cents() -> None:
    data = {"a": lambda_type(price_cents_per_hour="1.29"), "b": lambda_type(name="free", price_cents_per_hour=0)}
    assert [each.reason for each in parsed("lambda", {"data": data})] == ["price_unreadable", "zero_for_none"]


def size(**given: object) -> dict[str, object]:
    plain = {
        "slug": "gpu-h100x8-640gb",
        "memory": 1966080,
        "vcpus": 160,
        "price_hourly": 24,
        "regions": ["nyc2", "tor1"],
        "available": True,
        "gpu_info": {"count": 8, "vram": {"amount": 640, "unit": "gib"}, "model": "nvidia_h100"},
    }
    return {**plain, **given}


def test_digitalocean_sizes_are_priced_where_they_are_offered() -> None:
    listings = parsed("digitalocean", {"sizes": [size()]}, {"sizes": [size(slug="s-1vcpu", gpu_info=None)]})
    assert priced(listings[-2:]) == [("gpu-h100x8-640gb", region, "on_demand", "24") for region in ("nyc2", "tor1")]
    assert {each.reason for each in listings[:-2]} == {"without_gpu"}
    hardware = listings[-1].hardware
    assert hardware is not None
    assert (hardware.gpu_name, hardware.gpu_memory_gb, hardware.memory_gib) == ("h100", 80, 1920)


@pytest.mark.parametrize("given", [{"regions": []}, {"available": False}])
def test_a_digitalocean_size_that_no_region_offers_has_no_price(given: dict[str, object]) -> None:
    assert {each.reason for each in parsed("digitalocean", {"sizes": [size(**given)]})} == {"not_offered"}


def test_shadeform_machines_are_those_of_another_cloud_where_they_are_available() -> None:
    stated = {"gpu_type": "A100_80G", "interconnect": "sxm4", "num_gpus": 8, "vcpus": 96, "memory_in_gb": 960}
    places = [{"region": "dallas-usa-1", "available": True}, {"region": "paris-france-1", "available": False}]
    machine = {"cloud": "crusoe", "shade_instance_type": "A100_80G_sxm4x8", "hourly_price": 1480}
    listings = parsed("shadeform", {"instance_types": [{**machine, "configuration": stated, "availability": places}]})
    assert sorted(priced(listings)) == [
        ("crusoe_A100-80G-sxm4x8", "dallas-usa-1", "on_demand", "14.80"),
        ("crusoe_A100-80G-sxm4x8", "paris-france-1", "on_demand", "not_offered"),
    ]
    assert listings[0].hardware is not None
    assert listings[0].hardware.gpu_name == "A100_80G sxm4"


BOOK = [
    {"name": "H100-80G-PCIe", "value": "1.5", "original_value": "2.5"},
    {"name": "H100-80G-PCIe-spot", "value": "1.5", "original_value": "1.5"},
]


def flavor(**given: object) -> dict[str, object]:
    plain = {"name": "n3-H100x2", "region_name": "NORWAY-1", "cpu": 60, "ram": 360, "gpu": "H100-80G-PCIe"}
    return {**plain, "gpu_count": 2, **given}


def test_a_hyperstack_flavor_costs_the_list_price_of_its_gpus() -> None:
    spot = flavor(name="n3-H100x2-spot", gpu="H100-80G-PCIe-spot")
    unpriced, host = flavor(gpu="B300-SXM"), flavor(name="n1-cpu-small", gpu="", gpu_count=0)
    listings = parsed("hyperstack", BOOK, {"data": [{"flavors": [flavor(), spot, unpriced, host]}]})
    assert sorted(priced(listings)) == [
        ("n1-cpu-small", "NORWAY-1", "on_demand", "without_gpu"),
        ("n3-H100x2", "NORWAY-1", "on_demand", "5"),
        ("n3-H100x2", "NORWAY-1", "on_demand", "absent_price"),
        ("n3-H100x2", "NORWAY-1", "spot", "3"),
    ]


def spot_row(dollars: str, **given: object) -> dict[str, object]:
    plain = {"AvailabilityZone": "us-east-1a", "AvailabilityZoneId": "use1-az6", "InstanceType": "p5.48xlarge"}
    sold = {"ProductDescription": "Linux/UNIX", "SpotPrice": dollars, "Timestamp": "2026-11-21T21:46:12+00:00"}
    return {**plain, **sold, **given}


def block(fee: str, start: str, **given: object) -> dict[str, object]:
    plain = {"AvailabilityZone": "us-east-2b", "InstanceType": "p5.48xlarge", "InstanceCount": 2, "StartDate": start}
    return {**plain, "CapacityBlockDurationHours": 24, "UpfrontFee": fee, "CurrencyCode": "USD", **given}


def test_spot_prices_of_an_aws_account_hold_in_zones_with_an_id() -> None:
    rows = [
        spot_row("17.6"),
        spot_row("18", Timestamp="2026-11-20T00:00:00+00:00"),
        spot_row("19", AvailabilityZoneId=None),
        spot_row("20", ProductDescription="Windows"),
        spot_row("21", AvailabilityZone="us-east-1-atl-2a", AvailabilityZoneId="use1-atl2-az1"),
    ]
    listings = parsed("aws-account", {"SpotPriceHistory": rows})
    kept = {(each.region, each.zone, str(each.per_hour)) for each in listings if not each.reason}
    assert kept == {
        ("us-east-1", "use1-az6", "17.6"),
        ("us-east-1", "use1-az6", "18"),
        ("us-east-1", "use1-atl2-az1", "21"),
    }
    earlier = next(each for each in listings if str(each.per_hour) == "18")
    assert earlier.effective_from == datetime(2026, 11, 20, tzinfo=UTC)
    assert sorted(each.reason for each in listings if each.reason) == ["another_product", "zone_without_id"]


def test_a_capacity_block_costs_its_fee_over_all_hours_of_all_machines() -> None:
    blocks = [block("9999", "2026-12-09T11:30:00+00:00"), block("1510.27", "2026-12-01T11:30:00+00:00")]
    (listing,) = parsed("aws-account", {"CapacityBlockOfferings": blocks})
    assert (listing.region, listing.market, listing.term) == ("us-east-2", "reserved", "capacity_block")
    assert str(listing.per_hour) == "31.463958"


def test_ec2_states_parts_of_gpus_and_no_usable_memory_of_some_devices() -> None:
    types = [
        ec2_type("p5.48xlarge", gpu={"Name": "H100", "Count": 8, "MemoryInfo": {"SizeInMiB": 81920}}),
        ec2_type("g6f.large", gpu={"Name": "L4", "Count": 0, "LogicalGpuCount": 1, "GpuPartitionSize": 0.125}),
        ec2_type("trn2.48xlarge", device={"Name": "Trainium2", "Count": 16, "MemoryInfo": {"SizeInMiB": 524288}}),
        ec2_type("inf1.xlarge"),
    ]
    rows = [spot_row("1", InstanceType=each["InstanceType"]) for each in types]
    listings = parsed("aws-account", {"InstanceTypes": types}, {"SpotPriceHistory": rows})
    stated = {each.name: each.hardware for each in listings if each.hardware}
    assert {name: (each.gpu_name, each.gpu_count, each.gpu_memory_gb) for name, each in stated.items()} == {
        "p5.48xlarge": ("H100", 8, 80),
        "g6f.large": ("L4", 0.125, None),
        "trn2.48xlarge": ("Trainium2", 16, None),
        "inf1.xlarge": (None, None, None),
    }
    assert (stated["p5.48xlarge"].vcpus, stated["p5.48xlarge"].memory_gib) == (192, 2048)


def ec2_type(name: str, gpu: object = None, device: object = None) -> dict[str, Any]:
    plain = {"InstanceType": name, "VCpuInfo": {"DefaultVCpus": 192}, "MemoryInfo": {"SizeInMiB": 2097152}}
    devices = {"GpuInfo": {"Gpus": [gpu]}} if gpu else {"NeuronInfo": {"NeuronDevices": [device]}} if device else {}
    return {**plain, **devices}


@pytest.mark.parametrize(
    ("feed", "documents"),
    [
        ("aws-account", [{"InstanceTypes": []}]),
        ("aws-account", [{"SpotPriceHistory": "none"}]),
        ("aws-account", [{"CapacityBlockOfferings": [{"InstanceType": "p5.48xlarge"}]}]),
        ("lambda", [{"error": {"code": "global/invalid-api-key"}}]),
        ("lambda", [{"data": {"a": {"name": "flat"}}}]),
        ("digitalocean", [{"id": "Unauthorized", "message": "Unable to authenticate you"}]),
        ("digitalocean", [{"sizes": "none"}]),
        ("shadeform", [{"instance_types": {}}]),
        ("hyperstack", [BOOK]),
        ("hyperstack", [{"data": [{"flavors": [flavor()]}]}]),
        ("hyperstack", [BOOK, {"status": False, "message": "Unauthorized"}]),
    ],
)
def test_a_document_of_another_shape_is_refused(feed: str, documents: list[object]) -> None:
    with pytest.raises(DocumentRefused):
        parsed(feed, *documents)


# Keys


def feed_of(engine: Engine, id_: str) -> Feed:
    return next(each.feed for each in feed_statuses(engine) if each.feed.id == id_)


def test_a_feed_names_its_setting_exactly_if_its_requests_carry_a_key(engine: Engine) -> None:
    settings = {each.feed.id: each.feed.setting for each in feed_statuses(engine) if each.feed.id in SOURCES}
    variables = {id_: f"SELECTOR_FEED_KEYS__{id_.upper().replace('-', '_')}" for id_ in [*KEYED, "aws-account"]}
    assert {id_: setting for id_, setting in settings.items() if setting} == variables


@pytest.mark.parametrize("id_", KEYED)
def test_the_key_is_sent_in_a_header_and_stands_in_no_stored_text(
    id_: str, engine: Engine, feeds: FeedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    upstream = Upstream(urls={id_: feeds.url}, limits=QUICK, keys={id_: KEY})
    (imported,) = refresh(engine, feed_of(engine, id_), upstream)
    assert imported.state == "failed"
    (line,) = fetch_to(tmp_path, [feed_of(engine, id_)], upstream)
    header, value = SOURCES[id_].key_header or ("", "")
    sent = {name.lower(): text for name, text in feeds.requests[0][1].items()}
    assert sent[header.lower()] == value.format(KEY)
    with engine.connect() as connection:
        runs = str(connection.execute(select(IMPORT_RUN).where(IMPORT_RUN.c.feed == id_)).all())
    assert "status 404" in runs
    paths = [path for path, _ in feeds.requests]
    assert not [text for text in (str(imported), line, caplog.text, runs, repr(upstream), *paths) if KEY in text]


def test_a_redirect_to_another_server_does_not_get_the_key(feeds: FeedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.feeds.fetch._require_public", lambda _url: None)
    monkeypatch.setattr("service.feeds.fetch._require_allowed", lambda _url, _asked, _base: None)
    with feed_server() as other:
        feeds.replies["/x"] = [reply(302, Location=f"{other.url}/y")]
        other.replies["/y"] = [reply(200, b"body")]
        assert Fetcher(feeds.url, key={"api_key": KEY}, limits=QUICK)("/x") == b"body"
        assert KEY in str(feeds.requests)
        assert KEY not in str(other.requests)


SPOT_HISTORY = b"""<DescribeSpotPriceHistoryResponse><spotPriceHistorySet><item><instanceType>g5.xlarge</instanceType>
<productDescription>Linux/UNIX</productDescription><spotPrice>0.5</spotPrice><timestamp>2026-11-21T00:00:00Z</timestamp>
<availabilityZone>us-east-1a</availabilityZone><availabilityZoneId>use1-az6</availabilityZoneId></item>
</spotPriceHistorySet></DescribeSpotPriceHistoryResponse>"""
TYPES = b"""<DescribeInstanceTypesResponse><instanceTypeSet><item><instanceType>g5.xlarge</instanceType></item>
</instanceTypeSet></DescribeInstanceTypesResponse>"""


@pytest.fixture
def aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")


@pytest.mark.usefixtures("aws_credentials")
def test_an_aws_account_is_asked_with_signed_requests(engine: Engine, feeds: FeedServer) -> None:
    feeds.replies["/"] = [reply(200, TYPES), reply(200, SPOT_HISTORY), reply(200, b"<html>")]
    upstream = Upstream(urls={"aws-account": feeds.url}, keys={"aws-account": "default"})
    imported, failed, *_ = refresh(engine, feed_of(engine, "aws-account"), upstream)
    assert (imported.part, imported.state) == ("us-east-1", "done")
    assert [(each.zone, str(each.per_hour), outcome) for each, outcome in imported.outcomes] == [
        ("use1-az6", "0.5", "kept")
    ]
    assert "AKIDEXAMPLE" in feeds.requests[0][1]["Authorization"]
    assert failed.state == "failed"
    assert "is not XML" in (failed.problem or "")
    assert KEY not in str(feeds.requests) + str(failed)


def test_an_aws_account_without_credentials_or_packages_is_a_sentence(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = Upstream(keys={"aws-account": "no such profile"})
    problem = next(refresh(engine, feed_of(engine, "aws-account"), upstream)).problem or ""
    assert "no such profile" in problem
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    problem = next(refresh(engine, feed_of(engine, "aws-account"), upstream)).problem or ""
    assert "pip install 'instance-selector[aws]'" in problem


def test_the_list_of_feeds_names_the_missing_setting(
    seeded_copy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SELECTOR_DATABASE_URL", seeded_copy)
    monkeypatch.setenv("SELECTOR_FEEDS", "on")
    monkeypatch.setenv("SELECTOR_FEED_KEYS__LAMBDA", KEY)
    assert main(["feeds"]) == 0
    states = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "never" in states["lambda"]
    assert "needs SELECTOR_FEED_KEYS__SHADEFORM" in states["shadeform"]
    assert main(["feeds", "refresh", "shadeform"]) == 1
    assert "The feed shadeform needs SELECTOR_FEED_KEYS__SHADEFORM" in capsys.readouterr().err
    assert KEY not in str(states)
