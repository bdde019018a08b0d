"""The published runs that an estimate cites."""

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu
from service.domain.evidence.published import Evidence, nearest_runs, runs_by_nearness, runs_that_speak
from service.domain.jobs.config import InferenceConfig, TrainingConfig

MOST_CITED = 3


def evidence_for(
    config: TrainingConfig | InferenceConfig, gpu: Gpu, gpus: int, catalog: Catalog
) -> tuple[Evidence, ...]:
    """Returns at most three published runs, the nearest first, for a job on so many GPUs."""
    if isinstance(config, TrainingConfig):
        kind, length = "train_throughput", config.sequence_length
    else:
        kind, length = "infer_throughput", round(config.input_length + config.output_length)
    reference, model = catalog.reference, config.model
    # Comparing a model and a GPU with those of every published run takes longer than the rest of an estimate.
    near = catalog.memory.get_or_compute(
        ("near", kind, model, gpu.id),
        lambda: runs_by_nearness(reference, model, gpu, runs_that_speak(reference, kind, catalog.day)),
    )
    return nearest_runs(
        reference,
        model,
        gpu,
        kind,
        catalog.day,
        precision=config.precision,
        framework=None if config.software.line == "unknown" else config.software.line,
        gpus=gpus,
        length=length or None,
        most=MOST_CITED,
        near=near,
    )
