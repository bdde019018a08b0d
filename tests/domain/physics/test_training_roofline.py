"""Ideal seconds of the parts of a training step."""

from dataclasses import replace
from typing import Any

import pytest

from service.domain.jobs.config import TrainingConfig
from service.domain.jobs.stacks import software_called
from service.domain.models.counts import routed_share
from service.domain.physics.parallelism import Layout
from service.domain.physics.training_roofline import (
    GATHER_SECONDS,
    OUTSIDE_OF_STAGES,
    training_demands,
    training_terms,
    with_bubble_apart,
)
from tests.builders.clusters import cluster
from tests.builders.gpus import gpu_with_peaks
from tests.builders.jobs import LLAMA_3_8B, MIXTRAL, model, training

RESNET_TRAINING = TrainingConfig(model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9), global_batch=512)


@pytest.mark.parametrize("work", [training(), RESNET_TRAINING], ids=["transformer", "network"])
def test_activations_between_matrix_products_stay_at_16_bits(work: TrainingConfig) -> None:
    moved = {
        name: training_terms(replace(work, precision=name), cluster(), Layout(data=8)).seconds["memory"]
        for name in ("fp8", "mxfp8", "bf16", "fp32")
    }
    assert moved["fp8"] == moved["mxfp8"] == moved["bf16"]
    assert moved["fp32"] > 1.5 * moved["bf16"]


def test_matrix_products_take_three_passes_at_the_peak() -> None:
    """6 FLOPs per parameter and token for forward and backward, recomputation a third more."""
    layout = Layout(data=8)
    step = training_terms(training(sequence_length=2048), cluster(), layout)
    tokens = 2048 * layout.micro_batch
    assert step.seconds["matrix"] == pytest.approx(6 * 7.5e9 * tokens / 312e12, rel=0.03)  # 8.03e9 without embedding
    again = training_terms(training(sequence_length=2048), cluster(), replace(layout, activation_checkpointing="full"))
    assert again.seconds["matrix"] == pytest.approx(step.seconds["matrix"] * 4 / 3, rel=0.01)


def test_weights_that_stay_frozen_take_two_passes_and_half_of_them_two_and_a_half() -> None:
    whole = training()
    products = [
        training_terms(work, cluster(), Layout(data=8)).seconds["matrix"]
        for work in (
            whole,
            replace(whole, trainable_parameters=whole.model.parameters / 2),
            replace(whole, trainable_parameters=1.0),
            replace(whole, method="lora"),
        )
    ]
    assert products == pytest.approx([products[0] * share / 3 for share in (3, 2.5, 2, 2)], rel=1e-6)


def test_a_step_yields_the_samples_of_all_ranks() -> None:
    layout = Layout(data=4, tensor=2, micro_batch=2, accumulation=8)
    assert training_terms(training(), cluster(), layout).units == 4 * 2 * 8


def test_twice_the_flops_halve_the_products_and_nothing_else() -> None:
    slow, fast = (
        training_terms(training(), cluster(gpu_with_peaks(tflops=tflops)), Layout(data=8)).seconds
        for tflops in (312, 624)
    )
    assert fast["matrix"] == pytest.approx(slow["matrix"] / 2)
    assert fast["data"] == slow["data"]
    assert fast["memory"] == slow["memory"]


@pytest.mark.parametrize("work", [training(), RESNET_TRAINING], ids=["transformer", "network"])
def test_a_card_with_half_of_the_power_moves_data_as_if_at_half_of_the_speed_and_does_nothing_else_slower(
    work: TrainingConfig,
) -> None:
    half, full = (
        training_terms(work, cluster(replace(gpu_with_peaks(), tdp_watts=watts)), Layout(data=8)).seconds
        for watts in (200.0, 400.0)
    )
    assert full["power"] > 0
    assert half["power"] == pytest.approx(2 * full["power"])
    assert half | {"power": 0.0} == full | {"power": 0.0}


def test_the_power_of_an_a100_is_enough_for_its_full_bandwidth() -> None:
    step = training_terms(training(), cluster(replace(gpu_with_peaks(), tdp_watts=400.0)), Layout(data=8)).seconds
    assert step["power"] == pytest.approx(step["memory"], rel=0.03)


def test_one_gpu_sends_nothing() -> None:
    seconds = training_terms(training(), cluster(gpus=1), Layout()).seconds
    assert seconds.get("data", 0.0) == seconds.get("tensor", 0.0) == seconds.get("context", 0.0) == 0


