"""The best layout of answering on a machine: how many GPUs hold one replica, and how."""

from dataclasses import replace

from service.domain.estimate import Estimate, Physics, estimate_inference
from service.domain.layout_candidates import crosses_slow_links, every_inference_layout
from service.domain.layouts import FREE, FixedLayout
from service.domain.machine import Machine
from service.domain.workload import Inference


def best_inference_layout(physics: Physics, work: Inference, machine: Machine, fixed: FixedLayout = FREE) -> Estimate:
    """The layout that fits and answers the most tokens (or samples) per second; of equals, the least cut.

    With a concurrency given, all layouts that hold it at once share it among their replicas, so the most tokens per
    second is also the least time per token; a layout that could not hold it would look quick for few and keep others
    waiting, which tokens per second counts and time per token does not.
    """
    found: list[Estimate] = []
    for across in (False, True):
        layouts = every_inference_layout(work, machine, fixed, across=across)
        found += [estimate_inference(physics, work, machine, each) for each in layouts]
        if any(each.fits for each in found):
            break
    fitting = [each for each in found if each.samples_per_second is not None]
    if fitting:
        best = max(fitting, key=lambda each: each.samples_per_second.likely if each.samples_per_second else 0.0)
    else:
        best = min(found, key=lambda each: each.memory.needed_bytes)
    return replace(best, tensor_across_slow_links=crosses_slow_links(best.layout.tensor, machine.linked_gpus))
