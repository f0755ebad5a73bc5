"""The gate before any timing: outputs and gradients against the definition in float64, channel by channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.layer import broadcast
from onn_runner.compute.base import Block, Call

OUTPUT, GRADIENT = 1e-6, 3e-6
"""What the kernels promise in float32, or twice the error of the definition itself in that precision."""
VALUES = 1 << 25
"""Values of psi in the part of a batch that is checked, about: a few seconds in float64."""
AT_ONCE = 1 << 22

Method = Callable[[Tensor, Tensor], Tensor]


class GateError(Exception):
    """A kernel misses its accuracy: nothing is timed."""


@dataclass(frozen=True)
class Found:
    """y [B, O, *S'] and the gradients to w [O, C, k, k] and x."""

    y: Tensor
    to_weight: Tensor
    to_x: Tensor

    def errors(self, exact: Found) -> tuple[Tensor, Tensor, Tensor]:
        """Relative: of each output channel, of each neuron's weights, of the input's gradient as a whole."""
        return (
            _relative(self.y.transpose(0, 1), exact.y.transpose(0, 1)),
            _relative(self.to_weight, exact.to_weight),
            _relative(self.to_x[None], exact.to_x[None]),
        )


def check(name: str, run: Method, call: Call, x: Tensor, w: Tensor) -> float:
    """The largest relative error of an output channel, on a part of the batch.

    Raises GateError where that or a gradient's error is above the promise and above twice the definition's own error.
    """
    x = _part(x, w)
    shape = (x.shape[0], w.shape[0], x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1)
    upstream = torch.rand(shape, generator=torch.Generator().manual_seed(3)).to(x.device) - 0.5
    exact = definition(call, x.double(), w.double(), upstream.double())
    plain = definition(call, x, w, upstream).errors(exact)
    leaves = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = run(*leaves)
    to_x, to_weight = torch.autograd.grad(y, leaves, upstream)
    errors = Found(y.detach(), to_weight, to_x).errors(exact)
    promises = {"outputs": OUTPUT, "gradients to weights": GRADIENT, "gradients to inputs": GRADIENT}
    for (what, promise), error, inherent in zip(promises.items(), errors, plain, strict=True):
        # not <=, so that what is not a number fails too
        if not bool((error <= torch.clamp(2 * inherent, min=promise)).all()):
            raise GateError(f"{name} misses its accuracy: {what} are off by {float(error.max()):.1e}")
    return float(errors[0].max())


def _part(x: Tensor, w: Tensor) -> Tensor:
    """As many samples as VALUES allow, or the upper rows of one."""
    side = x.shape[3] - w.shape[3] + 1
    per_row = side * w.numel()
    rows = x.shape[2] - w.shape[2] + 1
    samples = max(1, VALUES // (per_row * rows))
    most = rows if samples > 1 or per_row * rows <= VALUES else max(2, VALUES // per_row)
    return x[:samples, :, : most + w.shape[2] - 1]


def definition(call: Call, x: Tensor, w: Tensor, upstream: Tensor) -> Found:
    """By the definition, a few neurons at a time, in the precision of x."""
    y, to_weight, to_x = torch.empty_like(upstream), torch.empty_like(w), torch.zeros_like(x)
    most = max(1, AT_ONCE // (upstream[:, 0].numel() * w[0].numel()))
    for block in call.blocks:
        for start in range(block.start, block.stop, most):
            own = slice(start, min(block.stop, start + most))
            few = Block(block.name, block.nodal, 0, own.stop - own.start)
            leaves = x.detach().requires_grad_(), w[own].detach().requires_grad_()
            part = broadcast(*leaves, Call((few,), call.pool, call.stride, call.dilation))
            found = torch.autograd.grad(part, leaves, upstream[:, own])
            y[:, own], to_weight[own] = part.detach(), found[1]
            to_x += found[0]
    return Found(y, to_weight, to_x)


def _relative(got: Tensor, exact: Tensor) -> Tensor:
    difference = (got.double() - exact).flatten(1).norm(dim=1)
    return difference / exact.flatten(1).norm(dim=1).clamp(min=1e-300)
