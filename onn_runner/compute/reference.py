"""A_o sum_c P_t psi(w[o,c,t], x[c,p+t]) + b_o by its definition: unfold, broadcast, pool. The oracle of the others."""

from __future__ import annotations

import torch
from torch import Tensor

from onn_runner.compute.base import Call, Memory
from onn_runner.compute.geometry import output_size


def refuse(call: Call) -> str | None:
    """None: it serves every call."""
    return None


def run(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    memory: Memory,
) -> Tensor:  # [B, O, *S']
    """Any dtype, differentiable by autograd; time and memory are T O times the input's."""
    memory.chosen, memory.reason = "reference", "unfold and broadcast, as the definition says"
    output_size(call, x, weight)
    dims = len(call.stride)
    unfolded = x
    for axis, (kernel, stride, dilation) in enumerate(zip(weight.shape[2:], call.stride, call.dilation, strict=True)):
        unfolded = unfolded.unfold(2 + axis, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
    seen = unfolded.flatten(2 + dims)  # [B, C, *S', T]
    outputs, inputs = weight.shape[:2]
    parts = []
    for block in call.blocks:
        for o in range(block.start, block.stop):
            first = o // (outputs // call.groups) * inputs
            w = weight[o].reshape(inputs, *(1,) * dims, -1)
            values = block.nodal(w, seen[:, first : first + inputs])  # [B, C/G, *S', T]
            parts.append(call.pool(values, -1).sum(1))
    y = torch.stack(parts, 1)
    shape = (-1, *(1,) * dims)
    if gain is not None:
        y = y * gain.view(shape)
    return y if bias is None else y + bias.view(shape)
