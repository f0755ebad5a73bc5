"""psi(w, x) = psi(w, 0) + s w x + ...: what of an operator is of first order, and neurons that start with only that."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from onn_runner.compute import Block, Call
from onn_runner.errors import ConfigError
from onn_runner.model.base import Unrepresentable
from onn_runner.ops import pool as pools
from onn_runner.ops.base import Nodal
from onn_runner.ops.calibrate import calibrate
from onn_runner.ops.examine import evaluate

STEP = 1e-4
"""Of w (in units of 1 / scale) and x, for the slope at 0."""
SPREAD = 0.01
"""By how much slopes of small w and x of all signs and two sizes may differ, relative to their mean."""
CLOSE = 0.01
"""How far a product may be from s w x at the ends of its range, relative to s w x there."""
FAR = 0.1
"""Beyond this a neuron is not near, whatever its weights."""
HALVINGS = 20


@dataclass(frozen=True)
class SmallSignal:
    """An operator near x = 0."""

    slope: float
    """s; 0 where psi has no part of first order."""
    exact: bool
    """Whether psi is s w x everywhere."""


@dataclass(frozen=True)
class Start:
    """Neurons that are first-order ones, or near: w of psi is unit times the weights."""

    unit: Tensor  # [O] float64
    gain: Tensor  # [O] float64
    offset: Tensor  # [O] float64, the gain times the pooled psi(w, 0)
    exact: bool
    """Whether the layer is the convolution with the weights, and stays one."""
    nonlinearity: float

    def check(self, *, calibrated: bool, bias: bool, transposed: bool) -> None:
        """Raises Unrepresentable where a layer has no place for these values."""
        if not calibrated and not bool((self.gain == 1).all() and (self.unit == 1).all()):
            raise Unrepresentable("without calibration a layer has no gain to start near with: use operators=default")
        if bool(self.offset.any()) and (transposed or not bias):
            where = "a transposed layer" if transposed else "a layer without a bias"
            raise Unrepresentable(f"the operators are not 0 at x = 0, which {where} cannot take away: use others")


def start(
    call: Call,
    weight: Tensor,  # [O, C/G, *k]
    *,
    near: bool,
    reach: float,  # the largest |x| up to which neurons are to be near
) -> Start:
    """Unit and gain of each neuron. Raises Unrepresentable, naming operators or pool, where that cannot be."""
    if not isinstance(call.pool, pools.Linear):
        raise Unrepresentable(f"model.pool={call.pool.name} is no sum over taps: use sum or mean")
    taps = math.prod(weight.shape[2:])
    share = float(call.pool(torch.ones(taps, dtype=torch.float64), 0)) / taps
    parts = [_part(block, weight[block.start : block.stop].double(), near=near, reach=reach) for block in call.blocks]
    unit, gain = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    offsets = [
        _at_zero(block.nodal, weight[block.start : block.stop], part[0])
        for block, part in zip(call.blocks, parts, strict=True)
    ]
    exact = all(part[2] and not block.nodal.own_backward for part, block in zip(parts, call.blocks, strict=True))
    nonlinearity = 0.0 if exact else _nonlinearity(call, weight, unit)
    return Start(unit, gain / share, gain * torch.cat(offsets), exact, nonlinearity)


def _part(
    block: Block,
    weight: Tensor,  # [o, C/G, *k] of the block
    *,
    near: bool,
    reach: float,
) -> tuple[Tensor, Tensor, bool]:
    """(unit [o], gain [o], whether psi is a product) of one operator's neurons."""
    found = examined(block.nodal)
    ones = torch.ones(len(weight), dtype=torch.float64)
    if found.exact:
        return ones, ones / found.slope, True
    if not near:
        raise Unrepresentable(f"the operator {block.name} is no product w x, so that its neurons are no convolution")
    if found.slope == 0.0:
        raise Unrepresentable(f"the operator {block.name} has no part of first order in x, so that nothing is near")
    size, deviation = argument(block.nodal, found.slope, reach)
    if deviation > FAR:
        raise Unrepresentable(
            f"the operator {block.name} departs from a product w x by {100 * deviation:.0f} % over inputs within "
            f"+-{reach:g}, whatever its weights"
        )
    largest = weight.abs().flatten(1).amax(1)
    unit = torch.where(largest > 0, size / (abs(found.slope) * reach * largest), ones)
    return unit, 1 / (found.slope * unit), False


def examined(nodal: Nodal) -> SmallSignal:
    """The slope, from small w and x, and whether there is nothing else."""
    small = STEP * torch.tensor([-1.0, -0.5, 0.5, 1.0], dtype=torch.float64)
    w, x = small[:, None] / nodal.scale, small[None]
    ratios = _risen(nodal, w, x) / (w * x)
    slope = float(ratios.mean())
    if not bool(((ratios - slope).abs() <= SPREAD * abs(slope)).all()) or slope == 0.0:
        return SmallSignal(0.0, False)
    sizes = torch.tensor([1e-3, 0.1, 1.7, 30.0, 1e3], dtype=torch.float64)
    grid = torch.cat([-sizes, sizes])
    values = evaluate_without_gradient(nodal, grid[:, None], grid[None])
    unit = values / (grid[:, None] * grid[None])
    exact = bool(((unit - unit[0, 0]).abs() <= 1e-12 * unit[0, 0].abs()).all())
    return SmallSignal(float(unit[0, 0]) if exact else slope, exact)


def argument(
    nodal: Nodal,
    slope: float,
    reach: float,  # the largest |x|
) -> tuple[float, float]:
    """(s |w x| at the ends, deviation from s w x there): the largest power of 2 up to 1 that is close, or the best."""
    x = torch.linspace(-reach, reach, 65, dtype=torch.float64)
    best = (1.0, math.inf)
    for halving in range(HALVINGS):
        size = 2.0**-halving
        w = torch.tensor([[-1.0], [1.0]], dtype=torch.float64) * size / (abs(slope) * reach)
        deviation = float(((_risen(nodal, w, x) - slope * w * x).abs().amax() / size).nan_to_num(math.inf))
        if deviation < best[1]:
            best = (size, deviation)
        if deviation <= CLOSE:
            break
    return best


def _risen(nodal: Nodal, w: Tensor, x: Tensor) -> Tensor:
    """psi(w, x) - psi(w, 0)."""
    return evaluate_without_gradient(nodal, w, x) - evaluate_without_gradient(nodal, w, torch.zeros_like(x))


def _at_zero(nodal: Nodal, weight: Tensor, unit: Tensor) -> Tensor:  # [o]
    """sum over c, t of psi(w, 0)."""
    w = weight.double() * unit.reshape(-1, *[1] * (weight.dim() - 1))
    return evaluate_without_gradient(nodal, w, torch.zeros_like(w)).flatten(1).sum(1)


def _nonlinearity(call: Call, weight: Tensor, unit: Tensor) -> float:
    """The mean over neurons of the index of the operator in the range of its neurons' weights."""
    total, taps, channels = 0.0, math.prod(weight.shape[2:]), weight.shape[1]
    for block in call.blocks:
        part = slice(block.start, block.stop)
        bound = float((weight[part].double().abs().flatten(1).amax(1) * unit[part]).amax())
        try:
            found = calibrate(block.nodal, call.pool, taps=taps, channels=channels, weight_bound=bound)
        except ConfigError:
            # weights so small, or 0, that psi does not change
            continue
        total += found.nonlinearity * (block.stop - block.start)
    return total / len(weight)


def evaluate_without_gradient(nodal: Nodal, w: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        return evaluate(nodal, w, x)
