"""Hyperstack: a price book by GPU, and the flavors with their number of GPUs; the host is included in the price.

The price book states the price of the account and the list price. The list price is read: a discount that an account
has agreed with the seller may be confidential.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from service.feeds.fetching import documents_at
from service.feeds.listing import Content, DocumentRefused, Listing, Specification, number_in
from service.feeds.reading import items_of, json_of

SPOT = "-spot"


fetch = documents_at("/v1/pricebook", "/v1/core/flavors")


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices of the flavors with a GPU. Raises `DocumentRefused` unless both documents are there."""
    documents = [json_of(body) for body in bodies]
    books = [items_of(document, "The price book") for document in documents if isinstance(document, list)]
    groups = [
        group
        for document in documents
        if isinstance(document, dict)
        for group in items_of(document.get("data"), "data")
    ]
    if not books or not groups:
        raise DocumentRefused("A price book and a list of flavors belong together, and one of them is missing.")
    prices = {str(row.get("name")): row.get("original_value") for book in books for row in book}
    flavors = [flavor for group in groups for flavor in items_of(group.get("flavors"), "flavors")]
    return Content(listings=[_listing(flavor, prices) for flavor in flavors])


def _listing(flavor: dict[str, Any], prices: Mapping[str, Any]) -> Listing:
    gpu, count = str(flavor.get("gpu") or ""), number_in(flavor.get("gpu_count")) or 0.0
    listing = Listing(
        provider="hyperstack",
        name=str(flavor.get("name", "")).removesuffix(SPOT),
        market="spot" if gpu.endswith(SPOT) else "on_demand",
        region=str(flavor.get("region_name") or "") or None,
        hardware=Specification(
            vcpus=number_in(flavor.get("cpu")),
            memory_gib=number_in(flavor.get("ram")),
            gpu_name=gpu.removesuffix(SPOT) or None,
            gpu_count=count,
        ),
    )
    if not gpu or not count:  # CPUs and memory have prices of their own there
        return listing.because("without_gpu")
    return listing.priced(prices.get(gpu), Decimal(str(count)))