def test_recomputing_sends_half_as_much_again_between_tensor_ranks() -> None:
    """Four all-reduces of 2 s b h bytes in each of 32 layers; six with recomputation (SC'21)."""
    config, layout = training(sequence_length=2048), Layout(tensor=8)
    plain = training_demands(config, layout, 8)["tensor", "link"]
    assert plain == pytest.approx(2 * 7 / 8 * 4 * 2 * 2048 * 4096 * 32)
    again = training_demands(config, replace(layout, activation_checkpointing="full"), 8)["tensor", "link"]
    assert again == pytest.approx(plain * 6 / 4)


@pytest.mark.parametrize(
    ("term", "layout", "recomputed", "with_reference"),
    [
        ("tensor", Layout(tensor=8), 6 / 4, 6 / 4),
        ("expert", Layout(data=8, expert=8), 6 / 4, 6 / 4),
        ("context", Layout(context=8), 4 / 3, 4 / 3),
        # The inputs of a stage are kept, and not sent again.
        ("pipeline", Layout(pipeline=8, accumulation=8), 1, 3 / 2),
    ],
)
def test_each_forward_pass_sends_its_activations(
    term: str, layout: Layout, recomputed: float, with_reference: float
) -> None:
    config = training(model=MIXTRAL)
    sent = [
        training_demands(each, how, 8)[term, "link"]
        for each, how in (
            (config, layout),
            (config, replace(layout, activation_checkpointing="full")),
            (replace(config, has_reference=True), layout),
        )
    ]
    assert sent[1:] == pytest.approx([recomputed * sent[0], with_reference * sent[0]])


def test_only_layers_with_attention_send_keys_and_values_around() -> None:
    """The attention of a hybrid is in 4 of its 52 layers, and in all 32 of Llama."""
    hybrid = replace(
        LLAMA_3_8B, layers=52, attention_layers=4, ssm_layers=24, ssm_heads=128, ssm_head_size=64, ssm_state=128,
        ssm_groups=8,
    )  # fmt: skip
    whole, few = (
        training_demands(training(model=model(each)), Layout(context=8), 8)["context", "link"]
        for each in (LLAMA_3_8B, hybrid)
    )
    assert few == pytest.approx(whole * 4 / 32)


def test_a_stage_sends_each_activation_on_and_receives_its_gradient() -> None:
    """Values of 2 bytes in both directions, for each micro-batch, from each GPU of a tensor group its part. Demands
    include the idle time of stages, 3 / 16 of all work, or 3 / 32 where stages are cut into two pieces. The sends of
    the second piece take place during the work on the first.
    """
    config, layout = training(sequence_length=2048), Layout(tensor=2, pipeline=4, micro_batch=3, accumulation=16)
    sent = training_demands(config, layout, 8)
    assert sent["pipeline", "link"] == pytest.approx((1 + 3 / 16) * 16 * 2 * 2 * 3 * 2048 * 4096 / 2)
    assert sent["pipeline", "slow_link"] == 0
    interleaved = training_demands(config, replace(layout, virtual_stages=2), 8)
    assert interleaved["pipeline", "link"] / (1 + 3 / 32) == pytest.approx(sent["pipeline", "link"] / (1 + 3 / 16))


def test_the_stages_of_a_replica_lie_on_different_nodes_where_others_lie_between_them() -> None:
    sent = training_demands(training(), Layout(pipeline=4, data=8, accumulation=16), 8)
    assert sent["pipeline", "link"] == 0 < sent["pipeline", "slow_link"]
    assert sent["data", "network"] == 0


def test_only_the_last_stage_that_linked_gpus_hold_sends_over_the_network() -> None:
    """Four stages of 16 GPUs fit among 64 linked GPUs, so that one of four sends leaves these."""
    config, layout = training(sequence_length=2048), Layout(tensor=4, data=4, pipeline=16, accumulation=16)
    rack, row = (training_demands(config, layout, linked) for linked in (64, 256))
    assert rack["pipeline", "slow_link"] == pytest.approx(rack["pipeline", "link"] / 3)
    assert row["pipeline", "slow_link"] == 0
    assert row["pipeline", "link"] == pytest.approx(rack["pipeline", "link"] + rack["pipeline", "slow_link"])


def test_a_slow_network_slows_a_pipeline_that_crosses_it() -> None:
    config, layout = training(), Layout(pipeline=8, data=8, accumulation=32)
    fast, slow = (
        training_terms(config, replace(cluster(nodes=8), network_bytes_per_second=rate), layout).seconds["pipeline"]
        for rate in (50e9, 0.15e9)
    )
    assert slow == pytest.approx(fast * 50 / 0.15)


