"""Which regions are near one another, as far as their countries and names tell."""

from collections.abc import Iterable, Mapping

from service.domain.catalog.reference import Region

CONTINENT_OF: Mapping[str, str] = {
    country: continent
    for continent, countries in {
        "africa": "MA ZA",
        "asia": "AE BH CN HK ID IL IN JP KR MY QA SG TH TW VN",
        "europe": "BE BG CH CZ DE ES FI FR GB HR HU IE IS IT NL NO PL RO SE SI",
        "north america": "CA MX US",
        "oceania": "AU NZ",
        "south america": "BR CL",
    }.items()
    for country in countries.split()
}
"""Of the countries that have regions; one that is not here is near to nothing but itself."""


def nearest_first(region: str, others: Iterable[str], known: Iterable[Region]) -> tuple[str, ...]:
    """Other regions, those of the same country first, then of the same continent, then by what their names share.

    Nobody publishes distances; `us-east-1` is nearer to `us-east-2` than to `us-west-2`, and names say so.
    """
    countries = {each.id: each.country for each in known}
    here = countries.get(region)

    def distance(other: str) -> tuple[bool, bool, int, str]:
        there = countries.get(other)
        abroad = here is None or there != here
        overseas = abroad and (here is None or there is None or CONTINENT_OF.get(here) != CONTINENT_OF.get(there, "?"))
        return abroad, overseas, -shared_start(region, other), other

    return tuple(sorted(others, key=distance))


def shared_start(one: str, other: str) -> int:
    """How many letters two names begin with together."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
