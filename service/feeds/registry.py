"""The list of feeds that can be read: one line for each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from service.feeds.fetching import Get
from service.feeds.listing import Content, DocumentRefused, Parser
from service.feeds.sources import (
    aws_bulk,
    aws_on_demand,
    aws_spot,
    azure,
    cudo,
    cyclenerd,
    ecb,
    gpuhunt,
    oci,
    runpod,
    skypilot,
    vast,
    verda,
    vultr,
)


@dataclass(frozen=True, slots=True)
class FeedSource:
    """How a feed is fetched and parsed; `seed/feeds.csv` says when, and how far it is trusted.

    Each of its `parts` is a document, or several that belong together, and is imported by itself. Raise `version` when
    the same bytes are parsed differently.
    """

    id: str
    parts: tuple[str, ...]
    fetch: Callable[[Get, str], Iterator[bytes]]
    parse: Parser
    marks: tuple[bytes, ...]
    """Any of these texts near its beginning marks a document of this feed."""
    in_pages: bool = False
    """Whether a single document is only a page of a part."""
    version: str = "1"

    def content(self, bodies: Sequence[bytes], part: str) -> Content:
        """Returns the content of the documents of a part. Raises `DocumentRefused`, whatever is wrong with them."""
        try:
            content = self.parse(bodies, part)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise DocumentRefused(f"The document has not the shape of its feed ({type(error).__name__}).") from error
        if not content.listings and not content.rates:
            raise DocumentRefused("The document has no rows.")
        return content


SOURCES: dict[str, FeedSource] = {
    source.id: source
    for source in (
        FeedSource("gpuhunt", gpuhunt.PARTS, gpuhunt.fetch, gpuhunt.parse, (b"instance_name,location",)),
        FeedSource("skypilot", skypilot.PARTS, skypilot.fetch, skypilot.parse, (b"AcceleratorName",)),
        FeedSource("azure", azure.PARTS, azure.fetch, azure.parse, (b'"BillingCurrency"',), in_pages=True),
        FeedSource(
            "aws-on-demand",
            aws_on_demand.PARTS,
            aws_on_demand.fetch,
            aws_on_demand.parse,
            (b'"hawkFilePublicationDate"',),
        ),
        FeedSource("aws-spot", aws_spot.PARTS, aws_spot.fetch, aws_spot.parse, (b'"valueColumns"',)),
        FeedSource(
            "aws-bulk",
            aws_bulk.PARTS,
            aws_bulk.fetch,
            aws_bulk.parse,
            (
                b'"FormatVersion"',
                b'"OfferTermCode"',
            ),
        ),
        FeedSource("oci", oci.PARTS, oci.fetch, oci.parse, (b'"partNumber"',)),
        FeedSource(
            "cyclenerd",
            cyclenerd.PARTS,
            cyclenerd.fetch,
            cyclenerd.parse,
            (
                b"cyclenerd",
                b"  instance:",
            ),
        ),
        FeedSource(
            "ecb",
            ecb.PARTS,
            ecb.fetch,
            ecb.parse,
            (
                b"<Cube",
                b"Date,USD",
                b"CURRENCY_DENOM",
            ),
        ),
        FeedSource(
            "runpod",
            runpod.PARTS,
            runpod.fetch,
            runpod.parse,
            (
                b'"gpuTypes"',
                b'"errors"',
            ),
        ),
        FeedSource("verda", verda.PARTS, verda.fetch, verda.parse, (b'"price_per_hour": "',)),
        FeedSource(
            "vultr",
            vultr.PARTS,
            vultr.fetch,
            vultr.parse,
            (
                b'"plans"',
                b'"plans_metal"',
            ),
        ),
        FeedSource("cudo", cudo.PARTS, cudo.fetch, cudo.parse, (b'"machineTypes"',)),
        FeedSource("vast", vast.PARTS, vast.fetch, vast.parse, (b'"dph_total"',)),
    )
}
