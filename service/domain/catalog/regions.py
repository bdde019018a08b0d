"""Countries of regions by their English names, and regions by nearness as far as their places and names show it."""

from collections.abc import Iterable

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve
from service.domain.catalog.reference import Region

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
"""Short English names of ISO 3166-1 and other common ones; a country without an entry has its code alone."""

CODES = {
    name.lower(): entry[:2]
    for entry in COUNTRIES.strip().replace("\n", " | ").split(" | ")
    for name in entry[3:].split(", ")
}


def resolve_countries(names: tuple[str, ...], catalog: Catalog, field: str = "country") -> tuple[str, ...]:
    """Returns codes of countries with regions in the catalog, for codes and English names. Raises `UnknownName`."""
    known = catalog.offer_words["country"].words
    codes = (CODES.get(name.lower(), name) for name in names)
    return resolve(
        "country", [code if code in known else name for code, name in zip(codes, names, strict=True)], known, field
    )


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
