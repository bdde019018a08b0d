"""Names as people type them, translated to those of the catalog. Errors about unknown names suggest similar ones."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu
from service.domain.catalog.precision import gguf_bits
from service.domain.errors import UnknownName
from service.domain.groups import grouped
from service.domain.models.described import recognised
from service.domain.models.model import Model

NEAR = 3
"""Similar names that an error suggests."""

VERY_CLOSE = 0.8
"""Similarity (difflib) of names that differ by a letter or two."""

LONGEST_NAME = 80
"""Characters of a name, from its beginning, that are compared with known names."""

MEMORY_ROUNDING = 0.1
"""Relative difference allowed between the memory of a GPU and the size in a name: the B200 of 180 GB is also sold as
one of 192 GB."""
_PRODUCT_NUMBER = re.compile(r"([a-z]+)\d+")
_BEFORE_A_GPU = re.compile(r"^(?:(?:nvidia|amd|intel|google|aws|huawei|cambricon|qualcomm|tesla)[\s_-])+(?=.)")
NO_LETTER_OR_DIGIT = re.compile(r"[\W_]")
_GIGABYTES = re.compile(r"[\s_-](\d+)[\s_-]?gb?$")
_BETWEEN_PARTS = re.compile(r"[\s_-]")
_SEPARATOR_OF_WORDS = re.compile(r"(?<!\d)-|-(?!\d)")
_ENDING_OF_A_VARIANT = re.compile(r"(?:-(?:hf|instruct|chat|base|it|thinking|2[3-9](?:0[1-9]|1[0-2])|0[1-9][0-3]\d))+$")
"""Endings of published names for variants of a model that have the same size and differ only by training. Releases are
dated by year and month (2507) or by month and day (0528)."""

_ENDING_OF_A_FORMAT = re.compile(
    r"(?:[-.](?:awq|gptq|gguf|bnb|qat|unsloth|quantized|dynamic|int[48]|(?:nv|mx)?fp[48]|[48]bit|w\d+a\d+"
    r"|i?q\d(?:-k)?(?:-(?:xxs|xs|nl|[sml01]))?))+$"
)
"""Endings of published names for the weights of the same model in another number format; the last line is for GGUF."""

_FORMATS_OF_ENDINGS = {
    **dict.fromkeys(("awq", "awq-int4", "gptq-int4", "int4", "w4a16"), "int4"),
    **dict.fromkeys(("gptq-int8", "w8a16"), "int8"),
    **dict.fromkeys(("bnb-4bit", "nf4"), "nf4"),
    **{name: name for name in ("fp8", "mxfp4", "nvfp4")},
}
"""Endings of published names that settle the number format of the weights."""

MODELS_CAN_BE_DESCRIBED = (
    "A workload can describe any other model: by its config.json as model.huggingface_config, by its dimensions, or by "
    "its parameters and forward_flops_per_sample."
)


def near_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Returns up to three known names that are similar to a name, contain it, or are of its series (T4 for T100).

    Without any of these, names of several words count by each word: `Google Cloud` for `googel`.
    """
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.lower(), candidate)
    # Comparing takes time proportional to the square of the length, and callers choose the length.
    word = name.lower()[:LONGEST_NAME]
    close = get_close_matches(word, folded, n=NEAR, cutoff=0.6)
    very = [candidate for candidate in close if SequenceMatcher(None, word, candidate).ratio() >= VERY_CLOSE]
    # Few slips are in the first letter: kuda means cuda, but wav2vec2-large is no e5-large, and rnn no cnn.
    closer = get_close_matches(word, close, n=NEAR, cutoff=0.7)
    close = [each for each in close if each[:1] == word[:1] or each in word or each in closer]
    joined = NO_LETTER_OR_DIGIT.sub("", word)
    containing = sorted(
        (name for name in folded if len(joined) > 2 and joined in NO_LETTER_OR_DIGIT.sub("", name)), key=len
    )

    def beginning(*separators: str) -> list[str]:
        starts = tuple(word + separator for separator in separators)
        return sorted(name for name in folded if len(joined) > 1 and name.startswith(starts))

    series = _letters(word)
    same_series = sorted((candidate for candidate in folded if series and _letters(candidate) == series), key=len)
    # First the families p6-b200 and p6-b300 for p6, or the sizes of g5 for g5, and last the terms of a year for 1y.
    # A whole word at the beginning counts more than a slip: llama-3-8b for llama-3, and not llama-33b.
    longer = beginning("-", ".")
    near = [*(each for each in very if each in longer), *longer, *very]
    near += [*same_series[:1], *close, *containing, *beginning("_")]
    near = near or _with_a_word_near(word, folded)
    return tuple(folded[each] for each in dict.fromkeys(near))[:NEAR]


