"""The layout that is chosen for training, and properties of every layout that the search finds."""

from dataclasses import replace
from math import isfinite

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.domain.calibration.calibration import Calibration
from service.domain.errors import QuestionError
from service.domain.jobs.config import Method, TrainingConfig
from service.domain.jobs.fixed_layout import FixedLayout
from service.domain.jobs.stacks import SoftwareStack
from service.domain.layouts.candidates import degrees_of, memory_savings
from service.domain.layouts.cluster_table import cluster_table, distinct
from service.domain.layouts.search import best_layout
from service.domain.layouts.training_search import (
    fastest_training_layouts,
    training_bands,
    where_training_fits,
)
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, estimate_config
from service.domain.physics.parallelism import crosses_slow_links
from tests.builders.calibrations import FITTED, UNFITTED
from tests.builders.clusters import cluster, faster
from tests.builders.gpus import gpu_with_peaks
from tests.builders.jobs import GPT_175B, LARGE_MODEL, LLAMA_3_8B, MIXTRAL, model, training
from tests.oracles.layouts import every_training_layout, fastest_layout, samples_per_second
from tests.strategies.layouts import clusters, fixed_layouts, found_for, training_configs

calibration = st.sampled_from([UNFITTED, FITTED])
more = st.floats(1.0, 8.0)
SLACK = 1 - 1e-9


@settings(max_examples=60)
@given(calibration, training_configs(), clusters(), fixed_layouts)
def test_the_search_equals_the_loop_over_every_layout(
    with_: Calibration, work: TrainingConfig, where: Cluster, fixed: FixedLayout
) -> None:
    found = found_for(with_, work, where, fixed)
    plain = fastest_layout(with_, work, where, fixed)
    assert plain is not None
    assert found.fits_surely == plain.fits_surely
    if found.fits_surely:
        assert samples_per_second(found) == pytest.approx(samples_per_second(plain), rel=1e-6)
    else:  # of layouts that need equally little memory, any may be the answer
        assert found.memory.needed_bytes == pytest.approx(plain.memory.needed_bytes, rel=1e-6)


@given(calibration, training_configs(), clusters(), fixed_layouts)
def test_a_layout_takes_all_gpus_and_the_whole_batch(
    with_: Calibration, work: TrainingConfig, where: Cluster, fixed: FixedLayout
) -> None:
    layout = found_for(with_, work, where, fixed).layout
    assert layout.gpus == where.gpus
    if work.global_batch and fixed.micro_batch is None and fixed.accumulation is None:
        assert layout.global_batch == work.global_batch
    for name in ("tensor", "pipeline", "data", "zero_stage", "micro_batch", "accumulation", "activation_checkpointing"):
        assert getattr(fixed, name) in (None, getattr(layout, name))


@given(calibration, training_configs(), st.lists(clusters(), min_size=1, max_size=6))
def test_many_machines_at_once_are_each_as_alone(with_: Calibration, work: TrainingConfig, some: list[Cluster]) -> None:
    known, _ = distinct(some)
    together = fastest_training_layouts(with_, work, cluster_table(known))
    turned = fastest_training_layouts(with_, work, cluster_table(known[::-1]))
    for place, where in enumerate(known):
        alone = fastest_training_layouts(with_, work, cluster_table([where]))
        assert together.fits[place] == alone.fits[0] == turned.fits[-1 - place]
        for column in ("units_per_second", "needed_bytes"):
            expected = getattr(alone, column)[0]
            assert getattr(together, column)[place] == pytest.approx(expected, rel=1e-9)
            assert getattr(turned, column)[-1 - place] == pytest.approx(expected, rel=1e-9)


