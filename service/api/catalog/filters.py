"""The filters that `GET /instances` and `POST /recommend` share, as request fields and as constraints of the domain."""

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, create_model

from service.api.http.fields import Amount, Name, Names, RequestModel
from service.api.http.listing import require_range
from service.api.http.usual_words import meant_by
from service.domain.bill.payment_options import markets_known
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.columns import FLAGS, WORDS
from service.domain.catalog.hardware import LIFECYCLE_STATES
from service.domain.catalog.names import (
    is_gpu,
    resolve,
    resolve_gpus,
    resolve_instances,
    resolve_providers,
)
from service.domain.catalog.precision import gguf_bits, precision_called
from service.domain.catalog.regions import resolve_countries, resolve_regions
from service.domain.catalog.software_support import software_names
from service.domain.jobs.software_names import software_name
from service.domain.selection.constraints import Constraints
from service.domain.selection.filters import RANGES

MARKET = "`on_demand`, `spot`, `reserved`, or the term of a commitment such as `1y_reserved_all_upfront`."
LIFECYCLE = "States on the catalog's day: `announced`, `preview`, `available`, `closed_to_new`, `retired`."
Task = Literal["training", "inference", "hpc", "graphics", "development", "classical", "sequential"]
PrecisionSupport = Literal["accelerated", "native", "any"]
PrecisionName = Annotated[Name, AfterValidator(precision_called)]
Precisions = Annotated[Names, AfterValidator(lambda names: tuple(map(precision_called, names)))]
"""Precisions by any of their names; a name with two meanings is an error."""


def format_of_file(precision: object) -> str | None:
    """Returns the format of GGUF files that the precision of a request names alone; None for other precisions."""
    match precision:
        case str(name) | [str(name)] if gguf_bits(name) is not None:
            return name
    return None


def _column_fields() -> dict[str, Any]:
    """Returns the request fields that follow from the tables of filters, as `create_model` takes them."""

    def described(field: Any, text: str) -> Any:
        return Annotated[field, Field(description=text)]

    fields: dict[str, Any] = {name: (described(Names, column.description), ()) for name, column in WORDS.items()}
    for name, (label, note) in RANGES.items():
        fields[f"min_{name}"] = (described(Amount | None, f"Minimum {label}. {note}".rstrip()), None)
        fields[f"max_{name}"] = (described(Amount | None, f"Maximum {label}. {note}".rstrip()), None)
    fields |= {name: (described(bool | None, column.description), None) for name, column in FLAGS.items()}
    return fields


if TYPE_CHECKING:
    ColumnFilters = RequestModel  # mypy cannot know fields that are made from a table; read them with `given`
else:
    ColumnFilters = create_model("ColumnFilters", __base__=RequestModel, **_column_fields())


