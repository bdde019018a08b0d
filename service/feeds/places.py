"""Reads regions and zones in the spellings of several feeds."""

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
"""Old names of regions, which AWS's file of spot prices still uses → their ids."""

LOCAL_ZONES_BY_NAME = {"US West (Los Angeles)": "us-west-2-lax-1"}
"""Local zones of AWS by name. Rows of local zones that are not listed here are set aside."""

CONTINENTS = ("EU", "EUR", "AP", "OC", "SEA", "AF", "SA", "ME")


def aws_place(name: str) -> tuple[str, str | None]:
    """Returns region and zone of a code or name. A zone has no letter, because letters differ between accounts."""
    code = LOCAL_ZONES_BY_NAME.get(name) or LEGACY_REGIONS.get(name) or name
    local = LOCAL_ZONE.fullmatch(code)
    return (local[1], f"{local[1]}-{local[2]}") if local else (code, None)


def zone_and_region(zone: str) -> tuple[str, str]:
    """Returns the region of a zone of Google Cloud, and the zone."""
    return zone.rpartition("-")[0], zone


def runpod_place(place: str) -> tuple[str, str | None]:
    """Returns country and data centre: `SE` and `EU-SE-1` for `EU-SE-1`, and no data centre for a mere country."""
    first, *rest = place.split("-")
    if not rest:
        return place, None
    return (rest[0] if first in CONTINENTS else first), place


def vast_place(place: str) -> str:
    """Returns a place of Vast.ai without empty words, such as `US, NA` for `, US, NA`, a host without a city."""
    return ", ".join(filter(None, map(str.strip, place.split(","))))
