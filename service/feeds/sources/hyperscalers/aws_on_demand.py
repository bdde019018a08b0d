"""On-demand prices of AWS by location: the maps behind its pricing page, undocumented but keyless and dated."""

from collections.abc import Sequence

from service.feeds.fetching import documents_at
from service.feeds.listing import Content, DocumentRefused, Listing, Specification, instant_in, number_in, price_in
from service.feeds.places import aws_place
from service.feeds.reading import object_of

PARTS = (
    "Africa (Cape Town)", "Asia Pacific (Hong Kong)", "Asia Pacific (Hyderabad)", "Asia Pacific (Jakarta)",
    "Asia Pacific (Malaysia)", "Asia Pacific (Melbourne)", "Asia Pacific (Mumbai)", "Asia Pacific (New Zealand)",
    "Asia Pacific (Osaka)", "Asia Pacific (Seoul)", "Asia Pacific (Singapore)", "Asia Pacific (Sydney)",
    "Asia Pacific (Taipei)", "Asia Pacific (Thailand)", "Asia Pacific (Tokyo)", "Canada (Central)",
    "Canada West (Calgary)", "EU (Frankfurt)", "EU (Ireland)", "EU (London)", "EU (Milan)", "EU (Paris)",
    "EU (Stockholm)", "Europe (Spain)", "Europe (Zurich)", "Israel (Tel Aviv)", "Mexico (Central)",
    "Middle East (Bahrain)", "Middle East (UAE)", "South America (Sao Paulo)", "US East (N. Virginia)",
    "US East (Ohio)", "US West (Los Angeles)", "US West (N. California)", "US West (Oregon)",
)  # fmt: skip
"""Names of locations in the addresses; the older ones in Europe begin with EU."""


fetch = documents_at(
    "/pricing/2.0/meteredUnitMaps/ec2/USD/current/ec2-ondemand-without-sec-sel/{part}/Linux/index.json"
)


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices in the documents of some locations."""
    contents = [object_of(body, "manifest", "regions") for body in bodies]
    if not all(isinstance(content["regions"], dict) for content in contents):
        raise DocumentRefused("The regions of the map are not objects.")
    listings = [
        _listing(location, entry)
        for content in contents
        for location, entries in content["regions"].items()
        for entry in entries.values()
    ]
    published = max(instant_in(content["manifest"].get("hawkFilePublicationDate")) for content in contents)  # type: ignore[type-var]
    if published is None:
        raise DocumentRefused("The map has no day of publication.")
    return Content(listings=listings, published_at=published)


def _listing(location: str, entry: dict[str, str]) -> Listing:
    per_hour, reason = price_in(entry.get("price"))
    region, zone = aws_place(location)
    return Listing(
        provider="aws",
        name=entry.get("Instance Type", ""),
        market="on_demand",
        region=region.replace("EU (", "Europe ("),
        zone=zone,
        per_hour=per_hour,
        note="published by that day",
        hardware=Specification(
            vcpus=number_in(entry.get("vCPU")), memory_gib=number_in(entry.get("Memory", "").removesuffix(" GiB"))
        ),
        reason=reason if entry.get("Operating System") == "Linux" else "another_product",
    )
