"""The best layout of a job on each of many clusters, whether it trains or not, with its figures as columns."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Mask
from service.domain.physics.parallelism import LayoutTable


@dataclass(frozen=True, slots=True)
class LayoutFigures:
    """Figures of the best layout of a job in each row, and of all its layouts there; bytes are those of a GPU."""

    exists: Mask
    """Whether some allowed layout divides the batch over the cluster."""
    fits: Mask
    """Whether the best layout fits in the memory of the GPUs, with the confidence of the job, and of the host."""
    needed_bytes: Floats
    """Likely bytes of the best layout; infinite where there is none."""
    sure_bytes: Floats
    """Bytes that suffice with the confidence of the job; infinite where there is no layout."""
    spare: Floats
    """Usable bytes over the fewest that any layout likely needs, for one request if the model generates. The job fits
    with a confidence if this ratio is at least the factor on the likely bytes that belongs to it. 0 where the job never
    fits; NaN where the memory of GPUs alone does not decide, because of the host or of requests that must run at once.
    """
    most_requests: Floats
    """Most requests that run at once in any layout of a model that generates; 0 where none fits."""
    holds_weights: Mask
    """Whether a model that generates surely fits in some layout without a single request."""
    instances: Floats
    """Fewest clusters that serve the load of the job within its limits on times; infinite where no number does."""
    least_alone: Floats
    """Least of `load.Served.least_alone` over all layouts; without a load it has no columns."""
    least_together: Floats
    """Least of `load.Served.least_together` over all layouts; without a load it has no columns."""
    seconds_per_request: Floats
    """Seconds of a request of the load at its percentile; NaN without a load, and for clients who wait for answers, as
    their times follow from the rate."""


@dataclass(frozen=True, slots=True)
class BestLayouts(LayoutFigures):
    """The best layout of a configuration on each cluster of a table, with its figures."""

    layouts: LayoutTable
    units_per_second: Floats
    """Output tokens of a model that generates, or samples, per second of the whole cluster: calibrated, before the
    caution of bands; 0 where the layout does not fit."""
    concurrency: Floats
    """Conversations (or samples) of inference that run at once on the whole cluster."""

    @staticmethod
    def nothing(rows: int, limits: int = 0) -> "BestLayouts":
        """Returns a table without a layout on any cluster, for a load with a number of limits."""
        figures = no_figures(rows, limits)
        return BestLayouts(
            **figures, layouts=LayoutTable.plain(rows), units_per_second=np.zeros(rows), concurrency=np.zeros(rows)
        )


def no_figures(rows: int, limits: int) -> dict[str, NDArray[Any]]:
    """Returns the columns of `LayoutFigures` where no layout exists, for a load with a number of limits."""
    return {
        "exists": np.zeros(rows, np.bool_),
        "fits": np.zeros(rows, np.bool_),
        "needed_bytes": np.full(rows, np.inf),
        "sure_bytes": np.full(rows, np.inf),
        "spare": np.zeros(rows),
        "most_requests": np.zeros(rows),
        "holds_weights": np.zeros(rows, np.bool_),
        "instances": np.ones(rows),
        "least_alone": np.full((rows, limits), np.inf),
        "least_together": np.full((rows, limits), np.inf),
        "seconds_per_request": np.full(rows, np.nan),
    }
