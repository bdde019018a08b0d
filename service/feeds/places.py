"""Regions and zones in the words of several feeds."""

import re

LOCAL_ZONE = re.compile(r"([a-z]{2}(?:-gov)?-[a-z]+-\d)-([a-z]{3}-\d+)[a-z]?")
LEGACY_REGIONS = {
    "us-east": "us-east-1",
    "us-west": "us-west-1",
    "eu-ireland": "eu-west-1",
    "apac-sin": "ap-southeast-1",
    "apac-syd": "ap-southeast-2",
    "apac-tokyo": "ap-northeast-1",
}
"""Names that the file of spot prices of AWS still uses."""

LOCAL_ZONES_BY_NAME = {"US West (Los Angeles)": "us-west-2-lax-1"}
"""Names of places of AWS that are no regions. Others are set aside until they are listed here."""

CONTINENTS = ("EU", "EUR", "AP", "OC", "SEA", "AF", "SA", "ME")


def aws_place(name: str) -> tuple[str, str | None]:
    """Returns region and zone for a region's code, the code of a local zone, or the name of a place.

    Letters of zones differ between accounts, so they are left out.
    """
    code = LOCAL_ZONES_BY_NAME.get(name) or LEGACY_REGIONS.get(name) or name
    local = LOCAL_ZONE.fullmatch(code)
    return (local[1], f"{local[1]}-{local[2]}") if local else (code, None)


def zone_and_region(zone: str) -> tuple[str, str]:
    """Returns the region of a zone of Google Cloud, and the zone."""
    return zone.rpartition("-")[0], zone


def runpod_place(place: str) -> tuple[str, str | None]:
    """Returns the country and, for a data centre such as `EU-SE-1`, its id; two letters are a country alone."""
    first, *rest = place.split("-")
    if not rest:
        return place, None
    return (rest[0] if first in CONTINENTS else first), place


def vast_place(place: str) -> str:
    """Returns a place of Vast.ai without empty words: a host that states no city is in `, US, NA`."""
    return ", ".join(word for each in place.split(",") if (word := each.strip()))
