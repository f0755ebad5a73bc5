"""psi(w, x) ~ psi(w, 0) + sum_r a_r(w) E_r(x): the coefficients of every neuron as the weights of convolutions.

Coefficients are formed in float64 and rounded once. Where psi is w g(x) there is nothing to expand: the one term is
g(x) itself and its coefficient w.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from onn_runner.compute.base import Block, Call
from onn_runner.compute.basis import Interval, Kind, signs, transform

Form = Literal["odd", "even", "line", "product"]
"""psi - psi(w, 0) odd or even in x, neither of them, or psi = w g(x)."""

SAMPLES = 1 << 20
"""The most values of psi that are formed at once."""


@dataclass(frozen=True)
class Series:
    """How one operator is expanded: its form, and how many terms it takes."""

    form: Form
    count: int

    @property
    def kind(self) -> Kind:
        """The basis of a series that is not a product."""
        assert self.form != "product"
        return self.form

    def longer(self, factor: float) -> Series:
        """With more terms; a product has its one."""
        return self if self.form == "product" else Series(self.form, round(self.count * factor + 0.49))


@dataclass(frozen=True)
class Expansion:
    """The terms of a layer: one interval, one series for each block."""

    interval: Interval
    series: tuple[Series, ...]
    centred: bool = False
    """Sum deviations of the members from their means: where neurons cancel the large common part of their inputs,
    the rounding of that part would be what is left of them."""


@dataclass(frozen=True)
class Bank:
    """One convolution over the members of one basis."""

    form: Form
    count: int
    """Members of the basis."""
    blocks: tuple[int, ...]
    """Whose neurons are its outputs."""
    shares: tuple[int, ...]
    """How many of the members each of those blocks reads."""


@lru_cache(maxsize=256)
def banks(expansion: Expansion, groups: int) -> tuple[Bank, ...]:
    """The convolutions of a layer: one if a basis serves all neurons, else an odd and an even one; one per product.

    With groups every bank has all neurons, since a convolution wants as many of them in each group.
    """
    series = expansion.series
    forms = {s.form for s in series} - {"product"}
    kinds: tuple[Kind, ...] = ("odd", "even")
    if len(forms) <= 1:
        kinds = tuple(s.kind for s in series if s.form != "product")[:1]
    wanted: list[tuple[Form, list[int]]] = [(kind, [_share(s, kind) for s in series]) for kind in kinds]
    for index, s in enumerate(series):
        if s.form == "product":
            wanted.append(("product", [int(index == other) for other in range(len(series))]))
    found = []
    for form, shares in wanted:
        users = [index for index, share in enumerate(shares) if share or groups > 1]
        if max(shares):
            found.append(Bank(form, max(shares), tuple(users), tuple(shares[index] for index in users)))
    return tuple(found)


def _share(series: Series, kind: Kind) -> int:
    """How many of a series' terms belong to that basis."""
    if series.form == kind:
        return series.count
    if series.form != "line":
        return 0
    return (series.count + 1) // 2 if kind == "odd" else series.count // 2


@dataclass(frozen=True)
class Rows:
    """Which of a series' terms a bank holds, and the sign that the bank's members have against them."""

    take: slice
    sign: tuple[float, ...]

    def signed(self, values: Tensor) -> Tensor:
        """`values` [R, ...] times the signs."""
        if min(self.sign) > 0:
            return values
        sign = torch.tensor(self.sign, dtype=values.dtype, device=values.device)
        return values * sign.view(-1, *(1,) * (values.dim() - 1))


@lru_cache(maxsize=256)
def rows(series: Series, form: Form) -> Rows:
    """The terms of a series, in ascending degree, that a bank of that form holds."""
    if series.form == form or form == "product":
        return Rows(slice(0, series.count), (1.0,) * series.count)
    assert series.form == "line"
    take = slice(0 if form == "odd" else 1, series.count, 2)
    own = signs("line", series.count)[take]
    return Rows(take, tuple(a * b for a, b in zip(own, signs(form, len(own)), strict=True)))


@dataclass(frozen=True)
class Piece:
    """The neurons start..stop-1 of one block."""

    index: int
    block: Block
    series: Series
    start: int
    stop: int


