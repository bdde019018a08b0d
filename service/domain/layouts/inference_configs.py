"""The configurations of one inference job on the GPUs of a table, which differ in their number formats and in the most
requests at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from service.domain.arrays import Indices
from service.domain.calibration.coefficients import Column, Features, Levels
from service.domain.jobs.config import InferenceConfig, NumberFormats
from service.domain.layouts.cluster_table import ClusterTable
from service.domain.physics.features import FORMAT_FEATURES, inference_config_features


@dataclass(frozen=True, slots=True)
class InferenceConfigs:
    """A configuration for each GPU of a table. All have the same error bands, which depend on nothing that differs."""

    different: tuple[InferenceConfig, ...]
    of_gpu: Indices
    """Index in `different` of the configuration of each of `ClusterTable.gpu_types`."""

    @staticmethod
    def same(config: InferenceConfig, clusters: ClusterTable) -> "InferenceConfigs":
        """Returns one configuration for all GPUs of a table."""
        return InferenceConfigs((config,), np.zeros(len(clusters.gpu_types), np.int64))

    @property
    def any(self) -> InferenceConfig:
        """One of the configurations, for everything in which they are equal."""
        return self.different[0]

    def on(self, gpu_types: Indices) -> InferenceConfig:
        """Returns one configuration for rows with these GPUs; what differs are columns in it."""
        if len(self.different) == 1:
            return self.any
        rows, each = self.of_gpu[gpu_types], [config.formats for config in self.different]
        most_in_flight = np.array([config.most_in_flight for config in self.different])[rows]
        by_row = NumberFormats(*(np.array(column)[rows] for column in zip(*each, strict=True)))
        return replace(self.any, by_row=by_row, most_on_gpu=most_in_flight)

    def by_gpu(self) -> Iterator[InferenceConfig]:
        """The configuration of each GPU of the table."""
        return (self.different[number] for number in self.of_gpu.tolist())

    def features(self, clusters: ClusterTable) -> tuple[Features, dict[str, Column]]:
        """Returns the features that all configurations share, and those in which they differ, for each cluster."""
        each = [inference_config_features(config) for config in self.different]
        if len(each) == 1:
            return each[0], {}
        rows = self.of_gpu[clusters.gpu_type]
        common = {name: value for name, value in each[0].items() if name not in FORMAT_FEATURES}
        return common, {name: Levels(tuple(str(features[name]) for features in each), rows) for name in FORMAT_FEATURES}
