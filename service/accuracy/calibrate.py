"""Fits the coefficients and bands of the physics from a table of published runs, and reports how right they are.

python -m accuracy.calibrate TABLE.csv --seed seed --write seed/coefficients.csv
"""

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from service.accuracy.direct import Case, case_of, fit_all
from service.accuracy.rows import Refused, Row, question_of
from service.accuracy.scoring import SPLITS, Answer, decisions, fold_of, pairs_in_order, scores, subset_of
from service.domain.bands import Bands, Miss, bands_of, fitted_bands, unseen
from service.domain.efficiency import Calibration, Coefficient
from service.domain.hardware import Gpu
from service.domain.precision import SUPPORT_LEVELS, Rate

Pair = tuple[Row, Case]


def number(text: str) -> float | None:
    return float(text) if text else None


def gpus_of(seed: Path) -> dict[str, Gpu]:
    """GPUs of the seed with their rates."""
    rates: dict[str, dict[str, Rate]] = {}
    with (seed / "gpu_precisions.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            support = next((level for level in SUPPORT_LEVELS if level == row["support"]), None)
            rate = Rate(row["precision"], support, number(row["dense_tflops"]), None, row["source"], None)
            rates.setdefault(row["gpu"], {})[row["precision"]] = rate
    with (seed / "gpus.csv").open(encoding="utf-8") as file:
        return {row["id"]: gpu_from_row(row, rates.get(row["id"], {})) for row in csv.DictReader(file)}


def gpu_from_row(row: Row, rates: Mapping[str, Rate]) -> Gpu:
    return Gpu(
        id=row["id"],
        name=row["name"],
        kind=row["kind"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        released_on=None,
        memory_gb=number(row["memory_gb"]),
        usable_memory_gib=number(row["usable_memory_gib"]),
        memory_type=None,
        memory_bandwidth_gb_per_second=number(row["memory_bandwidth_gb_per_second"]),
        tdp_watts=None,
        compute_capability=None,
        tensor_core_generation=None,
        interconnect=row["interconnect"] or None,
        interconnect_gb_per_second=number(row["interconnect_gb_per_second"]),
        form_factor=None,
        positioned_for=None,
        fraction=number(row["fraction"]) or 1.0,
        partition_of=None,
        source=row["source"],
        note=None,
        aliases=(),
        rates=rates,
    )


def cases_of(table: Path, gpus: Mapping[str, Gpu], qualities: str = "AB") -> tuple[list[Pair], dict[str, int]]:
    """Rows that can be expressed, and why others cannot."""
    pairs: list[Pair] = []
    refused: dict[str, int] = {}
    with table.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["quality"] not in qualities:
                continue
            try:
                pairs.append((row, case_of(question_of(row), gpus)))
            except Refused as why:
                refused[str(why)] = refused.get(str(why), 0) + 1
    return pairs, refused


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


def answers_of(results: Sequence[tuple[Pair, Calibration]], bands: Bands) -> list[Answer]:
    answers = []
    for (row, case), calibration in results:
        likely = case.predicted(calibration)
        new = unseen(calibration, case.kind, case.facts)
        band = bands.around(likely, case.kind, case.facts, new, of_rate=case.is_rate)
        answers.append(Answer(case.question, row, likely if case.bound else band.likely, band.low, band.high))
    return answers


def report(title: str, answers: Sequence[Answer]) -> str:
    lines = [f"== {title}", f"{'subset':44} rows  error   bias  inside"]
    for name, line in scores(answers).items():
        lines.append(f"{name:44} {line.rows:4} {line.error:6.1%} {line.bias:6.2f} {line.inside:6.0%}")
    for task in ("training fits", "inference fits"):
        told = decisions([a for a in answers if subset_of(a.question, a.row) == task])
        lines.append(f"{task}: {told.accuracy:.0%} right, {told}")
    for apart in (0.0, 0.05):
        right, total = pairs_in_order(answers, apart)
        lines.append(
            f"pairs more than {apart:.0%} apart in the right order: {right} of {total} = {right / max(1, total):.1%}"
        )
    return "\n".join(lines)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--seed", type=Path, default=Path("seed"))
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    pairs, refused = cases_of(asked.table, gpus_of(asked.seed))
    sys.stdout.write(f"{len(pairs)} rows; refused: {refused}\n")
    coefficients, text = calibrated(pairs)
    sys.stdout.write(text + "\n")
    if asked.write:
        write_coefficients(asked.write, coefficients)


if __name__ == "__main__":
    main()
