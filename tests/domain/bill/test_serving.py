"""Replicas for a load: the fullest replica that is quick enough, found by halving."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.domain.band import Band
from service.domain.bill.serving import Load, Served, serve
from service.domain.money import Unknown


def replica(concurrency: float, *, most: float = 64, fits: bool = True) -> Any:
    """Ten answers a second at 16 in flight, fewer the emptier it is; a token takes a millisecond per request."""
    rate = 10.0 * concurrency / (concurrency + 16) * 2
    estimate = SimpleNamespace(
        fits=fits and concurrency <= most,
        concurrency=concurrency,
        samples_per_second=Band(rate / 2, rate, rate * 1.5),
        tokens_per_second=Band(rate * 50, rate * 100, rate * 150),
        seconds_to_first_token=Band(0.1, 0.2, 0.3),
        seconds_per_output_token=Band(concurrency / 2000, concurrency / 1000, concurrency / 500),
    )
    return SimpleNamespace(estimate=estimate)


def served(load: Load, **known: Any) -> Served:
    found = serve(replica(64), load, known.get("again", replica))
    assert isinstance(found, Served)
    return found


def test_without_a_limit_the_replica_is_full() -> None:
    found = served(Load(requests_per_second=100))
    assert (found.concurrency, found.replicas_low, found.replicas, found.replicas_high) == (64, 5, 7, 13)


@given(st.floats(0.001, 0.2))
def test_a_limit_is_met_and_one_more_request_would_break_it(limit: float) -> None:
    found = served(Load(requests_per_second=100, max_seconds_per_output_token=limit))
    assert found.concurrency is not None
    assert found.concurrency / 1000 <= limit
    assert found.concurrency == 64 or (found.concurrency + 1) / 1000 > limit


def test_a_load_may_be_told_in_tokens_and_with_room_to_spare() -> None:
    assert served(Load(tokens_per_second=1600)).replicas == 1
    assert served(Load(tokens_per_second=1601)).replicas == 2
    assert served(Load(tokens_per_second=1600, utilisation=0.5)).replicas == 2


def test_what_is_never_quick_enough_says_how_slow_it_is() -> None:
    found = serve(replica(64), Load(requests_per_second=1, max_seconds_to_first_token=0.1), replica)
    assert isinstance(found, Unknown)
    assert "0.2 s to the first token are likely, and 0.1 are allowed" in found.reason


def test_a_fixed_concurrency_is_not_lowered() -> None:
    limit = Load(requests_per_second=1, max_seconds_per_output_token=0.03)
    assert isinstance(serve(replica(64), limit, None), Unknown)
    assert isinstance(serve(replica(64), limit, replica), Served)


def test_what_does_not_fit_serves_nobody() -> None:
    assert isinstance(serve(replica(64, fits=False), Load(requests_per_second=1), replica), Unknown)
