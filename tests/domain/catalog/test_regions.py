"""Which region is near: its own country, then its continent, then what names share; and which zones have prices."""

import pytest

from service.domain.catalog.reference import Region
from service.domain.catalog.regions import nearest, nearest_first, resolve_zones
from service.domain.errors import UnknownName

LOCATIONS = {
    "us-east-1": ("US", "north america"),
    "us-east-2": ("US", "north america"),
    "us-west-2": ("US", "north america"),
    "ca-central-1": ("CA", "north america"),
    "eu-central-1": ("DE", "europe"),
    "eu-central-2": ("CH", "europe"),
    "eu-west-1": ("IE", "europe"),
    "ap-northeast-1": ("JP", "asia"),
    "nowhere": (None, None),
}
REGIONS = [Region("aws", name, None, *location, "a test", ()) for name, location in LOCATIONS.items()]


@pytest.mark.parametrize(
    ("region", "first"),
    [
        ("us-east-1", ("us-east-2", "us-west-2", "ca-central-1")),
        ("ca-central-1", ("us-east-1", "us-east-2", "us-west-2")),
        ("eu-central-1", ("eu-central-2", "eu-west-1")),
        ("eu-west-1", ("eu-central-1", "eu-central-2")),
    ],
)
def test_the_nearest_come_first(region: str, first: tuple[str, ...]) -> None:
    others = [name for name in LOCATIONS if name != region]
    assert nearest_first(region, others, REGIONS)[: len(first)] == first


def test_where_no_country_is_known_names_decide() -> None:
    assert nearest_first("us-east-9", ["eu-west-1", "us-east-1"], REGIONS)[0] == "us-east-1"
    assert nearest_first("nowhere", [], REGIONS) == ()


@pytest.mark.parametrize(
    ("region", "others", "expected"),
    [
        ("us-east-1", ("eu-west-1", "us-west-2", "ca-central-1"), "us-west-2"),
        ("us-east-1", ("eu-west-1", "ca-central-1"), "ca-central-1"),
        ("us-east-1", ("ap-northeast-1", "eu-west-1", "nowhere"), None),
        ("nowhere", ("ap-northeast-1",), None),
        ("us-east-1", (), None),
    ],
)
def test_no_region_of_another_continent_is_the_nearest(
    region: str, others: tuple[str, ...], expected: str | None
) -> None:
    assert nearest(region, others, REGIONS) == expected


ZONES = {"use1-az1": "us-east-1", "use1-az2": "us-east-1", "eu-central-1-b": "eu-central-1", "AD-1": None}


def test_zones_are_known_by_their_ids() -> None:
    assert resolve_zones(["use1-az1", "USE1-AZ2", "ad-1", "use1-az1"], ZONES, REGIONS) == (
        "use1-az1",
        "use1-az2",
        "AD-1",
    )


@pytest.mark.parametrize(
    ("name", "sentence", "near"),
    [
        ("us-east-1a", "Zones of us-east-1 go by their ids, because the letter", ("use1-az1", "use1-az2")),
        ("US-EAST-1-atl-2a", "Zones of us-east-1 go by their ids, because the letter", ("use1-az1", "use1-az2")),
        ("us-east-1", "'us-east-1' is a region, and no zone.", ("use1-az1", "use1-az2")),
        ("us-west-2c", "No price is known for 'us-west-2c' alone: name its region, us-west-2.", ()),
        ("use1-az9", "No zone with prices of its own is called 'use1-az9'.", ("use1-az1", "use1-az2")),
        ("eu-central-1-c", "No zone with prices of its own is called", ("eu-central-1-b",)),
    ],
)
def test_a_name_that_is_no_id_of_a_zone_is_refused_with_the_ids_of_its_region(
    name: str, sentence: str, near: tuple[str, ...]
) -> None:
    with pytest.raises(UnknownName) as refused:
        resolve_zones([name], ZONES, REGIONS)
    assert refused.value.sentence.startswith(sentence)
    assert sorted(refused.value.near) == sorted(near)
    assert refused.value.field == "zone"
