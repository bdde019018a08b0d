"""The best layout of a job on a machine: the fastest that fits, or what would have to change for one to fit."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from service.domain.errors import QuestionError
from service.domain.estimate import Estimate, Physics, estimate_inference, estimate_training
from service.domain.layout_candidates import (
    crosses_slow_links,
    every_inference_layout,
    every_training_layout,
)
from service.domain.layouts import FREE, FixedLayout
from service.domain.machine import Machine
from service.domain.workload import Inference, Training


def best_training_layout(physics: Physics, work: Training, machine: Machine, fixed: FixedLayout = FREE) -> Estimate:
    """The fastest layout that fits; where none does, the one that needs the least memory.

    A tensor cut leaves the GPUs on one fast link only when told so or when nothing else fits; the estimate says so.
    """

    def estimates(*, across: bool) -> list[Estimate]:
        layouts = every_training_layout(work, machine, fixed, across=across)
        return [estimate_training(physics, work, machine, each) for each in layouts]

    return _best(estimates, machine)


def best_inference_layout(physics: Physics, work: Inference, machine: Machine, fixed: FixedLayout = FREE) -> Estimate:
    """The layout that fits and answers the most tokens (or samples) per second; of equals, the least cut.

    With a concurrency given, all layouts that hold it at once share it among their replicas, so the most tokens per
    second is also the least time per token; a layout that could not hold it would look quick for few and keep others
    waiting, which tokens per second counts and time per token does not.
    """

    def estimates(*, across: bool) -> list[Estimate]:
        layouts = every_inference_layout(work, machine, fixed, across=across)
        return [estimate_inference(physics, work, machine, each) for each in layouts]

    return _best(estimates, machine)


def _best(estimates: Callable[..., list[Estimate]], machine: Machine) -> Estimate:
    found = estimates(across=False)
    if not any(each.fits for each in found):
        found += estimates(across=True)
    if not found:
        raise QuestionError(
            "No layout of these GPUs gives each data-parallel rank a sample.", field="global_batch_size"
        )
    best = fastest(found)
    across = crosses_slow_links(best.layout.tensor, machine.linked_gpus)
    return replace(best, tensor_across_slow_links=across)


def fastest(found: Iterable[Estimate]) -> Estimate:
    """The first of the fastest that fit, else the first of those that need the least memory."""
    known = list(found)
    fitting = [each for each in known if each.fits]
    if fitting:
        return max(fitting, key=lambda each: each.samples_per_second.likely if each.samples_per_second else 0.0)
    return min(known, key=lambda each: each.memory.needed_bytes)