@given(calibration, training_configs(), st.lists(clusters(), min_size=1, max_size=6), st.data())
def test_clusters_that_are_left_out_change_nothing(
    with_: Calibration, work: TrainingConfig, some: list[Cluster], data: st.DataObject
) -> None:
    known, _ = distinct(some)
    table = cluster_table(known)
    wanted = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(known), max_size=len(known))))
    every, asked = (fastest_training_layouts(with_, work, each) for each in (table, table.rows(wanted)))
    assert list(asked.fits) == list(every.fits[wanted])
    assert list(asked.units_per_second) == pytest.approx(list(every.units_per_second[wanted]))
    assert list(asked.needed_bytes) == pytest.approx(list(every.needed_bytes[wanted]))
    assert list(where_training_fits(with_, work, table.rows(wanted))) == list(every.fits[wanted])


@given(calibration, training_configs(), st.lists(clusters(), min_size=1, max_size=6))
def test_the_lightest_layout_shows_whether_the_fastest_fits(
    with_: Calibration, work: TrainingConfig, some: list[Cluster]
) -> None:
    known, _ = distinct(some)
    table = cluster_table(known)
    fastest = fastest_training_layouts(with_, work, table)
    assert list(where_training_fits(with_, work, table)) == list(fastest.fits)


@given(calibration, training_configs(), clusters(), more, more, more, more)
def test_faster_hardware_never_trains_slower(
    with_: Calibration,
    work: TrainingConfig,
    where: Cluster,
    flops: float,
    bandwidth: float,
    link: float,
    network: float,
) -> None:
    slow = found_for(with_, work, where)
    fast = found_for(with_, work, faster(where, flops, bandwidth, link, network))
    assert fast.fits_surely == slow.fits_surely
    assert samples_per_second(fast) >= samples_per_second(slow) * SLACK


@given(calibration, training_configs(), clusters(), more)
def test_more_memory_never_stops_fitting(
    with_: Calibration, work: TrainingConfig, where: Cluster, times: float
) -> None:
    assert where.gpu.memory_gb is not None
    larger = replace(where, gpu=replace(where.gpu, memory_gb=where.gpu.memory_gb * times))
    small, large = found_for(with_, work, where), found_for(with_, work, larger)
    assert small.fits_surely <= large.fits_surely
    if small.fits_surely and not crosses_slow_links(small.layout.tensor, where.linked_gpus):
        assert samples_per_second(large) >= samples_per_second(small) * SLACK


@given(calibration, training_configs(), clusters())
def test_a_smaller_precision_never_stops_fitting(with_: Calibration, work: TrainingConfig, where: Cluster) -> None:
    fits = [
        found_for(with_, replace(work, precision=name), where).fits_surely for name in ("fp32", "tf32", "bf16", "fp8")
    ]
    assert fits == sorted(fits)


@given(calibration, training_configs(), clusters(), fixed_layouts)
def test_figures_are_finite_and_parts_add_up(
    with_: Calibration, work: TrainingConfig, where: Cluster, fixed: FixedLayout
) -> None:
    found = found_for(with_, work, where, fixed)
    assert isfinite(found.memory.needed_bytes)
    assert found.memory.needed_bytes == pytest.approx(sum(found.memory.parts.values()))
    if found.step is not None:
        assert isfinite(found.step.rate)
        assert found.step.seconds == pytest.approx(sum(found.step.parts.values()))
        band = found.samples_per_second
        assert band is not None
        assert 0 < band.low <= band.likely <= band.high
        assert isfinite(band.high)


@given(training_configs(), clusters())
def test_samples_per_second_are_those_of_the_estimate(work: TrainingConfig, where: Cluster) -> None:
    table = fastest_training_layouts(FITTED, work, cluster_table([where]))
    assume(bool(table.exists[0]))
    found = found_for(FITTED, work, where)
    assert table.needed_bytes[0] == pytest.approx(found.memory.needed_bytes)
    if found.fits_surely and found.step is not None:
        band = found.samples_per_second
        assert band is not None
        assert band.likely == pytest.approx(found.step.rate)
        low, likely, high = training_bands(FITTED, work, cluster_table([where]))[0] * table.units_per_second[0]
        assert [low, likely] == pytest.approx([band.low, band.likely])
        assert band.high <= high * (1 + 1e-9)
    else:
        assert table.units_per_second[0] == 0


