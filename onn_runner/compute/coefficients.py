"""The coefficients of every neuron as the weights of convolutions, and the gradient to w through them.

Formed in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from onn_runner.compute.base import Block, Call
from onn_runner.compute.basis import Interval, transform
from onn_runner.compute.expansion import Bank, Expansion, Series, banks, matrices, rows

SAMPLES = 1 << 18
"""The most values of psi that are formed at once."""
KEPT = 1 << 20
"""The most values of psi that a backward pass keeps from the coefficients to the gradient through them."""


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


Samples = tuple[Tensor, tuple[Tensor, Tensor]]
"""Weights as leaves of a graph, and what `sample` gives for them."""


def kernels(
    call: Call,
    expansion: Expansion,
    weight: Tensor,  # [O, C/G, *k]
    scale: Tensor,  # [O], float64: gain and pool factor
    keep: list[Samples] | None = None,
) -> tuple[list[Tensor], Tensor]:
    """For each bank the convolution weights [O_bank, R C/G, *k], smallest terms first, and psi(w, 0) summed over
    channels, [O, *k] in float64.

    `keep` collects the samples of psi, with their graph, for `kernels_pull_back` - if they are few.
    """
    if keep is not None and sum(s.count + 1 for s in expansion.series) * weight.numel() > KEPT:
        keep = None
    plan = banks(expansion, call.groups)
    found = [_empty(bank, call, weight) for bank in plan]
    constant = scale.new_zeros((len(scale), *weight.shape[2:]))
    for piece in pieces(call, expansion, weight):
        own = slice(piece.start, piece.stop)
        w = weight[own].detach().to(torch.float64, copy=keep is not None)
        places = [(bank, _place(bank, call, piece, kernel, weight)) for bank, kernel in zip(plan, found, strict=True)]
        if piece.series.form == "product":
            for _, place in places:
                if place is not None:
                    place[:, 0].copy_(w * over(scale[own], w))
            continue
        leaf = w.reshape(-1)
        points, _ = transform(piece.series.kind, piece.series.count, expansion.interval, weight.device)
        with torch.set_grad_enabled(keep is not None):
            sampled = sample(piece.block, leaf.requires_grad_(keep is not None), points)
        if keep is not None:
            keep.append((leaf, sampled))
        pinned, at_zero = (values.detach() for values in sampled)
        constant[own] = at_zero.reshape(w.shape).sum(1) * over(scale[own], w[:, 0])
        for bank, place in places:
            if place is not None:
                onto = projection(bank, piece.series, expansion.interval, weight.device)
                coefficients = (onto @ pinned).view(-1, *w.shape).transpose(0, 1)
                place.copy_(coefficients.mul_(over(scale[own], coefficients)))
    return found, constant


def kernels_pull_back(
    call: Call,
    expansion: Expansion,
    weight: Tensor,  # [O, C/G, *k]
    scale: Tensor,  # [O], float64
    grads: Sequence[Tensor],  # for each bank, the gradient to its weights
    constant: Tensor,  # [O, *k] or what broadcasts to it, the gradient to psi(w, 0) summed over channels
    kept: Sequence[Samples] = (),
) -> Tensor:  # [O, C/G, *k]
    """The gradient to the weights through the coefficients: autograd through psi at the nodes."""
    plan = banks(expansion, call.groups)
    total = torch.empty_like(weight)
    samples = iter(kept)
    for piece in pieces(call, expansion, weight):
        own = slice(piece.start, piece.stop)
        w = weight[own].detach().to(torch.float64, copy=True)
        places = [(bank, _place(bank, call, piece, grad, weight)) for bank, grad in zip(plan, grads, strict=True)]
        factor = over(scale[own], w)
        if piece.series.form == "product":
            total[own] = sum(place[:, 0] for _, place in places if place is not None) * factor
            continue
        points, _ = transform(piece.series.kind, piece.series.count, expansion.interval, weight.device)
        leaf, sampled = next(samples, (None, None))
        if leaf is None or sampled is None:
            with torch.enable_grad():
                leaf = w.reshape(-1).requires_grad_()
                sampled = sample(piece.block, leaf, points)
        to_pinned = w.new_zeros((len(points) - 1, w.numel()))
        for bank, place in places:
            if place is not None:
                onto = projection(bank, piece.series, expansion.interval, weight.device)
                to_pinned.addmm_(onto.T, (place.double() * factor[:, None]).transpose(0, 1).reshape(len(onto), -1))
        to_zero = (constant[own].to(torch.float64) * over(scale[own], w[:, 0]))[:, None].expand_as(w)
        total[own] = _gradient(sampled, leaf, (to_pinned, to_zero.reshape(-1))).view_as(w)
    return total


@lru_cache(maxsize=256)
def projection(bank: Bank, series: Series, interval: Interval, device: torch.device) -> Tensor:
    """From psi(w, x_j) - psi(w, 0) at the P nodes of a series to its coefficients in a bank, [R, P] in float64.

    The highest degree comes first, or the first mixture.
    """
    with torch.inference_mode(False):
        _, matrix = transform(series.kind, series.count, interval, device)
        where = rows(series, bank.form)
        own = where.signed(matrix[where.take])
        if bank.mix is None:
            return own.flip(0)
        return matrices(bank.mix, torch.float64, device)[1][:, : len(own)] @ own


def _gradient(outputs: tuple[Tensor, ...], leaf: Tensor, grads: tuple[Tensor, ...]) -> Tensor:
    if not outputs[0].requires_grad:
        return torch.zeros_like(leaf)
    (found,) = torch.autograd.grad(outputs, leaf, grads, allow_unused=True)
    return torch.zeros_like(leaf) if found is None else found


def over(scale: Tensor, like: Tensor) -> Tensor:
    """One number per neuron, broadcastable against [o, ...]."""
    return scale.view(-1, *(1,) * (like.dim() - 1))


def _empty(bank: Bank, call: Call, weight: Tensor) -> Tensor:
    """Zeros [O_bank, R C/G, *k]; only blocks with fewer terms than the bank leave some of them."""
    outputs = sum(call.blocks[index].stop - call.blocks[index].start for index in bank.blocks)
    return torch.zeros(
        (outputs, bank.count * weight.shape[1], *weight.shape[2:]), dtype=weight.dtype, device=weight.device
    )


def _place(bank: Bank, call: Call, piece: Piece, kernel: Tensor, weight: Tensor) -> Tensor | None:
    """The part [o, R_piece, C/G, *k] of a bank's weights [O_bank, R C/G, *k] that is a piece's, if any."""
    first = 0
    for index, share in zip(bank.blocks, bank.shares, strict=True):
        block = call.blocks[index]
        if index == piece.index:
            split = kernel.view(kernel.shape[0], bank.count, *weight.shape[1:])
            start = first + piece.start - block.start
            reads = bank.count if bank.mix is not None else share
            return split[start : start + piece.stop - piece.start, bank.count - reads :] if share else None
        first += block.stop - block.start
    return None
