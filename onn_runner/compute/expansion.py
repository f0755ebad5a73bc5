"""psi(w, x) ~ psi(w, 0) + sum_r a_r(w) E_r(x): the coefficients of every neuron as the weights of convolutions.

Coefficients are formed in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from onn_runner.compute.base import Block, Call
from onn_runner.compute.basis import Interval, Kind, signs, transform

SAMPLES = 1 << 20
"""The most values of psi that are formed at once."""


@dataclass(frozen=True)
class Series:
    """How many terms one operator takes, and its parity about x = 0 ("line": neither)."""

    parity: Kind
    count: int


@dataclass(frozen=True)
class Expansion:
    """The polynomials of a layer: one interval, one series for each block."""

    interval: Interval
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Bank:
    """One convolution: a basis, and the blocks of neurons that read it."""

    kind: Kind
    count: int
    blocks: tuple[int, ...]


@lru_cache(maxsize=256)
def banks(expansion: Expansion, groups: int) -> tuple[Bank, ...]:
    """The convolutions of a layer: one where a basis serves all neurons, else an odd and an even one.

    With groups every bank has all neurons, since a convolution wants as many of them in each group.
    """
    series = expansion.series
    parities = {s.parity for s in series}
    everyone = tuple(range(len(series)))
    if len(parities) == 1:
        return (Bank(series[0].parity, max(s.count for s in series), everyone),)
    found = []
    kinds: tuple[Kind, ...] = ("odd", "even")
    for kind in kinds:
        counts = [_share(s, kind) for s in series]
        if max(counts):
            users = tuple(index for index, count in enumerate(counts) if count)
            found.append(Bank(kind, max(counts), everyone if groups > 1 else users))
    return tuple(found)


def _share(series: Series, kind: Kind) -> int:
    """How many of a series' terms a bank of that kind holds."""
    if series.parity == kind:
        return series.count
    if series.parity != "line":
        return 0
    return (series.count + 1) // 2 if kind == "odd" else series.count // 2


@dataclass(frozen=True)
class Rows:
    """Where a series' coefficients go in a bank: `take` from the series' rows, times `sign`, by ascending degree."""

    take: slice
    sign: tuple[float, ...]

    def signed(self, values: Tensor) -> Tensor:
        """`values` [R, ...] times the signs."""
        if min(self.sign) > 0:
            return values
        sign = torch.tensor(self.sign, dtype=values.dtype, device=values.device)
        return values * sign.view(-1, *(1,) * (values.dim() - 1))


@lru_cache(maxsize=256)
def rows(series: Series, kind: Kind) -> Rows:
    count = _share(series, kind)
    if series.parity == kind:
        return Rows(slice(0, count), (1.0,) * count)
    # a line member of degree r has the sign of its own recurrence; the bank's member of degree r has another
    take = slice(0 if kind == "odd" else 1, series.count, 2)
    line = signs("line", series.count)[take]
    return Rows(take, tuple(a * b for a, b in zip(line, signs(kind, count), strict=True)))


