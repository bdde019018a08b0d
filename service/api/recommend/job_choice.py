"""A choice that the physics of a job ranked, in the caller's words: its estimate, and spot in expectation."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_core import to_json

from service.api.estimate.response import BandResponse, ModelledEstimateResponse, estimate_told, evidence_on, rounded
from service.api.http.fields import StatementResponse
from service.domain.band import Band
from service.domain.bill.interruption import Expectation, break_even_rate, expect_by_prior, prior_of
from service.domain.bill.payment_options import on_demand_offer
from service.domain.bill.unit_costs import samples_per_usd
from service.domain.catalog.catalog import Catalog
from service.domain.evidence.named import NamedRate
from service.domain.jobs.job import Job
from service.domain.layouts.job_estimate import JobEstimate, estimate_job_in
from service.domain.money import Unknown
from service.domain.physics.cluster import Cluster, cluster_of_instance
from service.domain.recommend.fleet import FleetEstimate
from service.domain.recommend.named_work import NamedWork
from service.domain.recommend.plans import Planner
from service.domain.recommend.recommend import Choice


@dataclass(frozen=True, slots=True)
class JobEstimateResponse(ModelledEstimateResponse):
    """What the job comes to on a choice, and what it costs there: of all instances, with what interruptions cost."""

    usd: Annotated[
        BandResponse | None, Field(description="Of the whole job; null without a price or an amount of work.")
    ]
    samples_per_usd: float | None


@dataclass(frozen=True, slots=True)
class MeasuredEstimateResponse:
    """What was measured of work that is known by its name alone, on this machine or on the one most like it."""

    basis: Literal["measured", "scaled"]
    samples_per_second: BandResponse
    hours: Annotated[BandResponse | None, Field(description="Of the whole amount; null without one in samples.")]
    usd: BandResponse | None
    samples_per_usd: float | None
    joules_per_sample: Annotated[float | None, Field(description="At the rated power of the GPUs.")]


@dataclass(frozen=True, slots=True)
class SpotResponse:
    """Spot in expectation. Interruptions are those of all nodes and instances together."""

    interruptions: BandResponse
    interruptions_per_hour: BandResponse
    checkpoint_interval_minutes: float
    stretch: Annotated[float, Field(description="Paid hours over those of an undisturbed run.")]
    paid_hours: BandResponse
    notice_seconds: Annotated[int | None, Field(description="Between the warning and the end.")]
    break_even_interruptions_per_hour: Annotated[
        float | None,
        Field(description="At which on demand costs as much there; null if spot never pays."),
    ]
    basis: str
    source: str | None


@dataclass(frozen=True, slots=True)
class EncodedEstimate:
    """What a job makes of a choice."""

    estimate: JobEstimateResponse | MeasuredEstimateResponse | None
    spot: SpotResponse | None
    evidence: list[dict[str, str]]
    reasons: list[StatementResponse]
    warnings: list[StatementResponse]

    def json(self) -> bytes:
        """Without the braces, and the reasons."""
        return b'"estimate":%b,"spot":%b,"evidence":%b' % (
            to_json(self.estimate),
            to_json(self.spot),
            to_json(self.evidence),
        )


def machine_chosen(choice: Choice) -> Cluster:
    return cluster_of_instance(choice.instance_type, choice.nodes)


def appraised(choice: Choice, outlook: FleetEstimate[Job], catalog: Catalog) -> JobEstimate:
    """On its nodes, in the layout that was found best."""

    def find() -> JobEstimate:
        layout = outlook.layout(choice.place, choice.nodes)
        return estimate_job_in(catalog.reference.physics, outlook.job, machine_chosen(choice), layout)

    return catalog.of_jobs.get_or_compute(("appraised", outlook.key, choice.place, choice.nodes), find)


def told_of(choice: Choice, planner: Planner, catalog: Catalog, framework: str | None = None) -> EncodedEstimate:
    """`framework` is what the caller asks for. Of a current instance that cannot run the job, there is no estimate."""
    outlook = planner.outlook
    on_nodes = outlook.on(choice.nodes)
    if not (on_nodes.runs[choice.place] and on_nodes.exists[choice.place]):
        return EncodedEstimate(None, None, [], [], [])
    seen = outlook.seen.get(choice.place) if choice.nodes == 1 else None
    found = None if isinstance(outlook.job, NamedWork) else appraised(choice, outlook, catalog)
    whole = hours_of(found, seen, outlook, choice.place)
    hours = None if whole is None else whole.times(1 / choice.instances)
    expected = expectation(choice, hours, planner, catalog)
    spot = None if expected is None or hours is None else spot_told(choice, hours, expected, planner, catalog)
    estimate: JobEstimateResponse | MeasuredEstimateResponse
    evidence = [] if seen is None else [measurement_told(seen)]
    if found is not None:
        estimate = estimate_of(choice, found, seen, hours, expected)
        evidence += evidence_on(found, machine_chosen(choice), catalog)
    else:
        assert seen is not None
        estimate = seen_estimate(choice, seen, hours, expected)
    reasons = [] if seen is None else [StatementResponse(seen.basis, seen.text)]
    return EncodedEstimate(
        estimate=estimate,
        spot=spot,
        evidence=evidence,
        reasons=[*reasons, *limit_reasons(choice, planner), *([] if spot is None else [spot_reason(spot)])],
        warnings=[] if seen is None else warnings_on_seen(seen, framework),
    )


def hours_of(found: JobEstimate | None, seen: NamedRate | None, outlook: FleetEstimate[Any], place: int) -> Band | None:
    """Of the whole amount on one instance; what was seen of it stands before what the physics says."""
    if outlook.job.amount is None or (found is not None and found.hours is None):
        return None
    if seen is None:
        return None if found is None else found.hours
    rate, hours = seen.samples_per_second, float(outlook.options[0].hours[place])
    return Band(hours * rate.likely / rate.high, hours, hours * rate.likely / rate.low)


def measurement_told(seen: NamedRate) -> dict[str, str]:
    one = seen.evidence
    return {
        "kind": "measurement",
        "id": one.id,
        "date": one.measured_on.isoformat(),
        "source": one.source,
        "nearness": "same machine" if seen.basis == "measured" else "another machine",
        "measured": f"{one.workload} on {one.machine}: {one.samples_per_second:,g} samples/s",
    }


def warnings_on_seen(seen: NamedRate, framework: str | None) -> list[StatementResponse]:
    """What was seen long ago or with other software stays what it was: no release multiplies onto it."""
    found, one = [], seen.evidence
    if seen.stale:
        text = f"Last measured on {one.measured_on}, on {one.machine}; measure it anew."
        found.append(StatementResponse("measurement_old", text))
    if framework is not None and one.software is not None and framework != one.software:
        text = f"Measured with {one.software}; the workload asks for {framework}. Measure it anew."
        found.append(StatementResponse("measurement_other_software", text))
    return found


def seen_estimate(
    choice: Choice, seen: NamedRate, hours: Band | None, expected: Expectation | None
) -> MeasuredEstimateResponse:
    kind, rate = choice.instance_type, seen.samples_per_second.times(choice.instances)
    paid, elapsed, price, per_usd = money_of(choice, rate.likely, hours, expected)
    watts = kind.tdp_watts
    return MeasuredEstimateResponse(
        basis=seen.basis,
        samples_per_second=BandResponse.of(rate),
        hours=None if elapsed is None else BandResponse.of(elapsed),
        usd=None if price is None or paid is None else BandResponse.of(paid.times(price)),
        samples_per_usd=per_usd,
        joules_per_sample=None if watts is None else rounded(watts * choice.instances / rate.likely),
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


def money_of(
    choice: Choice, rate: float | None, hours: Band | None, expected: Expectation | None
) -> tuple[Band | None, Band | None, float | None, float | None]:
    """Paid hours, hours until it is done, the price of an hour of all machines, and samples per dollar."""
    usd = choice.offer.price.usd_per_hour
    price = None if usd is None else usd * choice.nodes * choice.instances
    if expected is None:
        paid, elapsed, stretch = hours, hours, 1.0
    else:
        paid, elapsed, stretch = expected.hours, expected.elapsed or expected.hours, expected.stretch
    per_usd = rounded(samples_per_usd(rate, price * stretch)) if price and rate is not None else None
    return paid, elapsed, price, per_usd


def estimate_of(
    choice: Choice, found: JobEstimate, seen: NamedRate | None, hours: Band | None, expected: Expectation | None
) -> JobEstimateResponse:
    kind, rate = choice.instance_type, found.estimate.samples_per_second
    told = estimate_told(found, None if kind.tdp_watts is None else kind.tdp_watts * choice.nodes)
    values = {name: getattr(told, name) for name in ModelledEstimateResponse.__dataclass_fields__}
    if seen is not None:
        rate = seen.samples_per_second
        values |= {"basis": seen.basis, "samples_per_second": BandResponse.of(rate)}
    for name in ("samples_per_second", "tokens_per_second", "prefill_tokens_per_second"):
        values[name] = times(values[name], choice.instances)
    likely = None if rate is None else rate.likely * choice.instances
    paid, elapsed, price, per_usd = money_of(choice, likely, hours, expected)
    values["hours"] = None if elapsed is None else BandResponse.of(elapsed)
    return JobEstimateResponse(
        **values,
        usd=None if price is None or paid is None else BandResponse.of(paid.times(price)),
        samples_per_usd=per_usd,
    )


def times(rate: BandResponse | None, instances: int) -> BandResponse | None:
    if rate is None or instances == 1:
        return rate
    return BandResponse(*(rounded(each * instances) for each in (rate.low, rate.likely, rate.high)))


def spot_told(choice: Choice, hours: Band, expected: Expectation, planner: Planner, catalog: Catalog) -> SpotResponse:
    plain = on_demand_offer(catalog, choice.instance_type, choice.offer.region)
    spot, full = choice.offer.price.usd_per_hour, None if plain is None else plain.price.usd_per_hour
    even = break_even_rate(hours.likely, spot / full, planner.checkpoints) if spot and full else None
    return SpotResponse(
        interruptions=BandResponse.of(expected.interruptions.times(choice.instances)),
        interruptions_per_hour=BandResponse.of(expected.per_hour.times(choice.instances)),
        checkpoint_interval_minutes=rounded(expected.interval_seconds / 60),
        stretch=rounded(expected.stretch),
        paid_hours=BandResponse.of(expected.hours),
        notice_seconds=catalog.reference.providers[choice.instance_type.provider].spot_notice_seconds,
        break_even_interruptions_per_hour=None if even is None else rounded(even),
        basis=expected.basis,
        source=expected.source,
    )


def spot_reason(spot: SpotResponse) -> StatementResponse:
    even = spot.break_even_interruptions_per_hour
    against = (
        f"; up to {even:.3g} interruptions an hour it costs less than on demand"
        if even is not None
        else "; it is no cheaper than on demand"
    )
    return StatementResponse(
        "spot_in_expectation",
        f"About {spot.interruptions.likely:.3g} interruptions are expected, so {spot.paid_hours.likely:.4g} hours are "
        f"paid, {100 * (spot.stretch - 1):.3g} % more than undisturbed{against}.",
    )


def limit_reasons(choice: Choice, planner: Planner) -> list[StatementResponse]:
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
    return [StatementResponse("within_limits", text)]


def current_estimate(
    current: Choice, planner: Planner, catalog: Catalog
) -> JobEstimateResponse | MeasuredEstimateResponse | None:
    return told_of(current, planner, catalog).estimate


def basis_of(choice: Choice, planner: Planner) -> str:
    """What the figures of a choice rest on; what was measured long ago is to be measured anew."""
    seen = planner.outlook.seen.get(choice.place) if choice.nodes == 1 else None
    return "modelled" if seen is None or seen.stale else seen.basis


@dataclass(frozen=True, slots=True)
class PlacementResponse:
    """Where the nodes of a choice have to stand."""

    together: bool
    text: str


def placement_of(choice: Choice, *, together: bool) -> PlacementResponse | None:
    """Nothing of a single node: there is nothing to place."""
    if choice.nodes == 1:
        return None
    where = f"in one zone of {choice.offer.region}" if choice.offer.region else "in one place"
    if together:
        text = f"The {choice.nodes} nodes work as one: start them {where}, next to each other (a placement group)."
    else:
        text = f"The {choice.nodes} nodes may stand apart; the estimate takes the network of nodes {where}."
    return PlacementResponse(together, text)
