"""Orders regions by nearness, as far as their countries, continents and names show it."""

from collections.abc import Iterable

from service.domain.catalog.reference import Region


def nearest_first(region: str, others: Iterable[str], regions: Iterable[Region]) -> tuple[str, ...]:
    """Returns the other regions: first of the same country, then of the same continent, then by common prefix.

    Providers do not publish distances, but names follow them: `us-east-1` is nearer to `us-east-2` than to `us-west-2`.
    A region whose country or continent is unknown counts as far away.
    """
    location_of = {each.id: (each.country, each.continent) for each in regions}
    country, continent = location_of.get(region, (None, None))

    def distance(other: str) -> tuple[bool, bool, int, str]:
        its_country, its_continent = location_of.get(other, (None, None))
        abroad = country is None or its_country != country
        overseas = abroad and (continent is None or its_continent != continent)
        return abroad, overseas, -_shared_prefix_length(region, other), other

    return tuple(sorted(others, key=distance))


def _shared_prefix_length(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))
