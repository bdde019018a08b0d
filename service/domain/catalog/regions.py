"""Regions by id, name, country or continent, and their order by nearness; zones by id."""

import re
from collections.abc import Iterable, Mapping
from itertools import chain

import numpy as np

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import near_names, resolve, with_near
from service.domain.catalog.offer import UNKNOWN, OfferColumns
from service.domain.catalog.reference import Region
from service.domain.errors import UnknownName
from service.domain.groups import grouped

_IN_BRACKETS = re.compile(r"\(([^()]+)\)")
_WITH_A_LETTER = re.compile(r"(?:^|(?<=\())(([^()]+?)(?: [A-Z]|[A-Z]区))(?= \(|\)|$)")
_WORD = re.compile(r"[^\W\d_]+")
_IN_A_REGION = re.compile(r"(.+?)(?:-?[a-z]|-\d|-[a-z]{3}-\d+[a-z]?)")
"""A name of a zone: the id of its region, and the rest, as in `us-east-1a`, `europe-west4-b` and `us-east-1-atl-2a`."""
PLACES_ARE_REGIONS = (
    "A country, such as Germany or DE, a group of countries (EU, EEA, DACH, Nordics) and a continent, such as Europe, "
    "mean all regions there."
)

COUNTRIES = """
AE United Arab Emirates, UAE | AR Argentina | AT Austria | AU Australia | BE Belgium | BG Bulgaria | BH Bahrain
BR Brazil | CA Canada | CH Switzerland | CL Chile | CN China | CO Colombia | CZ Czechia, Czech Republic | DE Germany
DK Denmark | EE Estonia | EG Egypt | ES Spain | FI Finland | FR France
GB United Kingdom, UK, Great Britain, Britain, England | GR Greece | HK Hong Kong | HR Croatia | HU Hungary
ID Indonesia | IE Ireland | IL Israel | IN India | IS Iceland | IT Italy | JP Japan | KE Kenya
KR South Korea, Korea, Republic of Korea | KW Kuwait | LT Lithuania | LU Luxembourg | LV Latvia | MA Morocco
MX Mexico | MY Malaysia | NG Nigeria | NL Netherlands, The Netherlands, Holland | NO Norway | NZ New Zealand | PE Peru
PH Philippines | PL Poland | PT Portugal | QA Qatar | RO Romania | RS Serbia | RU Russia | SA Saudi Arabia | SE Sweden
SG Singapore | SI Slovenia | SK Slovakia | TH Thailand | TR Turkey | TW Taiwan | UA Ukraine
US United States, USA, U.S., U.S.A., America, United States of America | VN Vietnam, Viet Nam | ZA South Africa
"""
"""Codes of ISO 3166-1 with short English names and other common names. Other countries are known by their code only."""

_EU = "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK"

GROUPS_OF_COUNTRIES = {
    **dict.fromkeys(("eu", "european union"), _EU),
    **dict.fromkeys(("eea", "european economic area"), f"{_EU} IS LI NO"),
    "dach": "AT CH DE",
    **dict.fromkeys(("nordics", "nordic countries"), "DK FI IS NO SE"),
}
"""Groups of countries in lower case, with the codes of their members (European Union and EFTA, 2026)."""

CODES_OF_COUNTRIES = {
    name.lower(): (entry[:2],)
    for entry in COUNTRIES.strip().replace("\n", " | ").split(" | ")
    for name in entry[3:].split(", ")
} | {group: tuple(codes.split()) for group, codes in GROUPS_OF_COUNTRIES.items()}
"""Codes of the countries that a name in lower case means."""


def resolve_countries(names: tuple[str, ...], catalog: Catalog, field: str = "country") -> tuple[str, ...]:
    """Returns the codes for codes, names and groups of countries. Raises `UnknownName`, also if no region is there."""
    known = catalog.offer_words["country"].words
    return tuple(dict.fromkeys(chain(*(_countries_called(name, known, field) for name in names))))


def _countries_called(name: str, known: tuple[str, ...], field: str) -> tuple[str, ...]:
    if there := tuple(code for code in CODES_OF_COUNTRIES.get(name.lower(), ()) if code in known):
        return there
    named = [other.title() for other, codes in CODES_OF_COUNTRIES.items() if not {*codes}.isdisjoint(known)]
    known = (*known, *named) if near_names(name, named) else known
    return resolve("country", (name,), known, field, "A country has its English name or its ISO 3166 code.")


def resolve_regions(names: Iterable[str], catalog: Catalog, field: str = "region") -> tuple[str, ...]:
    """Returns the ids of the regions that names mean. Raises `UnknownName`.

    A name is an id, a name such as `Inner Mongolia A`, a country, a group of countries or a continent, or words
    without a number that several ids or names have in common apart from numbers, such as `US West`. Several regions may
    share a name; all of them are returned.
    """
    return tuple(dict.fromkeys(chain(*(_regions_called(name, catalog, field) for name in names))))


def _regions_called(name: str, catalog: Catalog, field: str) -> tuple[str, ...]:
    # Places come first: some sellers call a region US, but a caller who writes US means all regions there.
    by_place, folded = catalog.derive(_regions_by_place), name.lower()
    places = (code.lower() for code in CODES_OF_COUNTRIES.get(folded, (folded,)))
    if there := tuple(chain(*(by_place.get(place, ()) for place in places))):
        return there
    ids = catalog.derive(_regions_by_name)
    try:
        return tuple(chain(*(ids[known] for known in resolve("region", [name], ids, field, PLACES_ARE_REGIONS))))
    except UnknownName:
        # A number names one region: `eu-west-9` is a mistake, and must not admit every region of eu-west.
        is_of_several = not any(letter.isdigit() for letter in name)
        if not (is_of_several and (meant := catalog.derive(_regions_by_words).get(_words(name), ()))):
            raise
        return meant


