"""Which region is near: its own country, then its continent, then what names share."""

import pytest

from service.domain.catalog.reference import Region
from service.domain.catalog.regions import nearest_first

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
