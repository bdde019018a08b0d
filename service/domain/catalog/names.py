"""Names as people type them → the catalog's names. An error about an unknown name suggests similar ones."""

import re
from collections.abc import Collection, Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu
from service.domain.errors import UnknownName
from service.domain.models.described import recognised
from service.domain.models.model import Model

NEAR = 3
VERY_CLOSE = 0.8
LONGEST_NAME = 80
MEMORY_ROUNDING = 0.1
"""How far the memory of a GPU may be from the size in its name: a B200 of 180 usable GB is also sold as one of 192."""
_MODEL_NUMBER = re.compile(r"([a-z]+)\d+")
_BEFORE_A_GPU = re.compile(r"^(?:(?:nvidia|amd|intel|google|aws|huawei|cambricon|qualcomm|tesla)[\s_-])+(?=.)")
NO_LETTER_OR_DIGIT = re.compile(r"[\W_]")
_GIGABYTES = re.compile(r"[\s_-](\d+)[\s_-]?gb?$")
_BETWEEN_PARTS = re.compile(r"[\s_-]")
VARIANTS = ("-hf", "-instruct", "-chat", "-base", "-it")
"""Endings of published names that mean another training of the same model, of the same size."""

_ENDING_OF_A_FORMAT = re.compile(
    r"(?:[-.](?:awq|gptq|gguf|bnb|quantized|dynamic|int[48]|(?:nv|mx)?fp[48]|[48]bit|w\d+a\d+"
    r"|i?q\d(?:-k)?(?:-(?:xxs|xs|nl|[sml01]))?))+$"
)
"""Endings of published names that mean the weights of the same model in another format; the last line are GGUF's."""

MODELS_CAN_BE_DESCRIBED = (
    "A workload can describe any other model: by its config.json as model.huggingface_config, by its dimensions, or by "
    "its parameters and forward_flops_per_sample."
)


def near_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Returns up to three known names that look like a name, or are of its series (T4 for T100)."""
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.lower(), candidate)
    # Similarity takes time in proportion to the square of the length, and a caller chooses the length.
    word = name.lower()[:LONGEST_NAME]
    close = get_close_matches(word, folded, n=NEAR, cutoff=0.6)
    very = [candidate for candidate in close if SequenceMatcher(None, word, candidate).ratio() >= VERY_CLOSE]
    # Few slips are in the first letter: without it, wav2vec2-large is like e5-large, and rnn like cnn.
    close = [candidate for candidate in close if candidate[:1] == word[:1] or candidate in word]
    plain = NO_LETTER_OR_DIGIT.sub("", word)
    containing = sorted(
        (each for each in folded if len(plain) > 2 and plain in NO_LETTER_OR_DIGIT.sub("", each)), key=len
    )
    # The families p6-b200 and p6-b300 for p6, and the sizes of g5 for g5.
    beginning = sorted(each for each in folded if len(plain) > 1 and each.startswith((f"{word}-", f"{word}.")))
    series = _letters(word)
    same_series = sorted((candidate for candidate in folded if series and _letters(candidate) == series), key=len)
    return tuple(folded[near] for near in dict.fromkeys([*very, *beginning, *same_series[:1], *close, *containing]))[
        :NEAR
    ]


def unknown(what: str, name: str, known: Collection[str], field: str, hint: str = "") -> UnknownName:
    """Returns the error about an unknown name, with near names or, if there are few, all known ones, and a hint."""
    near = near_names(name, known)
    if near:
        tail = f"Did you mean {' or '.join(near)}?"
    elif 0 < len(known) <= 60:
        tail = f"Known: {', '.join(sorted(known))}."
    else:
        tail = ""
    sentences = (f"No {what} is called '{name}'.", tail, hint)
    return UnknownName(" ".join(filter(None, sentences)), field=field, near=near)


def resolve(what: str, names: Collection[str], known: Collection[str], field: str, hint: str = "") -> tuple[str, ...]:
    """Returns each name as the catalog spells it; case does not matter, and separators do not where one name is meant.

    Raises `UnknownName`.
    """
    # Most names are spelt right, and folding all known names takes longer than the whole look-up.
    if all(name in known for name in names):
        return tuple(dict.fromkeys(names))
    by_fold = {name.lower(): name for name in known}
    resolved: list[str] = []
    for name in names:
        # The region us-east-1 of one seller is us-east1 at another.
        meant = {by_fold[name.lower()]} if name.lower() in by_fold else _without_separators(name, known)
        if len(meant) != 1:
            raise unknown(what, name, known, field, hint)
        resolved += meant
    return tuple(dict.fromkeys(resolved))


def _without_separators(name: str, known: Iterable[str]) -> set[str]:
    plain = NO_LETTER_OR_DIGIT.sub("", name.lower())
    return {each for each in known if plain and NO_LETTER_OR_DIGIT.sub("", each.lower()) == plain}


def resolve_providers(names: Collection[str], catalog: Catalog, field: str = "provider") -> tuple[str, ...]:
    """Returns provider ids for ids and names, such as `Google Cloud`. Raises `UnknownName`."""
    ids = provider_names(catalog)
    return tuple(dict.fromkeys(ids[name] for name in resolve("provider", names, ids, field)))


def provider_names(catalog: Catalog) -> dict[str, str]:
    """Returns the id of each provider by its id and by its name."""
    return {
        spelling: provider.id
        for provider in catalog.reference.providers.values()
        for spelling in (provider.name, provider.id)
    }


def fold_gpu(name: str) -> str:
    """Returns a GPU's name without vendor, spaces, dashes and underscores, and with one spelling of gigabytes."""
    return _BETWEEN_PARTS.sub("", _GIGABYTES.sub(r"\1gb", _BEFORE_A_GPU.sub("", name.lower())))


