"""Libraries that compute the loss of a language model without all of its logits."""

from collections.abc import Iterable, Mapping

from service.domain.jobs.software_names import software_name

LOGITS_OF_LIBRARIES: Mapping[str, float] = {
    # Its kernels keep the logits in the memory of the multiprocessors (Wijmans et al. 2024, arXiv 2411.09009).
    "cut-cross-entropy": 0.0,
    # `fused_linear_cross_entropy` takes chunks of tokens whose logits need what all hidden states need.
    "liger-kernel": 1.0,
}
"""Library → logits that its loss holds at once, per value of the hidden states of all tokens."""


def logits_with(libraries: Iterable[str]) -> float | None:
    """Returns the logits that the loss holds at once, per value of the hidden states, with these libraries.

    None if none of them has a loss of its own.
    """
    known = (software_name(name, LOGITS_OF_LIBRARIES) for name in libraries)
    return min((LOGITS_OF_LIBRARIES[name] for name in known if name is not None), default=None)
