"""The catalog of one day: instance types and offers as immutable columns."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Mask, read_only
from service.domain.cache import Cache
from service.domain.catalog.columns import Category, Columns
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.measurement_log import Owner, VisibleMeasurements
from service.domain.catalog.offer import MARKETS, ON_DEMAND, RESERVED, Offers
from service.domain.catalog.reference import Fee, PublishedRun, Reference, SoftwareRule, fee_of
from service.domain.money import MICRO, Unknown
from service.domain.typeset import TypeSet, mask_of, types_where

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Catalog:
    """The instance types and offers of one day, and the facts that were known on that day."""

    version: int
    day: date
    instance_types: tuple[InstanceType, ...]
    columns: Columns
    offers: Offers
    starts: NDArray[np.int64]
    """Index of the first offer of each instance type; the next item is the end of its offers."""
    reference: Reference
    known_at: date | None
    """Only prices that were known at the end of this day are used; None: all prices."""
    measurements: VisibleMeasurements
    """Measurements that the caller sees. Callers and versions with the same facts share the caches, so a function whose
    result is cached takes measurements as an argument and does not read this field."""
    first_day: date | None = None
    """The first day whose catalog has instance types; None if no day has any."""
    later: Mapping[str, date] = field(default_factory=dict)
    """Ids of the instance types that only later catalogs have, each with the day of the first one."""
    assumed_host: tuple[float | None, float | None] | None = None
    """vCPUs and GiB of host memory per GPU that are assumed for types that do not state their own; see `with_hosts`."""
    memory: Cache = field(default_factory=lambda: Cache(size=1024))
    """Values derived from the catalog alone; see `derive`. A question needs 30 to 320 of them."""
    choices: Cache = field(default_factory=lambda: Cache(size=32))
    """Offers that pass some constraints, and catalogs with assumed hosts. An entry may be as large as the columns of
    all offers, so few are kept."""
    outlooks: Cache = field(default_factory=lambda: Cache(size=192))
    """Values that depend on a question: estimates of a job on every type, plans, rankings, and the choices of short
    answers with their JSON. Plans and rankings refer to the columns of their estimate, up to 0.5 MB, so all of them are
    in one cache and are dropped together."""
    encoded_items: Cache = field(default_factory=lambda: Cache(size=10_000))
    """JSON of instance types with one of their offers, for lists."""

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
        first_day: date | None = None,
        later: Mapping[str, date] | None = None,
    ) -> "Catalog":
        """Builds the catalog from instance types and from offers that are sorted by type."""
        starts = read_only(np.searchsorted(offers.instance_type, np.arange(len(instance_types) + 1)))
        columns = Columns.of(instance_types, day, reference)
        return cls(
            version,
            day,
            instance_types,
            columns,
            offers,
            starts,
            reference,
            known_at,
            measurements,
            first_day,
            later or {},
        )

    def visible_to(self, owner: Owner, version: int) -> "Catalog":
        """Returns this catalog with the measurements that an owner sees in a version; facts and caches are shared.

        The version must have the same facts as this one, and may have more measurements.
        """
        return _changed(self, version=version, measurements=replace(self.measurements, version=version, owner=owner))

    def with_hosts(self, vcpus_per_gpu: float | None, memory_gib_per_gpu: float | None) -> "Catalog":
        """Returns this catalog with assumed vCPUs and GiB of host memory per GPU where types do not state their own.

        Offers and caches are shared.
        """
        hosted = self.derive(_with_hosts, vcpus_per_gpu, memory_gib_per_gpu, cache=self.choices)
        # All callers share it, so the measurements of this caller are chosen again.
        return hosted.visible_to(self.measurements.owner, self.version)

    def derive(self, compute: Callable[["Catalog", *Arguments], T], *args: *Arguments, cache: Cache | None = None) -> T:
        """Returns `compute(catalog, *args)`, which is computed once and cached, by default in `memory`.

        The key is the function with all its arguments, so every argument must be hashable. Catalogs that share the
        caches differ in the assumed host and in measurements, so the key has the host, too.
        """
        return (cache or self.memory).get_or_compute((compute, self.assumed_host, *args), compute, self, *args)

    @property
    def identity(self) -> str:
        """Version, day, `known_at` and caller as text; catalogs with the same identity give the same answers."""
        owner = self.measurements.owner
        caller = "" if owner is None else f"-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
        known = "" if self.known_at is None else f"-{self.known_at.isoformat()}"
        return f"{self.version}-{self.day.isoformat()}{known}{caller}"

    @cached_property
    def all_types(self) -> TypeSet:
        """The set of all instance types."""
        return (1 << len(self.instance_types)) - 1

    def types_that(self, predicate: Callable[[InstanceType], bool]) -> TypeSet:
        """Returns the types for which a predicate is true."""
        return types_where(np.array([predicate(type_) for type_ in self.instance_types], np.bool_))

    def mask(self, types: TypeSet) -> Mask:
        """Returns a mask over all instance types that is true at those in a set."""
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
        """Returns the indices of the offers of an instance type."""
        return range(int(self.starts[index]), int(self.starts[index + 1]))

    @cached_property
    def default_offers(self) -> NDArray[np.int64]:
        """Index of the first offer of each type; -1 if it has no offer, or only offers that commit to a term."""
        if not len(self.offers):
            return read_only(np.full(len(self.instance_types), -1, np.int64))
        # Where the last types have no offers, their start is the number of offers, which is no valid index.
        first = np.minimum(self.starts[:-1], len(self.offers) - 1)
        reserved = self.offers.market[first] == RESERVED
        return read_only(np.where((np.diff(self.starts) > 0) & ~reserved, first, -1))

    @cached_property
    def on_demand_prices(self) -> Floats:
        """The on-demand price of each instance type that ranks first, of all regions; NaN if none is known.

        An old price ranks at its high end.
        """
        prices, offers = np.full(len(self.instance_types), np.nan), self.offers
        rows = np.flatnonzero(self.known_prices & (offers.market == ON_DEMAND))
        types, usd = offers.instance_type[rows], offers.usd_per_hour[rows]
        order = np.lexsort((usd * offers.ranking_factor(rows), types))
        of_types, first = np.unique(types[order], return_index=True)
        prices[of_types] = usd[order][first]
        return read_only(prices)

    @cached_property
    def software(self) -> tuple[SoftwareRule, ...]:
        """The software rules in force on the catalog's day."""
        return tuple(rule for rule in self.reference.software if rule.is_in_force_on(self.day))

    @cached_property
    def published_runs(self) -> tuple[PublishedRun, ...]:
        """The runs that were certainly published by the catalog's day."""
        return tuple(run for run in self.reference.published_runs if run.known_on <= self.day)

    @cached_property
    def offer_words(self) -> Mapping[str, Category]:
        """Columns of words of the offers: region, country and continent of the region, and market."""
        regions, offers = self.reference.regions, self.offers
        return {
            "region": Category(offers.region, offers.places),
            "country": self._of_regions([region.country for region in regions]),
            "continent": self._of_regions([region.continent for region in regions]),
            "market": Category(offers.market.astype(np.int32), MARKETS),
        }

    def offers_among(self, name: str, words: Collection[str]) -> Mask:
        """Returns a mask of the offers with one of the words in a column of `offer_words`; terms count as markets."""
        among = self.offer_words[name].among(words)
        if name == "market" and not set(words) <= set(MARKETS):
            among = among | Category(self.offers.term.astype(np.int32), self.offers.terms).among(words)
        return among

    def hourly_usd(self, offers: NDArray[Any], service: str | None) -> Floats:
        """Returns the dollars of an hour of some offers with the premium of a managed service; NaN if unknown.

        `offers` are indices. Where the premium is unknown, the dollars are those without it.
        """
        usd = self.offers.usd_per_hour_at(offers)
        if service is None or not len(offers):
            return usd
        percent = self.derive(premiums_of, service).percent
        # Whole millionths of a dollar, rounded as `with_premium` rounds them.
        hundredths = 100_00 + np.rint(percent[self.offers.instance_type[offers]] * 100)
        return np.asarray(np.floor_divide(np.rint(usd * MICRO) * hundredths + 50_00, 100_00) / MICRO)

    def _of_regions(self, values: Sequence[str | None]) -> Category:
        """Returns a column of the offers, given a value for each region of the reference.

        A region is found by its provider and id, because several providers may use one id.
        """
        column, offers = Category.of(values), self.offers
        seller = {provider: code for code, provider in enumerate(self.reference.providers)}
        place = {name: code for code, name in enumerate(offers.places)}
        # The last column is for -1, the code of an offer without a region.
        table = np.full((len(seller) + 1, len(place) + 1), -1, np.int32)
        for region, code in zip(self.reference.regions, column.codes, strict=True):
            if region.id in place:
                table[seller.get(region.provider, -1), place[region.id]] = code
        sellers = np.array([seller.get(type_.provider, -1) for type_ in self.instance_types], np.int64)
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
        """The days of the oldest and of the newest price observation in force; None if no price is dated."""
        return self.span_of(self.offers.age_days)

    def span_of(self, age_days: Floats) -> tuple[date | None, date | None]:
        """Returns the days of the oldest and of the newest price, given ages in days; None if no age is known."""
        known = age_days[~np.isnan(age_days)]
        if not len(known):
            return None, None
        today = self.day.toordinal()
        return date.fromordinal(today - int(known.max())), date.fromordinal(today - int(known.min()))


