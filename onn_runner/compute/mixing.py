"""Fewer functions than members: the singular vectors of the coefficients that the weights at hand can have.

For |w| <= top the coefficients a(w) of an operator lie near a space of few dimensions: of sin(w x), |w x| <= 1.57, in
one of 4 where 5 odd members are needed; of exp in one of 6 in place of 9. Rows of the matrix whose singular vectors are
taken are a(w) and a'(w) for weights of both signs from top down to almost 0, each divided by the size of psi there, so
that neurons with small weights are served as well as others. Members count by `emphasis`: x-slopes need the high ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from onn_runner.compute.base import Block, Call
from onn_runner.compute.basis import transform
from onn_runner.compute.expansion import Bank, Expansion, Mix, Series, banks, emphasis, rows
from onn_runner.compute.probing import Precision, Probe
from onn_runner.compute.truncation import smallest, within

WORTH = 12
"""Multiply-adds per input value that the convolution must save for each function more or fewer that is formed."""
SLOPES = 0.3
"""The weight of a'(w) beside a(w), whose tolerance is smaller."""


def mixed(
    call: Call,
    weight_shape: Sequence[int],  # [O, C/G, *k]
    probes: Sequence[Probe],
    tops: Sequence[float],  # of |w|, for each block
    expansion: Expansion,
    precision: Precision,
    more: int = 0,
) -> Expansion:
    """The expansion with mixtures in each bank where they save more than they cost; as it is where none does.

    `more` of them than need be, if they still pay.
    """
    for bank in banks(expansion, call.groups):
        if bank.form == "product" or bank.members < 2:
            continue
        matrix = torch.cat([_rows(call.blocks[i], tops[i], expansion.series[i], bank, expansion) for i in _users(bank)])
        most = _most(call, weight_shape, bank)
        if most == 0 or not bool(matrix.isfinite().all()):
            continue
        # the decomposition is done on the CPU, so that it does not depend on the device
        _, values, vectors = torch.linalg.svd(matrix.cpu(), full_matrices=False)
        vectors = vectors / emphasis(bank.kind, bank.members)
        candidates = [_with(expansion, bank, vectors[: count + 1]) for count in range(most)]
        start = min(most, max(1, int((values > precision.output * len(matrix) ** 0.5).sum())))
        fits = partial(_fits, call, probes, candidates, bank, precision)
        found = smallest(fits, most, start)
        if found is not None and found + more <= most:
            expansion = candidates[found + more - 1]
    return expansion


def _users(bank: Bank) -> list[int]:
    return [index for index, share in zip(bank.blocks, bank.shares, strict=True) if share]


def _most(call: Call, weight_shape: Sequence[int], bank: Bank) -> int:
    """The largest number of mixtures that pays."""
    neurons = sum(call.blocks[i].stop - call.blocks[i].start for i in bank.blocks)
    saved = neurons / call.groups * torch.Size(weight_shape[2:]).numel()
    return max((n for n in range(bank.members) if (bank.members - n) * saved > WORTH * (bank.members + n)), default=0)


def _rows(block: Block, top: float, series: Series, bank: Bank, expansion: Expansion) -> Tensor:
    """Coefficients and slopes to a bank's members [2 W, members], for W weights up to `top`."""
    device = torch.device("cpu")
    points, matrix = transform(series.kind, series.count, expansion.interval, device)
    size = torch.cat([torch.linspace(1 / 16, 1, 16, dtype=torch.float64), torch.logspace(-6, -1.5, 8).double()]) * top
    w = torch.cat([size, -size])
    leaf = w.expand(len(points), -1).clone().requires_grad_()
    with torch.enable_grad():
        values = block.nodal(leaf, points[:, None].expand_as(leaf)).double()
    slopes = torch.zeros_like(leaf)
    if values.requires_grad:
        (found,) = torch.autograd.grad(values, leaf, torch.ones_like(values), allow_unused=True)
        slopes = slopes if found is None else found
    values = values.detach()
    where = rows(series, bank.form)
    parts = []
    for samples, part in ((values, 1.0), (slopes, SLOPES)):
        own = where.signed((matrix @ (samples[:-1] - samples[-1]))[where.take]).T
        scale = samples.norm(dim=0).clamp(min=1e-300)[:, None]
        parts.append(torch.nn.functional.pad(own * (part / scale), (0, bank.members - own.shape[1])))
    return torch.cat(parts) * emphasis(bank.kind, bank.members)


def _with(expansion: Expansion, bank: Bank, vectors: Tensor) -> Expansion:
    """With those mixtures in a bank, the one of the smallest singular value first."""
    mix = Mix(bank.kind, tuple(tuple(row) for row in vectors.flip(0).tolist()))
    return replace(expansion, mixes=(*expansion.mixes, mix))


def _fits(
    call: Call,
    probes: Sequence[Probe],
    candidates: Sequence[Expansion],
    bank: Bank,
    precision: Precision,
    count: int,
) -> bool:
    """Whether all blocks that read a bank are still within what is allowed with `count` mixtures."""
    expansion = candidates[count - 1]
    plan = banks(expansion, call.groups)
    for index in _users(bank):
        parts = tuple(b for b in plan if index in _users(b))
        if not within(probes[index], expansion.series[index], expansion.interval, precision, parts):
            return False
    return True
