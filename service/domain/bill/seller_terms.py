"""What the catalog knows of the terms of an offer: its price, and what its seller charges beside."""

from collections.abc import Sequence
from datetime import date

from service.domain.bill.bill import Contained, HourlyPrice, SellerTerms
from service.domain.bill.interruption import Checkpoints, Expectation, expect_by_prior, prior_of
from service.domain.bill.run import BilledRun, StoredData, TransferredData
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.history import day_of
from service.domain.catalog.names import unknown
from service.domain.catalog.offer import Offer, Price
from service.domain.catalog.reference import Fee, Reference
from service.domain.catalog.tariffs import (
    StoragePrice,
    TransferPrice,
    rule_of,
    storage_classes,
    storage_price_of,
    transfer_prices_of,
)
from service.domain.money import Unknown, rate_on

UNINTERRUPTED = ("on_demand", "reserved")
"""Markets whose machines nobody takes back: where nothing is known of their failures, none are counted."""


def terms_of(
    reference: Reference,
    kind: InstanceType,
    offer: Offer,
    run: BilledRun,
    day: date,
    checkpoints: Checkpoints,
    *,
    service: str | None = None,
    operating_system: str = "linux",
) -> SellerTerms:
    """The terms of a run on an offer on a day; `service` is a managed service that the plain machine is rented through.

    Raises `UnknownName` for a storage class that nothing is known of anywhere.
    """
    return SellerTerms(
        price=hourly_price(offer.price, kind, offer.region),
        rate=rate_on(reference.exchange_rates, offer.price.currency, day_of(offer.price.valid_from)),
        rule=rule_of(
            reference.billing_rules,
            kind.provider,
            kind.service,
            "bare_metal" if kind.bare_metal else "virtual",
            offer.market,
            operating_system,
            day,
        ),
        storage=storage_of(reference.storage_prices, run.stored, kind.provider, offer.region, day),
        transfer=transfer_of(reference.transfer_prices, run.sent, kind.provider, offer.region, day),
        fee=fee_of(reference.fees, kind, service, day),
        interruptions=interruptions_of(reference, kind, offer, run, day, checkpoints),
    )


def hourly_price(price: Price, kind: InstanceType, region: str | None) -> HourlyPrice | Unknown:
    if price.native_micros_per_hour is None:
        where = f" in {region}" if region else ""
        return Unknown(f"What an hour of {kind.id}{where} costs is not known{f': {price.note}' if price.note else ''}.")
    return HourlyPrice(price.native_micros_per_hour, price.currency, price.kind, price.source)


def storage_of(
    prices: Sequence[StoragePrice], stored: Sequence[StoredData], provider: str, region: str | None, day: date
) -> tuple[StoragePrice | Unknown, ...]:
    known = storage_classes(prices)
    for each in stored:
        if each.storage_class not in known:
            raise unknown("storage class", each.storage_class, known, "storage.class")
    return tuple(storage_price_of(prices, provider, region, each.storage_class, day) for each in stored)


def transfer_of(
    prices: Sequence[TransferPrice], sent: Sequence[TransferredData], provider: str, region: str | None, day: date
) -> tuple[tuple[TransferPrice, ...] | Unknown, ...]:
    return tuple(transfer_prices_of(prices, provider, region, each.destination, day) for each in sent)


def fee_of(fees: Sequence[Fee], kind: InstanceType, service: str | None, day: date) -> Fee | Contained | Unknown | None:
    """The premium on a plain machine under a service; the price of a managed twin already contains it."""
    if kind.twin_of is not None:
        return Contained()
    if service is None:
        return None
    known = [
        fee
        for fee in fees
        if (fee.provider, fee.service) == (kind.provider, service)
        and fee.family in ("", kind.family)
        and fee.valid_from <= day
    ]
    if not known:
        return Unknown(f"The premium of {service} on {kind.family} machines is not known.")
    return max(known, key=lambda fee: (bool(fee.family), fee.valid_from))


def interruptions_of(
    reference: Reference, kind: InstanceType, offer: Offer, run: BilledRun, day: date, checkpoints: Checkpoints
) -> Expectation | Unknown | None:
    gpu = kind.gpu.id if kind.gpu else None
    prior = prior_of(reference.interruption_priors, kind.provider, offer.market, gpu, day)
    if isinstance(prior, Unknown) and offer.market in UNINTERRUPTED:
        return None
    return expect_by_prior(run.hours, prior, checkpoints, run.nodes)