def regions_meant_by(region: str, catalog: Catalog) -> tuple[str, ...]:
    """Returns the ids of the regions that a question means by the id of a region: all of a place, if it is one too."""
    return catalog.derive(_regions_by_place).get(region.lower(), (region,))


def _regions_by_place(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Returns region ids by code of the country and by continent, both in lower case."""
    return grouped(
        (place.lower(), region.id)
        for region in catalog.reference.regions
        for place in (region.country, region.continent)
        if place
    )


def _words(name: str) -> frozenset[str]:
    return frozenset(_WORD.findall(name.lower()))


def _regions_by_words(catalog: Catalog) -> dict[frozenset[str], tuple[str, ...]]:
    """Returns region ids by the set of words in an id, or in a name before its brackets; numbers are left out."""
    return grouped(
        (words, region.id)
        for region in catalog.reference.regions
        for words in {_words(region.id), _words((region.name or "").partition(" (")[0])} - {frozenset()}
    )


def _regions_by_name(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Returns region ids by id, by name, and by the place inside a name; several regions may share a name.

    The place is in brackets, or before the letter of a part of it, as in `Beijing A (北京A区)`. Brackets that repeat
    the words of an id are no place: the name `AWS GovCloud (US-West)` must not be found by `US-West`.
    """
    regions = catalog.reference.regions
    words_of_ids = {_words(region.id) for region in regions}
    ids: dict[str, tuple[str, ...]] = {region.id: (region.id,) for region in regions}
    for region in regions:
        called = region.name or ""
        in_brackets = (part for part in _IN_BRACKETS.findall(called) if _words(part) not in words_of_ids)
        parts = (*in_brackets, *chain(*_WITH_A_LETTER.findall(called)))
        for name in dict.fromkeys(filter(None, (called, *parts))):
            if ids.get(name) != (name,):
                ids[name] = tuple(dict.fromkeys((*ids.get(name, ()), region.id)))
    return ids


def zones_with_prices(offers: OfferColumns) -> dict[str, str | None]:
    """Returns the region of each zone that has prices of its own; None where its offers name none."""
    zones, first = np.unique(offers.zone, return_index=True)
    regions = offers.region[first].tolist()  # all offers of a zone are in one region
    return {
        offers.places[zone]: None if region == UNKNOWN else offers.places[region]
        for zone, region in zip(zones.tolist(), regions, strict=True)
        if zone != UNKNOWN
    }


def resolve_zones(names: Iterable[str], zones: Mapping[str, str | None], regions: Iterable[Region]) -> tuple[str, ...]:
    """Returns the zones with these ids, of `zones` with their regions.

    Raises `UnknownName`; for the id of a region, alone or with a letter as in `us-east-1a`, with the zones there.
    """
    ids, resolved = {region.id.lower(): region.id for region in regions}, list[str]()
    for name in names:
        in_region, is_region = _IN_A_REGION.fullmatch(name.lower()), name.lower() in ids
        region = ids.get(name.lower() if is_region or in_region is None else in_region[1])
        near = tuple(sorted(zone for zone, its_region in zones.items() if its_region == region))
        if region is None or any(zone.startswith(region) for zone in near):
            resolved += resolve("zone with prices of its own", (name,), zones, "zone")
            continue
        if is_region:
            sentence = f"'{name}' is a region, and no zone."
        elif near:
            sentence = f"Zones of {region} go by their ids, because the letter of a zone differs between accounts."
        else:
            sentence = f"No price is known for '{name}' alone: name its region, {region}."
        raise UnknownName(with_near(sentence, near), field="zone", near=near)
    return tuple(dict.fromkeys(resolved))


def nearest(region: str, others: Iterable[str], regions: Iterable[Region]) -> str | None:
    """Returns the nearest other region of the same country, or else of the same continent; None if there is none."""
    first, location_of = next(iter(nearest_first(region, others, regions)), ""), _locations(regions)
    shared = {*location_of.get(region, ())} & {*location_of.get(first, ())}
    return first if shared - {None} else None


def nearest_first(region: str, others: Iterable[str], regions: Iterable[Region]) -> tuple[str, ...]:
    """Returns the other regions, the nearest first: by same country, then same continent, then length of common prefix.

    Distances are not published, but names reflect them: `us-east-1` is nearer to `us-east-2` than to `us-west-2`.
    Regions of unknown country or continent count as far away.
    """
    location_of = _locations(regions)
    country, continent = location_of.get(region, (None, None))

    def distance(other: str) -> tuple[bool, bool, int, str]:
        its_country, its_continent = location_of.get(other, (None, None))
        abroad = country is None or its_country != country
        overseas = abroad and (continent is None or its_continent != continent)
        return abroad, overseas, -_shared_prefix_length(region, other), other

    return tuple(sorted(others, key=distance))


def _locations(regions: Iterable[Region]) -> dict[str, tuple[str | None, str | None]]:
    return {region.id: (region.country, region.continent) for region in regions}


def _shared_prefix_length(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))
