"""The figures of accuracy as text: error by kind of work, decisions, coverage of the band, machines in order."""

from collections.abc import Sequence

from service.accuracy.client import AnsweredRuns, refusals
from service.accuracy.scoring import ScoredAnswer, decisions, pairs_in_order, scores, subset_of


def accuracy_text(asked: AnsweredRuns) -> str:
    """The whole report."""
    expressed = len(asked.answers)
    head = f"{asked.rows} rows count, {expressed} were answered, {asked.rows - expressed} were not:"
    return "\n".join([head, *refusals(asked), "", *score_lines(asked.answers)])


def score_lines(answers: Sequence[ScoredAnswer]) -> list[str]:
    """Median absolute percentage error, bias (predicted ÷ published, median) and share inside the band."""
    lines = [f"{'kind of work':44} rows  error   bias  inside"]
    for name, line in scores(answers).items():
        lines.append(f"{name:44} {line.rows:4} {line.error:6.1%} {line.bias:6.2f} {line.inside:6.0%}")
    for task in ("training fits", "inference fits"):
        told = decisions([a for a in answers if subset_of(a.question, a.row) == task])
        lines.append(
            f"{task}: {told.accuracy:.1%} right; of {told.right_ooms + told.false_fits} that ran out of memory "
            f"{told.false_fits} were told to fit, of {told.right_fits + told.false_ooms} that fitted "
            f"{told.false_ooms} were told not to"
        )
    for apart in (0.0, 0.05):
        right, total = pairs_in_order(answers, apart)
        lines.append(
            f"pairs of machines more than {apart:.0%} apart in the right order: {right} of {total} = "
            f"{right / max(1, total):.1%}"
        )
    return lines
