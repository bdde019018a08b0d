"""Reads the facts of the catalog that the check of a feed needs, and the specifications that feeds stated."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine, select

from service.db.feeds.resolve_prices import read_feeds
from service.db.read_history import read_gpu_aliases, read_gpus, read_instance_types, read_providers, snapshot
from service.db.tables import CROSSWALK, INSTANCE_TYPE, OFFER, REGION, SPECIFICATION
from service.domain.catalog.hardware import Gpu, InstanceType
from service.domain.catalog.names import gpu_spellings
from service.domain.catalog.reference import Provider
from service.domain.catalog.resolution import Feed

TypeName = tuple[str, str]
"""Provider and name of an instance type."""


@dataclass(frozen=True, slots=True)
class CatalogFacts:
    """The facts of one version of the catalog that the check of a feed needs."""

    instance_types: Mapping[TypeName, InstanceType]
    providers: Mapping[str, Provider]
    gpus: Mapping[str, Gpu]
    gpu_spellings: Mapping[str, tuple[str, ...]]
    """By spelling, in lower case and without separators: the ids of the GPUs that it may mean."""
    aliases: Mapping[TypeName, str]
    region_ids: Mapping[str, Mapping[str, str]]
    """For each provider, the ids of its regions by id and by name."""
    sold: frozenset[tuple[str, str, str]]
    """Provider, instance type and region of every offer."""
    feeds: Mapping[str, Feed]
    stated: Mapping[TypeName, Mapping[str, Mapping[str, object]]]
    """Specifications of instance types that are not in the catalog, by feed."""


def read_facts(engine: Engine) -> CatalogFacts:
    """Returns the facts of the current version. Raises `DatabaseUnusable`."""
    with snapshot(engine) as connection:
        named = select(REGION.c.provider, REGION.c.id, REGION.c.name)
        gpus, regions = read_gpus(connection), defaultdict[str, dict[str, str]](dict)
        for provider, id_, name in connection.execute(named.order_by(REGION.c.provider, REGION.c.id)):
            regions[provider] |= {id_: id_, name or id_: id_}
        stated = defaultdict[TypeName, dict[str, Mapping[str, object]]](dict)
        for row in connection.execute(select(SPECIFICATION)).mappings():
            stated[row["provider"], row["name"]][row["feed"]] = dict(row)
        sold = select(INSTANCE_TYPE.c.provider, INSTANCE_TYPE.c.name, OFFER.c.region).join(INSTANCE_TYPE)
        types, _ = read_instance_types(connection, gpus)
        return CatalogFacts(
            instance_types={(type_.provider, type_.name): type_ for type_ in types},
            providers=read_providers(connection),
            gpus=gpus,
            gpu_spellings=gpu_spellings(read_gpu_aliases(connection), gpus.values()),
            aliases={(row.provider, row.alias): row.name for row in connection.execute(select(CROSSWALK))},
            region_ids=dict(regions),
            sold=frozenset(
                (provider, name, region)
                for provider, name, region in connection.execute(sold.where(OFFER.c.region.is_not(None)).distinct())
            ),
            feeds=read_feeds(connection),
            stated=dict(stated),
        )