def _with_a_word_near(word: str, names: Iterable[str]) -> list[str]:
    """Returns the names of several words of which one is very close to a word."""
    by_word = grouped((part, name) for name in names if " " in name for part in name.split())
    close = get_close_matches(word, by_word, n=NEAR, cutoff=VERY_CLOSE)
    return [name for part in close for name in by_word[part]]


def either(names: Iterable[str]) -> str:
    """Returns names as alternatives: `a`, `a or b`, or `a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def with_near(sentence: str, near: Collection[str]) -> str:
    """Returns a sentence about an unknown name, followed by the question whether one of the near names was meant."""
    return f"{sentence} Did you mean {either(near)}?" if near else sentence


def unknown(
    what: str, name: str, known: Collection[str], field: str, hint: str = "", meant: Collection[str] = ()
) -> UnknownName:
    """Returns the error about an unknown name: with the names that it means, else near ones, else all if they are few.

    A hint follows.
    """
    near = tuple(meant)[:NEAR] or near_names(name, known)
    sentence = with_near(f"No {what} is called '{name}'.", near)
    if not near and 0 < len(known) <= 60:
        sentence += f" Known: {', '.join(sorted(known))}."
    return UnknownName(f"{sentence} {hint}".rstrip(), field=field, near=near)


def resolve(
    what: str, names: Collection[str], known: Collection[str], field: str, hint: str = "",
    meant_by: Callable[[str], Collection[str]] | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """Returns each name as the catalog spells it, whatever its case and separators.

    Raises `UnknownName`, with the known names that an unknown one means, if `meant_by` returns any.
    """
    # Most names are spelt right, and folding all known names takes longer than the whole look-up.
    if all(name in known for name in names):
        return tuple(dict.fromkeys(names))
    by_fold = {name.lower(): name for name in known}
    resolved: list[str] = []
    for name in names:
        # Separators can matter: us-east-1 and us-east1 are regions of different sellers.
        meant = {by_fold[name.lower()]} if name.lower() in by_fold else _spelt_like(name, known)
        if len(meant) != 1:
            raise unknown(what, name, known, field, hint, () if meant_by is None else meant_by(name))
        resolved += meant
    return tuple(dict.fromkeys(resolved))


def _spelt_like(name: str, known: Iterable[str]) -> set[str]:
    """Returns the known names that differ from a name in case and separators at most."""
    joined = NO_LETTER_OR_DIGIT.sub("", name.lower())
    return {spelling for spelling in known if joined and NO_LETTER_OR_DIGIT.sub("", spelling.lower()) == joined}


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
    """Returns, for each name, alias and id in the form of `fold_gpu`, the ids of the GPUs that it may mean."""
    spellings: dict[str, tuple[str, ...]] = {}
    for alias, ids in aliases.items():
        spellings[fold_gpu(alias)] = tuple(dict.fromkeys([*spellings.get(fold_gpu(alias), ()), *ids]))
    for gpu in gpus:
        spellings.setdefault(fold_gpu(gpu.name), (gpu.id,))
        # An id means its own GPU, even if an alias of several cards is spelt the same.
        spellings[fold_gpu(gpu.id)] = (gpu.id,)
    return spellings


def resolve_gpus(names: Iterable[str], catalog: Catalog, field: str = "gpu", hint: str = "") -> tuple[str, ...]:
    """Returns GPU ids for ids, names and aliases; an alias of several GPUs means all of them.

    Raises `UnknownName` with the hint.
    """
    resolved: list[str] = []
    for name in names:
        ids = _gpus_called(name, catalog)
        if not ids:
            # Near names leave out aliases with a memory size, because ids state it already.
            short = [alias for alias in catalog.reference.gpu_aliases if not alias.endswith(("g", "gb"))]
            raise unknown("GPU", name, (*catalog.reference.gpus, *short), field, hint)
        resolved.extend(ids)
    return tuple(dict.fromkeys(resolved))


NUMBER_OF_GPUS = re.compile(r"\d+\s*x?\s*(?P<gpu>[a-z].*)", re.IGNORECASE)
"""A number of GPUs and their name, such as `8xH100`."""


def is_gpu(name: str, catalog: Catalog) -> bool:
    """Returns whether a text names a GPU, in any spelling."""
    return bool(_gpus_called(name, catalog))


def _gpus_called(name: str, catalog: Catalog) -> tuple[str, ...]:
    """Returns the ids that a name means. A memory size at its end selects among the GPUs of the rest of the name."""
    spellings = catalog.derive(_gpu_names)
    memory = _GIGABYTES.search(name.lower())
    if (ids := spellings.get(fold_gpu(name))) is not None or memory is None:
        return ids or ()
    named, gigabytes = spellings.get(fold_gpu(name[: memory.start()]), ()), int(memory[1])
    sizes = ((id_, catalog.reference.gpus[id_].memory_gb) for id_ in named)
    return tuple(id_ for id_, size in sizes if size and abs(size - gigabytes) <= MEMORY_ROUNDING * gigabytes)


def resolve_machine(name: str, catalog: Catalog, field: str, advice: str = "") -> str:
    """Returns `provider/name`. Raises `UnknownName` as `resolve_instance` does, and for the name of a GPU, also with a
    number of them, although one seller may have a machine of that name; advice on GPUs follows.
    """
    several = None if name.lower() in catalog.derive(_instance_names) else NUMBER_OF_GPUS.fullmatch(name)
    if not is_gpu(several["gpu"] if several else name, catalog):
        return resolve_instance(name, catalog, field)
    ids = tuple(type_.id for type_ in catalog.instance_types if type_.name.lower() == name.lower())
    sellers = f"{'Or name' if advice else 'Name'} the machine of a seller{f': {either(ids)}' if ids else ''}."
    raise UnknownName(
        " ".join(filter(None, (f"'{name}' {'names GPUs' if several else 'is a GPU'}.", advice, sellers))),
        field=field,
        near=ids[:3],
    )


def resolve_instances(names: Iterable[str], catalog: Catalog, field: str = "instance") -> tuple[str, ...]:
    """Returns `provider/name` for each `name` or `provider/name`. Raises `UnknownName` as `resolve_instance` does."""
    return tuple(dict.fromkeys(resolve_instance(name, catalog, field) for name in names))


def resolve_instance(name: str, catalog: Catalog, field: str) -> str:
    """Returns `provider/name`. Raises `UnknownName`, also if several providers have an instance type of this name."""
    spellings = catalog.derive(_instance_names)
    ids = spellings.get(name.lower(), ())
    if len(ids) == 1:
        return ids[0]
    if ids:
        raise UnknownName(
            f"Several providers have an instance type '{name}': write one of {', '.join(ids)}.", field=field, near=ids
        )
    absent = f"The catalog of {catalog.day} has no instance type '{name}'"
    for later, day in catalog.later.items():
        if name.lower() in (later.lower(), later.partition("/")[2].lower()):
            raise UnknownName(f"{absent}: it is known from {day} on.", field=field)
    # Near names have a provider if the unknown name has one.
    near = _machines_with(name, catalog) or near_names(
        name, [spelling for spelling in spellings if ("/" in spelling) == ("/" in name)]
    )
    # A machine with the name of its GPU is named with its seller, because the name alone means the GPU.
    with_seller = (("/" in each or is_gpu(each, catalog), spellings[each.lower()][0]) for each in near)
    near = tuple(id_ if whole else id_.partition("/")[2] for whole, id_ in with_seller)
    raise UnknownName(with_near(f"{absent}.", near), field=field, near=near)


def _machines_with(name: str, catalog: Catalog) -> tuple[str, ...]:
    """Returns the smallest machines of a seller with a GPU, for its name such as `vast/rtx-4090`; none for others."""
    provider, _, gpu = name.partition("/")
    gpus = _gpus_called(gpu, catalog)
    machines = [
        type_
        for type_ in catalog.instance_types
        if type_.gpu is not None and type_.gpu.id in gpus and type_.provider == provider.lower()
    ]
    machines.sort(key=lambda type_: (type_.whole_gpus, type_.twin_of is not None, type_.vcpus or 0.0, type_.id))
    return tuple(type_.id for type_ in machines[:NEAR])


def _instance_names(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    return grouped((name.lower(), type_.id) for type_ in catalog.instance_types for name in (type_.id, type_.name))


def meanings_of(name: str, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Returns the providers, families, instance types and GPUs that a name means, by column of the catalog.

    A name may have several meanings: L4 is a GPU, and a family of some sellers.
    """
    providers, families = provider_names(catalog), catalog.columns.words["family"].words
    return {
        "provider": tuple({providers[spelling] for spelling in _spelt_like(name, providers)}),
        "family": tuple(_spelt_like(name, families)),
        "instance": catalog.derive(_instance_names).get(name.lower(), ()),
        "gpu": _gpus_called(name, catalog),
    }


