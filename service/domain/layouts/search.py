"""The best layout of a configuration, whether it trains or not."""

from dataclasses import replace

from service.domain.calibration.calibration import Calibration
from service.domain.errors import QuestionError
from service.domain.jobs.config import Config, TrainingConfig
from service.domain.jobs.fixed_layout import FREE, FixedLayout
from service.domain.layouts.best_layouts import BestLayouts
from service.domain.layouts.candidates import DEGREES_OF_A_REPLICA, divides_layers
from service.domain.layouts.checks import check_fixed
from service.domain.layouts.cluster_table import ClusterTable, cluster_table
from service.domain.layouts.inference_configs import InferenceConfigs
from service.domain.layouts.inference_search import fastest_inference_layouts
from service.domain.layouts.training_search import fastest_training_layouts
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, estimate_config
from service.domain.physics.load import missed_limits


def best_layout(calibration: Calibration, config: Config, cluster: Cluster, fixed: FixedLayout = FREE) -> Estimate:
    """Returns the estimate of the fastest layout that fits on one cluster, else of the one that needs the least memory.

    Tensor parallelism crosses slow links only if the caller fixes it so or nothing else fits. Raises `QuestionError`
    when no layout is possible.
    """
    check_fixed(fixed, config, cluster)
    fastest = fastest_layouts(calibration, config, cluster_table([cluster]), fixed)
    if not fastest.exists[0]:
        raise _no_layout(config, cluster, fixed)
    estimate = estimate_config(calibration, config, cluster, fastest.layouts.row(0))
    if estimate.served is None or not estimate.served.missed or not fastest.fits[0]:
        return estimate
    # Where no layout keeps the limits of a load, another one may come nearer to them than the fastest.
    served = estimate.served
    missed = missed_limits(served.serving, fastest.least_alone[0], fastest.least_together[0]) or served.missed
    return replace(estimate, served=replace(served, missed=missed))


def fastest_layouts(
    calibration: Calibration, config: Config, clusters: ClusterTable, fixed: FixedLayout = FREE
) -> BestLayouts:
    """Returns the best layout on every cluster of a table, with its figures."""
    if isinstance(config, TrainingConfig):
        return fastest_training_layouts(calibration, config, clusters, fixed)
    return fastest_inference_layouts(calibration, InferenceConfigs.same(config, clusters), clusters, fixed)


def _no_layout(config: Config, cluster: Cluster, fixed: FixedLayout) -> QuestionError:
    batch, rule, trains = "", "the GPUs of a replica must divide its attention heads and layers", False
    if isinstance(config, TrainingConfig):
        batch, trains = f" and a global batch of {config.global_batch}" if config.global_batch else "", True
        is_divided = divides_layers(config) or any(getattr(fixed, name) is not None for name in DEGREES_OF_A_REPLICA)
        if is_divided:
            rule = f"each data-parallel rank needs a sample at least, and {rule}"
            if cluster.crosses_network and not cluster.network_known:
                rule += (
                    ", and only data parallelism crosses machines whose network is not stated "
                    "(workload.assume_network_gbps states it)"
                )
        elif fixed.data not in (None, cluster.gpus):
            rule = (
                f"they are {cluster.gpus} data-parallel ranks, and not {fixed.data}, unless another degree is above 1"
            )
        else:
            rule = "each of them needs a sample at least, since none shares a layer with another"
    return QuestionError(
        f"No layout divides {config.model.name}{batch} over {cluster.gpus} GPUs as asked: {rule}.",
        field="workload.global_batch_size" if trains and fixed == FREE else "layout",
    )
