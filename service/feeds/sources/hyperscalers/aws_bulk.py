"""Price list files of AWS (CSV): on-demand, reserved and capacity block prices of a region, documented and dated."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from urllib.parse import urlsplit

from service.domain.catalog.tariffs import CAPACITY_BLOCK, HOURS_A_YEAR
from service.feeds.fetching import Get
from service.feeds.listing import (
    Content,
    DocumentRefused,
    Listing,
    Specification,
    instant_in,
    number_in,
    price_in,
    to_millionths,
    unreadable,
)
from service.feeds.places import aws_place
from service.feeds.reading import Cells, object_of, rows_of, text_of

PARTS = ("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1")
METADATA = ("FormatVersion", "Disclaimer", "Publication Date", "Version", "OfferCode")
COLUMNS = (
    "TermType", "EffectiveDate", "Unit", "PricePerUnit", "Currency", "LeaseContractLength", "PurchaseOption",
    "OfferingClass", "Product Family", "Instance Type", "vCPU", "Memory", "Tenancy", "Operating System", "usageType",
    "operation", "CapacityStatus", "GPU", "Region Code", "MarketOption", "Pre Installed S/W",
)  # fmt: skip
MACHINES = ("Compute Instance", "Compute Instance (bare metal)")
PLANS = {"No Upfront": "no_upfront", "Partial Upfront": "partial_upfront", "All Upfront": "all_upfront"}
YEARS = {"1yr": 1, "3yr": 3}


def fetch(get: Get, part: str) -> Iterator[bytes]:
    """Yields the file of a region, under the version that the index names."""
    index = object_of(get("/offers/v1.0/aws/AmazonEC2/current/region_index.json"), "regions")
    path = urlsplit(index["regions"][part]["currentVersionUrl"]).path
    yield get(path.removesuffix(".json") + ".csv", conditional=True)


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the prices in the files of some regions."""
    listings: list[Listing] = []
    published = None
    for body in bodies:
        lines = text_of(body).splitlines()
        described = dict(line.strip('"').split('","', 1) for line in lines[: len(METADATA)] if '","' in line)
        if tuple(described) != METADATA:
            raise DocumentRefused("The file does not begin with its five lines of metadata.")
        published = instant_in(described["Publication Date"])
        rows = list(rows_of(iter(lines[len(METADATA) :]), COLUMNS))
        listings += _hourly(rows)
        listings += _reserved([cells for cells in rows if cells and _reason(cells) is None])
    return Content(listings=listings, published_at=published)


def _reason(cells: Cells) -> str | None:
    """Returns `another_product` unless a row is about an ordinary shared Linux machine."""
    is_usual = (
        cells["Product Family"] in MACHINES
        and cells["Tenancy"] == "Shared"
        and cells["Operating System"] == "Linux"
        and cells["Pre Installed S/W"] in ("NA", "")
        and cells["operation"] == "RunInstances"
        and cells["CapacityStatus"] == "Used"
        and cells["Currency"] == "USD"
    )
    return None if is_usual else "another_product"


def _plain(cells: Cells) -> Listing:
    region, zone = aws_place(cells["Region Code"])
    return Listing(
        provider="aws",
        name=cells["Instance Type"],
        market="on_demand",
        region=region,
        zone=zone,
        effective_from=instant_in(cells["EffectiveDate"]),
        hardware=Specification(
            vcpus=number_in(cells["vCPU"]),
            memory_gib=number_in(cells["Memory"].removesuffix(" GiB")),
            gpu_count=number_in(cells["GPU"]),
        ),
        reason=_reason(cells),
    )


def _hourly(rows: Sequence[Cells | None]) -> Iterator[Listing]:
    for cells in rows:
        if cells is None:
            yield unreadable("aws")
        elif cells["TermType"] == "OnDemand":
            listing = _plain(cells)
            per_hour, reason = price_in(cells["PricePerUnit"])
            is_block = cells["MarketOption"] == "CapacityBlock"
            if cells["Unit"] != "Hrs" or not (is_block or "BoxUsage" in cells["usageType"]):
                listing = listing.because("another_product")
            listing = replace(listing, per_hour=per_hour, reason=listing.reason or reason)
            yield replace(listing, market="reserved", term=CAPACITY_BLOCK) if is_block else listing


def _reserved(rows: Sequence[Cells]) -> Iterator[Listing]:
    """Yields the price per hour of each commitment, from its row for hours and its row for the upfront fee."""
    plans: dict[tuple[str, ...], list[Cells]] = defaultdict(list)
    for cells in rows:
        if cells["TermType"] == "Reserved" and cells["OfferingClass"] == "standard":
            names = ("Instance Type", "Region Code", "LeaseContractLength", "PurchaseOption")
            plans[tuple(cells[name] for name in names)].append(cells)
    for (_, _, length, option), parts in plans.items():
        listing = replace(_plain(parts[0]), market="reserved")
        years, plan = YEARS.get(length), PLANS.get(option)
        prices = {cells["Unit"]: number_in(cells["PricePerUnit"]) for cells in parts}
        if years is None or plan is None or None in prices.values() or "Hrs" not in prices:
            yield listing.because("row_unreadable")
            continue
        by_unit = {cells["Unit"]: Decimal(cells["PricePerUnit"]) for cells in parts}
        per_hour = by_unit["Hrs"] + by_unit.get("Quantity", Decimal(0)) / (HOURS_A_YEAR * years)
        yield replace(listing, term=f"{years}y_reserved_{plan}", per_hour=to_millionths(per_hour))