def pieces(call: Call, expansion: Expansion, weight: Tensor) -> Iterator[Piece]:
    """The neurons in ranges so small that their samples of psi are at most SAMPLES."""
    per_neuron = weight.shape[1:].numel()
    for index, (block, series) in enumerate(zip(call.blocks, expansion.series, strict=True)):
        most = max(1, SAMPLES // (per_neuron * (2 * series.count + 2)))
        for start in range(block.start, block.stop, most):
            yield Piece(index, block, series, start, min(block.stop, start + most))


def sample(
    block: Block,
    w: Tensor,  # [n], float64
    points: Tensor,  # [P + 1], the last one 0
) -> tuple[Tensor, Tensor]:
    """psi(w, x_j) - psi(w, 0) [P, n] and psi(w, 0) [n]."""
    values = block.nodal(w[None], points[:, None]).to(torch.float64).expand(len(points), len(w))
    return values[:-1] - values[-1], values[-1]


def factor(block: Block, x: Tensor) -> Tensor:
    """g(x) of psi = w g(x), in the precision of x."""
    return block.nodal(x.new_ones(()), x).to(x.dtype).expand_as(x)


def kernels(
    call: Call,
    expansion: Expansion,
    weight: Tensor,  # [O, C/G, *k]
    scale: Tensor,  # [O], float64: gain and pool factor
) -> tuple[list[Tensor], Tensor]:
    """For each bank the convolution weights [O_bank, R C/G, *k], highest degree first, and sum psi(w, 0) [O]."""
    plan = banks(expansion, call.groups)
    found = [_empty(bank, call, weight) for bank in plan]
    constant = scale.new_zeros(len(scale))
    for piece in pieces(call, expansion, weight):
        own = slice(piece.start, piece.stop)
        w = weight[own].detach().to(torch.float64)
        coefficients = w[None]
        if piece.series.form != "product":
            points, matrix = transform(piece.series.kind, piece.series.count, expansion.interval, weight.device)
            pinned, at_zero = sample(piece.block, w.reshape(-1), points)
            constant[own] = at_zero.reshape(len(w), -1).sum(1) * scale[own]
            coefficients = (matrix @ pinned).view(-1, *w.shape)
        coefficients = coefficients * _over(scale[own], w)
        for bank, kernel in zip(plan, found, strict=True):
            place = _place(bank, call, piece, kernel, weight)
            if place is not None:
                where = rows(piece.series, bank.form)
                place.copy_(where.signed(coefficients[where.take]).flip(0).transpose(0, 1))
    return found, constant


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
    for piece in pieces(call, expansion, weight):
        own = slice(piece.start, piece.stop)
        w = weight[own].detach().to(torch.float64, copy=True)
        to_rows = w.new_zeros((piece.series.count, *w.shape))
        for bank, grad in zip(plan, grads, strict=True):
            place = _place(bank, call, piece, grad, weight)
            if place is not None:
                where = rows(piece.series, bank.form)
                to_rows[where.take] = where.signed(place.transpose(0, 1).flip(0))
        to_rows *= _over(scale[own], w)
        to_zero = _over(constant[own].to(torch.float64) * scale[own], w).expand_as(w)
        if piece.series.form == "product":
            total[own] = to_rows[0]
            continue
        points, matrix = transform(piece.series.kind, piece.series.count, expansion.interval, weight.device)
        with torch.enable_grad():
            leaf = w.reshape(-1).requires_grad_()
            sampled = sample(piece.block, leaf, points)
        upstream = (matrix.T @ to_rows.view(piece.series.count, -1), to_zero.reshape(-1))
        total[own] = _gradient(sampled, leaf, upstream).view_as(w)
    return total


def _gradient(outputs: tuple[Tensor, ...], leaf: Tensor, grads: tuple[Tensor, ...]) -> Tensor:
    if not outputs[0].requires_grad:
        return torch.zeros_like(leaf)
    (found,) = torch.autograd.grad(outputs, leaf, grads, allow_unused=True)
    return torch.zeros_like(leaf) if found is None else found


def _over(scale: Tensor, w: Tensor) -> Tensor:
    """One number per neuron, broadcastable against w [o, C/G, *k]."""
    return scale.view(-1, *(1,) * (w.dim() - 1))


def _empty(bank: Bank, call: Call, weight: Tensor) -> Tensor:
    """Zeros [O_bank, R C/G, *k]; only blocks with fewer terms than the bank leave some of them."""
    outputs = sum(call.blocks[index].stop - call.blocks[index].start for index in bank.blocks)
    return torch.zeros(
        (outputs, bank.count * weight.shape[1], *weight.shape[2:]), dtype=weight.dtype, device=weight.device
    )


def _place(bank: Bank, call: Call, piece: Piece, kernel: Tensor, weight: Tensor) -> Tensor | None:
    """The part [o, R_series, C/G, *k] of a bank's weights [O_bank, R C/G, *k] that is a piece's, if any."""
    first = 0
    for index, share in zip(bank.blocks, bank.shares, strict=True):
        block = call.blocks[index]
        if index == piece.index:
            split = kernel.view(kernel.shape[0], bank.count, *weight.shape[1:])
            start = first + piece.start - block.start
            return split[start : start + piece.stop - piece.start, bank.count - share :] if share else None
        first += block.stop - block.start
    return None
