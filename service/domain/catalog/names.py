"""What people type → the catalog's own names; a name it does not have is answered with the near ones."""

import re
from collections.abc import Collection, Iterable
from difflib import SequenceMatcher, get_close_matches

from service.domain.catalog.catalog import Catalog
from service.domain.errors import UnknownName
from service.domain.models.model import Model

NEAR = 3
VERY_CLOSE = 0.8
LONGEST_NAME = 80
MODEL_NUMBER = re.compile(r"([a-z]+)\d+")


def near_names(asked: str, known: Iterable[str]) -> tuple[str, ...]:
    """Up to three known names that look like the one asked for, or are of its series (T4 for T100)."""
    folded: dict[str, str] = {}
    for name in known:
        folded.setdefault(name.lower(), name)
    word = asked.lower()[:LONGEST_NAME]
    close = get_close_matches(word, folded, n=NEAR, cutoff=0.6)
    very = [name for name in close if SequenceMatcher(None, word, name).ratio() >= VERY_CLOSE]
    containing = sorted((name for name in folded if len(word) > 2 and word in name), key=len)
    series = letters(word)
    same_series = sorted((name for name in folded if series and letters(name) == series), key=len)
    return tuple(folded[name] for name in dict.fromkeys([*very, *same_series[:1], *close, *containing]))[:NEAR]


def letters(name: str) -> str:
    """The letters before the digits of a model number, such as the T of T4; empty for any other name."""
    found = MODEL_NUMBER.fullmatch(name)
    return found[1] if found else ""


def unknown(what: str, asked: str, known: Collection[str], field: str) -> UnknownName:
    near = near_names(asked, known)
    if near:
        tail = f"Did you mean {' or '.join(near)}?"
    elif 0 < len(known) <= 20:
        tail = f"Known: {', '.join(sorted(known))}."
    else:
        tail = ""
    return UnknownName(f"No {what} is called '{asked}'. {tail}".strip(), field=field, near=near)


def resolve(what: str, asked: Collection[str], known: Collection[str], field: str) -> tuple[str, ...]:
    """Each name as the catalog spells it; case does not matter. Raises `UnknownName`."""
    if not [name for name in asked if name not in known]:
        return tuple(dict.fromkeys(asked))
    by_fold = {name.lower(): name for name in known}
    found = []
    for name in asked:
        if name.lower() not in by_fold:
            raise unknown(what, name, known, field)
        found.append(by_fold[name.lower()])
    return tuple(dict.fromkeys(found))


BEFORE_A_GPU = re.compile(r"^(?:(?:nvidia|amd|intel|google|aws|huawei|cambricon|qualcomm|tesla)-)+(?=.)")
GIGABYTES = re.compile(r"-(\d+)-?gb?$")


def fold_gpu(name: str) -> str:
    """Spellings of one GPU differ in spaces, dashes, underscores, the maker's name and how gigabytes are written."""
    folded = name.lower().replace("_", "-").replace(" ", "-")
    return GIGABYTES.sub(r"-\1gb", BEFORE_A_GPU.sub("", folded))


def gpu_names(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Every spelling of a GPU → the ids it may mean."""

    def build() -> dict[str, tuple[str, ...]]:
        reference = catalog.reference
        spellings: dict[str, tuple[str, ...]] = {}
        for alias, ids in reference.gpu_aliases.items():
            spellings[fold_gpu(alias)] = tuple(dict.fromkeys([*spellings.get(fold_gpu(alias), ()), *ids]))
        for gpu in reference.gpus.values():
            spellings.setdefault(fold_gpu(gpu.name), (gpu.id,))
            spellings[fold_gpu(gpu.id)] = (gpu.id,)
        return spellings

    return catalog.memory.get_or_compute("gpu_names", build)


def resolve_gpus(asked: Iterable[str], catalog: Catalog, field: str = "gpu") -> tuple[str, ...]:
    """GPU ids for ids, names and aliases; an alias of several cards stands for all of them. Raises `UnknownName`."""
    spellings = gpu_names(catalog)
    found: list[str] = []
    for name in asked:
        ids = spellings.get(fold_gpu(name))
        if ids is None:
            raise unknown("GPU", name, spellings, field)
        found.extend(ids)
    return tuple(dict.fromkeys(found))


def resolve_instances(asked: Iterable[str], catalog: Catalog, field: str = "instance") -> tuple[str, ...]:
    """`provider/name` for each `name` or `provider/name`. Raises `UnknownName`, also when a bare name is ambiguous."""
    return tuple(dict.fromkeys(resolve_instance(name, catalog, field) for name in asked))


def resolve_instance(asked: str, catalog: Catalog, field: str) -> str:
    def build() -> dict[str, tuple[str, ...]]:
        spellings: dict[str, list[str]] = {}
        for kind in catalog.instance_types:
            spellings.setdefault(kind.id.lower(), []).append(kind.id)
            spellings.setdefault(kind.name.lower(), []).append(kind.id)
        return {name: tuple(ids) for name, ids in spellings.items()}

    spellings = catalog.memory.get_or_compute("instance_names", build)
    ids = spellings.get(asked.lower(), ())
    if len(ids) == 1:
        return ids[0]
    if ids:
        raise UnknownName(
            f"Several providers have an instance type '{asked}': write one of {', '.join(ids)}.", field=field, near=ids
        )
    raise unknown("instance type", asked, spellings, field)


VARIANTS = ("-hf", "-instruct", "-chat", "-base", "-it")
"""Endings of published names that change what a model was taught, and not its size."""


def fold_model(name: str) -> str:
    """Spellings of one model differ in the publisher before a slash, spaces, dashes and underscores."""
    published, _, last = name.lower().rpartition("/")
    named = last if not published or any(letter.isalpha() for letter in last) else f"{published}-{last}"  # ViT-B/16
    return named.replace("_", "-").replace(" ", "-")


def model_names(catalog: Catalog) -> dict[str, str]:
    """Every spelling of a model → its id."""

    def build() -> dict[str, str]:
        models = catalog.reference.models.values()
        spellings = {fold_model(alias): model.id for model in models for alias in (model.name, *model.aliases)}
        return spellings | {fold_model(model.id): model.id for model in models}

    return catalog.memory.get_or_compute("model_names", build)


def resolve_model(asked: str, catalog: Catalog, field: str = "model") -> Model:
    """The model of an id, name or alias; its instruct or chat variant is the model itself. Raises `UnknownName`."""
    spellings = model_names(catalog)
    folded = fold_model(asked[:LONGEST_NAME])
    ending = next((each for each in VARIANTS if folded.endswith(each)), "")
    found = spellings.get(folded) or spellings.get(folded.removesuffix(ending))
    if found is None:
        raise unknown("model", asked, spellings, field)
    return catalog.reference.models[found]
