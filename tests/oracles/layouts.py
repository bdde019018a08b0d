"""The search for a layout again, as a plain loop over every layout: slow, and obviously right."""

from service.domain.calibration.error_bands import Physics
from service.domain.jobs.config import TrainingConfig
from service.domain.layouts.candidates import every_training_layout
from service.domain.layouts.usual import FixedLayout
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, estimate_training


def fastest_layout(physics: Physics, config: TrainingConfig, cluster: Cluster, fixed: FixedLayout) -> Estimate | None:
    """The fastest layout that fits; if none fits, the one that needs the least memory.

    Layouts whose tensor parallelism crosses slow links count only where no other layout fits.
    """
    on_fast_links, on_slow_links = (
        [
            estimate_training(physics, config, cluster, layout)
            for layout in every_training_layout(config, cluster, fixed, across=across)
        ]
        for across in (False, True)
    )
    for estimates in (on_fast_links, on_slow_links):
        if any(estimate.fits for estimate in estimates):
            return max((estimate for estimate in estimates if estimate.fits), key=samples_per_second)
    return min(on_fast_links or on_slow_links, key=lambda estimate: estimate.memory.needed_bytes, default=None)


def samples_per_second(estimate: Estimate) -> float:
    """The likely rate; 0 if the layout does not fit."""
    return estimate.samples_per_second.likely if estimate.samples_per_second else 0.0
