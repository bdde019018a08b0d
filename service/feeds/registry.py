"""The list of feeds that can be read: one line for each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from service.feeds.fetching import Fetch, Get
from service.feeds.listing import SHAPE_ERRORS, Content, DocumentRefused, Parser, one_per_offer, wrong_shape
from service.feeds.sources import cyclenerd, ecb, gpuhunt, skypilot
from service.feeds.sources.hyperscalers import aws_account, aws_bulk, aws_on_demand, aws_spot, azure, oci
from service.feeds.sources.neoclouds import (
    cudo,
    digitalocean,
    hyperstack,
    lambda_cloud,
    runpod,
    shadeform,
    vast,
    verda,
    vultr,
)

KeyHeader = tuple[str, str]
"""The name and the value of the header that sends a key; `{}` in the value stands for the key."""

BEARER = ("Authorization", "Bearer {}")


@dataclass(frozen=True, slots=True)
class FeedSource:
    """How a feed is fetched and parsed; `seed/feeds.csv` says how often, and its rank among feeds.

    Each of its `parts` is one document, or several that belong together, and is imported separately. Raise `version`
    when a change of the parser gives another result for the same bytes.
    """

    id: str
    parts: tuple[str, ...]
    fetch: Fetch
    parse: Parser
    marks: tuple[bytes, ...]
    """Texts of which a document of this feed has at least one near its beginning."""
    in_pages: bool = False
    """Whether a single document is only a page of a part."""
    key_header: KeyHeader | None = None
    by_aws_account: bool = False
    """Whether the key is the name of an AWS profile, whose credentials are used to fetch the documents."""
    version: str = "1"

    def documents(self, get: Get, part: str) -> list[bytes]:
        """Returns the documents of a part. Raises `DocumentRefused` and what the fetcher raises.

        Some documents name the next one, which a document with another structure does not.
        """
        try:
            return list(self.fetch(get, part))
        except SHAPE_ERRORS as error:
            raise DocumentRefused(wrong_shape(error)) from error

    def content(self, bodies: Sequence[bytes], part: str) -> Content:
        """Returns the content of a part, with one price for each offer. Raises `DocumentRefused` if there is none."""
        try:
            content = self.parse(bodies, part)
            content = replace(content, listings=tuple(one_per_offer(content.listings)))
        except SHAPE_ERRORS as error:
            raise DocumentRefused(wrong_shape(error)) from error
        if not content.listings and not content.rates:
            raise DocumentRefused("The document has no rows.")
        return content


def _read_by(module: ModuleType, id_: str, *marks: bytes, **options: Any) -> FeedSource:
    """Returns the source that a module fetches and parses; a module without `PARTS` has one part."""
    return FeedSource(id_, getattr(module, "PARTS", ("",)), module.fetch, module.parse, marks, **options)


SOURCES: dict[str, FeedSource] = {
    source.id: source
    for source in (
        _read_by(gpuhunt, "gpuhunt", b"instance_name,location"),
        _read_by(skypilot, "skypilot", b"AcceleratorName"),
        _read_by(azure, "azure", b'"BillingCurrency"', in_pages=True),
        _read_by(aws_on_demand, "aws-on-demand", b'"hawkFilePublicationDate"'),
        _read_by(aws_spot, "aws-spot", b'"valueColumns"'),
        _read_by(aws_bulk, "aws-bulk", b'"FormatVersion"', b'"OfferTermCode"'),
        _read_by(
            aws_account,
            "aws-account",
            b'"SpotPriceHistory"',
            b'"CapacityBlockOfferings"',
            in_pages=True,
            by_aws_account=True,
        ),
        _read_by(oci, "oci", b'"partNumber"'),
        _read_by(cyclenerd, "cyclenerd", b"cyclenerd", b"  instance:"),
        _read_by(ecb, "ecb", b"<Cube", b"Date,USD", b"CURRENCY_DENOM"),
        _read_by(runpod, "runpod", b'"gpuTypes"', b'"errors"'),
        _read_by(verda, "verda", b'"price_per_hour": "'),
        _read_by(vultr, "vultr", b'"plans"', b'"plans_metal"'),
        _read_by(cudo, "cudo", b'"machineTypes"'),
        _read_by(vast, "vast", b'"dph_total"'),
        _read_by(lambda_cloud, "lambda", b'"price_cents_per_hour"', key_header=BEARER),
        _read_by(digitalocean, "digitalocean", b'"slug"', in_pages=True, key_header=BEARER),
        _read_by(shadeform, "shadeform", b'"shade_instance_type"', key_header=("X-API-KEY", "{}")),
        _read_by(hyperstack, "hyperstack", b'"original_value"', b'"flavors"', key_header=("api_key", "{}")),
    )
}
