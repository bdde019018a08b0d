"""The physics of the estimates: with the coefficients of the seed, and without any."""

import csv

from service.domain.calibration.coefficients import Calibration, Coefficient
from service.domain.calibration.error_bands import ErrorBands, Physics, physics_of
from service.files import SEED


def _seed_physics() -> Physics:
    with (SEED / "coefficients.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return physics_of(
        [Coefficient(r["name"], r["scope"], float(r["value"]), r["source"], r["fitted_on"], int(r["n"])) for r in rows]
    )


UNFITTED = Physics(Calibration({}), ErrorBands({}))
FITTED = _seed_physics()
