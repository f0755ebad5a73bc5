"""HOW a layer of operational neurons is computed: a literal table of kernels, and the choice among them.

    chebyshev   sum and mean pools of smooth operators as one convolution: exact to working precision, and fast
    tapwise     every operator and pool, exactly; small memory
    fused       the catalogue's operators and most pools on GPUs, exactly; by Triton
    reference   the definition, unfolded: what the others are checked against

`auto` takes chebyshev where it holds the accuracy rule and is not clearly slower, else an exact kernel: fused on a GPU
where it agrees with tapwise, or tapwise. It never trades accuracy for speed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onn_runner.compute import exported, opaque, transforms
from onn_runner.compute.base import Block, Call, Memory
from onn_runner.compute.choice import KERNELS, check, decide, perform
from onn_runner.compute.opaque import Handle

__all__ = ["KERNELS", "Block", "Call", "Handle", "Memory", "check", "run"]


def run(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O], fixed
    bias: Tensor | None,  # [O]
    memory: Memory,
    *,
    handle: Handle | None = None,
) -> Tensor:  # [B, O, *S']
    """A_o sum_c P_t psi(w, x) + b_o by the kernel that `memory.requested` names; `memory` tells which and why.

    Single and double precision are computed as they are; under autocast and for half-precision tensors all is done in
    single precision. torch.compile takes a layer with a `handle` in without a graph break, others not.

    Raises ConfigError where the named kernel refuses, or where the kernel's window does not fit.
    """
    kind = x.device.type
    half = torch.finfo(x.dtype).bits < 32
    if half or torch.is_autocast_enabled(kind):
        given = x.dtype
        x, weight = x.to(_precision(x, weight)), weight.to(_precision(x, weight))
        gain, bias = (None if t is None else t.to(x.dtype) for t in (gain, bias))
        with torch.autocast(kind, enabled=False):
            y = _run(call, x, weight, gain, bias, memory, handle)
        return y.to(given) if half and not torch.is_autocast_enabled(kind) else y
    return _run(call, x, weight, gain, bias, memory, handle)


def _precision(x: Tensor, weight: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32)


def _run(
    call: Call,
    x: Tensor,
    weight: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    memory: Memory,
    handle: Handle | None,
) -> Tensor:
    if torch.compiler.is_exporting():
        return exported.run(call, x, weight, gain, bias, memory)
    if torch.compiler.is_compiling() and handle is not None:
        return opaque.run(handle, x, weight, gain, bias, training=memory.training)
    if transforms.active():
        # it asks for torch's compiler, whose import takes a second that most runs need not spend
        from onn_runner.compute import stacked

        return stacked.run(call, x, weight, gain, bias, memory)
    return perform(decide(call, x, weight, gain, memory), call, x, weight, gain, bias, memory)
