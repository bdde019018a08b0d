"""Fits the coefficients and bands of the physics to a table of published runs, and reports how right they are."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from service.accuracy.direct import Case, also_fitted, case_of, fit_all
from service.accuracy.report import score_lines
from service.accuracy.rows import Row, UnansweredRun, counted_rows, question_of
from service.accuracy.scoring import SPLITS, ScoredAnswer, fold_of
from service.domain.calibration.coefficients import Calibration, Coefficient
from service.domain.calibration.error_bands import ErrorBands, fitted_bands, physics_of, unseen
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve_model
from service.domain.errors import QuestionError

RowCase = tuple[Row, Case]

FOLDS = 5


def calibrate(table: Path, catalog: Catalog, write: Path | None) -> str:
    """Fits every row, writes the coefficients if a path is given, and returns a report on runs that were left out."""
    pairs, refused = _cases_of(table, catalog)
    coefficients, text = _calibrated(pairs)
    if write:
        _write_coefficients(write, coefficients)
    rows = sum(case.scored for _, case in pairs)
    return f"{rows} rows; refused: {dict(refused)}\n{text}\n"


def _cases_of(table: Path, catalog: Catalog) -> tuple[list[RowCase], Counter[str]]:
    """Rows that can be put as questions, and why others cannot."""
    pairs: list[RowCase] = []
    refused: Counter[str] = Counter()
    for row in counted_rows(table):
        try:
            question = question_of(row, lambda name: _is_known(name, catalog))
            pairs.append((row, case_of(question, catalog)))
            if (conclusion := also_fitted(question, catalog)) is not None:
                pairs.append((row, conclusion))
        except (UnansweredRun, QuestionError, ValidationError) as why:
            refused[str(why)] += 1
    return pairs, refused


def _is_known(model: str, catalog: Catalog) -> bool:
    try:
        resolve_model(model, catalog)
    except QuestionError:
        return False
    return True


def _calibrated(pairs: Sequence[RowCase]) -> tuple[list[Coefficient], str]:
    """All coefficients and bands, with the report on runs that were left out."""
    results = {split: list(_left_out(pairs, split)) for split in SPLITS}
    bands = fitted_bands(
        [case.miss(calibration) for result in results.values() for (_, case), calibration in result if not case.bound]
    )
    lines: list[str] = []
    for split, result in results.items():
        lines += [f"== left out by {split}", *score_lines(_answers_of(result, physics_of(bands).bands))]
    return [*fit_all([case for _, case in pairs]), *bands], "\n".join(lines)


def _left_out(pairs: Sequence[RowCase], split: str) -> Iterator[tuple[RowCase, Calibration]]:
    """Each case with a calibration that was fitted without its fold."""
    fold = [fold_of(SPLITS[split](case.question), FOLDS) for _, case in pairs]
    for out in range(FOLDS):
        fitted = fit_all([case for (_, case), at in zip(pairs, fold, strict=True) if at != out])
        calibration = physics_of(fitted).calibration
        yield from ((pair, calibration) for pair, at in zip(pairs, fold, strict=True) if at == out)


def _answers_of(results: Sequence[tuple[RowCase, Calibration]], bands: ErrorBands) -> list[ScoredAnswer]:
    answers = []
    for (row, case), calibration in results:
        if not case.scored:
            continue
        likely = case.predicted(calibration)
        new = unseen(calibration, case.kind, case.features)
        band = bands.around(likely, case.kind, case.features, new, of_rate=case.is_rate)
        answers.append(ScoredAnswer(case.question, row, likely if case.bound else band.likely, band.low, band.high))
    return answers


def _write_coefficients(path: Path, coefficients: Sequence[Coefficient]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "scope", "value", "source", "fitted_on", "n"])
        for one in sorted(coefficients, key=lambda c: (c.name, c.scope)):
            writer.writerow([one.name, one.scope, one.value, one.source, one.fitted_on, one.n])
