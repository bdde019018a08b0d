"""The selection against the plain loop, and what it promises about relaxing."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.catalog.hardware import RENTED
from service.domain.catalog.offer import MARKETS
from service.domain.selection.constraints import Constraints
from service.domain.selection.offers import AdmittedOffers
from service.domain.selection.selection import OFFER_CODES, select
from service.domain.typeset import TypeSet
from tests.builders.selection import first_type
from tests.oracles.selection import lowest_prices, offer_misses, relaxed_constraints, type_misses
from tests.strategies.catalogs import World, catalog_of, constraints, worlds

MANY = settings(max_examples=250)


def admitted_types(some: AdmittedOffers) -> set[int]:
    return set(some.cheapest.instance_type[some.rows].tolist())


def members(types: TypeSet, world: World) -> set[int]:
    return set(np.flatnonzero(world.catalog.mask(types)).tolist())


@MANY
@given(worlds(), constraints())
def test_it_admits_what_a_plain_loop_over_every_offer_admits(world: World, asked: Constraints) -> None:
    selection = select(asked, world.catalog)
    offers, cells, places = world.catalog.offers, selection.admitted.cheapest, selection.admitted.rows
    found = {
        (int(kind), MARKETS[offers.market[place]]): float(offers.usd_per_hour[place])
        for kind, place in zip(cells.instance_type[places], cells.offer[places], strict=True)
    }
    expected = lowest_prices(asked, world)
    assert set(found) == set(expected)
    for key, usd in expected.items():
        assert np.isnan(found[key]) if usd is None else found[key] == usd


@MANY
@given(worlds(), constraints())
def test_every_type_is_admitted_or_fails_a_constraint(world: World, asked: Constraints) -> None:
    selection = select(asked, world.catalog)
    blocked = 0
    for constraint in selection.failed:
        blocked |= constraint.fails
    inside = admitted_types(selection.admitted)
    assert members(selection.admitted.types, world) == inside
    assert inside | members(blocked, world) == set(range(len(world.catalog.instance_types)))


@MANY
@given(worlds(), constraints())
def test_a_failed_constraint_names_just_the_types_that_miss_it(world: World, asked: Constraints) -> None:
    selection = select(asked, world.catalog)
    for constraint in selection.failed:
        if constraint.code in OFFER_CODES:
            continue
        kinds = enumerate(world.catalog.instance_types)
        missing = {place for place, kind in kinds if constraint.code in type_misses(asked, kind)}
        assert members(constraint.fails, world) == missing


@MANY
@given(worlds(), constraints())
def test_types_are_too_expensive_if_offers_miss_the_price_limit_alone_and_none_passes(
    world: World, asked: Constraints
) -> None:
    expected = set()
    for place in range(len(world.catalog.instance_types)):
        misses = [offer_misses(asked, offer) for offer in world.offers if offer[0] == place]
        if ["max_usd_per_hour"] in misses and [] not in misses:
            expected.add(place)
    answer = [each.fails for each in select(asked, world.catalog).failed if each.code == "max_usd_per_hour"]
    assert (members(answer[0], world) if answer else set()) == expected


@MANY
@given(worlds(), constraints())
def test_only_this_means_that_without_it_the_type_would_be_in(world: World, asked: Constraints) -> None:
    for constraint in select(asked, world.catalog).failed:
        for place in members(constraint.fails_alone, world):
            kind = world.catalog.instance_types[place]
            hardware = type_misses(asked, kind)
            offers = [offer_misses(asked, offer) for offer in world.offers if offer[0] == place]
            assert ([constraint.code] == hardware and [] in offers) or (not hardware and [constraint.code] in offers)


@MANY
@given(worlds(), constraints())
def test_applying_a_relaxation_admits_just_what_it_promised(world: World, asked: Constraints) -> None:
    before = admitted_types(select(asked, world.catalog).admitted)
    for constraint in select(asked, world.catalog).failed:
        relaxed = constraint.relax(world.catalog, first_type)
        if relaxed is None:
            continue
        to, promised = relaxed
        after = admitted_types(select(relaxed_constraints(asked, to), world.catalog).admitted)
        assert after - before == admitted_types(promised), (constraint.code, to)
        assert before <= after


@MANY
@given(worlds(), constraints())
def test_whatever_one_constraint_alone_keeps_out_has_a_relaxation(world: World, asked: Constraints) -> None:
    for constraint in select(asked, world.catalog).failed:
        alone = members(constraint.fails_alone, world)
        if constraint.code == "lifecycle":  # no change proposes what cannot be rented
            types = world.catalog.instance_types
            alone = {place for place in alone if types[place].state_on(world.catalog.day) in RENTED}
        if alone and constraint.code not in ("price_unknown", "precision"):
            assert constraint.relax(world.catalog, first_type) is not None, constraint.code


@MANY
@given(worlds(), constraints(), st.randoms(use_true_random=False))
def test_the_order_of_offers_does_not_matter(world: World, asked: Constraints, random: Any) -> None:
    shuffled = random.sample(world.offers, len(world.offers))
    again = catalog_of(list(world.catalog.instance_types), shuffled)
    first, second = select(asked, world.catalog), select(asked, again)
    assert first.admitted.types == second.admitted.types
    assert [o.fails for o in first.failed] == [o.fails for o in second.failed]


@MANY
@given(worlds(), constraints(), st.lists(st.sampled_from([0.4, 0.5, 0.7, 1.0, 1.2, 2.0, 33.0]), min_size=2, max_size=2))
def test_tightened_offers_are_the_same_and_equal_just_where_their_rows_are(
    world: World, asked: Constraints, limits: list[float]
) -> None:
    cheapest = select(asked, world.catalog).admitted.cheapest
    parts = [cheapest.restricted_to(world.catalog.all_types, limit) for limit in limits]
    tight = [part.tightened(world.catalog) for part in parts]
    rows = [part.rows.tolist() for part in parts]
    assert [part.rows.tolist() for part in tight] == rows
    assert (tight[0] == tight[1]) == (rows[0] == rows[1])
