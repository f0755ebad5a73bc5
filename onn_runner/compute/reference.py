"""A_o sum_c P_t psi(w[o,c,t], x[c,p+t]) + b_o by its definition: unfold, broadcast, pool. The oracle of the others."""

from __future__ import annotations

import torch
from torch import Tensor

from onn_runner.compute.base import Call, Memory
from onn_runner.compute.geometry import inserted, output_size, patches, refuse_transposed


def refuse(call: Call) -> str | None:
    """Why it cannot serve the call: a transposed layer with a pool that is not a sum."""
    return refuse_transposed(call)


def run(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    memory: Memory,
) -> Tensor:  # [B, O, *S']
    """Any dtype, differentiable by autograd; time and memory are T O times the input's.

    Plain operations only, none in place: torch.func.grad and vmap, torch.export and torch.compile go through it.
    """
    memory.chosen, memory.reason = "reference", "unfold and broadcast, as the definition says"
    dims = len(call.stride)
    seen, mask = _inserted(call, x, weight) if call.transposed else (_unfolded(call, x, weight), None)
    outputs, inputs = weight.shape[:2]
    parts = []
    for block in call.blocks:
        for o in range(block.start, block.stop):
            first = o // (outputs // call.groups) * inputs
            w = weight[o].reshape(inputs, *(1,) * dims, -1)
            values = block.nodal(w, seen[:, first : first + inputs])  # [B, C/G, *S', T]
            if mask is not None:
                values = torch.where(mask, values, 0.0)
            parts.append(call.pool(values, -1).sum(1))
    y = torch.stack(parts, 1)
    shape = (-1, *(1,) * dims)
    if gain is not None:
        y = y * gain.view(shape)
    return y if bias is None else y + bias.view(shape)


def _unfolded(call: Call, x: Tensor, weight: Tensor) -> Tensor:
    """What each tap of each output sees, [B, C, *S', T]."""
    sizes = output_size(call, x, weight)
    # slices, since unfold has no rule for vmap over its gradient
    seen = patches(call, x, tuple(weight.shape[2:]), sizes).movedim(0, -1)
    return seen.reshape(*x.shape[:2], *sizes, -1)


def _inserted(call: Call, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The same of a transposed layer, and where there is an input and not an inserted zero, [*S', T]."""
    index, mask = inserted(call, tuple(weight.shape[2:]), tuple(x.shape[2:]), x.device)
    sizes = output_size(call, x, weight)
    seen = x.flatten(2)[:, :, index.T.flatten()]
    return seen.view(*x.shape[:2], *sizes, len(index)), mask.T.view(*sizes, len(index))
