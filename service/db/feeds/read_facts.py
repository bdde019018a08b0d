"""Reads the facts of the catalog that the check of a feed needs, and the specifications that feeds stated."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine, select

from service.db.feeds.resolve_prices import read_feeds
from service.db.read_history import read_history
from service.db.tables import CROSSWALK, SPECIFICATION
from service.domain.catalog.hardware import Gpu, InstanceType
from service.domain.catalog.names import gpu_spellings
from service.domain.catalog.offer import UNKNOWN
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
    history = read_history(engine)
    types, offers, reference = history.instance_types, history.offers, history.reference
    regions: dict[str, dict[str, str]] = {}
    for region in reference.regions:
        names = regions.setdefault(region.provider, {})
        names |= {region.id: region.id, region.name or region.id: region.id}
    with engine.connect() as connection:
        aliases = {(row.provider, row.alias): row.name for row in connection.execute(select(CROSSWALK))}
        feeds = read_feeds(connection)
        stated: dict[TypeName, dict[str, Mapping[str, object]]] = {}
        for row in connection.execute(select(SPECIFICATION)).mappings():
            stated.setdefault((row["provider"], row["name"]), {})[row["feed"]] = dict(row)
    return CatalogFacts(
        instance_types={(type_.provider, type_.name): type_ for type_ in types},
        providers=reference.providers,
        gpus=reference.gpus,
        gpu_spellings=gpu_spellings(reference.gpu_aliases, reference.gpus.values()),
        aliases=aliases,
        region_ids=regions,
        sold=frozenset(
            (types[index].provider, types[index].name, offers.places[place])
            for index, place in zip(offers.instance_type.tolist(), offers.region.tolist(), strict=True)
            if place != UNKNOWN
        ),
        feeds=feeds,
        stated=stated,
    )