_FOLDED = str.maketrans({"_": "-", " ": "-", "[": None, "]": None})


def fold_model(name: str) -> str:
    """Returns a model's name in lower case, with dashes, and without publisher (`meta-llama/`) and brackets."""
    publisher, _, last = name.lower().rpartition("/")
    # The part behind the slash of ViT-B/16 is no name.
    is_name = not publisher or any(letter.isalpha() for letter in last)
    return (last if is_name else f"{publisher}-{last}").translate(_FOLDED)


def _model_names(catalog: Catalog) -> dict[str, str]:
    models = catalog.reference.models.values()
    spellings = {fold_model(alias): model.id for model in models for alias in (model.name, *model.aliases)}
    # Ids come last, so that an id wins over an alias with the same spelling.
    return spellings | {fold_model(model.id): model.id for model in models}


def _model_names_without_separators(catalog: Catalog) -> dict[str, str]:
    """Returns the ids of models by their names as `_without_most_separators` writes them, where one model is meant."""
    meant: dict[str, set[str]] = {}
    for spelling, model in catalog.derive(_model_names).items():
        meant.setdefault(_without_most_separators(spelling), set()).add(model)
    return {spelling: models.pop() for spelling, models in meant.items() if len(models) == 1}


def _without_most_separators(folded: str) -> str:
    """Returns a folded name of a model without its dashes and dots, but those between two digits: llama-3.1-8b is
    another model than llama-3-18b.
    """
    return _SEPARATOR_OF_WORDS.sub("", folded.replace(".", "-"))


