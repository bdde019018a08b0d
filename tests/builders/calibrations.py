"""The calibration of the estimates: with the coefficients of the seed, and without any."""

import csv

from service.domain.calibration.calibration import Calibration, calibration_of
from service.domain.calibration.coefficients import Coefficient, Coefficients
from service.domain.calibration.error_bands import ErrorBands
from service.files import SEED


def _seed_calibration() -> Calibration:
    with (SEED / "coefficients.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return calibration_of(
        [Coefficient(r["name"], r["scope"], float(r["value"]), r["source"], r["fitted_on"], int(r["n"])) for r in rows]
    )


UNFITTED = Calibration(Coefficients({}), ErrorBands({}))
FITTED = _seed_calibration()
