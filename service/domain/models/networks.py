"""FLOPs of a network of unknown dimensions, and the values that it writes, saves and holds, per sample."""

from service.domain.models.model import Model

VALUES_PER_FLOP = 1 / 740
"""Values that layers write per forward FLOP, for a network whose values are not counted: the ratio of ResNet-50."""

PARAMETERS_OF_RESNET_50 = 25.6e6

WIDTH_BY_PARAMETERS = {"diffusion": 0.4}
"""Family → exponent with which the FLOPs per written value grow with the parameters: a value of a layer of width w
takes 2w FLOPs, and larger networks are wider. It lowers the error from factors of 3.6 to 13 to below 1.6 for the six
diffusion models whose values are counted."""


def network_flops(model: Model) -> float:
    """Returns the FLOPs of a forward pass over a sample, for a network of unknown dimensions."""
    return model.forward_flops_per_sample or 2.0 * model.parameters


def written_values(model: Model) -> float:
    """Returns the values that all layers write in a forward pass of a sample, for a network of unknown dimensions."""
    wider = max(1.0, model.parameters / PARAMETERS_OF_RESNET_50) ** WIDTH_BY_PARAMETERS.get(model.family, 0.0)
    return model.activation_values_per_sample or VALUES_PER_FLOP / wider * network_flops(model)


SAVED_PER_WRITTEN_VALUE = {"diffusion": 3.5}
"""Family → values that training keeps for the backward pass per written value, where they are not counted. LoRA of SDXL
at 1,024 pixels takes 24 GB (guides to kohya's scripts), and LoRA of FLUX.2 Klein keeps 24.5 GB (mflux)."""

USUAL_SAVED_PER_WRITTEN_VALUE = 2.0
"""Saved per written value for other families. A convolution and its batch normalisation each keep their input, and an
in-place activation keeps nothing more. Counts are 1.94 for ResNet-50 to 2.04 for DenseNet-121."""


def saved_values(model: Model) -> float:
    """Returns the values that training without checkpointing keeps per sample, for a network of unknown dimensions."""
    share = SAVED_PER_WRITTEN_VALUE.get(model.family, USUAL_SAVED_PER_WRITTEN_VALUE)
    return model.saved_values_per_sample or share * written_values(model)


USUAL_RECOMPUTED_SHARE = 0.15
"""Share of the saved values that full checkpointing keeps, for a network of unknown blocks. FLUX.2 Klein keeps 3.7 of
24.5 GB (mflux), and SDXL trains in 11 GB in place of 24."""

BLOCK_WITH_GRADIENTS = 1.5
"""Values in memory per saved value of a block while it is recomputed: half of them have gradients at a time (assumed).
Training of LoRA in finetrainers takes 17.6 GiB above weights and states with HunyuanVideo (13.0 by this rule), and
9.6 GiB with CogVideoX 5B (9.6 by this rule), on videos of 49 frames."""


def recomputed_values(model: Model) -> float:
    """Returns the values that training with full checkpointing keeps for a sample, for a network of unknown dimensions.

    They are the inputs of all blocks, and the values of the block that is recomputed.
    """
    if model.blocks is None or model.block_inputs_per_sample is None:
        return USUAL_RECOMPUTED_SHARE * saved_values(model)
    return model.block_inputs_per_sample + BLOCK_WITH_GRADIENTS * saved_values(model) / model.blocks


HELD_PER_WRITTEN_VALUE = {"diffusion": 0.1}
"""Family → share of the written values that are in memory at once in a forward pass without training. Wan2.1 1.3B runs
in 8.19 GB with its text encoder elsewhere (its README), which leaves 4.5 GB for 22.4 billion written values of 16 bits.
A pass of SDXL at 1,024 pixels takes 0.57 GB by a test of Diffusers with four images, a share of 0.14."""

USUAL_HELD_PER_WRITTEN_VALUE = 0.3
"""Share of the written values in memory at once for other families: a layer holds its input, its output and values that
skip it. By the dimensions of their widest layers it is 0.23 for ResNet-50, 0.36 for MobileNetV2 and 0.47 for VGG-16."""


def held_values(model: Model) -> float:
    """Returns the values that a forward pass holds at once per sample, for a network of unknown dimensions.

    The two passes of guidance count as one after the other, as they run where memory is short.
    """
    return HELD_PER_WRITTEN_VALUE.get(model.family, USUAL_HELD_PER_WRITTEN_VALUE) * written_values(model)
