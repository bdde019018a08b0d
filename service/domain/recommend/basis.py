"""The basis of a ranking: the plans of a job, or peaks if there is no job, under one objective."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import ceil

import numpy as np

from service.domain.arrays import Floats, Mask, known
from service.domain.catalog.catalog import Catalog, premiums_of
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.offer import SPOT
from service.domain.catalog.reference import fee_of
from service.domain.codes import RejectionCode
from service.domain.evidence.named import NamedWork
from service.domain.jobs.job import Job
from service.domain.recommend.answer import UNTIED, Limits, OfferFigures, Question, RankedOffer, Ties
from service.domain.recommend.fleet import (
    FleetEstimate,
    estimate_by_name,
    estimate_fleet,
    gpu_counts,
    node_counts,
    with_measurements,
)
from service.domain.recommend.job_checks import job_checks, keeping_otherwise, limit_checks
from service.domain.recommend.objective import Figures, Objective
from service.domain.recommend.peaks import Peaks, PeaksAsked, assumed_peaks
from service.domain.recommend.plans import Planner, plans_of
from service.domain.recommend.ranking import Ranked, Uncertain, rank, tie_distance_of_peaks, uncertain, weight_of_speed
from service.domain.selection.constraints import Constraints
from service.domain.selection.offers import AdmittedOffers, CheapestOffers, offer_choice
from service.domain.selection.relax import ChangeOfWork, Check, KeepingOffers
from service.domain.selection.requirements import NOTHING, Requirements, requirement_checks
from service.domain.selection.selection import Selection, select
from service.domain.typeset import TypeSet, types_where


@dataclass(frozen=True, slots=True)
class PeakBasis:
    """A ranking by peaks, where there is no job."""

    objective: Objective
    peaks: Peaks
    nodes: int = 1
    """Nodes of every choice."""
    runs: int = 1
    """Independent runs: each takes a GPU of its own, on as many machines as that needs."""
    most_machines: int | None = None
    """Most machines for the runs, which share GPUs if these machines have too few; None without a limit."""
    managed_service: str | None = None
    """The managed service that rents the machines, whose premium is part of their price."""

    @property
    def rate(self) -> None:
        """None, because peaks say nothing about samples per second."""
        return None

    def under(self, objective: Objective) -> "PeakBasis":
        """Returns the same basis under another objective."""
        return replace(self, objective=objective)

    def after(self, change: ChangeOfWork, _types: TypeSet, catalog: Catalog) -> "PeakBasis":
        """Returns the basis after a change of the question."""
        if not change.precisions:
            return self
        return replace(self, peaks=assumed_peaks(self.peaks.asked._replace(precisions=change.precisions), catalog))

    def checks(self, _constraints: Constraints, _catalog: Catalog) -> Iterator[Check]:
        """Yields a check for types whose peak is unknown, if the objective needs it."""
        if self.objective.needs("speed"):
            yield Check(RejectionCode.PEAK_UNKNOWN, "data", self.peaks.unknown)

    def keeping_limits(self, _constraints: Constraints, _catalog: Catalog) -> KeepingOffers | None:
        """Returns None, because limits on a job need one."""
        return None

    def order(self, candidates: CheapestOffers, catalog: Catalog) -> Ranked:
        """Returns all of these offers, best first."""
        figures, incomplete = self._figures_of(candidates, catalog)
        return rank(candidates, self.objective, figures, incomplete, None, catalog)

    def figures_at(self, ranked: Ranked, row: int, catalog: Catalog) -> OfferFigures:
        """Returns the figures of the offer in a row of the ranking, by its peak."""
        index = int(ranked.instance_type[row])
        precision, peak = self.peaks.assumed[index]
        share, machines = self._share_of_runs(catalog.instance_types[index])
        speed = None if peak is None else peak * self.nodes * share
        return OfferFigures(speed=speed, nodes=self.nodes, instances=int(machines), precision=precision)

    def uncertain(self, _ranked: Ranked, scores: Sequence[float], _catalog: Catalog) -> list[Uncertain]:
        """Returns these scores, of the first rows of the ranking, with the uncertainty of peaks."""
        distance = tie_distance_of_peaks(self.objective)
        return [Uncertain(score, distance, distance, row) for row, score in enumerate(scores)]

    def _share_of_runs(self, instance_type: InstanceType) -> tuple[float, float]:
        """Returns the share of a machine's peak that the runs use, and the number of machines that they take.

        Each of several runs uses one GPU, or a whole machine without GPUs. A single run is assumed to use all GPUs.
        """
        if self.runs == 1:
            return 1.0, 1.0
        gpus = float(max(instance_type.gpu_count, 1))
        machines = float(ceil(self.runs / gpus))
        if self.most_machines is not None:
            machines = min(machines, float(self.most_machines))
        return min(float(self.runs), machines * gpus) / gpus, machines

    def _figures_of(self, candidates: CheapestOffers, catalog: Catalog) -> tuple[Figures, Mask]:
        """Returns the figures that the objective weighs for these offers, and which prices are lower bounds."""
        types, offers = candidates.instance_type, candidates.offer
        shares = [self._share_of_runs(catalog.instance_types[index]) for index in types.tolist()]
        share, machines = self.nodes * np.array(shares, np.float64).reshape(-1, 2).T
        price, speed = catalog.hourly_usd(offers, self.managed_service) * machines, self.peaks.peak[types] * share
        figures = Figures(
            usd=price,
            usd_per_hour=price,
            hours=1 / speed,
            speed=speed,
            paid_speed=speed,
            watts=catalog.columns.numbers["tdp_watts"][types] * machines,
            risk=(catalog.offers.market[offers] == SPOT).astype(np.float64),
            machines=machines,
            gpu_count=gpu_counts(catalog)[types] * machines,
            gpu_memory_gb=catalog.columns.numbers["gpu_memory_gb"][types],
            samples=speed,
            data_usd=np.zeros(len(price)),
        )
        return figures, catalog.derive(premiums_of, self.managed_service).unknown[types]


@dataclass(frozen=True, slots=True)
class PlanBasis(Planner):
    """A ranking by the plans of a job, or of work that was measured under a name."""

    @property
    def rate(self) -> Floats:
        """Samples per second of one instance on the fewest nodes of each type; NaN where it does not run."""
        fewest = self.fleet.options[0]
        return np.where(fewest.works, fewest.likely, np.nan)

    def under(self, objective: Objective) -> "PlanBasis":
        """Returns the same basis under another objective."""
        return replace(self, objective=objective)

    def within(self, limits: Limits) -> "PlanBasis":
        """Returns the same basis with other limits."""
        return replace(self, limits=limits)

    def checks(self, constraints: Constraints, catalog: Catalog) -> Iterator[Check]:
        """Yields checks for types that cannot run the job, and for those that miss a limit on it."""
        fleet, candidates = self.fleet, offer_choice(constraints.of_offers, catalog).cheapest
        if isinstance(fleet.job, NamedWork):
            measured = types_where(fleet.options[0].works)
            yield Check(RejectionCode.NOT_MEASURED, "data", catalog.all_types & ~measured)
        else:
            limited = self.limits.bind
            # On spot, a run with an amount of work may never end.
            may_miss = limited or (fleet.job.amount is not None and "spot" in constraints.market)
            keeping = partial(keeping_otherwise, self, candidates, catalog=catalog) if may_miss else None
            yield from job_checks(fleet, keeping, limited=limited)
        yield from limit_checks(self, candidates, constraints.max_usd_per_hour, catalog)

    def keeping_limits(self, constraints: Constraints, catalog: Catalog) -> KeepingOffers | None:
        """Returns the mask of the offers that keep the limits on the job, and on which it ends; None if all do."""
        endless = constraints.spot_refused and "spot" in constraints.market and self.fleet.job.amount is not None
        if not self.limits.bind and not endless:
            return None
        # A change that admits refused spot offers also makes the job resumable.
        planner = self.resumable if constraints.spot_refused else self
        return lambda offers: plans_of(planner, offers, catalog).keeps

    def order(self, candidates: CheapestOffers, catalog: Catalog) -> Ranked:
        """Returns all of these offers, best first; those that miss a limit on the job have an infinite score."""
        plans = plans_of(self, candidates, catalog)
        return rank(candidates, self.objective, plans.figures, plans.incomplete, plans, catalog)

    def figures_at(self, ranked: Ranked, row: int, _catalog: Catalog) -> OfferFigures:
        """Returns the figures of the offer in a row of the ranking, by its plan."""
        plans, candidate = ranked.plans, int(ranked.candidate[row])
        assert plans is not None
        speed, usd = known(float(plans.rate[candidate])), known(float(plans.figures.usd[candidate]))
        return OfferFigures(
            speed=speed,
            nodes=int(plans.nodes[candidate]),
            instances=int(plans.instances[candidate]),
            hours=known(float(plans.hours[candidate])),
            usd=usd,
            samples_per_usd=float(plans.figures.samples[candidate]) / usd if usd else None,
            seconds_per_request=known(float(plans.seconds_per_request[candidate])),
            joules_per_sample=known(float(plans.figures.watts[candidate]) / speed) if speed else None,
        )

    def uncertain(self, ranked: Ranked, scores: Sequence[float], catalog: Catalog) -> list[Uncertain]:
        """Returns these scores, of the first rows of the ranking, with the uncertainty of their estimates."""
        fleet, plans, candidates = self.fleet, ranked.plans, ranked.candidate[: len(scores)]
        assert plans is not None
        weight = weight_of_speed(self.objective, has_amount=fleet.job.amount is not None)
        options, nodes = plans.option[candidates].tolist(), plans.nodes[candidates].tolist()
        return [
            uncertain(
                scores[row],
                weight,
                fleet.options[options[row]],
                index,
                catalog.instance_types[index],
                nodes[row],
                measured=(index, fleet.counts[options[row]]) in fleet.measured,
            )
            for row, index in enumerate(ranked.instance_type[: len(scores)].tolist())
        ]


Basis = PeakBasis | PlanBasis


def basis_of(question: Question, catalog: Catalog) -> Basis:
    """Returns the basis of a question's ranking; estimates the fleet if there is a job."""
    if question.work.job is None:
        support = question.constraints.precision_support
        asked = PeaksAsked(question.work.task, question.precisions, question.usual, support)
        most = question.limits.max_instances if "constraints.max_instances" in question.given else None
        return PeakBasis(
            question.objective, assumed_peaks(asked, catalog), question.nodes[0], question.work.concurrent_runs, most,
            question.managed_service,
        )  # fmt: skip
    fleet = _fleet(question.work.job, question.name, node_counts(*question.nodes), catalog)
    return PlanBasis(
        fleet, question.objective, question.limits, question.checkpoints, question.run, question.managed_service
    )


