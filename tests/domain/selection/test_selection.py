"""The selection against the plain loop, and what it promises about relaxing."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.catalog.hardware import RENTED
from service.domain.catalog.offer import MARKETS
from service.domain.catalog.reference import Region
from service.domain.catalog.regions import resolve_regions
from service.domain.selection.constraints import Constraints
from service.domain.selection.offers import AdmittedOffers
from service.domain.selection.selection import OFFER_CODES, Selection, select
from service.domain.typeset import TypeSet
from tests.builders.catalogs import catalog
from tests.builders.instance_types import instance_type
from tests.builders.offers import priced
from tests.builders.selection import first_type
from tests.builders.sources import SOURCE
from tests.oracles.selection import lowest_prices, offer_misses, relaxed_constraints, type_misses
from tests.strategies.catalogs import World, catalog_of, constraints, worlds


def admitted_types(some: AdmittedOffers) -> set[int]:
    return set(some.cheapest.instance_type[some.rows].tolist())


def members(types: TypeSet, world: World) -> set[int]:
    return set(np.flatnonzero(world.catalog.mask(types)).tolist())


limits_of_a_price = st.lists(st.sampled_from([0.4, 0.5, 0.7, 1.0, 1.2, 2.0, 33.0]), min_size=2, max_size=2)


@settings(max_examples=500)
@given(worlds(), constraints(), limits_of_a_price, st.randoms(use_true_random=False))
def test_a_selection_keeps_its_laws(world: World, asked: Constraints, limits: list[float], random: Random) -> None:
    """Each law is a function below. All of them check the same questions, which take longer to draw than to answer."""
    selection = select(asked, world.catalog)
    it_admits_what_a_plain_loop_over_every_offer_admits(selection, world, asked)
    every_type_is_admitted_or_fails_a_constraint(selection, world)
    a_failed_constraint_names_just_the_types_that_miss_it(selection, world, asked)
    types_miss_the_price_limit_if_their_offers_miss_it_alone_and_none_passes(selection, world, asked)
    only_this_means_that_without_it_the_type_would_be_in(selection, world, asked)
    applying_a_relaxation_admits_just_what_it_promised(selection, world, asked)
    whatever_one_constraint_alone_keeps_out_has_a_relaxation(selection, world)
    the_order_of_offers_does_not_matter(selection, world, asked, random)
    tightened_offers_are_the_same_and_equal_just_where_their_rows_are(selection, world, limits)


def it_admits_what_a_plain_loop_over_every_offer_admits(selection: Selection, world: World, asked: Constraints) -> None:
    offers, cells, places = world.catalog.offers, selection.admitted.cheapest, selection.admitted.rows
    found = {
        (int(kind), MARKETS[offers.market[place]]): float(offers.usd_per_hour[place])
        for kind, place in zip(cells.instance_type[places], cells.offer[places], strict=True)
    }
    expected = lowest_prices(asked, world)
    assert set(found) == set(expected)
    for key, usd in expected.items():
        assert np.isnan(found[key]) if usd is None else found[key] == usd


def every_type_is_admitted_or_fails_a_constraint(selection: Selection, world: World) -> None:
    blocked = 0
    for constraint in selection.failed:
        blocked |= constraint.fails
    inside = admitted_types(selection.admitted)
    assert members(selection.admitted.types, world) == inside
    assert inside | members(blocked, world) == set(range(len(world.catalog.instance_types)))


def a_failed_constraint_names_just_the_types_that_miss_it(
    selection: Selection, world: World, asked: Constraints
) -> None:
    for constraint in selection.failed:
        if constraint.code in OFFER_CODES:
            continue
        kinds = enumerate(world.catalog.instance_types)
        missing = {place for place, kind in kinds if constraint.code in type_misses(asked, kind)}
        assert members(constraint.fails, world) == missing


def types_miss_the_price_limit_if_their_offers_miss_it_alone_and_none_passes(
    selection: Selection, world: World, asked: Constraints
) -> None:
    expected: dict[str, set[int]] = {"max_usd_per_hour": set(), "usd_per_hour_unknown": set()}
    for place in range(len(world.catalog.instance_types)):
        misses = [offer_misses(asked, offer) for offer in world.offers if offer[0] == place]
        code = next((code for code in expected if [code] in misses and [] not in misses), None)
        if code is not None:
            expected[code].add(place)
    found = {each.code: members(each.fails, world) for each in selection.failed if each.code in expected}
    assert found == {code: places for code, places in expected.items() if places}


def only_this_means_that_without_it_the_type_would_be_in(
    selection: Selection, world: World, asked: Constraints
) -> None:
    for constraint in selection.failed:
        for place in members(constraint.fails_alone, world):
            kind = world.catalog.instance_types[place]
            hardware = type_misses(asked, kind)
            offers = [offer_misses(asked, offer) for offer in world.offers if offer[0] == place]
            assert ([constraint.code] == hardware and [] in offers) or (not hardware and [constraint.code] in offers)


def applying_a_relaxation_admits_just_what_it_promised(selection: Selection, world: World, asked: Constraints) -> None:
    before = admitted_types(selection.admitted)
    for constraint in selection.failed:
        relaxed = constraint.relax(world.catalog, first_type)
        if relaxed is None:
            continue
        to, promised, *_ = relaxed
        after = admitted_types(select(relaxed_constraints(asked, to), world.catalog).admitted)
        assert after - before == admitted_types(promised), (constraint.code, to)
        assert before <= after


def whatever_one_constraint_alone_keeps_out_has_a_relaxation(selection: Selection, world: World) -> None:
    for constraint in selection.failed:
        alone = members(constraint.fails_alone, world)
        if constraint.code == "lifecycle":  # no change proposes what cannot be rented
            types = world.catalog.instance_types
            alone = {place for place in alone if types[place].state_on(world.catalog.day) in RENTED}
        if alone and constraint.code not in ("price_unknown", "precision"):
            assert constraint.relax(world.catalog, first_type) is not None, constraint.code


def the_order_of_offers_does_not_matter(selection: Selection, world: World, asked: Constraints, random: Random) -> None:
    shuffled = random.sample(world.offers, len(world.offers))
    again = select(asked, catalog_of(list(world.catalog.instance_types), shuffled))
    assert selection.admitted.types == again.admitted.types
    assert [o.fails for o in selection.failed] == [o.fails for o in again.failed]


def tightened_offers_are_the_same_and_equal_just_where_their_rows_are(
    selection: Selection, world: World, limits: list[float]
) -> None:
    cheapest = selection.admitted.cheapest
    parts = [cheapest.restricted_to(world.catalog.all_types, limit) for limit in limits]
    tight = [part.tightened(world.catalog) for part in parts]
    rows = [part.rows.tolist() for part in parts]
    assert [part.rows.tolist() for part in tight] == rows
    assert (tight[0] == tight[1]) == (rows[0] == rows[1])


def test_a_region_called_us_is_relaxed_to_all_regions_of_the_united_states() -> None:
    machines = [instance_type(f"pod-{number}") for number in range(3)]
    countries = {"DE": "DE", "US": "US", "us-east": "US"}
    prices = [priced(machine, region=region) for machine, region in zip(machines, countries, strict=True)]
    regions = tuple(Region("aws", region, region, country, None, SOURCE, ()) for region, country in countries.items())
    there = catalog(*prices, regions=regions)
    [failed] = select(Constraints(region=("DE",)), there).failed
    relaxation = failed.relax(there, first_type)
    assert relaxation is not None
    assert relaxation.to == {"region": ["DE", "US"]}
    assert admitted_types(relaxation.admitted) == {1, 2}
    asked = Constraints(region=resolve_regions(["DE", "US"], there))
    assert admitted_types(select(asked, there).admitted) == {0, 1, 2}
