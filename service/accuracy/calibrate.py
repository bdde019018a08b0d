"""Fits the coefficients and bands of the physics to a table of published runs, and reports their accuracy."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from itertools import chain
from pathlib import Path

from pydantic import ValidationError

from service.accuracy.direct import Case, also_fitted, case_of, fit_all
from service.accuracy.report import coverage_lines, score_lines
from service.accuracy.rows import Row, UnansweredRun, question_of
from service.accuracy.scoring import FOLDS, SPLITS, ScoredAnswer, fold_of
from service.domain.band import Band
from service.domain.calibration.calibration import calibration_of
from service.domain.calibration.coefficients import Coefficient, Coefficients
from service.domain.calibration.error_bands import ErrorBands, fitted_bands, unseen
from service.domain.calibration.scope_order import Better
from service.domain.calibration.step_kinds import MEMORY
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import better_gpus
from service.domain.errors import QuestionError


def calibrate(rows: Iterable[Row], catalog: Catalog, write: Path | None) -> str:
    """Fits every row, writes the coefficients if a path is given, and returns a report on runs that were left out."""
    cases, refused = _cases_of(rows, catalog)
    better = better_gpus(catalog.reference.gpus.values())
    results = {split: list(_left_out(cases, split, better)) for split in SPLITS}
    # A bound is no figure: it has no error, and no part in the bands.
    left_out = [(case, without) for result in results.values() for case, without in result if not case.bound]
    # Caution is about rates: weights and optimizer states take the same bytes in any stack.
    timed = [(case, without) for case, without in left_out if case.kind is not MEMORY]
    bands = fitted_bands(
        [case.miss(without) for case, without in left_out],
        without_stack=[each.miss(without) for case, without in timed for each in case.without_stack],
    )
    if write:
        write_coefficients(write, [*fit_all(cases, better), *bands])
    lines = [f"{sum(case.scored for case in cases)} rows; refused: {dict(refused)}"]
    answers = {split: _answers_of(result, calibration_of(bands).bands) for split, result in results.items()}
    for split, of_split in answers.items():
        lines += [f"== left out by {split}", *score_lines(of_split)]
    lines += ["== inside the band, over all ways to leave out", *coverage_lines([*chain(*answers.values())])]
    return "\n".join([*lines, ""])


def _cases_of(rows: Iterable[Row], catalog: Catalog) -> tuple[list[Case], Counter[str]]:
    """Returns the rows that can be asked as questions, and the reasons why others cannot, with counts."""
    cases: list[Case] = []
    refused: Counter[str] = Counter()
    for row in rows:
        # A table has no architectures, and some runs are left out by them.
        if (gpu := catalog.reference.gpus.get(row["gpu_id"])) is not None:
            row["architecture"] = gpu.architecture
        try:
            question = question_of(row)
            cases.append(case_of(question, catalog))
            # A run that finished also shows that it fitted, which helps to fit the memory of a job.
            if (conclusion := also_fitted(question, catalog)) is not None:
                cases.append(conclusion)
        # A refused row is counted, not raised: one odd row must not stop the fit of a thousand others.
        except (UnansweredRun, QuestionError, ValidationError) as why:
            refused[str(why)] += 1
    return cases, refused


def _left_out(cases: Sequence[Case], split: str, better: Better) -> Iterator[tuple[Case, Coefficients]]:
    """Yields each case with coefficients that were fitted without the fold of the case."""
    # Rows of one source, machine or model are in one fold, because they would predict each other.
    fold = [fold_of(case.question.row, split) for case in cases]
    for out in range(FOLDS):
        fitted = fit_all([case for case, index in zip(cases, fold, strict=True) if index != out], better)
        coefficients = calibration_of(fitted).coefficients
        yield from (
            (case.under(coefficients), coefficients) for case, index in zip(cases, fold, strict=True) if index == out
        )


def _answers_of(results: Sequence[tuple[Case, Coefficients]], bands: ErrorBands) -> list[ScoredAnswer]:
    answers = []
    for case, coefficients in results:
        # The conclusion that a run fitted is no published figure, so it counts in the fit but not in the score.
        if case.scored:
            likely = case.predicted(coefficients)
            new = unseen(coefficients, case.kind, case.features)
            band, of_kind = (
                bands.around(likely, kind, case.features, new, of_rate=case.is_rate) for kind in (case.bands, case.kind)
            )
            band = band.with_likely(of_kind.likely)
            if case.bound:
                most = bands.around(case.estimated_seconds(coefficients), case.bands, case.features, new, of_rate=False)
                band = Band(min(likely, float(most.high <= case.usable_bytes)), likely, likely)
            answers.append(ScoredAnswer(case.question, band.likely, band.low, band.high))
    return answers


def write_coefficients(path: Path, coefficients: Sequence[Coefficient]) -> None:
    """Replaces the rows of the same sources in a file of coefficients, and keeps all others."""
    sources = {coefficient.source for coefficient in coefficients}
    with path.open(encoding="utf-8", newline="") as file:
        names = [field.name for field in fields(Coefficient)]
        others = [[row[name] for name in names] for row in csv.DictReader(file) if row["source"] not in sources]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        # Sorted, so that a refit changes only the lines whose coefficients change.
        writer.writerows(sorted([*others, *(list(astuple(coefficient)) for coefficient in coefficients)]))
