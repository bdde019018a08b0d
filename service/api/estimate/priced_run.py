"""A run on so many machines of one kind, about to be priced: its work, its terms in a market, its bill."""

from dataclasses import dataclass

from service.api.estimate.cost_request import CostRequest, run_of
from service.domain.band import Band
from service.domain.bill.bill import Bill, SellerTerms, bill_of
from service.domain.bill.interruption import Checkpoints
from service.domain.bill.payment_options import PaymentOption
from service.domain.bill.run import LONGEST_HOURS, BilledRun
from service.domain.bill.seller_terms import terms_of
from service.domain.bill.serving import Served
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.money import Unknown


@dataclass(frozen=True, slots=True)
class RunAmount:
    """What is to be done. Hours are of each machine; rates are of one gang; null of what is not told.

    `why_no_hours` is a sentence where `hours` is null.
    """

    hours: Band | None
    basis: str
    why_no_hours: str = ""
    samples: float | None = None
    tokens: float | None = None
    epochs: float | None = None
    samples_per_second: Band | None = None
    input_tokens_per_second: Band | None = None
    output_tokens_per_second: Band | None = None


@dataclass(frozen=True, slots=True)
class PricedRun:
    """A run on so many machines of one kind, to be priced."""

    asked: CostRequest
    catalog: Catalog
    work: RunAmount
    nodes: int
    checkpoints: Checkpoints
    served: Served | Unknown | None = None
    training: bool = True

    @property
    def machines(self) -> int:
        return self.nodes * self.asked.instances

    def run(self) -> BilledRun | Unknown:
        hours = self.work.hours
        if hours is None:
            return Unknown(self.work.why_no_hours)
        if hours.high > LONGEST_HOURS:
            return Unknown(f"The run would take more than {LONGEST_HOURS:,.0f} hours, which is more than a century.")
        return run_of(self.asked, hours, self.nodes, self.work.basis)


def terms_for(purchase: PricedRun, kind: InstanceType, option: PaymentOption) -> SellerTerms:
    run = purchase.run()
    catalog = purchase.catalog
    if isinstance(run, Unknown):  # the terms do not depend on the hours, but for interruptions
        run = run_of(purchase.asked, Band(0.0, 0.0, 0.0), purchase.nodes, "given")
    return terms_of(
        catalog.reference, kind, option.offer, run, catalog.day, purchase.checkpoints, service=option.service
    )


def bill_under(purchase: PricedRun, terms: SellerTerms) -> Bill | Unknown:
    run = purchase.run()
    return run if isinstance(run, Unknown) else bill_of(run, terms)
