"""sum_r conv(E_r(x), a_r(w)): sum- and mean-pooled layers as one convolution, exact to working precision.

The error against float64 is, in every output channel, at most 1e-6 of its norm (3e-6 for gradients; 1e-13 in float64)
or twice the error of plain evaluation in the same precision. See `plan` for how that is kept.
"""

from __future__ import annotations

from torch import Tensor

from onn_runner.compute import plan, tapwise
from onn_runner.compute.base import Call, Memory
from onn_runner.compute.convolution import convolve
from onn_runner.compute.decision import Decision
from onn_runner.compute.geometry import pool_kind
from onn_runner.errors import ConfigError


def refuse(call: Call) -> str | None:
    """Why it cannot serve whatever the values are."""
    if pool_kind(call.pool) not in ("sum", "mean"):
        return f"the pool {call.pool.name or type(call.pool).__name__} is not a sum over taps"
    for block in call.blocks:
        if block.nodal.own_backward:
            return f"{block.name} has its own backward rule, which an expansion would not follow"
    return None


def choose(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    memory: Memory,
) -> Decision:
    """An expansion for values like these, or why the exact kernel serves: there is none, or it would take longer.

    Raises ConfigError where no expansion is accurate enough and chebyshev was asked for by name.
    """
    named = memory.requested == "chebyshev"
    choice = plan.find(call, x, weight, gain, memory)
    if choice.expansion is None:
        if named and choice.refused:
            raise ConfigError(f"compute=chebyshev cannot serve this layer: {choice.reason}; use compute=auto")
        return Decision("tapwise", choice.reason)
    if choice.cheaper and not named:
        return Decision("tapwise", choice.cheaper)
    return Decision("chebyshev", choice.reason, choice.expansion)


def run(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    memory: Memory,
) -> Tensor:  # [B, O, *S']
    """The layer by its expansion; batches that have none (not finite, all zero) exactly.

    Raises ConfigError as `choose` does.
    """
    return perform(choose(call, x, weight, gain, memory), call, x, weight, gain, bias, memory)


def perform(
    decision: Decision,
    call: Call,
    x: Tensor,
    weight: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    memory: Memory,
) -> Tensor:
    """The layer as `choose` decided."""
    if decision.expansion is None:
        y = tapwise.run(call, x, weight, gain, bias, memory)
    else:
        memory.chosen = "chebyshev"
        y = convolve(x, weight, gain, bias, call, decision.expansion)
    memory.reason = decision.reason or memory.reason
    return y