def pieces(call: Call, expansion: Expansion, weight: Tensor) -> Iterator[tuple[Block, Series, int, int]]:
    """Ranges of neurons of one block, so few that their samples of psi are at most SAMPLES."""
    per_neuron = weight[0].numel() if weight.shape[0] else 1
    for block, series in zip(call.blocks, expansion.series, strict=True):
        most = max(1, SAMPLES // (per_neuron * (2 * series.count + 2)))
        for start in range(block.start, block.stop, most):
            yield block, series, start, min(block.stop, start + most)


def sample(
    block: Block,
    w: Tensor,  # [n], float64
    points: Tensor,  # [P + 1], the last one 0
) -> tuple[Tensor, Tensor]:
    """psi(w, x_j) - psi(w, 0) [P, n] and psi(w, 0) [n]."""
    values = block.nodal(w[None], points[:, None]).to(torch.float64).expand(len(points), len(w))
    return values[:-1] - values[-1], values[-1]


def kernels(
    call: Call,
    expansion: Expansion,
    weight: Tensor,  # [O, C/G, *k]
    scale: Tensor,  # [O], float64: gain and pool factor
) -> tuple[list[Tensor], Tensor]:
    """For each bank the convolution weights [O_bank, R C/G, *k], highest degree first, and sum psi(w, 0) [O]."""
    plan = banks(expansion, call.groups)
    found = [_empty(bank, call, weight) for bank in plan]
    constant = torch.empty(weight.shape[0], dtype=torch.float64, device=weight.device)
    for block, series, start, stop in pieces(call, expansion, weight):
        points, matrix = transform(series.parity, series.count, expansion.interval, weight.device)
        w = weight[start:stop].detach().to(torch.float64)
        pinned, at_zero = sample(block, w.reshape(-1), points)
        constant[start:stop] = at_zero.reshape(stop - start, -1).sum(1)
        factor = scale[start:stop].view(-1, *(1,) * (w.dim() - 1))
        coefficients = (matrix @ pinned).view(-1, *w.shape) * factor
        for bank, kernel in zip(plan, found, strict=True):
            place = _place(bank, call, series, start, stop, kernel, weight)
            if place is not None:
                target, where = place
                target.copy_(where.signed(coefficients[where.take]).flip(0).transpose(0, 1))
    return found, constant * scale


def kernels_pull_back(
    call: Call,
    expansion: Expansion,
    weight: Tensor,  # [O, C/G, *k]
    scale: Tensor,  # [O], float64
    grads: Sequence[Tensor],  # for each bank, the gradient to its weights
    constant: Tensor,  # [O], the gradient to sum psi(w, 0)
) -> Tensor:  # [O, C/G, *k]
    """The gradient to the weights through the coefficients: autograd through psi at the nodes."""
    plan = banks(expansion, call.groups)
    total = torch.empty_like(weight)
    for block, series, start, stop in pieces(call, expansion, weight):
        points, matrix = transform(series.parity, series.count, expansion.interval, weight.device)
        w = weight[start:stop].detach().to(torch.float64, copy=True)
        to_rows = w.new_zeros((series.count, *w.shape))
        for bank, grad in zip(plan, grads, strict=True):
            place = _place(bank, call, series, start, stop, grad, weight)
            if place is not None:
                source, where = place
                to_rows[where.take] = where.signed(source.transpose(0, 1).flip(0))
        factor = scale[start:stop].view(-1, *(1,) * (w.dim() - 1))
        to_pinned = matrix.T @ (to_rows * factor).view(series.count, -1)
        to_zero = (constant[start:stop].to(torch.float64) * scale[start:stop])[:, None].expand(-1, w[0].numel())
        with torch.enable_grad():
            leaf = w.reshape(-1).requires_grad_()
            pinned, at_zero = sample(block, leaf, points)
        total[start:stop] = _gradient((pinned, at_zero), leaf, (to_pinned, to_zero.reshape(-1))).view_as(w)
    return total


def _gradient(outputs: tuple[Tensor, ...], leaf: Tensor, grads: tuple[Tensor, ...]) -> Tensor:
    if not outputs[0].requires_grad:
        return torch.zeros_like(leaf)
    (found,) = torch.autograd.grad(outputs, leaf, grads, allow_unused=True)
    return torch.zeros_like(leaf) if found is None else found


def _empty(bank: Bank, call: Call, weight: Tensor) -> Tensor:
    """Zeros [O_bank, R C/G, *k]; only blocks with fewer terms than the bank leave some of them."""
    outputs = sum(call.blocks[index].stop - call.blocks[index].start for index in bank.blocks)
    return weight.new_zeros((outputs, bank.count * weight.shape[1], *weight.shape[2:]))


def _place(
    bank: Bank,
    call: Call,
    series: Series,
    start: int,
    stop: int,
    kernel: Tensor,  # [O_bank, R C/G, *k]
    weight: Tensor,
) -> tuple[Tensor, Rows] | None:
    """The part of a bank's weights [stop - start, R_series, C/G, *k] that holds those neurons' coefficients."""
    count = _share(series, bank.kind)
    if count == 0:
        return None
    first = 0
    for index in bank.blocks:
        block = call.blocks[index]
        if block.start <= start and stop <= block.stop:
            split = kernel.view(kernel.shape[0], bank.count, *weight.shape[1:])
            position = first + start - block.start
            return split[position : position + stop - start, bank.count - count :], rows(series, bank.kind)
        first += block.stop - block.start
    return None