# Choices


def test_a_small_model_is_copied_to_every_gpu() -> None:
    small = model(replace(LLAMA_3_8B, layers=12, hidden=768, heads=12, kv_heads=12, head_size=64, ffn=3072), 0.2e9)
    found = best_layout(UNFITTED, training(model=small), cluster()).layout
    assert (found.data, found.tensor, found.pipeline) == (8, 1, 1)
    assert found.activation_checkpointing == "none"


@pytest.mark.parametrize("stack", ["deepspeed", "llm-foundry", "torch-compile", "pytorch"])
def test_stacks_that_only_shard_divide_no_layer_unless_the_caller_does(stack: str) -> None:
    """An 8B model in DeepSpeed was given four pipeline stages, for which models are written as lists of layers."""
    work = training(global_batch=256, sequence_length=4096, software=SoftwareStack(stack))
    found = best_layout(FITTED, work, cluster(gpu=gpu_with_peaks(memory_gb=40.0))).layout
    assert (found.tensor, found.pipeline, found.data) == (1, 1, 8)
    fixed = best_layout(FITTED, work, cluster(gpu=gpu_with_peaks(memory_gb=40.0)), FixedLayout(pipeline=4)).layout
    assert fixed.pipeline == 4


@pytest.mark.parametrize(("method", "stack", "divided"), [
    ("lora", "unknown", False), ("full", "unknown", True), ("lora", "nemo", True), ("lora", "transformers", False),
])  # fmt: skip
def test_adapters_without_a_stack_are_trained_by_sharding_alone(method: Method, stack: str, *, divided: bool) -> None:
    """LoRA of a 70B model was given two stages of 40 pieces each where no software was named."""
    degrees = degrees_of(training(method=method, software=SoftwareStack(stack)), [(8, 8, 8)], FixedLayout())
    assert bool(max(degrees["tensor"] * degrees["pipeline"]) > 1) is divided
    fixed = degrees_of(training(method=method, software=SoftwareStack(stack)), [(8, 8, 8)], FixedLayout(tensor=2))
    assert set(fixed["tensor"]) == {2}


@pytest.mark.parametrize(
    ("stack", "sentence"),
    [
        ("pytorch", "each of them needs a sample at least, since none shares a layer with another"),
        ("torchtitan", "the GPUs of a replica must divide its attention heads and layers"),
    ],
)
def test_a_batch_of_fewer_samples_than_gpus_names_what_its_stack_cannot_do(stack: str, sentence: str) -> None:
    """ResNet-50 was said to need GPUs that divide its attention heads."""
    heads_of_three = replace(LLAMA_3_8B, heads=3, kv_heads=3, layers=1)
    work = training(model=model(heads_of_three, 8e9), global_batch=4, software=SoftwareStack(stack))
    with pytest.raises(QuestionError, match=sentence) as caught:
        best_layout(FITTED, work, cluster())
    assert caught.value.field == "workload.global_batch_size"


@pytest.mark.parametrize("ranks", [2, 4])
def test_another_number_of_ranks_than_gpus_needs_another_degree(ranks: int) -> None:
    """A batch of 512 was said to leave GPUs without a sample."""
    work = training(method="lora", global_batch=512, software=SoftwareStack("transformers"))
    with pytest.raises(QuestionError, match=f"they are 8 data-parallel ranks, and not {ranks}, unless another"):
        best_layout(FITTED, work, cluster(), FixedLayout(data=ranks))


@pytest.mark.parametrize(("stack", "most"), [("neuronx-distributed", 1), ("torchtitan", 3), ("paddle", 3)])
def test_trainium_shards_no_weights_and_paddle_does(stack: str, most: int) -> None:
    work = training(global_batch=256, software=SoftwareStack(stack))
    savings = memory_savings(work, FixedLayout(), 3)
    assert max(stage for stage, _ in savings) == most


