"""Checks published runs against the rest of a batch; each problem is a sentence."""

from collections.abc import Callable, Sequence

from service.db.write_catalog import Batch
from service.domain.catalog.names import fold_model
from service.importers.seed import SeedLine
from service.importers.table_checks import Problems, name_of


def _values_are_possible(batch: Batch, _lines: Sequence[SeedLine]) -> Problems:
    """A value is 0 only for a run that does not fit."""
    for run in batch.tables["published_run"]:
        allowed = run["value"] in (0, 1) if run["unit"] == "fits" else run["value"] > 0
        if not allowed:
            yield f"{name_of('published_run', run)}: {run['value']:g} is no figure in {run['unit']}."


def _machines_have_the_gpu(batch: Batch, _lines: Sequence[SeedLine]) -> Problems:
    gpu_of = {f"{kind['provider']}/{kind['name']}": kind["gpu"] for kind in batch.tables["instance_type"]}
    for run in batch.tables["published_run"]:
        name, machine = name_of("published_run", run), run["machine"]
        if machine and machine not in gpu_of:
            yield f"{name}: instance_types.csv has no {machine}."
        elif machine and gpu_of[machine] != run["gpu"]:
            yield f"{name}: {machine} has {gpu_of[machine] or 'no GPU'}, not {run['gpu']}."


def _names_resolve_to_the_model(batch: Batch, lines: Sequence[SeedLine]) -> Problems:
    id_of = {
        fold_model(name): model["id"]
        for model in batch.tables["model"]
        for name in (model["id"], model["name"], *(model["aliases"] or model["id"]).split(";"))
    }
    for line in lines:
        name = line.cells["model"]
        model = id_of.get(fold_model(name))
        if model != line.cells["model_id"]:
            yield f"{line}: the model '{name}' is {model or 'none'} of models.csv, not {line.cells['model_id']}."


RUN_CHECKS: tuple[Callable[[Batch, Sequence[SeedLine]], Problems], ...] = (
    _values_are_possible,
    _machines_have_the_gpu,
    _names_resolve_to_the_model,
)
