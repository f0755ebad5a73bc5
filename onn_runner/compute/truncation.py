"""How far a truncated expansion of psi is from psi itself, at real weights and real inputs, in float64.

No rule on coefficient tails is reliable (a bell narrower than the node spacing samples as zero), so that psi, its
slope in w and its slope in x are compared at inputs that do not belong to the interpolation: at few inputs for many
weights, and at many inputs for few weights, since a feature of psi may be narrow in x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onn_runner.compute import basis
from onn_runner.compute.base import Block
from onn_runner.compute.basis import Interval, Kind, transform
from onn_runner.compute.expansion import Bank, Form, Series, matrices, rows
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
SINGLE = 1.5
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
    slope_w, slope_x = _slopes(value, leaf_w, leaf_x)
    value = value.detach()
    if not all(_moderate(v) for v in (value, slope_w, slope_x)):
        return None
    return Probe(block, w, x, gain, 1.0, inputs.parts, value, slope_w, slope_x)


def _moderate(values: Tensor) -> bool:
    return values.numel() == 0 or bool(values.abs().max() <= HUGE)


def _slopes(value: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
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


def fewest(seen: Probe, kind: Form, interval: Interval, precision: Precision, most: int | None = None) -> Series | None:
    """The shortest series whose truncation is half of what is allowed at most; None if there is none."""
    if kind == "product":
        return Series("product", 1)
    limit = most or (precision.nodes if kind == "line" else precision.nodes // 2)
    start = min(limit, _guess(seen, kind, interval, precision))
    count = smallest(lambda n: within(seen, Series(kind, n), interval, precision), limit, start)
    return None if count is None else Series(kind, count)


def _guess(seen: Probe, kind: Kind, interval: Interval, precision: Precision) -> int:
    """How many terms the coefficients of the largest weight suggest, to begin a search with."""
    limit = precision.nodes if kind == "line" else precision.nodes // 2
    points, matrix = transform(kind, limit, interval, seen.w.device)
    w = seen.w.reshape(-1)
    values = seen.block.nodal(w[w.abs().argmax()], points).to(torch.float64).expand(len(points))
    size = (matrix @ (values[:-1] - values[-1])).abs()
    needed = (size > precision.output / 4 * size.max()).nonzero()
    return int(needed.max()) + 1 if len(needed) else 1


def within(seen: Probe, series: Series, interval: Interval, precision: Precision, parts: tuple[Bank, ...] = ()) -> bool:
    """Whether the truncation of a series, as the banks `parts` hold it, is half of what is allowed at most.

    Where banks are mixed, neurons of a single weight, which no layer at hand need have, may reach three quarters.
    """
    if excess(seen, series, interval, precision, parts, stop=1.0) > 1:
        return False
    most = SINGLE if parts else 1.0
    return seen.close is None or excess(seen.close, series, interval, precision, parts, stop=most) <= most


def smallest(enough: Callable[[int], bool], limit: int, start: int) -> int | None:
    """The smallest count that is enough: downwards from `start` while it is, or up in growing steps and back.

    Or below `start` after all: in float64 too many terms lose to rounding what they gain.
    """
    if enough(start):
        while start > 1 and enough(start - 1):
            start -= 1
        return start
    low, step = start, 1
    while True:
        if low == limit:
            return smallest(enough, start - 1, 1) if start > 1 else None
        high = min(limit, low + step)
        if enough(high):
            break
        low, step = high, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def excess(
    seen: Probe,
    series: Series,
    interval: Interval,
    precision: Precision,
    parts: tuple[Bank, ...] = (),
    stop: float = float("inf"),
) -> float:
    """The worst truncation error over half its tolerance: psi and slope in w by neuron, slope in x by layer.

    As soon as it is above `stop`, what was found so far.
    """
    points, matrix = transform(series.kind, series.count, interval, seen.w.device)
    w = seen.w.reshape(-1)
    leaf = w.expand(len(points), -1).clone().requires_grad_()
    with torch.enable_grad():
        samples = seen.block.nodal(leaf, points[:, None].expand_as(leaf)).to(torch.float64)
    (slopes,) = _slopes(samples, leaf)
    samples = samples.detach()
    if not (_moderate(samples) and _moderate(slopes)):
        return float("inf")
    members, derivatives = _functions(seen.x, interval, series, parts)
    series_value = (matrix @ (samples[:-1] - samples[-1])).T
    worst = 0.0
    for kind in ("value", "slope in w", "slope in x"):
        if kind == "value":
            value, error = seen.value, seen.value - samples[-1][:, None] - series_value @ members
        elif kind == "slope in w":
            series_slope = (matrix @ (slopes[:-1] - slopes[-1])).T
            value, error = seen.slope_w, seen.slope_w - slopes[-1][:, None] - series_slope @ members
        else:
            value, error = seen.slope_x, seen.slope_x - series_value @ derivatives
        for part in seen.parts:
            if kind == "slope in x":
                ratio = _by_layer(seen, error[:, part], value[:, part])
            else:
                ratio = _by_neuron(seen, error[:, part], value[:, part], coherent=kind == "value")
            worst = max(worst, 2 * ratio / (precision.output if kind == "value" else precision.gradient))
            if worst > stop:
                return worst
    return worst


def _functions(x: Tensor, interval: Interval, series: Series, parts: tuple[Bank, ...]) -> tuple[Tensor, Tensor]:
    """What each coefficient of a series multiplies at x, and its derivative, [R, I] each: members, or what is mixed."""
    if not any(bank.mix for bank in parts):
        return _members(x, interval, series.kind, series.count)
    values = torch.empty((series.count, len(x)), dtype=torch.float64, device=x.device)
    slopes = torch.empty_like(values)
    for bank in parts:
        where = rows(series, bank.form)
        found = _members(x, interval, bank.kind, bank.members)
        if bank.mix is not None:
            onto, back = matrices(bank.mix, torch.float64, x.device)
            found = (back.T @ (onto @ found[0]), back.T @ (onto @ found[1]))
        for target, source in zip((values, slopes), found, strict=True):
            target[where.take] = where.signed(source[: len(where.sign)])
    return values, slopes


def _members(x: Tensor, interval: Interval, kind: Kind, count: int) -> tuple[Tensor, Tensor]:
    """All members at x and their derivatives, [R, I] each."""
    members = torch.empty((count, len(x)), dtype=torch.float64, device=x.device)
    basis.evaluate(x, interval, kind, list(members))
    unit = torch.eye(count, dtype=torch.float64, device=x.device)[:, :, None].expand(-1, -1, len(x))
    return members, basis.pull_back(x.expand(count, -1), interval, kind, list(unit.unbind(1)))


def _by_neuron(seen: Probe, error: Tensor, value: Tensor, *, coherent: bool) -> float:
    """The worst relative error [o m, I] of a neuron; the mean over inputs adds up over taps in full where coherent."""
    shape = (*seen.w.shape, error.shape[1])
    error_size, size = (_size(q.view(shape), seen.share, coherent) for q in (error, value))
    # a neuron whose psi is zero everywhere has only rounding to lose
    floor = max(seen.floor * float(size.max()), 1e-200)
    return float((error_size / size.clamp(min=floor)).max().sqrt())


def _size(values: Tensor, share: float, coherent: bool) -> Tensor:
    """The expected square of the sum over taps [o], inputs taken as independent."""
    if not coherent:
        return values.square().sum((1, 2))
    mean = values.mean(2)
    spread = values.square().mean(2).sum(1) - mean.square().sum(1)
    return mean.sum(1).square() / share + spread.clamp(min=0)


def _by_layer(seen: Probe, error: Tensor, value: Tensor) -> float:
    shape = (*seen.w.shape, error.shape[1])
    gain = seen.gain.view(-1, 1, 1)
    top = (error.view(shape) * gain).norm()
    return float(top / (value.view(shape) * gain).norm().clamp(min=1e-100))
