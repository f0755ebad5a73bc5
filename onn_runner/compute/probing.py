"""psi and its slopes at a layer's weights and at inputs like its own, in float64; what psi looks like there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onn_runner.compute.base import Block
from onn_runner.compute.basis import Kind
from onn_runner.compute.expansion import Form
from onn_runner.seeding import generator


@dataclass(frozen=True)
class Precision:
    """What an expansion has to reach: relative errors against float64, and with how many nodes at most."""

    output: float
    gradient: float
    nodes: int


PRECISIONS = {
    torch.float32: Precision(1e-6, 3e-6, 64),
    torch.float64: Precision(1e-13, 3e-13, 128),
}
WEIGHTS = 2048
"""About as many weights of a block are looked at; in each neuron the largest one among them."""
HUGE = 1e30
SMALL = 1e-4
"""The part of the largest mean square that a single small weight's psi is held against at least."""


@dataclass(frozen=True)
class Probe:
    """psi and its slopes at a block's weights [o, m] and at inputs [I], [o m, I] each."""

    block: Block
    w: Tensor
    x: Tensor
    gain: Tensor  # [o]
    share: float
    """m over the number of a neuron's weights."""
    parts: tuple[slice, ...]
    """Inputs that errors are measured over, each part on its own."""
    value: Tensor
    slope_w: Tensor
    slope_x: Tensor
    floor: float = 1e-25
    """The part of the largest neuron's mean square that is all rounding."""
    close: Probe | None = None
    """The same with three weights for neurons, at many inputs."""


@dataclass(frozen=True)
class Inputs:
    """Where psi is looked at, in float64; errors are measured over each of the parts."""

    x: Tensor  # [I]
    parts: tuple[slice, ...]


def probe(
    block: Block,
    weight: Tensor,  # [o, K], float64
    gain: Tensor,  # [o], float64
    few: Inputs,
    many: Inputs,
) -> Probe | None:
    """psi at many weights and few inputs, and the other way round; None where a value is not finite or huge."""
    seen = _look(block, _chosen(weight), gain, few)
    ordered = weight.reshape(-1).abs().argsort()
    three = weight.reshape(-1)[ordered[[0, len(ordered) // 2, -1]]][:, None]
    close = _look(block, three, gain.new_ones(3), many)
    if seen is None or close is None:
        return None
    return replace(seen, share=seen.w.shape[1] / weight.shape[1], close=replace(close, floor=SMALL))


def _look(block: Block, w: Tensor, gain: Tensor, inputs: Inputs) -> Probe | None:
    x = inputs.x
    leaf_w = w.reshape(-1, 1).expand(-1, len(x)).clone().requires_grad_()
    leaf_x = x.expand(len(leaf_w), -1).clone().requires_grad_()
    with torch.enable_grad():
        value = block.nodal(leaf_w, leaf_x).to(torch.float64)
    slope_w, slope_x = slopes(value, leaf_w, leaf_x)
    value = value.detach()
    if not all(moderate(v) for v in (value, slope_w, slope_x)):
        return None
    return Probe(block, w, x, gain, 1.0, inputs.parts, value, slope_w, slope_x)


def moderate(values: Tensor) -> bool:
    """Whether all values are finite and none is beyond HUGE."""
    return values.numel() == 0 or bool(values.abs().max() <= HUGE)


def slopes(value: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    """d value / d leaf for each leaf, elementwise; zeros where it does not depend on it."""
    if not value.requires_grad:
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    found = torch.autograd.grad(value, leaves, torch.ones_like(value), allow_unused=True)
    return tuple(
        torch.zeros_like(leaf) if slope is None else slope.detach() for leaf, slope in zip(leaves, found, strict=True)
    )


def _chosen(weight: Tensor) -> Tensor:
    """All weights [o, K], or in each neuron a random part and the largest one."""
    outputs, count = weight.shape
    keep = max(16, WEIGHTS // outputs)
    if keep >= count:
        return weight
    where = torch.randperm(count, generator=generator("weights", count))[: keep - 1].to(weight.device)
    largest = weight.abs().argmax(1, keepdim=True)
    return torch.cat([weight[:, where], weight.gather(1, largest)], 1)


def form(seen: Probe) -> Form:
    """What psi(w, x) looks like as a function of x and w, as far as float64 can tell at the probe's values."""
    if _is_product(seen) and (seen.close is None or _is_product(seen.close)):
        return "product"
    return symmetry(seen)


def symmetry(seen: Probe) -> Kind:
    """What psi(w, x) - psi(w, 0) is as a function of x alone."""
    w = seen.w.reshape(-1, 1)
    zero = seen.block.nodal(w, seen.x.new_zeros(1, 1))
    here, there = seen.value - zero, seen.block.nodal(w, -seen.x[None]) - zero
    # rounding of psi(w, 0) must not look like a broken symmetry
    bound = 1e-14 * max(float(here.abs().max()), float(zero.abs().max()))
    if float((here + there).abs().max()) <= bound:
        return "odd"
    return "even" if float((here - there).abs().max()) <= bound else "line"


def _is_product(seen: Probe) -> bool:
    """Whether psi is w g(x), at the weights at hand and at some that are far from zero."""
    unit = seen.block.nodal(seen.x.new_ones(1, 1), seen.x[None])
    bound = 1e-14 * float(unit.abs().max())
    others = seen.x.new_tensor([[-2.0], [-0.7], [0.3], [5.0]])
    pairs = ((seen.w.reshape(-1, 1), seen.value), (others, seen.block.nodal(others, seen.x[None])))
    return all(bool(((value - w * unit).abs() <= bound * w.abs()).all()) for w, value in pairs)