def test_experts_that_read_a_narrower_width_receive_less() -> None:
    layout, transformer = Layout(data=16, expert=16), MIXTRAL.transformer
    assert transformer is not None
    narrow = replace(MIXTRAL, transformer=replace(transformer, expert_latent=1024))
    whole, latent = (training_demands(training(model=each), layout, 8) for each in (MIXTRAL, narrow))
    assert latent["expert", "slow_link"] == whole["expert", "slow_link"] / 4


@pytest.mark.parametrize("expert", [1, 2, 8, 16])
@pytest.mark.parametrize("tensor", [1, 2])
def test_a_node_sends_the_gradients_of_all_its_parameters_however_its_experts_are_spread(
    expert: int, tensor: int
) -> None:
    """Two nodes of 8 GPUs; experts that are spread over both nodes have no copy on the other one."""
    layout = Layout(tensor=tensor, data=16 // tensor, expert=expert)
    sent = training_demands(training(model=MIXTRAL), layout, 8)["data", "network"]
    in_both = 1.0 if expert <= 8 else 1.0 - routed_share(MIXTRAL)
    assert 8 * sent == pytest.approx(2.0 * MIXTRAL.parameters * in_both)


@pytest.mark.parametrize("expert", [1, 4])
def test_the_optimizer_steps_each_parameter_once_where_zero_shards_its_states(expert: int) -> None:
    layout = Layout(data=8, expert=expert, zero_stage=1)
    stepped = training_demands(training(model=MIXTRAL), layout, 8)["optimizer", "memory"]
    assert 8 * stepped == pytest.approx(22 * MIXTRAL.parameters)


@pytest.mark.parametrize(
    ("optimizer", "moved"),
    [("adamw", 22), ("lion", 14), ("sgd", 6), ("adafactor", 6.4), ("adamw_8bit", 10), ("paged_adamw", 22)],
)
def test_a_step_of_an_optimizer_moves_a_gradient_a_weight_and_its_own_states(optimizer: str, moved: float) -> None:
    """A gradient is read, and a weight and each state are read and written."""
    demands = training_demands(training(optimizer=optimizer), Layout(), 8)
    assert demands["optimizer", "memory"] == pytest.approx(moved * 8.03e9)


@pytest.mark.parametrize(("zero_stage", "ranks"), [(0, 1), (1, 8)])
def test_muon_makes_the_update_of_each_matrix_orthogonal_in_each_step(zero_stage: int, ranks: int) -> None:
    """An iteration takes 4 m^2 n + 2 m^3 FLOPs, and there are five (2502.16982)."""
    work, layout = training(optimizer="muon"), Layout(data=8, zero_stage=zero_stage, accumulation=9)
    flops = training_demands(work, layout, 8)["optimizer", "wide_flops"]
    square = 32 * (2 * 4096**2 + 2 * 4096 * 1024) * 30 * 4096
    ffn = 32 * 3 * 5 * (4 * 4096**2 * 14336 + 2 * 4096**3)
    assert ranks * flops == pytest.approx(square + ffn)
    assert ("optimizer", "wide_flops") not in training_demands(replace(work, optimizer="lion"), layout, 8)


@pytest.mark.parametrize(("optimizer", "bytes_each"), [("adamw", 0), ("paged_adamw", 8), ("paged_lion_8bit", 1)])
def test_states_of_a_paged_optimizer_come_from_the_host_in_each_step(optimizer: str, bytes_each: int) -> None:
    """The accumulation over micro-batches fetches them no more often, unlike offloaded weights."""
    work, layout = training(optimizer=optimizer, recipe="pure"), Layout(data=4, zero_stage=1, accumulation=3)
    fetched = training_demands(work, layout, 8).get(("fetch", "host_link"), 0)
    assert fetched == pytest.approx(bytes_each * 8.03e9 / 4)
    both = training_demands(replace(work, offload_parameters=True), layout, 8)["fetch", "host_link"]
    assert both == pytest.approx(fetched + 3 * 2 * 2 * 8.03e9 / 4)
    on_cpu = training_demands(replace(work, offload_optimizer=True), layout, 8)
    assert ("fetch", "host_link") not in on_cpu


@pytest.mark.parametrize("software", ["transformers", "transformers==4.57.6", "llama-factory"])
def test_a_stack_that_computes_experts_one_after_another_starts_the_kernels_of_each(software: str) -> None:
    """Each of the 64 experts of a layer starts as many kernels as a dense layer; few tokens touch only some of them."""
    assert MIXTRAL.transformer is not None
    many, layout = replace(MIXTRAL, transformer=replace(MIXTRAL.transformer, experts=64)), Layout(data=8)

    def launches(name: str, layout: Layout = layout, length: int = 4096) -> float:
        config = training(model=many, sequence_length=length, software=software_called(name))
        return float(training_demands(config, layout, 8)["launch", "seconds"])

    grouped = launches("transformers==5.1.0")
    assert grouped == launches("megatron-core") == launches("unsloth")
    of_dense_layers = grouped * (7 + 5) / (7 + 18)  # kernels of an attention and a dense FFN, or of grouped experts
    assert launches(software) - grouped == pytest.approx(64 * of_dense_layers)
    assert launches(software, length=1) - grouped == pytest.approx(2 * of_dense_layers)
    assert launches(software, replace(layout, expert=8)) - grouped == pytest.approx(8 * of_dense_layers)


def test_recomputing_starts_the_kernels_of_a_forward_pass_again() -> None:
    plain, again, selective = (
        training_demands(training(), Layout(data=8, activation_checkpointing=name), 8)["launch", "seconds"]
        for name in ("none", "full", "selective")
    )
    assert again == pytest.approx(plain * 4 / 3)
    assert plain < selective < again


def test_zero_3_sends_half_as_much_again_as_plain_data_parallelism() -> None:
    """Section 7 of the ZeRO paper (1910.02054): gradients of 2 bytes per parameter in a ring of 8."""
    sent = [training_demands(training(), Layout(data=8, zero_stage=stage), 8)["data", "link"] for stage in range(4)]
    assert sent == pytest.approx([2 * 7 / 8 * 8.03e9 * size for size in (2, 2, 2, 3)])


def test_gradients_of_training_in_32_bits_take_twice_the_bytes() -> None:
    mixed, single = (
        training_demands(replace(training(), recipe=recipe), Layout(data=8, zero_stage=3), 8)["data", "link"]
        for recipe in ("mixed", "single")
    )
    assert single == pytest.approx(2 * mixed)


def test_a_hybrid_has_one_sublayer_per_layer() -> None:
    """Each of its layers is an attention, a state space or an FFN, where a layer usually has two of them."""
    states: dict[str, Any] = {"ssm_heads": 8, "ssm_head_size": 64, "ssm_state": 128, "ssm_groups": 8}
    hybrid = replace(LLAMA_3_8B, attention_layers=8, ssm_layers=8, **states)
    whole, half = (
        training_demands(training(model=model(t, 8.03e9)), Layout(data=4, tensor=2), 8) for t in (LLAMA_3_8B, hybrid)
    )
    assert half["tensor", "link"] == pytest.approx(whole["tensor", "link"] / 2)
    kernels = 8 * 7 + 8 * 9 + 16 * 5  # of attentions, state spaces and FFNs
    assert half["launch", "seconds"] / whole["launch", "seconds"] == pytest.approx(kernels / (32 * (7 + 5)))


GATHERED_APART = ("deepspeed", "transformers", "llama-factory", "axolotl")
"""Stacks whose ZeRO-3 is that of DeepSpeed."""


@pytest.mark.parametrize("software", [*GATHERED_APART, "torchtitan", "pytorch"])
def test_deepspeed_gathers_each_matrix_of_zero_3_by_itself(software: str) -> None:
    """Llama 3 8B has 7 matrices in each of 32 layers. FSDP gathers whole layers."""

    def seconds(layout: Layout) -> float:
        demands = training_demands(training(software=software_called(software)), layout, 8)
        return float(demands.get(("gather", "seconds"), 0.0))

    sharded = Layout(data=8, zero_stage=3, accumulation=4)
    expected = 4 * 2 * 7 * 32 * GATHER_SECONDS if software in GATHERED_APART else 0.0
    assert seconds(sharded) == pytest.approx(expected)
    assert seconds(replace(sharded, activation_checkpointing="full")) == pytest.approx(1.5 * expected)
    assert seconds(replace(sharded, zero_stage=2)) == seconds(replace(sharded, data=1)) == 0.0


def test_experts_that_are_computed_apart_are_gathered_apart() -> None:
    assert MIXTRAL.transformer is not None
    layout, t = Layout(data=8, zero_stage=3), MIXTRAL.transformer
    apart, together = (
        training_demands(training(model=MIXTRAL, software=software_called(name)), layout, 8)["gather", "seconds"]
        for name in ("transformers==4.57.6", "transformers==5.1.0")
    )
    matrices = 3 * (t.experts - 1) * t.moe_layers
    assert apart - together == pytest.approx(2 * matrices * GATHER_SECONDS)


@pytest.mark.parametrize("nodes", [2, 4])
def test_all_gradients_cross_the_network_of_each_node(nodes: int) -> None:
    """The GPUs of a node share its network, so a ring of nodes sends 2 (n - 1) / n of the gradients from each node."""
    where = replace(cluster(nodes=nodes), network_bytes_per_second=1.25e9 / 8)  # 10 Gbps for the eight GPUs of a node
    terms = training_terms(training(), where, Layout(data=8 * nodes))
    assert terms.least_seconds == pytest.approx(2 * (nodes - 1) / nodes * 2 * 8.03e9 / 1.25e9, rel=1e-3)


@pytest.mark.parametrize("stored", [None, "nf4-dq"])
def test_zero_3_gathers_frozen_weights_in_each_micro_batch(stored: str | None) -> None:
    """Twice, forward and backward, each time as the other ranks store them: 8.03e9 of 2 bytes, or fewer in nf4."""
    config = replace(training(), method="lora" if stored is None else "qlora", weight_precision=stored)
    whole, sharded = (
        training_demands(config, Layout(data=4, zero_stage=stage, accumulation=3), 4)["data", "link"]
        for stage in (1, 3)
    )
    gathered = (sharded - whole) / (2 * 3 / 4) / 3
    least, most = (15.9e9, 16.4e9) if stored is None else (5.5e9, 6.1e9)
    assert least < gathered < most


def test_stages_idle_for_a_share_of_the_time_of_all_work_of_the_micro_batches() -> None:
    """(p - 1) / (v m) of it, with 4 stages of 2 pieces each and 8 micro-batches: 3 / 16."""
    layout = Layout(data=2, tensor=2, pipeline=4, accumulation=8, virtual_stages=2)
    whole = training_terms(training(), cluster(), layout).seconds
    apart = with_bubble_apart(whole, layout)
    busy = sum(seconds for term, seconds in apart.items() if term not in {*OUTSIDE_OF_STAGES, "bubble"})
    assert apart["bubble"] == pytest.approx(3 / 16 * busy)
    assert sum(apart.values()) == pytest.approx(sum(whole.values()))
    # Stages in twice as many pieces idle for half as long; what a step has once takes as long as before.
    finer = training_terms(training(), cluster(), replace(layout, virtual_stages=4)).seconds
    idle = {term: whole[term] / finer[term] for term in whole if finer[term] and term != "pipeline"}
    assert idle == pytest.approx(
        {term: 1.0 if term in OUTSIDE_OF_STAGES else (1 + 3 / 16) / (1 + 3 / 32) for term in idle}
    )


def test_a_step_without_stages_has_no_bubble() -> None:
    assert "bubble" not in with_bubble_apart(
        training_terms(training(), cluster(), Layout(data=8)).seconds, Layout(data=8)
    )


def test_a_tensor_group_over_nodes_shares_the_networks_of_all_its_gpus() -> None:
    """Each GPU sums an eighth of the messages with its peer on the other node, and adds up with its own node before."""
    inside, across = (training_demands(training(), Layout(tensor=tensor), 8) for tensor in (8, 16))
    messages = inside["tensor", "link"] / (2 * 7 / 8)
    assert inside["tensor", "slow_link"] == 0
    assert across["tensor", "link"] == pytest.approx(2 * 7 / 8 * messages)
    assert across["tensor", "slow_link"] == pytest.approx(2 * 1 / 2 * messages / 8)


@pytest.mark.parametrize("pieces", [1, 4, 16])
def test_no_step_is_shorter_than_the_sends_of_all_pieces_of_its_stages_take(pieces: int) -> None:
    """Two stages on two nodes: each GPU sends the values of a micro-batch once per piece, and as many gradients."""
    layout = Layout(tensor=8, pipeline=2, accumulation=8, virtual_stages=pieces)
    where = replace(cluster(nodes=2), network_bytes_per_second=1e6)
    terms = training_terms(training(sequence_length=2048), where, layout)
    assert terms.least_seconds == pytest.approx(pieces * 2 * 2 * 8 * 2048 * 4096 / 8 / 1e6)
    assert terms.least_term == "pipeline"
