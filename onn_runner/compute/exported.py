"""A layer as torch.export sees it: plain convolutions over a basis, or the definition where no expansion serves it."""

from __future__ import annotations

from torch import Tensor

from onn_runner.compute import plain, plan, reference
from onn_runner.compute.base import Call, Memory
from onn_runner.compute.choice import check, refuse
from onn_runner.errors import ConfigError


def run(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    memory: Memory,
) -> Tensor:  # [B, O, *S']
    """By the newest expansion that `memory` holds, made in training if there is one; `memory` stays as it is.

    While a network is exported its values are unknown, so that nothing is planned or checked: the exported network
    computes well what is within the ranges of that plan, and takes inputs beyond them for the ends of the range.

    Raises ConfigError where a plan is needed and the layer has none.
    """
    requested = check(memory.requested)
    if requested not in ("auto", "chebyshev") or refuse(requested, call) is not None:
        return reference.run(call, x, weight, gain, bias, Memory())
    choice = plan.newest(memory, x.dtype)
    if choice is None:
        raise ConfigError(
            "an operational layer is exported with what it knows about its inputs, and this one has not seen any: run "
            "the network once on typical inputs before exporting it"
        )
    if choice.expansion is None:
        return reference.run(call, x, weight, gain, bias, Memory())
    return plain.expanded(call, x, weight, gain, bias, choice.expansion, limited=True)
