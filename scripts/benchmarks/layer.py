"""Layers to time: shapes, operators, tensors, and operational layers as they are usually written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from onn_runner import compute, ops
from onn_runner.compute import plan
from onn_runner.compute.base import Block, Call, Memory
from onn_runner.compute.expansion import banks

Step = Callable[[], object]
"""One forward and backward pass."""


@dataclass(frozen=True)
class Shape:
    """A square layer; `size` is the side of its output, its input is larger by the kernel."""

    inputs: int
    neurons: int
    kernel: int
    size: int
    batch: int

    def __str__(self) -> str:
        return f"{self.inputs} -> {self.neurons}, k {self.kernel}, {self.size}x{self.size}, B {self.batch}"

    @property
    def values(self) -> int:
        """How many values of psi the layer's definition has."""
        return self.batch * self.inputs * self.neurons * self.kernel**2 * self.size**2


SMALL = Shape(16, 32, 3, 60, 4)
SETS: Mapping[str, tuple[ops.Nodal, ...]] = {
    "sine": (ops.Sine(),),
    "exp": (ops.Exponential(),),
    "four operators": (ops.Sine(), ops.Exponential(), ops.Sinh(), ops.Multiply()),
}


def request(shape: Shape, nodals: Sequence[ops.Nodal], pool: str = "sum") -> Call:
    """The call of a layer whose neurons are split evenly over the operators."""
    edges = [round(i * shape.neurons / len(nodals)) for i in range(len(nodals) + 1)]
    blocks = tuple(Block(type(n).__name__.lower(), n, a, b) for n, a, b in zip(nodals, edges, edges[1:], strict=False))
    return Call(blocks, ops.named(pool), (1, 1), (1, 1))


def tensors(shape: Shape, call: Call, reach: float, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """x in [-1, 1] with K w in [-reach, reach], uniform, the same ones each time."""
    generator = torch.Generator().manual_seed(0)
    side = shape.size + shape.kernel - 1
    x = torch.rand((shape.batch, shape.inputs, side, side), generator=generator) * 2 - 1
    w = torch.rand((shape.neurons, shape.inputs, shape.kernel, shape.kernel), generator=generator) * 2 - 1
    for block in call.blocks:
        w[block.start : block.stop] *= reach / block.nodal.scale
    return x.to(device), w.to(device)


def broadcast(
    x: Tensor,  # [B, C, H, W], padded
    weight: Tensor,  # [O, C, k, k]
    call: Call,
) -> Tensor:  # [B, O, H', W']
    """Operational layers as FastONN formulates them: unfold, then psi over [B, C, O, T, L] at once. No bias."""
    side = [length - weight.shape[-1] + 1 for length in x.shape[2:]]
    patches = F.unfold(x, weight.shape[-1]).unflatten(1, (x.shape[1], 1, -1))
    parts = []
    for block in call.blocks:
        w = weight[block.start : block.stop].flatten(2).transpose(0, 1)[None, :, :, :, None]
        parts.append(call.pool(block.nodal(w, patches), 3).sum(1))
    return torch.cat(parts, 1).unflatten(2, side)


def method(name: str, call: Call, memory: Memory) -> Callable[[Tensor, Tensor], Tensor]:
    """y of x and w by one method: `broadcast`, `convolution` (first order) or a kernel's name."""
    if name == "broadcast":
        return lambda x, w: broadcast(x, w, call)
    if name == "convolution":
        return lambda x, w: F.conv2d(x, w)
    memory.requested = name
    return lambda x, w: compute.run(call, x, w, None, None, memory)


def step(run: Callable[[Tensor, Tensor], Tensor], x: Tensor, w: Tensor) -> Step:
    """Forward, and backward to x and w with a fixed gradient."""
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    with torch.no_grad():
        shape = run(x, w).shape
    upstream = torch.rand(shape, generator=torch.Generator().manual_seed(1)).to(x.device)
    return lambda: torch.autograd.grad(run(x, w), (x, w), upstream)


def step_of_module(run: Callable[[Tensor], Tensor], x: Tensor, parameters: Iterable[Tensor]) -> Step:
    """Forward, and backward to x and parameters that `run` has itself, with a fixed gradient."""
    leaf, leaves = x.detach().requires_grad_(), tuple(parameters)
    with torch.no_grad():
        shape = run(leaf).shape
    upstream = torch.rand(shape, generator=torch.Generator().manual_seed(1)).to(x)
    return lambda: torch.autograd.grad(run(leaf), (leaf, *leaves), upstream)


@dataclass(frozen=True)
class Bank:
    """One of the convolutions that a layer becomes: over so many maps for each input channel, to so many neurons."""

    members: int
    neurons: int


def banks_of(call: Call, memory: Memory) -> tuple[Bank, ...]:
    """The convolutions of the layer's last plan; none where no expansion was accepted."""
    choice = plan.newest(memory, torch.float32)
    if choice is None or choice.expansion is None:
        return ()
    neurons = [block.stop - block.start for block in call.blocks]
    return tuple(
        Bank(bank.count, sum(neurons[index] for index in bank.blocks)) for bank in banks(choice.expansion, call.groups)
    )


def bound(shape: Shape, parts: Sequence[Bank], x: Tensor) -> Step:
    """One convolution with R C input channels, bank by bank, forward and backward: what an expansion costs at least."""
    steps = []
    for part in parts:
        generator = torch.Generator().manual_seed(2)
        channels = part.members * shape.inputs
        members = torch.rand((x.shape[0], channels, *x.shape[2:]), generator=generator).to(x.device)
        kernel = torch.rand((part.neurons, channels, shape.kernel, shape.kernel), generator=generator).to(x.device)
        steps.append(step(lambda m, k: F.conv2d(m, k), members, kernel))
    return lambda: [one() for one in steps]