@pytest.mark.parametrize(
    ("stack", "kinds"),
    [
        ("transformers", {0, 2}),
        ("unsloth", {0, 2}),
        ("llm-foundry", {0, 2}),
        ("megatron-lm", {0, 1, 2}),
        ("torchtitan", {0, 1, 2}),
    ],
)
def test_only_stacks_with_selective_checkpointing_choose_it(stack: str, kinds: set[int]) -> None:
    """QLoRA in Unsloth was given selective checkpointing, with twice the memory that people measure."""
    work = training(software=SoftwareStack(stack))
    assert {kind for _, kind in memory_savings(work, FixedLayout(), 3)} == kinds
    assert memory_savings(work, FixedLayout(zero_stage=1, activation_checkpointing="selective"), 3) == [(1, 1)]


@pytest.mark.parametrize(("stack", "has_stages"), [("unknown", False), ("torchtitan", False), ("megatron-lm", True)])
def test_only_megatron_divides_an_encoder_and_a_decoder_over_stages(stack: str, *, has_stages: bool) -> None:
    """Whisper was given two stages of 32 pieces each where no software was named."""
    t5 = replace(LLAMA_3_8B, layers=64, encoder_layers=32, heads=12, kv_heads=12)
    work = training(model=model(t5, 3e9, family="enc_dec"), software=SoftwareStack(stack))
    degrees = degrees_of(work, [(8, 8, 8)], FixedLayout())
    assert bool(max(degrees["pipeline"]) > 1) is has_stages


@pytest.mark.parametrize(("nodes", "slots"), [(4, 64), (5, 65), (6, 64), (7, 70)])
def test_a_batch_that_some_layout_makes_exactly_leaves_no_slot_empty(nodes: int, slots: int) -> None:
    """Megatron-LM refuses a batch that its ranks do not divide. 32 layers have no 5 or 7 equal stages."""
    stack = SoftwareStack("megatron-lm")
    work = training(global_batch=64, sequence_length=8192, software=stack)
    layout = best_layout(FITTED, work, cluster(nodes=nodes)).layout
    assert (layout.slots, layout.global_batch) == (slots, 64)


@given(calibration, training_configs(), clusters())
def test_micro_batches_hold_whole_pairs(with_: Calibration, work: TrainingConfig, where: Cluster) -> None:
    pairs = replace(work, samples_together=2, global_batch=work.global_batch and 2 * work.global_batch)
    layout = found_for(with_, pairs, where).layout
    assert layout.micro_batch % 2 == 0
    assert layout.global_batch == (pairs.global_batch or layout.slots)


def test_what_is_fixed_stays() -> None:
    fixed = FixedLayout(tensor=2, zero_stage=1, micro_batch=2, activation_checkpointing="full")
    found = best_layout(FITTED, training(), cluster(), fixed).layout
    assert (found.tensor, found.zero_stage, found.micro_batch, found.activation_checkpointing) == (2, 1, 2, "full")
    assert found.gpus == 8
    assert found.global_batch == 64


def test_what_fits_nowhere_is_given_in_its_smallest_form() -> None:
    found = best_layout(FITTED, training(model=LARGE_MODEL), cluster())
    assert not found.fits_surely
    assert found.samples_per_second is None
    assert found.layout.activation_checkpointing == "full"
    assert found.layout.micro_batch == 1


def test_of_equally_fast_layouts_the_one_that_needs_the_least_memory_is_chosen() -> None:
    """On a slow network, the exchange of gradients takes the whole step in many layouts."""
    slow = cluster(gpu_with_peaks(memory_gb=192), nodes=2, network_gbps=1)
    fixed, work = FixedLayout(data=16, zero_stage=1), training()
    layouts = every_training_layout(work, slow, fixed)
    fitting = [each for layout in layouts if (each := estimate_config(UNFITTED, work, slow, layout)).fits_surely]
    highest = max(map(samples_per_second, fitting))
    needed = {each.memory.needed_bytes for each in fitting if samples_per_second(each) >= SLACK * highest}
    assert len(needed) > 3
    assert best_layout(UNFITTED, work, slow, fixed).memory.needed_bytes == min(needed)