def _gpu_names(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    return gpu_spellings(catalog.reference.gpu_aliases, catalog.reference.gpus.values())


def gpu_spellings(aliases: Mapping[str, tuple[str, ...]], gpus: Iterable[Gpu]) -> dict[str, tuple[str, ...]]:
    """Returns the ids that each folded name, alias or id may mean."""
    spellings: dict[str, tuple[str, ...]] = {}
    for alias, ids in aliases.items():
        spellings[fold_gpu(alias)] = tuple(dict.fromkeys([*spellings.get(fold_gpu(alias), ()), *ids]))
    for gpu in gpus:
        spellings.setdefault(fold_gpu(gpu.name), (gpu.id,))
        # An id means its own GPU, also where an alias of several cards is spelt the same.
        spellings[fold_gpu(gpu.id)] = (gpu.id,)
    return spellings


def resolve_gpus(names: Iterable[str], catalog: Catalog, field: str = "gpu") -> tuple[str, ...]:
    """Returns GPU ids for ids, names and aliases; an alias of several GPUs means all of them. Raises `UnknownName`."""
    resolved: list[str] = []
    for name in names:
        ids = _gpus_called(name, catalog)
        if not ids:
            # Ids state the memory already.
            short = [alias for alias in catalog.reference.gpu_aliases if not alias.endswith(("g", "gb"))]
            raise unknown("GPU", name, (*catalog.reference.gpus, *short), field)
        resolved.extend(ids)
    return tuple(dict.fromkeys(resolved))


def is_gpu(name: str, catalog: Catalog) -> bool:
    """Returns whether a name is one of a GPU, in any spelling."""
    return bool(_gpus_called(name, catalog))


def _gpus_called(name: str, catalog: Catalog) -> tuple[str, ...]:
    """The ids that a spelling means; those that have about its gigabytes where it ends with a memory size."""
    spellings = catalog.derive(_gpu_names)
    memory = _GIGABYTES.search(name.lower())
    if (ids := spellings.get(fold_gpu(name))) is not None or memory is None:
        return ids or ()
    named, gigabytes = spellings.get(fold_gpu(name[: memory.start()]), ()), int(memory[1])
    sizes = ((id_, catalog.reference.gpus[id_].memory_gb) for id_ in named)
    return tuple(id_ for id_, size in sizes if size and abs(size - gigabytes) <= MEMORY_ROUNDING * gigabytes)


def resolve_instances(names: Iterable[str], catalog: Catalog, field: str = "instance") -> tuple[str, ...]:
    """Returns `provider/name` for each `name` or `provider/name`. Raises `UnknownName` as `resolve_instance` does."""
    return tuple(dict.fromkeys(resolve_instance(name, catalog, field) for name in names))


def resolve_instance(name: str, catalog: Catalog, field: str) -> str:
    """Returns `provider/name`. Raises `UnknownName`, also if several providers have a type of this name."""
    spellings = catalog.derive(_instance_names)
    ids = spellings.get(name.lower(), ())
    if len(ids) == 1:
        return ids[0]
    if ids:
        raise UnknownName(
            f"Several providers have an instance type '{name}': write one of {', '.join(ids)}.", field=field, near=ids
        )
    raise unknown("instance type", name, spellings, field)


def _instance_names(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    spellings: dict[str, tuple[str, ...]] = {}
    for instance_type in catalog.instance_types:
        for name in (instance_type.id.lower(), instance_type.name.lower()):
            spellings[name] = (*spellings.get(name, ()), instance_type.id)
    return spellings


_FOLDED = str.maketrans({"_": "-", " ": "-", "[": None, "]": None})


def fold_model(name: str) -> str:
    """Returns a model's name without the publisher before a slash and brackets, and with one spelling of dashes."""
    published, _, last = name.lower().rpartition("/")
    named = last if not published or any(letter.isalpha() for letter in last) else f"{published}-{last}"  # ViT-B/16
    return named.translate(_FOLDED)


def _model_names(catalog: Catalog) -> dict[str, str]:
    models = catalog.reference.models.values()
    spellings = {fold_model(alias): model.id for model in models for alias in (model.name, *model.aliases)}
    # Ids come last, so they win over an alias that is spelt the same.
    return spellings | {fold_model(model.id): model.id for model in models}


def resolve_model(name: str, catalog: Catalog, field: str = "model") -> Model:
    """Returns the model of an id, name or alias; a chat variant is the model itself. Raises `UnknownName`."""
    spellings = catalog.derive(_model_names)
    folded = fold_model(name[:LONGEST_NAME])
    model_id = _model_id(folded, spellings)
    if model_id is not None:
        return catalog.reference.models[model_id]
    # The format decides speed and memory, so that the caller has to name it where it counts.
    # Ollama writes sizes and formats after a colon, and means 4 bits where it writes none.
    if (base := _model_id(_ENDING_OF_A_FORMAT.sub("", folded.replace(":", "-")), spellings)) is not None:
        raise UnknownName(
            f"'{name}' is {base} with its weights in another format: name the model {base}, and the format in "
            "workload.precision, or in workload.weight_precision or workload.weight_bits where it only stores them.",
            field=field,
            near=(base,),
        )
    raise unknown("model", name, spellings, field, MODELS_CAN_BE_DESCRIBED)


def _model_id(folded: str, spellings: Mapping[str, str]) -> str | None:
    # A variant with an entry of its own wins; only without one does it mean the base model.
    ending = next((variant for variant in VARIANTS if folded.endswith(variant)), "")
    return spellings.get(folded) or spellings.get(folded.removesuffix(ending))


def published_model(model: Model, catalog: Catalog) -> Model:
    """Returns the catalog's model with published runs and the same sizes, so that they count; else the model itself."""
    # Only models of the catalog are cached, because callers can describe any number of others.
    is_cached = catalog.reference.models.get(model.id) is model
    return catalog.derive(_published_model, model) if is_cached else _published_model(catalog, model)


def _published_model(catalog: Catalog, model: Model) -> Model:
    published = catalog.derive(_published_models)
    return model if model.id in published else recognised(model, published.values())


def _published_models(catalog: Catalog) -> dict[str, Model]:
    models = catalog.reference.models
    return {name: models[name] for name in sorted(catalog.reference.physics.calibration.models()) if name in models}


def _letters(name: str) -> str:
    """The letters before the digits of a model number, such as the T of T4; empty for any other name."""
    number = _MODEL_NUMBER.fullmatch(name)
    return number[1] if number else ""
