"""Calibrated bytes and seconds of many layouts at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.domain.arrays import Number
from service.domain.calibration.coefficients import Calibration, Column, Features, StepKind


@dataclass(frozen=True, slots=True)
class ConfigFactors:
    """Factors between ideal and real amounts for one configuration, in rows that differ by their columns."""

    calibration: Calibration
    features: Features

    def log_of(self, kind: StepKind, term: str, columns: Mapping[str, Column]) -> Number:
        """Sum of the coefficients of a term, in each row."""
        of_columns = self.calibration.log_factors(kind, term, self.features, columns)
        return self.calibration.log_factor(kind, term, self.features) + of_columns

    def of(self, kind: StepKind, term: str, columns: Mapping[str, Column]) -> Number:
        """Factor of a term, in each row."""
        return kind.start.get(term, 1.0) * np.exp(self.log_of(kind, term, columns))

    def total(self, kind: StepKind, amounts: Mapping[str, Number], columns: Mapping[str, Column]) -> Number:
        """Calibrated sum of the amounts of all terms, in each row."""
        terms = sum(amount * self.of(kind, term, columns) for term, amount in amounts.items())
        return terms * self.of(kind, "*", columns)