def test_a_fused_optimizer_takes_the_batch_at_once_where_whole_gradients_do_not_fit() -> None:
    """An 8B model with 16-bit weights and no states needs 16 GB, and as much again for gradients that accumulate."""
    of_24_gb = cluster(gpu_with_peaks(memory_gb=24.0, tflops=165.0, bandwidth=1008.0), 1)
    work = training(fused_optimizer=True, recipe="pure", optimizer="sgd", sequence_length=512)
    small, large = (best_layout(FITTED, replace(work, global_batch=batch), of_24_gb) for batch in (4, 256))
    assert (small.fits, small.layout.micro_batch, small.layout.accumulation) == (True, 4, 1)
    assert not large.fits
    assert large.layout.accumulation > 1  # the smallest form in which it would run
    assumed = best_layout(FITTED, replace(work, global_batch=None), of_24_gb).layout
    assert (assumed.micro_batch, assumed.accumulation) == (2, 1)


def test_tensors_cross_slow_links_only_where_nothing_else_fits() -> None:
    two_nodes = cluster(gpu_with_peaks(memory_gb=80), gpus=2, nodes=8)
    layers = replace(LLAMA_3_8B, layers=2, hidden=65536, heads=512, ffn=4 * 65536)
    wide = model(layers, 90e9)
    work = training(model=wide, global_batch=1, sequence_length=512, optimizer="sgd", recipe="pure")
    found = best_layout(UNFITTED, work, two_nodes)
    assert found.fits_surely
    assert found.layout.tensor > 2
    assert best_layout(UNFITTED, training(), two_nodes).layout.tensor <= 2


def test_a_network_that_is_unknown_carries_data_parallelism_alone() -> None:
    known = cluster(gpus=2, nodes=8)
    unknown = replace(known, network_known=False)
    work = training(model=LARGE_MODEL, software=SoftwareStack("megatron-lm"))
    assert best_layout(UNFITTED, work, known).layout.model_ranks > 2
    found = best_layout(UNFITTED, work, unknown).layout
    assert found.tensor * found.context <= 2
    assert found.pipeline == 1  # the stages of a copy lie on different nodes, since its data-parallel twins lie between
    assert best_layout(UNFITTED, work, unknown, FixedLayout(tensor=8)).layout.tensor == 8


def test_a_pipeline_stays_within_one_node_of_an_unknown_network() -> None:
    work = training(model=LARGE_MODEL, software=SoftwareStack("megatron-lm"), optimizer="sgd", recipe="pure")
    cards = gpu_with_peaks(memory_gb=80)
    assert best_layout(UNFITTED, work, replace(cluster(cards), network_known=False), FixedLayout(pipeline=4)).fits
    search = best_layout(UNFITTED, work, replace(cluster(cards, gpus=1, nodes=8), network_known=False))
    assert search.layout.model_ranks == 1


@given(calibration, training_configs(), clusters())
def test_experts_are_spread_over_no_unknown_network(with_: Calibration, work: TrainingConfig, where: Cluster) -> None:
    found = found_for(with_, work, replace(where, network_known=False)).layout
    assert max(found.tensor * found.context, found.expert) * found.pipeline <= where.gpus_per_node


def test_a_caller_may_cross_slow_links() -> None:
    found = best_layout(UNFITTED, training(), cluster(gpus=2, nodes=4), FixedLayout(tensor=8))
    assert found.layout.tensor == 8


@pytest.mark.parametrize(("layers", "pieces"), [(128, 8), (126, 8), (122, 1)])
def test_only_the_first_and_the_last_piece_of_a_pipeline_may_be_empty(layers: int, pieces: int) -> None:
    """16 stages of 8 layers, of which 6 would lack one."""
    t = replace(GPT_175B, layers=layers)
    many = cluster(gpu_with_peaks(memory_gb=80, tflops=989, bandwidth=3350), nodes=256, link=900, network_gbps=3200)
    work = training(model=model(t, 175e9), sequence_length=2048, global_batch=256)
    fixed = FixedLayout(tensor=8, pipeline=16, micro_batch=1)
    found = best_layout(UNFITTED, replace(work, software=SoftwareStack("megatron-lm")), many, fixed)
    assert found.layout.virtual_stages == pieces