def _fleet(
    job: Job | NamedWork, name: str | None, counts: tuple[int, ...], catalog: Catalog
) -> FleetEstimate[Job] | FleetEstimate[NamedWork]:
    if isinstance(job, NamedWork):
        measured = catalog.measurements.under(job.name)
        return catalog.derive(estimate_by_name, job, counts, measured, cache=catalog.outlooks)
    fleet = estimate_fleet(job, counts, catalog)
    measured = () if name is None else catalog.measurements.under(name)
    return catalog.derive(with_measurements, fleet, measured, cache=catalog.outlooks) if measured else fleet


def select_by(basis: Basis, constraints: Constraints, needs: Requirements, catalog: Catalog) -> Selection:
    """Returns the types that the constraints and requirements admit and the basis can rank."""
    checks = [*basis.checks(constraints, catalog)]
    if basis.objective.needs("power"):
        checks.append(
            Check(RejectionCode.POWER_UNKNOWN, "data", types_where(np.isnan(catalog.columns.numbers["tdp_watts"])))
        )
    if needs is not NOTHING:
        checks += requirement_checks(needs, catalog)
    return select(constraints, catalog, checks, basis.keeping_limits(constraints, catalog))


def rank_by(basis: Basis, admitted: AdmittedOffers, catalog: Catalog) -> Ranked:
    """Returns the admitted offers, best first; those that miss a limit on the whole job come last."""
    ranked = _order_of(basis, admitted, catalog)
    # Indices are faster than a mask where few of many rows are taken.
    return ranked.rows(np.flatnonzero(admitted.among(ranked.instance_type, ranked.usd)))