def resolve_model(name: str, catalog: Catalog, field: str = "model") -> Model:
    """Returns the model of an id, name or alias; a chat variant means the model itself. Raises `UnknownName`."""
    spellings = catalog.derive(_model_names)
    folded = fold_model(name[:LONGEST_NAME])
    model_id = _model_id(folded, spellings) or catalog.derive(_model_names_without_separators).get(
        _without_most_separators(_ENDING_OF_A_VARIANT.sub("", folded))
    )
    if model_id is not None:
        return catalog.reference.models[model_id]
    # Ollama writes sizes and formats after a colon; a name without a format means 4 bits there.
    if (base := _model_id(_ENDING_OF_A_FORMAT.sub("", folded.replace(":", "-")), spellings)) is not None:
        if format_in_name(name) is not None:
            return catalog.reference.models[base]
        # The number format decides speed and memory, so the caller has to state it in a field of its own.
        raise UnknownName(
            f"'{name}' is {base} with its weights in another format: name the model {base}, and the format in "
            "workload.precision, or in workload.weight_precision or workload.weight_bits where it only stores them.",
            field=field,
            near=(base,),
        )
    raise unknown("model", name, spellings, field, MODELS_CAN_BE_DESCRIBED, _models_within(folded, spellings))


def _models_within(folded: str, spellings: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the longest spelling of each model that is a part of a name, as llama-3.1-8b is of hermes-3-llama-3.1-8b.

    Part of a name are whole words between dashes.
    """
    within = sorted((each for each in spellings if f"-{each}-" in f"-{folded}-"), key=len)
    return tuple(reversed({spellings[each]: each for each in within}.values()))


def format_in_name(name: str) -> str | None:
    """Returns the format of numbers, or of GGUF files, in the name of a quantised release such as `Qwen3-32B-AWQ`.

    None if the name has none, or one that does not settle the format.
    """
    ending = _ENDING_OF_A_FORMAT.search(fold_model(name[:LONGEST_NAME]).replace(":", "-"))
    words = ending[0].strip("-.").replace(".", "-") if ending else ""
    for prefix in ("quantized-", "qat-", "gguf-"):
        words = words.removeprefix(prefix)
    plain = words.removesuffix("-gguf").removesuffix("-dynamic")
    return _FORMATS_OF_ENDINGS.get(plain) or (plain if gguf_bits(plain) else None)


def _model_id(folded: str, spellings: Mapping[str, str]) -> str | None:
    # A variant with an entry of its own wins; only without one does it mean the base model.
    return spellings.get(folded) or spellings.get(_ENDING_OF_A_VARIANT.sub("", folded))


def published_model(model: Model, catalog: Catalog) -> Model:
    """Returns the model under the id of a model of the same sizes with published runs, so that they count for it.

    A model without such a counterpart, or with runs of its own, is returned as it is.
    """
    # Results are cached for models of the catalog only, because callers can describe any number of others.
    is_cached = catalog.reference.models.get(model.id) is model
    return catalog.derive(_published_model, model) if is_cached else _published_model(catalog, model)


def _published_model(catalog: Catalog, model: Model) -> Model:
    published = catalog.derive(_published_models)
    return model if model.id in published else recognised(model, published.values())


def _published_models(catalog: Catalog) -> dict[str, Model]:
    models, fitted = catalog.reference.models, catalog.reference.calibration.coefficients.models()
    return {name: models[name] for name in sorted(fitted) if name in models}


def _letters(name: str) -> str:
    """Returns the letters before the digits of a product number, such as the T of T4; empty for any other name."""
    number = _PRODUCT_NUMBER.fullmatch(name)
    return number[1] if number else ""
