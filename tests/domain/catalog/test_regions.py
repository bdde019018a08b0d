"""Which region is near: its own country, then its continent, then what names share."""

import pytest

from service.domain.catalog.reference import Region
from service.domain.catalog.regions import nearest_first

COUNTRIES = {
    "us-east-1": "US", "us-east-2": "US", "us-west-2": "US", "ca-central-1": "CA", "eu-central-1": "DE",
    "eu-central-2": "CH", "eu-west-1": "IE", "ap-northeast-1": "JP", "nowhere": None,
}  # fmt: skip
KNOWN = [Region("aws", name, None, country, "a test", ()) for name, country in COUNTRIES.items()]


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
    others = [name for name in COUNTRIES if name != region]
    assert nearest_first(region, others, KNOWN)[: len(first)] == first


def test_where_no_country_is_known_names_decide() -> None:
    assert nearest_first("us-east-9", ["eu-west-1", "us-east-1"], KNOWN)[0] == "us-east-1"
    assert nearest_first("nowhere", [], KNOWN) == ()
