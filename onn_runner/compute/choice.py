"""Which kernel serves a call: a literal table of kernels, and the decision among them."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor

from onn_runner.compute import chebyshev, fused, reference, tapwise
from onn_runner.compute.base import Call, Memory
from onn_runner.compute.decision import Decision
from onn_runner.errors import ConfigError, unknown

KERNELS: dict[str, ModuleType] = {
    "chebyshev": chebyshev,
    "tapwise": tapwise,
    "fused": fused,
    "reference": reference,
}


def check(name: str) -> str:
    """`name`, if it is `auto` or a kernel.

    Raises ConfigError otherwise.
    """
    if name != "auto" and name not in KERNELS:
        raise unknown("compute", str(name), ("auto", *KERNELS))
    return name


def decide(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    memory: Memory,
) -> Decision:
    """By the kernel that `memory.requested` names; it reads values, and `memory` may get a plan.

    Raises ConfigError where the named kernel refuses.
    """
    requested = check(memory.requested)
    if x.shape[0] == 0:
        # an empty batch says nothing about the layer
        return Decision("tapwise")
    reason = refuse(requested, call)
    if reason is None and requested not in ("auto", "chebyshev"):
        return Decision(requested)
    # what decisions differentiate for themselves is nobody else's: checkpoints count what a forward pass keeps
    with torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is):
        found = Decision("tapwise", reason) if reason else chebyshev.choose(call, x, weight, gain, memory)
        if requested != "auto" or found.kernel != "tapwise" or not x.is_cuda:
            return found
        trusted = fused.trusted(call, x, weight, memory) is None
        return replace(found, kernel="fused") if trusted else found


def _as_it_is(kept: Tensor) -> Tensor:
    return kept


def refuse(requested: str, call: Call) -> str | None:
    """Why `auto` cannot expand the call, whatever its values, or None.

    Raises ConfigError where a kernel that is asked for by name refuses.
    """
    kernel = chebyshev if requested == "auto" else KERNELS[requested]
    reason: str | None = kernel.refuse(call)
    if reason is None:
        return None
    if requested != "auto":
        raise ConfigError(f"compute={requested} cannot serve this layer: {reason}; use compute=auto")
    return f"exact, since {reason}"


def perform(
    decision: Decision,
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    memory: Memory,
) -> Tensor:  # [B, O, *S']
    """The layer as decided, in the precision of x; `memory` tells which kernel it was and why."""
    if x.shape[0] == 0:
        memory = Memory()
    if decision.expansion is not None:
        return chebyshev.perform(decision, call, x, weight, gain, bias, memory)
    y: Tensor = KERNELS[decision.kernel].run(call, x, weight, gain, bias, memory)
    memory.reason = decision.reason or memory.reason
    return y
