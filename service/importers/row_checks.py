"""Checks single rows beyond the constraints of their tables: each check is a faulty condition with its sentence."""

from collections.abc import Callable
from typing import Any

from service.db.write_catalog import Record
from service.importers.table_checks import Problems, Tables, name_of


def exceeds(number: float | None, limit: float | None) -> bool:
    """Returns whether both numbers are known and the first is larger."""
    return number is not None and limit is not None and number > limit


def row_problems(tables: Tables) -> Problems:
    """Yields a sentence for each row to which a condition of `ROW_CHECKS` applies."""
    for table, sentence, is_wrong in ROW_CHECKS:
        for row in tables[table]:
            if is_wrong(row):
                cells = {name: f"no {name}" if value is None else value for name, value in row.items()}
                yield name_of(table, row) + sentence.format_map(cells)


ROW_CHECKS: tuple[tuple[str, str, Callable[[Record], Any]], ...] = (
    ("gpu", ": a part of a card has both a fraction below 1 and a card that it is a part of.",
     lambda row: (row["fraction"] < 1) != (row["partition_of"] is not None)),
    ("gpu", " has more usable_memory_gib than memory_gb.",
     lambda row: exceeds(row["usable_memory_gib"], row["memory_gb"])),
    ("gpu_precision", ": the sparse rate is below the dense one.",
     lambda row: exceeds(row["dense_tflops"], row["sparse_tflops"])),
    ("gpu_precision", " has a rate, and no support.",
     lambda row: row["support"] == "none" and (row["dense_tflops"] or row["sparse_tflops"])),
    ("instance_type", ": {gpu} and a gpu_count of {gpu_count} do not go together.",
     lambda row: row["gpu_count"] < 0 or (row["gpu"] is None) != (row["gpu_count"] == 0)),
    ("instance_type", ": {gpu_count} GPUs and the interconnect {interconnect!r} do not go together.",
     lambda row: row["interconnect"] and (row["interconnect"] == "none") != (row["gpu_count"] <= 1)),
    ("framework_support", " ends on {valid_to}, before it begins.",
     lambda row: row["valid_from"] and row["valid_to"] and row["valid_from"] >= row["valid_to"]),
    # Only a run that does not fit has the value 0.
    ("published_run", ": {value:g} is no figure in {unit}.",
     lambda row: row["value"] not in (0, 1) if row["unit"] == "fits" else row["value"] <= 0),
    ("billing_rule", ": the minimum is shorter than one increment.",
     lambda row: row["minimum_seconds"] < row["increment_seconds"]),
    ("storage_price", ": storage without a price comes with the machine, and no other storage does.",
     lambda row: row["included"] != (row["micros_per_gib_month"] is None)),
    ("transfer_price", " has a price below 0.",
     lambda row: row["micros_per_gb"] < 0),
    ("transfer_price", " ends before it begins.",
     lambda row: row["tier_to_gb"] is not None and row["tier_to_gb"] <= row["tier_from_gb"]),
    ("interruption_prior", ": the rates are not in order, low, likely and high.",
     lambda row: not row["per_hour_low"] <= row["per_hour_likely"] <= row["per_hour_high"]),
    ("interruption_prior", ": lost_together is a share, from 0 to 1.",
     lambda row: not 0 <= row["lost_together"] <= 1),
    ("interruption_prior", ": available_share is a share, above 0 and up to 1.",
     lambda row: row["available_share"] is not None and not 0 < row["available_share"] <= 1),
)  # fmt: skip
