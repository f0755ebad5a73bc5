"""Layers to compare kernels on: seeded tensors, a call, and the accuracy rule as one assertion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from onn_runner import compute
from onn_runner.compute import Block, Call, Memory
from onn_runner.ops import Nodal, Pool, Sum

TOLERANCES = {torch.float32: (1e-6, 3e-6), torch.float64: (1e-13, 3e-13)}


@dataclass
class Result:
    y: Tensor
    to_x: Tensor
    to_weight: Tensor
    to_bias: Tensor
    memory: Memory


@dataclass
class Case:
    """One layer with its input; `run` computes it by a kernel, forward and backward with a fixed random gradient."""

    call: Call
    x: Tensor
    weight: Tensor
    gain: Tensor
    bias: Tensor

    def run(self, requested: str, dtype: torch.dtype = torch.float32, memory: Memory | None = None) -> Result:
        memory = Memory(requested=requested) if memory is None else memory
        x, weight, bias = (t.detach().to(dtype, copy=True).requires_grad_() for t in (self.x, self.weight, self.bias))
        y = compute.run(self.call, x, weight, self.gain.to(dtype), bias, memory)
        upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
        grads = torch.autograd.grad(y, (x, weight, bias), upstream)
        return Result(y.detach(), *grads, memory)

    def check(
        self,
        requested: str,
        dtype: torch.dtype = torch.float32,
        memory: Memory | None = None,
        *,
        cancelled: float = 0.0,
    ) -> Memory:
        """Assert the accuracy rule, and return what the kernel remembers.

        Where a neuron's gradient to its weights is less than the part `cancelled` of the root of the sum of squares of
        what the positions contribute to it, its error counts against that part: such gradients are what chance leaves.
        """
        got = self.run(requested, dtype, memory)
        plain = self.run("reference", dtype)
        exact = self.run("reference", torch.float64)
        output, gradient = TOLERANCES[dtype]
        for name, axis, tolerance in (("y", 1, output), ("to_weight", 0, gradient), ("to_x", None, gradient)):
            error, inherent = (relative(getattr(r, name), getattr(exact, name), axis) for r in (got, plain))
            allowed = torch.maximum(2 * inherent, torch.tensor(tolerance, dtype=torch.float64))
            if name == "to_weight" and cancelled and not bool((error <= allowed).all()):
                left = exact.to_weight.flatten(1).norm(dim=1) / (cancelled * self.contributions())
                error = error * left.clamp(max=1)
            assert bool((error <= allowed).all()), f"{name}: {error.max():.1e} by {got.memory.chosen}"
        torch.testing.assert_close(got.to_bias.double(), exact.to_bias, rtol=1e-5, atol=1e-4)
        return got.memory

    def contributions(self) -> Tensor:
        """[O]: the root of the sum of squares of what the positions contribute to its gradient to weights."""
        x, weight = self.x.double(), self.weight.double().requires_grad_()
        y = compute.run(self.call, x, weight, self.gain.double(), None, Memory(requested="reference"))
        upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).double()
        total = torch.zeros(len(weight), dtype=torch.float64)
        for part, grad in zip(y.movedim(1, -1).flatten(0, -2), upstream.movedim(1, -1).flatten(0, -2), strict=True):
            (found,) = torch.autograd.grad(part, weight, grad, retain_graph=True)
            total += found.square().flatten(1).sum(1)
        return total.sqrt()


def relative(got: Tensor, exact: Tensor, axis: int | None) -> Tensor:
    """The relative error, in the norm, for each index of `axis`, or of the whole."""
    difference = got.double() - exact.double()
    if axis is not None:
        difference, exact = (t.movedim(axis, 0).flatten(1) for t in (difference, exact))
    else:
        difference, exact = difference.flatten()[None], exact.flatten()[None]
    return difference.norm(dim=1) / exact.double().norm(dim=1).clamp(min=1e-300)


def make_case(
    nodals: Sequence[Nodal],
    *,
    pool: Pool | None = None,
    channels: tuple[int, int] = (4, 8),
    size: tuple[int, ...] = (9, 7),
    kernel: tuple[int, ...] = (3, 3),
    stride: tuple[int, ...] | None = None,
    dilation: tuple[int, ...] | None = None,
    groups: int = 1,
    batch: int = 2,
    reach: float = 1.0,
    span: float = 1.0,
    bound: tuple[float, float] | None = None,
    transposed: bool = False,
    seed: int = 0,
) -> Case:
    """A layer whose weights are uniform in +-reach * weight_bound and whose inputs in +-span."""
    keyed = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=keyed) * 2 - 1

    inputs, outputs = channels
    edges = [round(i * outputs / len(nodals)) for i in range(len(nodals) + 1)]
    blocks = tuple(
        Block(type(n).__name__.lower(), n, a, b) for n, a, b in zip(nodals, edges[:-1], edges[1:], strict=True)
    )
    ones = (1,) * len(kernel)
    call = Call(blocks, pool or Sum(), stride or ones, dilation or ones, groups, bound, transposed)
    weight = uniform(outputs, inputs // groups, *kernel)
    for block in blocks:
        weight[block.start : block.stop] *= reach * block.nodal.weight_bound
    x = uniform(batch, inputs, *size) * span
    return Case(call, x, weight, uniform(outputs).abs() + 0.5, uniform(outputs))


@pytest.fixture(scope="session")
def case() -> Callable[..., Case]:
    return make_case
