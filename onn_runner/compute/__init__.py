"""HOW a layer of operational neurons is computed: a literal table of kernels, and the choice among them.

    chebyshev   sum and mean pools of smooth operators as one convolution: exact to working precision, and fast
    tapwise     every operator and pool, exactly; small memory
    reference   the definition, unfolded: what the others are checked against

`auto` takes chebyshev where it holds the accuracy rule and else tapwise; it never trades accuracy for speed.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from onn_runner.compute import chebyshev, reference, tapwise
from onn_runner.compute.base import Block, Call, Memory
from onn_runner.errors import ConfigError, unknown

KERNELS: dict[str, ModuleType] = {"chebyshev": chebyshev, "tapwise": tapwise, "reference": reference}

__all__ = ["KERNELS", "Block", "Call", "Memory", "check", "run"]


def check(name: str) -> str:
    """`name`, if it is `auto` or a kernel.

    Raises ConfigError otherwise.
    """
    if name != "auto" and name not in KERNELS:
        raise unknown("compute", name, ("auto", *KERNELS))
    return name


def run(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O], fixed
    bias: Tensor | None,  # [O]
    memory: Memory,
) -> Tensor:  # [B, O, *S']
    """A_o sum_c P_t psi(w, x) + b_o by the kernel that `memory.requested` names; `memory` tells which and why.

    Single and double precision are computed as they are; under autocast and for half-precision tensors all is done in
    single precision.

    Raises ConfigError where the named kernel refuses, or where the kernel's window does not fit.
    """
    requested = check(memory.requested)
    kind = x.device.type
    half = torch.finfo(x.dtype).bits < 32
    if half or torch.is_autocast_enabled(kind):
        given = x.dtype
        x, weight = x.to(_precision(x, weight)), weight.to(_precision(x, weight))
        gain, bias = (None if t is None else t.to(x.dtype) for t in (gain, bias))
        with torch.autocast(kind, enabled=False):
            y = _run(requested, call, x, weight, gain, bias, memory)
        return y.to(given) if half and not torch.is_autocast_enabled(kind) else y
    return _run(requested, call, x, weight, gain, bias, memory)


def _precision(x: Tensor, weight: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32)


def _run(
    requested: str,
    call: Call,
    x: Tensor,
    weight: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    memory: Memory,
) -> Tensor:
    if x.shape[0] == 0:
        # an empty batch says nothing about the layer: what is remembered stays
        return tapwise.run(call, x, weight, gain, bias, Memory())
    if requested == "auto":
        reason = chebyshev.refuse(call)
        if reason is None:
            return chebyshev.attempt(call, x, weight, gain, bias, memory, strict=False)
        y = tapwise.run(call, x, weight, gain, bias, memory)
        memory.reason = f"exact, since {reason}"
        return y
    kernel = KERNELS[requested]
    reason = kernel.refuse(call)
    if reason is not None:
        raise ConfigError(f"compute={requested} cannot serve this layer: {reason}; use compute=auto")
    y = kernel.run(call, x, weight, gain, bias, memory)
    return y
