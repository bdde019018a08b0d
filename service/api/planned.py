"""A choice that the physics of a job ranked, in the caller's words: its estimate, and spot in expectation."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from pydantic_core import to_json

from service.api.against import on_demand_beside
from service.api.estimated import BandTold, EstimateTold, estimate_told, evidence_on, rounded
from service.api.explain import Statement
from service.domain.appraisal import SECONDS_PER_HOUR, Appraisal, appraise_in
from service.domain.bands import Band
from service.domain.catalog import Catalog
from service.domain.interruption import Expectation, break_even_rate, expect_by_prior, prior_of
from service.domain.machine import Machine, machine_of_instance
from service.domain.money import Unknown
from service.domain.outlook import Outlook
from service.domain.plans import Planner
from service.domain.recommend import Choice


@dataclass(frozen=True, slots=True)
class JobEstimateTold(EstimateTold):
    """What the job comes to on a choice, and what it costs there: of all instances, with what interruptions cost."""

    usd: Annotated[BandTold | None, Field(description="Of the whole job; null without a price or an amount of work.")]
    samples_per_usd: float | None


@dataclass(frozen=True, slots=True)
class SpotTold:
    """Spot in expectation. Interruptions are those of all nodes and instances together."""

    interruptions: BandTold
    interruptions_per_hour: BandTold
    checkpoint_interval_minutes: float
    stretch: Annotated[float, Field(description="Paid hours over those of an undisturbed run.")]
    paid_hours: BandTold
    notice_seconds: Annotated[int | None, Field(description="Between the warning and the end.")]
    break_even_interruptions_per_hour: Annotated[
        float | None,
        Field(description="At which on demand costs as much there; null if spot never pays."),
    ]
    basis: str
    source: str | None


@dataclass(frozen=True, slots=True)
class Told:
    """What a job makes of a choice."""

    estimate: JobEstimateTold | None
    spot: SpotTold | None
    evidence: list[dict[str, str]]
    reasons: list[Statement]

    def json(self) -> bytes:
        """Without the braces, and the reasons."""
        return b'"estimate":%b,"spot":%b,"evidence":%b' % (
            to_json(self.estimate),
            to_json(self.spot),
            to_json(self.evidence),
        )


def machine_chosen(choice: Choice) -> Machine:
    return machine_of_instance(choice.instance_type, choice.nodes)


def appraised(choice: Choice, outlook: Outlook, catalog: Catalog) -> Appraisal:
    """On its nodes, in the layout that was found best."""

    def find() -> Appraisal:
        layout = outlook.layout(choice.place, choice.nodes)
        return appraise_in(catalog.reference.physics, outlook.job, machine_chosen(choice), layout)

    return catalog.fragments.recall(("appraised", outlook.key, choice.place, choice.nodes), find)


def told_of(choice: Choice, planner: Planner, catalog: Catalog) -> Told:
    """Raises nothing: of a current instance that cannot run the job, there is no estimate."""
    on_nodes = planner.outlook.on(choice.nodes)
    if not (on_nodes.runs[choice.place] and on_nodes.exists[choice.place]):
        return Told(None, None, [], [])
    found = appraised(choice, planner.outlook, catalog)
    hours = None if found.hours is None else found.hours.times(1 / choice.instances)
    expected = expectation(choice, hours, planner, catalog)
    spot = None if expected is None or hours is None else spot_told(choice, hours, expected, planner, catalog)
    return Told(
        estimate=estimate_of(choice, found, hours, expected),
        spot=spot,
        evidence=evidence_on(found, machine_chosen(choice), catalog),
        reasons=[*limit_reasons(choice, planner), *([] if spot is None else [spot_reason(spot)])],
    )


def expectation(choice: Choice, hours: Band | None, planner: Planner, catalog: Catalog) -> Expectation | None:
    """Of a spot machine whose interruptions something is believed of."""
    if hours is None or choice.offer.market != "spot":
        return None
    kind = choice.instance_type
    gpu = None if kind.gpu is None else kind.gpu.id
    prior = prior_of(catalog.reference.interruption_priors, kind.provider, "spot", gpu, catalog.day)
    expected = expect_by_prior(hours, prior, planner.checkpoints, choice.nodes)
    return None if isinstance(expected, Unknown) else expected


def estimate_of(choice: Choice, found: Appraisal, hours: Band | None, expected: Expectation | None) -> JobEstimateTold:
    kind, rate = choice.instance_type, found.estimate.samples_per_second
    usd = choice.offer.price.usd_per_hour
    price = None if usd is None else usd * choice.nodes * choice.instances
    paid = hours if expected is None else expected.hours
    elapsed = hours if expected is None else expected.elapsed or expected.hours
    told = estimate_told(found, None if kind.tdp_watts is None else kind.tdp_watts * choice.nodes)
    values = {name: getattr(told, name) for name in EstimateTold.__dataclass_fields__}
    values["hours"] = None if elapsed is None else BandTold.of(elapsed)
    for name in ("samples_per_second", "tokens_per_second", "prefill_tokens_per_second"):
        values[name] = times(values[name], choice.instances)
    per_usd = None
    if price and rate is not None:
        stretch = 1.0 if expected is None else expected.stretch
        per_usd = rounded(rate.likely * choice.instances * SECONDS_PER_HOUR / price / stretch)
    return JobEstimateTold(
        **values,
        usd=None if price is None or paid is None else BandTold.of(paid.times(price)),
        samples_per_usd=per_usd,
    )


def times(rate: BandTold | None, instances: int) -> BandTold | None:
    if rate is None or instances == 1:
        return rate
    return BandTold(*(rounded(each * instances) for each in (rate.low, rate.likely, rate.high)))


def spot_told(choice: Choice, hours: Band, expected: Expectation, planner: Planner, catalog: Catalog) -> SpotTold:
    plain = on_demand_beside(catalog, choice.instance_type, choice.offer)
    spot, full = choice.offer.price.usd_per_hour, None if plain is None else plain.price.usd_per_hour
    even = break_even_rate(hours.likely, spot / full, planner.checkpoints) if spot and full else None
    return SpotTold(
        interruptions=BandTold.of(expected.interruptions.times(choice.instances)),
        interruptions_per_hour=BandTold.of(expected.per_hour.times(choice.instances)),
        checkpoint_interval_minutes=rounded(expected.interval_seconds / 60),
        stretch=rounded(expected.stretch),
        paid_hours=BandTold.of(expected.hours),
        notice_seconds=catalog.reference.providers[choice.instance_type.provider].spot_notice_seconds,
        break_even_interruptions_per_hour=None if even is None else rounded(even),
        basis=expected.basis,
        source=expected.source,
    )


def spot_reason(spot: SpotTold) -> Statement:
    even = spot.break_even_interruptions_per_hour
    against = (
        f"; up to {even:.3g} interruptions an hour it costs less than on demand"
        if even is not None
        else "; it is no cheaper than on demand"
    )
    return Statement(
        "spot_in_expectation",
        f"About {spot.interruptions.likely:.3g} interruptions are expected, so {spot.paid_hours.likely:.4g} hours are "
        f"paid, {100 * (spot.stretch - 1):.3g} % more than undisturbed{against}.",
    )


def limit_reasons(choice: Choice, planner: Planner) -> list[Statement]:
    """How the limits on the whole job are kept."""
    limits, kept = planner.limits, []
    if limits.deadline_hours is not None and choice.hours is not None:
        kept.append(f"done in {choice.hours:.3g} of {limits.deadline_hours:g} hours")
    if limits.budget_usd is not None and choice.usd is not None and choice.hours is not None:
        kept.append(f"paid with ${choice.usd:.4g} of ${limits.budget_usd:g}")
    if not kept:
        return []
    end = "; the limits hold at the pessimistic end as well" if limits.safe else ""
    text = f"The job is {' and '.join(kept)}{end}."
    if choice.instances > 1:
        text = f"On {choice.instances} independent instances that share the work, t{text[1:]}"
    return [Statement("within_limits", text)]


def current_estimate(current: Choice, planner: Planner, catalog: Catalog) -> JobEstimateTold | None:
    return told_of(current, planner, catalog).estimate
