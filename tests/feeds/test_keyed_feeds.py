"""Feeds that need a key: their documents become listings, and nothing but their own server gets the key.

Every sample here is made up, in the format that the seller documents.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from service.cli.main import main
from service.db.engine import connect
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


@pytest.mark.parametrize(
    ("feed", "documents"),
    [
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


@pytest.fixture
def feeds() -> Iterator[FeedServer]:
    with feed_server() as server:
        yield server


@pytest.fixture
def engine(seeded_copy: str) -> Iterator[Engine]:
    engine = connect(seeded_copy)
    yield engine
    engine.dispose()


def feed_of(engine: Engine, id_: str) -> Feed:
    return next(each.feed for each in feed_statuses(engine) if each.feed.id == id_)


def test_a_feed_names_its_setting_exactly_if_its_requests_carry_a_key(engine: Engine) -> None:
    settings = {each.feed.id: each.feed.setting for each in feed_statuses(engine) if each.feed.id in SOURCES}
    assert {id_ for id_, setting in settings.items() if setting} == set(KEYED)
    assert all(setting == f"SELECTOR_FEED_KEYS__{id_.upper()}" for id_, setting in settings.items() if setting)


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
    monkeypatch.setattr("service.feeds.fetch._require_allowed", lambda _url, _base: None)
    with feed_server() as other:
        feeds.replies["/x"] = [reply(302, Location=f"{other.url}/y")]
        other.replies["/y"] = [reply(200, b"body")]
        assert Fetcher(feeds.url, key={"api_key": KEY}, limits=QUICK)("/x") == b"body"
        assert KEY in str(feeds.requests)
        assert KEY not in str(other.requests)


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
