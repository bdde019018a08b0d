"""Similar instance types: the nearest first, with the gains and losses of a move."""

from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.similar import Similar, similar_types
from tests.builders.catalogs import catalog
from tests.builders.gpus import gpu, rate
from tests.builders.instance_types import event, instance_type

HERE = instance_type("a.here")
A100_RATES = rate("fp32", "native", 19.5), rate("bf16", "accelerated", 312.0)


def similar(*others: InstanceType, limit: int = 10) -> dict[str, Similar]:
    known = catalog(instance_types=[HERE, *others])
    found = similar_types(known, known.index_of[HERE.id], limit)
    return {known.instance_types[each.index].name: each for each in found}


def test_the_nearest_type_comes_first_and_the_type_itself_is_left_out() -> None:
    nearer, farther = instance_type("b.nearer", vcpus=104.0), instance_type("c.farther", vcpus=960.0)
    assert list(similar(farther, nearer)) == ["b.nearer", "c.farther"]
    assert list(similar(farther, nearer, limit=1)) == ["b.nearer"]


def test_twice_and_half_a_figure_are_equally_far() -> None:
    twice, half = instance_type("b.twice", vcpus=192.0), instance_type("c.half", vcpus=48.0)
    distances = [each.distance for each in similar(twice, half).values()]
    assert distances[0] == distances[1] > 0


def test_an_unknown_figure_counts_as_a_factor_of_two() -> None:
    unknown, twice = instance_type("b.unknown", vcpus=None), instance_type("c.twice", vcpus=192.0)
    answer = similar(unknown, twice)
    assert answer["b.unknown"].distance == answer["c.twice"].distance


def test_types_in_other_states_are_left_out() -> None:
    assert similar(instance_type("b.old", lifecycle=(event("retired"),))) == {}


def test_a_move_gains_and_loses_figures_and_precisions() -> None:
    card = gpu("other", memory_gb=80.0, rates=[A100_RATES[0], rate("fp8", "accelerated", 600.0)])
    move = similar(instance_type("b.other", gpu=card, vcpus=48.0))["b.other"]
    assert {(change.figure, change.ratio) for change in move.gains} == {
        ("gpu_memory_gb", 2.0),
        ("total_gpu_memory_gb", 2.0),
    }
    assert {(change.figure, change.ratio) for change in move.loses} == {("vcpus", 0.5)}
    assert (move.precisions_gained, move.precisions_lost) == (("fp8",), ("bf16",))
