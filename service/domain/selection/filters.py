"""Checks of the filters on words, numbers and flags of instance types.

An unknown number or flag does not pass a filter; it is a rejection of its own, apart from values that are known to miss
the filter.
"""

from collections.abc import Iterator

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.columns import FLAGS, NUMBERS, WORDS
from service.domain.catalog.hardware import IN_USE, RENTED
from service.domain.selection.relax import AddWord, Check, Ground, MoveLimit, drop
from service.domain.typeset import ThresholdIndex, TypeSet, types_by_code, types_where, union

INCLUDED_WORDS: dict[str, dict[str, tuple[str, ...]]] = {"interconnect": {"nvlink": ("nvswitch",)}}
"""Column → word → words that it includes: NVSwitch is NVLink through a switch."""

RANGES: dict[str, tuple[str, str]] = {
    **{name: (column.label, column.note) for name, column in NUMBERS.items() if column.is_filter},
    "tflops": ("peak rate at the precision", "It is the dense peak of all GPUs at the first precision that is named."),
}
"""Name of a range filter → its label and note. `tflops` has a column for each precision."""

FILTER_CODES: dict[str, str] = {
    **{name: f"The {column.label} is not among those requested." for name, column in WORDS.items()},
    "lifecycle": "Its lifecycle on the catalog's day is not among those admitted, which are `available` and "
    "`closed_to_new` unless the question names others.",
    **{f"min_{name}": f"The {label} is below the requested minimum." for name, (label, _) in RANGES.items()},
    **{f"max_{name}": f"The {label} is above the requested maximum." for name, (label, _) in RANGES.items()},
    **{name: f"The {column.label} is not as requested." for name, column in FLAGS.items()},
    **{
        f"{name}_unknown": f"The {label} is unknown, so it cannot be shown to pass the constraint."
        for name, label in {
            **{name: label for name, (label, _) in RANGES.items()},
            **{name: column.label for name, column in FLAGS.items() if column.can_be_unknown},
        }.items()
    },
}
"""Codes of rejections by these filters → their meanings."""


def word_check(catalog: Catalog, name: str, words: tuple[str, ...]) -> Check:
    """Checks that a type has one of the words in a column."""
    types_of = catalog.derive(_types_by_word, name)
    fails = catalog.all_types & ~union(types_of.get(word, 0) for word in words)
    if name in WORDS:
        return Check(name, WORDS[name].ground, fails, AddWord(name, words, fails, types_of, or_drop=True))
    # Of the lifecycle, only states are proposed in which a type is rented; without a state the usual ones are meant.
    rented: dict[str, TypeSet] = {state: types_of.get(state, 0) for state in RENTED}
    ground: Ground = "availability" if {*IN_USE} <= {*words} else "constraint"
    return Check(name, ground, fails, AddWord(name, words, fails, rented))


def flag_checks(catalog: Catalog, name: str, required: bool) -> list[Check]:
    """Checks that a flag is known, and true or false as requested."""
    column = catalog.columns.flags[name]
    other, unknown = types_where(column == (not required)), types_where(column == -1)
    rule = drop({name: None}, other | unknown)
    checks = [Check(name, "hardware", other, rule)]
    return [*checks, Check(f"{name}_unknown", "data", unknown, rule)] if unknown else checks


def range_checks(
    catalog: Catalog, name: str, at_least: float | None, at_most: float | None, precision: str | None
) -> Iterator[Check]:
    """Checks that a number (`tflops` at a `precision`) is known and within limits; a type fails at most one check."""
    # Only the index is cached and not the checks, because limits can be any number.
    index = number_index(catalog, name, precision)
    unknown = catalog.all_types & ~index.known
    below = 0 if at_least is None else index.below(at_least)
    above = 0 if at_most is None else index.above(at_most)
    limits = {f"min_{name}": at_least, f"max_{name}": at_most}
    if at_least is not None:
        yield Check(f"min_{name}", "hardware", below, MoveLimit(f"min_{name}", "min", below, index))
    if at_most is not None:
        # A maximum of 0 asks for machines without a GPU, for which whole GPUs are no small change.
        movable = above & index.below(1.0) if name == "gpu_count" and at_most == 0 else above
        yield Check(f"max_{name}", "hardware", above, MoveLimit(f"max_{name}", "max", movable, index))
    if unknown:
        dropped = {field: None for field, limit in limits.items() if limit is not None}
        yield Check(f"{name}_unknown", "data", unknown, drop(dropped, unknown | below | above))


def number_index(catalog: Catalog, name: str, precision: str | None = None) -> ThresholdIndex:
    """Returns the index of a column of numbers; `tflops` is the peak of the whole machine at a precision."""
    return catalog.derive(_index, name, precision if name == "tflops" else None)


def _index(catalog: Catalog, name: str, precision: str | None) -> ThresholdIndex:
    return ThresholdIndex.of(catalog.columns.numbers[name] if precision is None else catalog.columns.tflops[precision])


def _types_by_word(catalog: Catalog, name: str) -> dict[str, TypeSet]:
    """Returns the types that each word of a column finds; words that include others come last."""
    column = catalog.columns.words[name]
    types_of = {column.words[code]: types for code, types in types_by_code(column.codes).items()}
    included = INCLUDED_WORDS.get(name, {})
    return {
        word: union(types_of.get(other, 0) for other in (word, *included.get(word, ())))
        for word in sorted({*types_of, *included}, key=lambda word: (word in included, word))
    }
