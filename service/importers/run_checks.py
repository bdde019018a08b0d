"""What published runs must satisfy beside the rest of a seed; each failing is a sentence that names the row or line."""

from collections.abc import Callable, Iterator, Sequence

from service.db.tables import InstanceTypeRow, ModelRow, PublishedRunRow
from service.db.write_catalog import Batch
from service.domain.catalog.names import fold_model
from service.importers.seed import SeedLine
from service.importers.table_checks import name_of

Problems = Iterator[str]


def runs_tell_a_figure(batch: Batch, _lines: Sequence[SeedLine]) -> Problems:
    """Only what does not fit is 0."""
    for run in batch.tables[PublishedRunRow]:
        allowed = run["value"] in (0, 1) if run["unit"] == "fits" else run["value"] > 0
        if not allowed:
            yield f"{name_of(PublishedRunRow, run)}: {run['value']:g} is no figure in {run['unit']}."


def runs_are_on_machines_with_their_gpu(batch: Batch, _lines: Sequence[SeedLine]) -> Problems:
    gpu_of = {f"{kind['provider']}/{kind['name']}": kind["gpu"] for kind in batch.tables[InstanceTypeRow]}
    for run in batch.tables[PublishedRunRow]:
        name, machine = name_of(PublishedRunRow, run), run["machine"]
        if machine and machine not in gpu_of:
            yield f"{name}: instance_types.csv has no {machine}."
        elif machine and gpu_of[machine] != run["gpu"]:
            yield f"{name}: {machine} has {gpu_of[machine] or 'no GPU'}, not {run['gpu']}."


def runs_mean_the_model_they_name(batch: Batch, lines: Sequence[SeedLine]) -> Problems:
    meant = {
        fold_model(name): model["id"]
        for model in batch.tables[ModelRow]
        for name in (model["id"], model["name"], *(model["aliases"] or model["id"]).split(";"))
    }
    for line in lines:
        name = line.cells["model"]
        found = meant.get(fold_model(name))
        if found != line.cells["model_id"]:
            yield f"{line}: the model '{name}' is {found or 'none'} of models.csv, not {line.cells['model_id']}."


RUN_CHECKS: tuple[Callable[[Batch, Sequence[SeedLine]], Problems], ...] = (
    runs_tell_a_figure,
    runs_are_on_machines_with_their_gpu,
    runs_mean_the_model_they_name,
)
