"""Fits the coefficients and bands of the physics on a table of published runs, and reports how right they are."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from service.accuracy.direct import Case, also_fitted, case_of, fit_all
from service.accuracy.report import score_lines
from service.accuracy.rows import Row, UnansweredRun, question_of
from service.accuracy.scoring import SPLITS, ScoredAnswer, fold_of
from service.domain.calibration.coefficients import Calibration, Coefficient
from service.domain.calibration.error_bands import ErrorBands, Miss, bands_of, fitted_bands, unseen
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve_model
from service.domain.errors import QuestionError

Pair = tuple[Row, Case]


def cases_of(table: Path, catalog: Catalog, qualities: str = "AB") -> tuple[list[Pair], dict[str, int]]:
    """Rows that can be expressed, and why others cannot."""
    pairs: list[Pair] = []
    refused: dict[str, int] = {}
    known = known_models(catalog)
    with table.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["quality"] not in qualities:
                continue
            try:
                question = question_of(row, known)
                pairs.append((row, case_of(question, catalog)))
                if (beside := also_fitted(question, catalog)) is not None:
                    pairs.append((row, beside))
            except (UnansweredRun, QuestionError, ValidationError) as why:
                refused[str(why)] = refused.get(str(why), 0) + 1
    return pairs, refused


def known_models(catalog: Catalog) -> Callable[[str], bool]:
    def known(name: str) -> bool:
        try:
            resolve_model(name, catalog)
        except QuestionError:
            return False
        return True

    return known


def left_out(pairs: Sequence[Pair], split: str, folds: int = 5) -> list[tuple[Pair, Calibration]]:
    """Each case with a calibration that was fitted without its fold."""
    fold = [fold_of(SPLITS[split](case.question), folds) for _, case in pairs]
    result: list[tuple[Pair, Calibration]] = []
    for out in range(folds):
        calibration, _ = fit_all([case for (_, case), at in zip(pairs, fold, strict=True) if at != out])
        result.extend((pair, calibration) for pair, at in zip(pairs, fold, strict=True) if at == out)
    return result


def misses_of(results: Sequence[tuple[Pair, Calibration]]) -> list[Miss]:
    return [case.miss(calibration) for (_, case), calibration in results if not case.bound]


def answers_of(results: Sequence[tuple[Pair, Calibration]], bands: ErrorBands) -> list[ScoredAnswer]:
    answers = []
    for (row, case), calibration in results:
        if not case.scored:
            continue
        likely = case.predicted(calibration)
        new = unseen(calibration, case.kind, case.facts)
        band = bands.around(likely, case.kind, case.facts, new, of_rate=case.is_rate)
        answers.append(ScoredAnswer(case.question, row, likely if case.bound else band.likely, band.low, band.high))
    return answers


def report(title: str, answers: Sequence[ScoredAnswer]) -> str:
    return "\n".join([f"== {title}", *score_lines(answers)])


def calibrated(pairs: Sequence[Pair]) -> tuple[list[Coefficient], str]:
    """All coefficients and bands, with the report of runs that were left out."""
    results = {split: left_out(pairs, split) for split in SPLITS}
    misses = [miss for result in results.values() for miss in misses_of(result)]
    bands = fitted_bands(misses)
    texts = [report(f"left out by {split}", answers_of(result, bands_of(bands))) for split, result in results.items()]
    _, coefficients = fit_all([case for _, case in pairs])
    return [*coefficients, *bands], "\n".join(texts)


def write_coefficients(path: Path, coefficients: Sequence[Coefficient]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "scope", "value", "source", "fitted_on", "n"])
        for one in sorted(coefficients, key=lambda c: (c.name, c.scope)):
            writer.writerow([one.name, one.scope, one.value, one.source, one.fitted_on, one.n])


def calibrate(table: Path, catalog: Catalog, write: Path | None) -> str:
    """Fit on every row; the report is of runs that were left out."""
    pairs, refused = cases_of(table, catalog)
    coefficients, text = calibrated(pairs)
    if write:
        write_coefficients(write, coefficients)
    rows = sum(case.scored for _, case in pairs)
    return f"{rows} rows; refused: {refused}\n{text}\n"
