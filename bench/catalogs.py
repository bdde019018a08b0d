"""Makes catalogs of any size: the seed's instance types in more regions, zones and markets, equal in every run."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import Connection, Engine, func, insert, select, update

from service.db.engine import connect
from service.db.tables import CATALOG_VERSION, INSTANCE_TYPE, OFFER, PRICE, REGION
from service.domain.catalog.offer import MARKETS
from service.files import SEED
from service.importers.load_seed import load_seed

FEED = "bench"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
ZONES = "abc"
PER_REGION = len(ZONES) * len(MARKETS)
SHARE_OF_ON_DEMAND = {"on_demand": 1.0, "spot": 0.4, "reserved": 0.65}
ROWS_AT_ONCE = 20_000
EVERY_SO_MANY_HAVE_A_PAST = 8
UNKNOWN_PRICE = 0.03
SEED_OF_CHANCE = 20_260_102


@dataclass(frozen=True, slots=True)
class Kind:
    """An instance type of the seed, with the figures from which its offers are generated."""

    id: int
    provider: str
    name: str
    currency: str
    micros: int
    source: str


def make_catalogs(folder: Path, sizes: Sequence[int | None]) -> dict[int, Path]:
    """Returns a database for each size, by its number of offers; None is the unchanged seed."""
    seeded = folder / "seed.db"
    engine = connect(f"sqlite:///{seeded}")
    load_seed(engine, SEED)
    own = count_offers(engine)
    engine.dispose()  # the last connection folds the write-ahead log into the file, which can then be copied
    made = {}
    for size in sizes:
        path = folder / f"{size or own}.db"
        shutil.copyfile(seeded, path)
        if size is not None:
            grow(path, size - own)
        made[size or own] = path
    return made


def count_offers(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(OFFER)).scalar_one()


def instance_names(path: Path) -> list[str]:
    """Returns every instance type as `provider/name`, except those whose name a path would have to escape."""
    engine = connect(f"sqlite:///{path}")
    with engine.connect() as connection:
        names = connection.execute(select(INSTANCE_TYPE.c.provider, INSTANCE_TYPE.c.name)).all()
    engine.dispose()
    return [f"{provider}/{name}" for provider, name in names if "/" not in name]


def grow(path: Path, more: int) -> None:
    """Writes this many offers in addition to those of the seed."""
    engine = connect(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.execute(update(CATALOG_VERSION).values(importing=True))  # turns the triggers off
        kinds = read_kinds(connection)
        regions = read_regions(connection, kinds)
        if invented := invented_regions(regions, more // len(kinds) // PER_REGION + 1, kinds[0].source):
            connection.execute(insert(REGION), invented)
        first = connection.execute(select(func.max(OFFER.c.id))).scalar_one() + 1
        offers = islice(generated(kinds, regions, first), more)
        while portion := list(islice(offers, ROWS_AT_ONCE)):
            connection.execute(insert(OFFER), [offer for offer, _ in portion])
            connection.execute(insert(PRICE), [price for _, prices in portion for price in prices])
        connection.execute(update(CATALOG_VERSION).values(importing=False, version=CATALOG_VERSION.c.version + 1))
    engine.dispose()


def read_kinds(connection: Connection) -> list[Kind]:
    """Returns the instance types with a price, each with its highest one, which is the on-demand price."""
    query = (
        select(
            INSTANCE_TYPE.c.id,
            INSTANCE_TYPE.c.provider,
            INSTANCE_TYPE.c.name,
            OFFER.c.currency,
            func.max(PRICE.c.per_hour_micros),
            PRICE.c.source,
        )
        .join(OFFER, OFFER.c.instance_type_id == INSTANCE_TYPE.c.id)
        .join(PRICE, PRICE.c.offer_id == OFFER.c.id)
        .where(PRICE.c.per_hour_micros.is_not(None))
        .group_by(INSTANCE_TYPE.c.id)
        .order_by(INSTANCE_TYPE.c.id)
    )
    return [
        Kind(number, provider, name, currency, micros, source)
        for number, provider, name, currency, micros, source in connection.execute(query)
        if micros is not None
    ]


def read_regions(connection: Connection, kinds: Sequence[Kind]) -> dict[str, list[str]]:
    """Returns the regions of each provider of these types; a provider may have none."""
    regions: dict[str, list[str]] = {kind.provider: [] for kind in kinds}
    for provider, region in connection.execute(select(REGION.c.provider, REGION.c.id).order_by(REGION.c.id)):
        regions.setdefault(provider, []).append(region)
    return regions


def region_name(turn: int, own: Sequence[str]) -> str:
    """Returns the name of a provider's region: its own ones come first, then invented ones."""
    return own[turn] if turn < len(own) else f"bench-{turn - len(own) + 1}"


def invented_regions(regions: Mapping[str, Sequence[str]], needed: int, source: str) -> list[dict[str, Any]]:
    return [
        {
            "provider": provider,
            "id": region_name(turn, own),
            "source": source,
            "name": None,
            "country": None,
            "continent": None,
        }
        for provider, own in regions.items()
        for turn in range(len(own), needed)
    ]


Generated = tuple[dict[str, Any], list[dict[str, Any]]]


def generated(kinds: Sequence[Kind], regions: Mapping[str, Sequence[str]], first_id: int) -> Iterator[Generated]:
    """Yields offers without end, each with its prices: every type in one zone and market, then in the next."""
    chance = Random(SEED_OF_CHANCE)  # noqa: S311 - the catalog must be the same in every run
    numbers = count(first_id)
    for turn in count():
        for kind in kinds:
            region = region_name(turn // PER_REGION, regions[kind.provider])
            zone = region + ZONES[turn // len(MARKETS) % len(ZONES)]
            market = MARKETS[turn % len(MARKETS)]
            yield generated_offer(kind, next(numbers), region, zone, market, chance)


def generated_offer(kind: Kind, number: int, region: str, zone: str, market: str, chance: Random) -> Generated:
    offer = {
        "id": number,
        "key": "\n".join((FEED, kind.provider, kind.name, region, zone, market)),
        "feed": FEED,
        "instance_type_id": kind.id,
        "region": region,
        "zone": zone,
        "market": market,
        "term": None,
        "operating_system": "linux",
        "currency": kind.currency,
    }
    observed_on = date(2025, 1, 1) + timedelta(days=chance.randrange(360))
    micros = max(int(kind.micros * SHARE_OF_ON_DEMAND[market] * chance.uniform(0.8, 1.3)), 1)
    now = price_record(kind, number, observed_on, None if chance.random() < UNKNOWN_PRICE else micros)
    if number % EVERY_SO_MANY_HAVE_A_PAST:
        return offer, [now]
    past = price_record(kind, number, observed_on - timedelta(days=90), micros)
    return offer, [{**past, "valid_to": now["valid_from"]}, now]


def price_record(kind: Kind, offer: int, observed_on: date, micros: int | None) -> dict[str, Any]:
    return {
        "offer_id": offer,
        "valid_from": datetime(observed_on.year, observed_on.month, observed_on.day, tzinfo=UTC),
        "valid_to": None,
        "per_hour_micros": micros,
        "observed_on": observed_on,
        "dated": "day",
        "kind": "api",
        "recorded_at": NOW,
        "source": kind.source,
        "note": None,
    }