def best_of_types(basis: Basis, admitted: AdmittedOffers, catalog: Catalog) -> Ranked:
    """Returns the best admitted offer of each type that keeps the limits on the whole job, best first."""
    return rank_by(basis, admitted, catalog).keeping_limits().best_of_each()


def best_by(basis: Basis, admitted: AdmittedOffers, catalog: Catalog) -> tuple[Ranked, int]:
    """Returns an order of offers, and its row of the best admitted one."""
    ranked = _order_of(basis, admitted, catalog)
    return ranked, ranked.first_row(admitted)


def _order_of(basis: Basis, admitted: AdmittedOffers, catalog: Catalog) -> Ranked:
    """Returns an order of offers, the admitted ones among them."""
    # The cheapest offers of each type and market are the same for many questions, so they are ordered once.
    ranked = catalog.derive(_order, basis, admitted.cheapest, cache=catalog.outlooks)
    # A figure that makes a score unknown may be irrelevant among the admitted offers alone.
    if ranked.unknown & admitted.types:
        ranked = basis.order(admitted.cheapest.among(admitted.rows, catalog), catalog)
    return ranked


def _order(catalog: Catalog, basis: Basis, candidates: CheapestOffers) -> Ranked:
    return basis.order(candidates, catalog)


def ranked_offer(
    basis: Basis,
    ranked: Ranked,
    row: int,
    catalog: Catalog,
    tied: Ties = UNTIED,
    *,
    pareto: bool = False,
) -> RankedOffer:
    """Returns one row of a ranking as a value."""
    index, offer_index = int(ranked.instance_type[row]), int(ranked.offer[row])
    instance_type, figures = catalog.instance_types[index], basis.figures_at(ranked, row, catalog)
    return RankedOffer(
        **{column.name: getattr(figures, column.name) for column in fields(OfferFigures)},
        rank=row + 1,
        instance_type=instance_type,
        index=index,
        offer_index=offer_index,
        offer=catalog.offers.offer(offer_index),
        score=float(ranked.score[row]),
        service_fee=fee_of(catalog.reference.fees, instance_type, basis.managed_service, catalog.day),
        tied=tied,
        pareto=pareto,
    )
