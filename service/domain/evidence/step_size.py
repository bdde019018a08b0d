"""The tokens of an optimizer step, compared with those of published runs."""

from collections.abc import Iterator

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.reference import PublishedRun
from service.domain.codes import WarningCode
from service.domain.evidence.published import RELEVANT_KINDS
from service.domain.jobs.config import Config, TrainingConfig
from service.domain.statement import Statement, statement

FAR_BEYOND = 8.0
"""Tokens of a step, in multiples of the largest step of a published run, beyond which a batch is taken for a slip
(assumed): tokens in place of samples are a thousand times as many."""


def step_warnings(config: Config, catalog: Catalog) -> Iterator[Statement[WarningCode]]:
    """Yields a step with far more tokens than that of any published run; nothing where no run states both figures."""
    if not isinstance(config, TrainingConfig) or not config.model.has_tokens or not config.global_batch:
        return
    largest = catalog.derive(_largest_step)
    tokens = config.global_batch * config.sequence_length
    if largest is not None and tokens > FAR_BEYOND * _tokens_of_step(largest):
        figures = {"model": largest.model, "year": largest.year, "most": _tokens_of_step(largest)}
        yield statement(WarningCode.STEP_VERY_LARGE, tokens=tokens, length=config.sequence_length, **figures)


def _largest_step(catalog: Catalog) -> PublishedRun | None:
    """Returns the training run, of those known on the catalog's day, with the most tokens in a step."""
    kinds = RELEVANT_KINDS["training"]
    runs = (run for run in catalog.reference.published_runs if run.kind in kinds and run.known_on <= catalog.day)
    return max((run for run in runs if _tokens_of_step(run)), key=_tokens_of_step, default=None)


def _tokens_of_step(run: PublishedRun) -> int:
    """Returns the tokens of an optimizer step of a run; 0 if its batch or its length is unknown."""
    return (run.global_batch or 0) * (run.sequence_length or 0)
