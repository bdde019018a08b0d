"""The terms of an offer, as the catalog knows them: its price, and the seller's other charges."""

from collections.abc import Collection, Sequence
from datetime import date

from service.domain.band import Band
from service.domain.bill.bill import HourlyPrice, SellerTerms, bill_of
from service.domain.bill.interruption import Checkpoints, Expectation, expect_by_prior
from service.domain.bill.run import BilledRun, Run, StoredData, TransferredData
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.history import day_of
from service.domain.catalog.names import resolve
from service.domain.catalog.offer import Offer, Price
from service.domain.catalog.reference import Reference, fee_of
from service.domain.catalog.tariffs import (
    BillingRule,
    Commitment,
    MachineKind,
    StoragePrice,
    TransferPrice,
    commitment_in,
    prior_of,
    rule_of,
    storage_classes,
    storage_price_of,
    transfer_prices_of,
)
from service.domain.money import Unknown, rate_on

UNINTERRUPTED = ("on_demand", "reserved")
"""Markets whose machines are not reclaimed: without a prior for their failures, no interruptions are counted."""


def terms_of(
    reference: Reference,
    instance_type: InstanceType,
    offer: Offer,
    run: Run,
    day: date,
    checkpoints: Checkpoints,
    *,
    service: str | None = None,
) -> SellerTerms:
    """Returns the terms of a run on an offer on a day, rented plainly or through a managed `service`.

    They have interruptions only for a run whose hours are known.

    Raises `UnknownName` for a storage class that no provider has.
    """
    storage, transfer = data_prices(reference, instance_type.provider, offer.region, run.stored, run.sent, day)
    return SellerTerms(
        price=hourly_price(offer.price, instance_type, offer.region),
        # By the day on which the price began, as the dollars in the columns of the catalog: both must agree.
        rate=rate_on(reference.exchange_rates, offer.price.currency, day_of(offer.price.valid_from)),
        rule=commitment_of(offer.market, offer.term, run.commitments_held)
        or rounding_rule(reference, instance_type, offer.market, day),
        storage=storage,
        transfer=transfer,
        fee=fee_of(reference.fees, instance_type, service, day),
        interruptions=_interruptions_of(reference, instance_type, offer, run, day, checkpoints),
        managed=service is not None,
    )


def rounding_rule(reference: Reference, instance_type: InstanceType, market: str, day: date) -> BillingRule | Unknown:
    """Returns how the seller of an instance type rounds time with Linux in a market on a day."""
    machine: MachineKind = "bare_metal" if instance_type.bare_metal else "virtual"
    rules, provider, service = reference.billing_rules, instance_type.provider, instance_type.service
    return rule_of(rules, provider, service, machine, market, "linux", day)


def is_held(market: str, term: str | None, held: Collection[str]) -> bool:
    """Returns whether an offer is under a commitment that the caller pays for anyway; `reserved` means all of them."""
    return market == "reserved" and (market in held or term in held)


def commitment_of(market: str, term: str | None, held: Sequence[str]) -> Commitment | Unknown | None:
    """Returns the commitment that a run pays for; None if it pays for its hours, or `held` has the term already."""
    if market != "reserved" or is_held(market, term, held):
        return None
    return commitment_in(term) or Unknown(f"The hours that {term or 'a reserved offer'} commits to are not known.")


def data_prices(
    reference: Reference, provider: str, region: str | None, stored: Sequence[StoredData],
    sent: Sequence[TransferredData], day: date,
) -> tuple[tuple[StoragePrice | Unknown, ...], tuple[tuple[TransferPrice, ...] | Unknown, ...]]:  # fmt: skip
    """Returns the prices of storage and the tiers of transfer in a region. Raises `UnknownName`; see `terms_of`."""
    storage, transfer = reference.storage_prices, reference.transfer_prices
    return (
        tuple(
            storage_price_of(storage, provider, region, known_storage_class(storage, data.storage_class), day)
            for data in stored
        ),
        tuple(transfer_prices_of(transfer, provider, region, data.destination, day) for data in sent),
    )


def likely_usd_micros(
    reference: Reference, instance_type: InstanceType, offer: Offer, day: date, hours: float, nodes: int
) -> int | None:
    """Returns the likely cost of some hours on nodes of an offer, under the terms of a day; None if it is unknown."""
    run = Run(nodes).lasting(Band(hours, hours, hours))
    usd = bill_of(run, terms_of(reference, instance_type, offer, run, day, Checkpoints())).usd
    return None if usd is None else usd.likely


def hourly_price(price: Price, instance_type: InstanceType, region: str | None) -> HourlyPrice | Unknown:
    """Returns the price in the seller's currency, or the reason why it is unknown."""
    if price.native_micros_per_hour is None:
        where = f" in {region}" if region else ""
        return Unknown(
            f"The price of an hour of {instance_type.id}{where} is not known{f': {price.note}' if price.note else ''}."
        )
    return HourlyPrice(price.native_micros_per_hour, price.currency, price.kind, price.source, price.factors)


def known_storage_class(prices: Sequence[StoragePrice], name: str) -> str:
    """Returns a storage class as the catalog spells it. Raises `UnknownName` where no provider has it."""
    return resolve("storage class", (name,), storage_classes(prices), "storage.class")[0]


def _interruptions_of(
    reference: Reference, instance_type: InstanceType, offer: Offer, run: Run, day: date, checkpoints: Checkpoints
) -> Expectation | Unknown | None:
    gpu = instance_type.gpu.id if instance_type.gpu else None
    if not isinstance(run, BilledRun):
        return None
    prior = prior_of(reference.interruption_priors, instance_type.provider, offer.market, gpu, day)
    # An unknown rate counts only where machines are reclaimed; elsewhere it would make every bill incomplete.
    if isinstance(prior, Unknown) and offer.market in UNINTERRUPTED:
        return None
    return expect_by_prior(run.hours, prior, checkpoints, run.nodes)