class InstanceFilters(ColumnFilters):
    """Filters of instance types. An instance type passes a filter with several values if it has any of them."""

    region: Annotated[
        Names,
        Field(description="Region ids, see `/regions`, or places: a country or a continent means all regions there."),
    ] = ()
    country: Annotated[Names, Field(description="Countries of the region: names, or ISO 3166 codes such as `DE`.")] = ()
    continent: Annotated[Names, Field(description="Continents of the region, such as `europe`.")] = ()
    allow_unknown_region: Annotated[
        bool, Field(description="Whether an offer of unknown region, country or continent passes a filter on it.")
    ] = False
    market: Annotated[Names, Field(description=MARKET)] = ()
    lifecycle: Annotated[
        Names,
        Field(description=LIFECYCLE),
    ] = ()
    framework: Annotated[Names, Field(description="Software, all of which must be known to run on the type.")] = ()
    max_usd_per_hour: Annotated[
        Amount | None,
        Field(description="Highest price of one machine per hour, whatever the number of machines of a choice."),
    ] = None
    max_price_age_days: Annotated[
        Amount | None,
        Field(
            description="Most days since the price was observed. A price without a day has no known age and is "
            "rejected."
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Returns the fields that were sent and are not empty."""
        sent = self.model_fields_set
        return {name: value for name in sent if (value := getattr(self, name)) is not None and value != ()}


NOUNS = {
    **{name: re.sub(r"\b[cg]pu\b", lambda chip: chip[0].upper(), name.replace("_", " ")) for name in WORDS},
    "framework": "software",
}
"""Nouns for the words of each filter, for errors about unknown ones. Other filters are called by their own names."""

MINIMUMS, MAXIMUMS = ({f"{side}_{name}": name for name in RANGES} for side in ("min", "max"))
"""The range of each request field that is a lower, or an upper, limit."""


def resolved(name: str, words: Sequence[str], catalog: Catalog, prefix: str = "", field: str = "") -> tuple[str, ...]:
    """Returns the words of a filter as the catalog spells them. Raises `UnknownName` with near names.

    The error names `field`, by default the filter's own name after the prefix.
    """
    return catalog.derive(_resolve, name, tuple(words), field or prefix + name) if words else ()


def _resolve(catalog: Catalog, name: str, words: tuple[str, ...], field: str) -> tuple[str, ...]:
    hint = "Machines without a GPU have a `max_gpu_count` of 0." if {"cpu", "none"} & set(words) else ""
    # Names that can mean several things, such as `a100` or `g5.xlarge`, have look-ups of their own.
    match name:
        case "gpu":
            return resolve_gpus(words, catalog, field, hint)
        case "instance":
            return resolve_instances(words, catalog, field)
        case "provider":
            return resolve_providers(words, catalog, field)
        case "region":
            return resolve_regions(words, catalog, field)
        case "country":
            return resolve_countries(words, catalog, field)
        case "framework":
            spelt = [software_name(word, _vocabulary(catalog, name)) or word for word in words]
        case "family":
            of_series = catalog.derive(_families_of_series)
            spelt = [family for word in words for family in of_series.get(word.lower(), (word,))]
        case _:
            others = WORDS[name].other_names if name in WORDS else {}
            spelt = [others.get(word.lower(), word) for word in words]
    hint = "Its GPUs are found by `gpu`." if any(is_gpu(word, catalog) for word in words) else hint
    known = _vocabulary(catalog, name)
    return resolve(NOUNS.get(name, name), spelt, known, field, hint, partial(_meant_by, catalog, name))


def _meant_by(catalog: Catalog, name: str, word: str) -> tuple[str, ...]:
    """Returns the words of a filter that another word means: its usual meanings, or the words of the GPUs it names."""
    known = _vocabulary(catalog, name)
    usual = tuple(meant for meant in meant_by(word) if meant in known)
    if usual or not is_gpu(word, catalog):
        return usual
    gpus = [catalog.reference.gpus[gpu] for gpu in resolve_gpus([word], catalog)]
    # The filter gpu_vendor is about the vendor of a GPU, and architecture about its architecture.
    of_gpus: dict[Any, None] = dict.fromkeys(getattr(gpu, name.removeprefix("gpu_"), None) for gpu in gpus)
    return tuple(text for text in of_gpus if text in known)


def _families_of_series(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Returns the families of each series that is not itself a family: `g4dn` and `g4ad` for `g4`."""
    columns = catalog.columns.words
    series, families = columns["series"], columns["family"].words
    members = {name: tuple(family for family in families if re.match(rf"{name}\D", family)) for name in series.words}
    return {name: belonging for name, belonging in members.items() if belonging and name not in families}


def _vocabulary(catalog: Catalog, name: str) -> Sequence[str]:
    """Returns every word that a filter takes, in an order that is the same in every process."""
    match name:
        case "country" | "continent":
            return catalog.offer_words[name].words
        case "lifecycle":
            return LIFECYCLE_STATES
        case "market":
            return markets_known(catalog)
        case "commitment":
            return ("reserved", *catalog.offers.terms)
        case "precision":
            return tuple(catalog.reference.precisions)
        case "framework":
            return catalog.derive(software_names)
        case "source":
            return tuple(catalog.reference.sources)
    vocabulary = WORDS[name].vocabulary
    return catalog.columns.words[name].words if vocabulary is None else tuple(vocabulary(catalog.reference))


def constraints_of(
    filters: InstanceFilters,
    catalog: Catalog,
    *,
    prefix: str = "",
    market: Sequence[str],
    usual_lifecycle: tuple[str, ...],
    **more: Any,
) -> Constraints:
    """Returns the filters as constraints in these markets, by default of types in use. Raises `QuestionError`."""
    given = filters.given()
    # In the order of the tables, because that of the fields that were sent differs between processes.
    sent = given.__contains__
    words = {name: resolved(name, given[name], catalog, prefix) for name in filter(sent, (*WORDS, "lifecycle"))}
    words["lifecycle"] = words.get("lifecycle") or usual_lifecycle
    at_least, at_most = (
        {ranges[field]: given[field] for field in filter(sent, ranges)} for ranges in (MINIMUMS, MAXIMUMS)
    )
    for name in sorted(at_least.keys() & at_most.keys()):
        require_range(name, at_least[name], at_most[name], prefix)
    return Constraints(
        words=words,
        at_least=at_least,
        at_most=at_most,
        flags={name: given[name] for name in filter(sent, FLAGS)},
        framework=resolved("framework", filters.framework, catalog, prefix),
        region=resolved("region", filters.region, catalog, prefix),
        country=resolved("country", filters.country, catalog, prefix),
        continent=resolved("continent", filters.continent, catalog, prefix),
        allow_unknown_region=filters.allow_unknown_region,
        market=resolved("market", market, catalog, prefix),
        max_usd_per_hour=filters.max_usd_per_hour,
        max_price_age_days=filters.max_price_age_days,
        **more,
    )
