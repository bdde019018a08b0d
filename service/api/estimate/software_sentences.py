"""The sentences about software in answers: what is not known of it, and what it does not do."""

from collections.abc import Mapping, Sequence
from itertools import chain

from service.domain.catalog.names import either, with_near


def software_unknown(near: Mapping[str, Sequence[str]], consequence: str) -> str:
    """Returns that no rule is about some software, each name with near ones, and what follows from that."""
    sentence = f"No rule says where {either(near)} runs, so {consequence}."
    return f"{with_near(sentence, tuple(chain(*near.values())))} GET /frameworks lists the software with rules."


def software_unrecognised(names: Sequence[str], listed: Sequence[str], near: Sequence[str]) -> str:
    """Returns that the estimate assumes no stack, because none or no published run is known by these names."""
    reasons = [f"no published run of {either(listed)} is known, from which coefficients would follow"] if listed else []
    others = [name for name in names if name not in listed]
    reasons += [f"no stack is called {either(others)}"] if others else []
    reason = " and ".join(reasons)
    assumed = f"{reason[0].upper()}{reason[1:]}: the estimate assumes no stack, is cautious and has a wider band."
    return with_near(assumed, near)


def software_model(software: str, gpu: str, task: str, words: Sequence[str], note: str | None) -> str:
    """Returns that software does not work with a family of models on a GPU."""
    does_not = f"{software} is not known to do {task} with models of the family {either(words)} on the {gpu}"
    return f"{does_not}{_in_brackets(note)}: the figures assume that it does."


def software_format(software: str, gpu: str, task: str, words: Sequence[str], note: str | None) -> str:
    """Returns that software does not work with a format of weights on a GPU."""
    does_not = f"{software} is not known to do {task} with weights in {either(words)} on the {gpu}"
    return f"{does_not}{_in_brackets(note)}: the figures assume that it does."


def _in_brackets(note: str | None) -> str:
    return "" if note is None else f" ({note})"


def software_partly(software: Sequence[tuple[str, str | None]]) -> str:
    """Returns the software that runs in part, each with a remark."""
    names = ", ".join(name if remark is None else f"{name} ({remark})" for name, remark in software)
    return f"Runs here in part, or with less than on other machines: {names}."
