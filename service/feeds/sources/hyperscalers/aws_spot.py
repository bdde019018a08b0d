"""Spot prices of AWS by region, keyless and undated: `spot.json`, and the older JSONP form from files.

`spot.js` goes on answering although its content has not changed since May 2024, so it is never fetched.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from service.feeds.fetching import documents_at
from service.feeds.listing import Content, DocumentRefused, Listing, price_in
from service.feeds.places import aws_place
from service.feeds.reading import object_of, text_of

CALLBACK = re.compile(r"\s*callback\((.*)\);?\s*", re.DOTALL)
NO_PRICE = "N/A*"


fetch = documents_at("/spot.json")


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices of Linux machines. Raises `DocumentRefused` unless they are per hour and there are any."""
    listings: list[Listing] = []
    for body in bodies:
        match = CALLBACK.fullmatch(text_of(body))
        config = object_of(match[1].encode() if match else body, "config")["config"]
        if config.get("rate") != "perhr":
            raise DocumentRefused(f"The prices are {config.get('rate')} and not perhr.")
        listings += [listing for region in config.get("regions") or () for listing in _of_region(region)]
    if not listings:
        raise DocumentRefused("The file has no region.")
    return Content(listings=listings)


def _of_region(region: dict[str, Any]) -> Iterator[Listing]:
    code, zone = aws_place(region["region"])
    plain = Listing(provider="aws", name="", market="spot", region=code, zone=zone)
    for group in region["instanceTypes"]:
        for size in group["sizes"]:
            for column in size["valueColumns"]:
                text = column["prices"]["USD"]
                per_hour, reason = price_in(None if text == NO_PRICE else text)
                listing = replace(plain, name=size["size"], per_hour=per_hour, reason=reason)
                yield listing if column["name"] == "linux" else replace(listing, reason="another_product")
