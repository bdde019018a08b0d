"""The catalog of one day: instance types and offers as columns, never changed once built."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import TypeVar, TypeVarTuple

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Mask, read_only
from service.domain.cache import Cache
from service.domain.catalog.columns import Category, Columns
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.measurement_log import Owner, VisibleMeasurements
from service.domain.catalog.offer import MARKETS, Offers
from service.domain.catalog.reference import PublishedRun, Reference, SoftwareRule
from service.domain.typeset import TypeSet, mask_of

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Catalog:
    """The instance types and offers of one day, and the facts known on it. `identity` names the content."""

    version: int
    day: date
    instance_types: tuple[InstanceType, ...]
    columns: Columns
    offers: Offers
    starts: NDArray[np.int64]
    """First row of the offers of each instance type; the next item is the row after its last one."""
    reference: Reference
    known_at: date | None
    """The day at whose end all prices were known; None: without such a limit."""
    measurements: VisibleMeasurements
    """Measurements that the caller sees. The caches are shared by all callers and versions with the same facts, so a
    value that depends on measurements takes them as an argument."""
    memory: Cache = field(default_factory=Cache)
    """Values derived from the catalog alone; see `derive`."""
    choices: Cache = field(default_factory=lambda: Cache(size=32))
    """Offers that pass some constraints. An entry is as large as the columns of offers, so there are few."""
    outlooks: Cache = field(default_factory=Cache)
    """Values that depend on a question: estimates of a job on every type, plans, rankings, and the choices of short
    answers with their JSON. An entry that depends on an estimate keeps its columns in memory, up to 0.5 MB, so all of
    these are in one cache and are dropped together."""
    encoded_items: Cache = field(default_factory=lambda: Cache(size=10_000))
    """JSON of instance types with one of their offers, for lists. Kept here, it is dropped with the catalog."""

    @classmethod
    def of(
        cls,
        version: int,
        day: date,
        instance_types: tuple[InstanceType, ...],
        offers: Offers,
        reference: Reference,
        measurements: VisibleMeasurements,
        known_at: date | None = None,
    ) -> "Catalog":
        """Builds the columns of the instance types, and of their offers sorted by type."""
        starts = read_only(np.searchsorted(offers.instance_type, np.arange(len(instance_types) + 1)))
        columns = Columns.of(instance_types, day, reference)
        return cls(version, day, instance_types, columns, offers, starts, reference, known_at, measurements)

    def visible_to(self, owner: Owner, version: int) -> "Catalog":
        """Returns the same facts in a version that added measurements, as the owner of a key sees them."""
        visible = replace(self, version=version, measurements=replace(self.measurements, version=version, owner=owner))
        vars(visible).update({name: value for name, value in vars(self).items() if name not in vars(visible)})
        return visible

    def derive(self, compute: Callable[["Catalog", *Arguments], T], *args: *Arguments, cache: Cache | None = None) -> T:
        """Returns `compute(catalog, *args)`, computed once and cached, by default in `memory`.

        The key is the function with all its arguments, so it cannot lack a field that the value depends on.
        """
        return (cache or self.memory).get_or_compute((compute, *args), lambda: compute(self, *args))

    @property
    def identity(self) -> str:
        """Version, day, day of the knowledge and caller; catalogs with the same identity give the same answers."""
        owner = self.measurements.owner
        caller = "" if owner is None else f"-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
        known = "" if self.known_at is None else f"-{self.known_at.isoformat()}"
        return f"{self.version}-{self.day.isoformat()}{known}{caller}"

    @cached_property
    def all_types(self) -> TypeSet:
        """The set of all instance types."""
        return (1 << len(self.instance_types)) - 1

    def mask(self, types: TypeSet) -> Mask:
        """Returns a mask of the instance types that is true at those in the set."""
        return mask_of(types, len(self.instance_types))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The `provider/name` of each instance type."""
        return tuple(instance_type.id for instance_type in self.instance_types)

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Index of each instance type, by `provider/name`."""
        return {name: index for index, name in enumerate(self.ids)}

    def offers_of(self, index: int) -> range:
        """Returns the rows of the offers of an instance type."""
        return range(int(self.starts[index]), int(self.starts[index + 1]))

    @cached_property
    def default_offers(self) -> NDArray[np.int64]:
        """The first offer of each instance type; -1 if it has none, or only offers that commit to a term."""
        if not len(self.offers):
            return read_only(np.full(len(self.instance_types), -1, np.int64))
        # The start of a last type without offers lies behind the columns.
        first = np.minimum(self.starts[:-1], len(self.offers) - 1)
        reserved = self.offers.market[first] == MARKETS.index("reserved")
        return read_only(np.where((np.diff(self.starts) > 0) & ~reserved, first, -1))

    @cached_property
    def software(self) -> tuple[SoftwareRule, ...]:
        """The software rules in force on the catalog's day."""
        return tuple(rule for rule in self.reference.software if rule.holds_on(self.day))

    @cached_property
    def published_runs(self) -> tuple[PublishedRun, ...]:
        """The runs that were certainly published by the catalog's day."""
        return tuple(run for run in self.reference.published_runs if run.known_on <= self.day)

    @cached_property
    def offer_words(self) -> Mapping[str, Category]:
        """Words of each offer: its region, the country and continent of this region, and its market."""
        regions, offers = self.reference.regions, self.offers
        return {
            "region": Category(offers.region, offers.places),
            "country": self._of_regions([region.country for region in regions]),
            "continent": self._of_regions([region.continent for region in regions]),
            "market": Category(offers.market.astype(np.int32), MARKETS),
        }

    def offers_among(self, name: str, words: Collection[str]) -> Mask:
        """Returns which offers have one of some words of a kind; a term stands among the markets."""
        among = self.offer_words[name].among(words)
        if name == "market" and not set(words) <= set(MARKETS):
            among = among | Category(self.offers.term.astype(np.int32), self.offers.terms).among(words)
        return among

    def _of_regions(self, values: Sequence[str | None]) -> Category:
        """Returns a word of each offer, given one of each region of the reference; sellers may share an id."""
        column, offers = Category.of(values), self.offers
        seller = {provider: code for code, provider in enumerate(self.reference.providers)}
        place = {name: code for code, name in enumerate(offers.places)}
        # The last column is for -1, the code of an offer without a region.
        table = np.full((len(seller) + 1, len(place) + 1), -1, np.int32)
        for region, code in zip(self.reference.regions, column.codes, strict=True):
            if region.id in place:
                table[seller.get(region.provider, -1), place[region.id]] = code
        sellers = np.array([seller.get(each.provider, -1) for each in self.instance_types], np.int64)
        return Category(read_only(table[sellers[offers.instance_type], offers.region]), column.words)

    @cached_property
    def known_prices(self) -> Mask:
        """Offers whose price in dollars is known."""
        return ~np.isnan(self.offers.usd_per_hour)

    @cached_property
    def undated(self) -> Mask:
        """Offers with a known price whose day of observation is unknown."""
        return self.known_prices & np.isnan(self.offers.age_days)

    @cached_property
    def observed_span(self) -> tuple[date | None, date | None]:
        """The days of the oldest and of the newest price observation that is still in force."""
        return self.span_of(self.offers.age_days)

    def span_of(self, age_days: Floats) -> tuple[date | None, date | None]:
        """Returns the days of the oldest and of the newest of some prices; None if no age is known."""
        known = age_days[~np.isnan(age_days)]
        if not len(known):
            return None, None
        today = self.day.toordinal()
        return date.fromordinal(today - int(known.max())), date.fromordinal(today - int(known.min()))


def with_hosts(catalog: Catalog, vcpus_per_gpu: float | None, memory_gib_per_gpu: float | None) -> Catalog:
    """Returns the catalog with hosts that grow with their GPUs, wherever it does not know the host itself."""

    def hosted(machine: InstanceType) -> InstanceType:
        def grown(known: float | None, per_gpu: float | None) -> float | None:
            return machine.whole_gpus * per_gpu if known is None and per_gpu and machine.gpu else known

        return replace(
            machine,
            vcpus=grown(machine.vcpus, vcpus_per_gpu),
            memory_gib=grown(machine.memory_gib, memory_gib_per_gpu),
        )

    types = tuple(map(hosted, catalog.instance_types))
    return Catalog.of(
        catalog.version, catalog.day, types, catalog.offers, catalog.reference, catalog.measurements, catalog.known_at
    )


def without_cluster(catalog: Catalog) -> Mask:
    """Returns the types whose machines form no cluster: those of marketplaces that state no network between owners."""
    providers = catalog.reference.providers
    return np.array([
        each.gpu is not None and each.network_gbps is None and providers[each.provider].seller_class == "marketplace"
        for each in catalog.instance_types
    ], np.bool_)  # fmt: skip
