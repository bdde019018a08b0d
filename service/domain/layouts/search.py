"""The best layout of a configuration, whether it trains or not."""

from service.domain.calibration.error_bands import Physics
from service.domain.jobs.config import Config, TrainingConfig
from service.domain.layouts.cluster_table import ClusterTable
from service.domain.layouts.inference_search import FastestInference, best_inference_layout, fastest_inference_layouts
from service.domain.layouts.training_search import FastestTraining, best_training_layout, fastest_training_layouts
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate


def best_layout(physics: Physics, config: Config, cluster: Cluster, fixed: FixedLayout = FREE) -> Estimate:
    """Estimates the best layout on one cluster. Raises `QuestionError` when no layout is possible."""
    if isinstance(config, TrainingConfig):
        return best_training_layout(physics, config, cluster, fixed)
    return best_inference_layout(physics, config, cluster, fixed)


def fastest_layouts(
    physics: Physics, config: Config, clusters: ClusterTable, fixed: FixedLayout = FREE
) -> FastestTraining | FastestInference:
    """The best layout on every cluster of a table, with its figures."""
    if isinstance(config, TrainingConfig):
        return fastest_training_layouts(physics, config, clusters, fixed)
    return fastest_inference_layouts(physics, config, clusters, fixed)
