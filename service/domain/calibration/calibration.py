"""The calibration of all estimates: coefficients that correct ideal times and bytes, and error bands."""

from collections.abc import Iterable
from dataclasses import dataclass

from service.domain.calibration.coefficients import Coefficient, Coefficients, values_by_name
from service.domain.calibration.error_bands import ErrorBands


@dataclass(frozen=True, slots=True)
class Calibration:
    """The coefficients and the error bands in force."""

    coefficients: Coefficients
    bands: ErrorBands


def calibration_of(coefficients: Iterable[Coefficient]) -> Calibration:
    """Returns the calibration that these rows of coefficients make up; rows about prices belong to `PriceMovement`."""
    values = values_by_name(coefficient for coefficient in coefficients if not coefficient.name.startswith("price."))
    bands = {name: values.pop(name) for name in list(values) if name.startswith("band.")}
    return Calibration(Coefficients(values), ErrorBands(bands))
