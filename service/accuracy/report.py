"""Renders accuracy as text: errors by kind of work, decisions, coverage of the band, and the order of machines."""

from collections.abc import Sequence

from service.accuracy.client import AnsweredRuns
from service.accuracy.scoring import ScoredAnswer, decisions, pairs_in_order, regrets, scores, subset_of
from service.domain.jobs.config import USUAL_CONFIDENCE

MOST_REASONS = 12


def accuracy_text(asked: AnsweredRuns) -> str:
    """The whole report on the answers of a service."""
    answered, reasons = len(asked.answers), asked.refused.most_common(MOST_REASONS)
    lines = [f"{asked.rows} rows count, {answered} were answered, {asked.rows - answered} were not:"]
    lines += [f"  {count:4} {why}" for why, count in reasons]
    if rest := asked.refused.total() - sum(count for _, count in reasons):
        lines.append(f"  {rest:4} for other reasons")
    lines += ["", *score_lines(asked.answers), "", "cost of the chosen machine over that of the cheapest, mean"]
    for way, regret in regrets(asked.answers, asked.rented).items():
        lines.append(f"{way:44} {regret.workloads:4} {regret.mean:6.1%}, cheapest chosen in {regret.cheapest:.0%}")
    return "\n".join(lines)


def coverage_lines(answers: Sequence[ScoredAnswer]) -> list[str]:
    """Share of the published figures inside the band, by kind of work."""
    return [f"{name:44} {line.inside:6.0%}" for name, line in scores(answers).items()]


def score_lines(answers: Sequence[ScoredAnswer]) -> list[str]:
    """Median absolute percentage error, bias (predicted ÷ published, median) and share inside the band."""
    lines = [f"{'kind of work':44} rows  error   bias  inside"]
    for name, line in scores(answers).items():
        lines.append(f"{name:44} {line.rows:4} {line.error:6.1%} {line.bias:6.2f} {line.inside:6.0%}")
    for task in ("training fits", "inference fits"):
        asked = [answer for answer in answers if subset_of(answer.question) == task]
        made, sure = decisions(asked), decisions(asked, surely=True)
        lines.append(
            f"{task}: {made.accuracy:.1%} right; of {made.right_ooms + made.false_fits} that ran out of memory "
            f"{made.false_fits} likely fit and {sure.false_fits} fit with {USUAL_CONFIDENCE:.0%} by the estimate, "
            f"of {made.right_fits + made.false_ooms} that fitted {made.right_fits} and {sure.right_fits}"
        )
    for apart in (0.0, 0.05):
        right, total = pairs_in_order(answers, apart)
        lines.append(
            f"pairs of machines more than {apart:.0%} apart in the right order: {right} of {total} = "
            f"{right / max(1, total):.1%}"
        )
    return lines