def _changed(catalog: Catalog, **changes: object) -> Catalog:
    """Returns a catalog with other fields, from which no cached property follows; the caches are shared."""
    changed = replace(catalog, **changes)  # type: ignore[arg-type]
    vars(changed).update({name: value for name, value in vars(catalog).items() if name not in vars(changed)})
    return changed


def _with_hosts(catalog: Catalog, vcpus_per_gpu: float | None, memory_gib_per_gpu: float | None) -> Catalog:
    def with_host(machine: InstanceType) -> InstanceType:
        def known_or_assumed(known: float | None, per_gpu: float | None) -> float | None:
            return machine.whole_gpus * per_gpu if known is None and per_gpu and machine.gpu else known

        return replace(
            machine,
            vcpus=known_or_assumed(machine.vcpus, vcpus_per_gpu),
            memory_gib=known_or_assumed(machine.memory_gib, memory_gib_per_gpu),
        )

    types = tuple(map(with_host, catalog.instance_types))
    columns = Columns.of(types, catalog.day, catalog.reference)
    return _changed(catalog, instance_types=types, columns=columns, assumed_host=(vcpus_per_gpu, memory_gib_per_gpu))


def without_cluster(catalog: Catalog) -> Mask:
    """Returns a mask of marketplace types with unknown network: their machines, of many owners, form no cluster."""
    owner_class = catalog.reference.owner_class_of
    return np.array([
        type_.gpu is not None and type_.network_gbps is None and owner_class(type_) == "marketplace"
        for type_ in catalog.instance_types
    ], np.bool_)  # fmt: skip


class Premiums(NamedTuple):
    """The premium of a managed service by instance type; without a service, none is unknown."""

    percent: Floats
    """In percent of the price of the machine; 0 where it is unknown."""
    unknown: Mask
    """Whether the premium is unknown, so that dollars without it are a lower bound."""


def premiums_of(catalog: Catalog, service: str | None) -> Premiums:
    """Returns the premiums of a service."""
    fees = [fee_of(catalog.reference.fees, each, service, catalog.day) for each in catalog.instance_types]
    percent = [fee.percent_of_compute if isinstance(fee, Fee) else 0.0 for fee in fees]
    return Premiums(np.array(percent, np.float64), np.array([isinstance(fee, Unknown) for fee in fees], np.bool_))
