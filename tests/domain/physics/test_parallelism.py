"""Layouts of a job, and the traffic between their GPUs."""

import numpy as np
import pytest

from service.domain.physics.parallelism import (
    Layout,
    LayoutTable,
    all_reduce_bytes,
    bubble_share,
    copies_to_other_groups,
    layout_of,
    most_experts,
)


@pytest.mark.parametrize(("alpha", "rate", "milliseconds"), [(53e-6, 163e9, 145.0), (31e-6, 349e9, 67.6)])
def test_all_reduce_of_7b_gradients(alpha: float, rate: float, milliseconds: float) -> None:
    """13.48 GB over 8 GPUs of a DGX A100 and a DGX H100."""
    assert (alpha + all_reduce_bytes(13.48e9, 8) / rate) * 1e3 == pytest.approx(milliseconds, abs=0.3)


def test_bubble_of_eight_stages() -> None:
    assert bubble_share(Layout(pipeline=8, accumulation=64, virtual_stages=3)) == pytest.approx(7 / 192)


def test_a_layout_counts_its_gpus_and_samples() -> None:
    layout = Layout(tensor=2, pipeline=3, context=2, data=4, micro_batch=2, accumulation=5, empty_samples=3)
    assert layout.gpus == 48
    assert layout.model_ranks == 6
    assert layout.global_batch == 4 * 2 * 5 - 3


def test_a_row_of_a_table_is_the_layout_that_it_holds() -> None:
    table = LayoutTable.plain(2)
    assert table.row(1) == Layout()
    columns = {name: getattr(table, name) for name in LayoutTable.__dataclass_fields__}
    changed = LayoutTable(**{**columns, "tensor": np.array([1.0, 8.0]), "checkpointing": np.array([0, 2])})
    assert changed.row(1) == layout_of(changed.rows()[1]) == Layout(tensor=8, activation_checkpointing="full")
    assert changed.checkpoints("full").tolist() == [False, True]


def test_a_single_rank_sends_nothing() -> None:
    assert all_reduce_bytes(1e9, 1) == 0
    assert bubble_share(Layout(accumulation=8)) == 0


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_a_token_is_copied_once_to_each_other_group_with_one_of_its_experts(groups: int) -> None:
    """Drawn: the experts of 20,000 tokens, each in any of the groups, of which the first is that of the token."""
    drawn = np.random.default_rng(1).integers(groups, size=(20_000, 8))
    copies = np.mean([len({*experts} - {0}) for experts in drawn.tolist()])
    assert copies_to_other_groups(groups, 8) == pytest.approx(copies, rel=0.01)


def test_experts_that_groups_do_not_divide_are_a_whole_number_on_each() -> None:
    """256 experts on 72 GPUs are four on each: 288 places, of which 32 have copies."""
    assert most_experts(256, Layout(data=72, expert=72)) == 4 / 256
    assert most_experts(256, Layout(data=64, expert=64)) == 1 / 64
    assert most_experts(8, Layout(tensor=2, data=4, expert=4)) == 1 / 2
    assert most_experts(0, Layout(data=4, expert=4)) == 1 / 4