@pytest.mark.parametrize(("tensor", "context"), [(1, 1), (2, 1), (4, 2)])
def test_gpus_that_share_samples_share_a_micro_batch(tensor: int, context: int) -> None:
    """They are no reason to accumulate gradients."""
    fixed = FixedLayout(tensor=tensor, context=context, pipeline=1, micro_batch=3)
    layout = best_layout(UNFITTED, replace(training(), global_batch=None, batch_per_gpu=3), cluster(), fixed).layout
    assert layout.accumulation == 1
    assert layout.global_batch == 3 * 8 // (tensor * context)


def test_stages_are_interleaved_where_the_stack_can_and_few_micro_batches_leave_bubbles() -> None:
    """GPT-3 on 1,344 nodes of 8 H100 had 8 pieces on each of 6 stages in MLPerf, for 6 micro-batches of one sample."""
    many = cluster(gpu_with_peaks(memory_gb=80, tflops=989, bandwidth=3350), nodes=1344, link=900, network_gbps=3200)
    gpt = training(model=model(GPT_175B, 175e9), sequence_length=2048, global_batch=2688)

    def found(stack: str, fixed: FixedLayout | None = None) -> Estimate:
        return best_layout(UNFITTED, replace(gpt, software=SoftwareStack(stack)), many, fixed or FixedLayout())

    interleaved, plain = found("megatron-lm"), found("gpt-neox")
    assert interleaved.layout.virtual_stages > 1
    assert interleaved.layout.accumulation % interleaved.layout.pipeline == 0
    assert 96 % (interleaved.layout.pipeline * interleaved.layout.virtual_stages) == 0
    assert plain.layout.virtual_stages == 1
    assert samples_per_second(interleaved) > 1.1 * samples_per_second(plain)
    assert samples_per_second(found("megatron-lm", FixedLayout(virtual_stages=1))) < samples_per_second(interleaved)


def test_stacks_that_cut_no_matrices_shard() -> None:
    work = training(model=LARGE_MODEL, software=SoftwareStack("torchtune"))
    found = best_layout(FITTED, work, cluster(nodes=4)).layout
    assert (found.tensor, found.pipeline, found.zero_stage) == (1, 1, 3)


@pytest.mark.parametrize(("stack", "spreads"), [("transformers", False), ("megatron-lm", True)])
def test_stacks_without_model_parallelism_spread_no_experts(stack: str, spreads: bool) -> None:
    """Transformers, torchtune and Axolotl train with each expert on every GPU, or shard it (ZeRO-3)."""
    work = training(model=MIXTRAL, method="lora", software=SoftwareStack(stack))
    found = best_layout(FITTED, work, cluster()).layout
    assert (found.expert > 1) is spreads
    assert best_layout(FITTED, work, cluster(), FixedLayout(expert=8)).layout.expert == 8


def test_fewer_samples_than_gpus_lower_the_data_degree() -> None:
    found = best_layout(UNFITTED, training(global_batch=4), cluster()).layout
    assert found.data <= 4
    assert found.gpus == 8
    resnet = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9)
    with pytest.raises(QuestionError, match="each of them needs a sample"):
        best_layout(UNFITTED, training(model=resnet, global_batch=4), cluster())


def test_a_batch_that_only_an_unknown_network_keeps_from_dividing_says_so() -> None:
    work = training(global_batch=1, software=SoftwareStack("megatron-lm"))
    assert best_layout(UNFITTED, work, cluster(nodes=4)).layout.data == 1
    with pytest.raises(QuestionError, match=r"network is not stated \(workload.assume_network_gbps states it\)"):
        best_layout(UNFITTED, work, replace(cluster(nodes=4), network_known=False))
