"""P_t psi(w_t, x_t) and its gradients for one block of values: sums, order statistics, and any other pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce

import torch
from torch import Tensor

from onn_runner.compute.forms import form
from onn_runner.compute.geometry import pool_factor, pool_kind
from onn_runner.compute.selection import choose
from onn_runner.ops.base import Nodal, Pool

TOGETHER = 4
"""Values of psi that are summed in their own precision before they enter the total in float64."""


@dataclass(frozen=True)
class Strategy:
    """How a pool is computed over T taps. Shapes: w [T, o, c, 1], seen [T, c, L], pooled values [o, c, L]."""

    pool: Pool
    count: int
    buffers: int = 1
    """About how many values of psi it holds for one output, relative to what fits: blocks shrink by it."""
    selects: bool = False

    def pooled(self, nodal: Nodal, w: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
        """P_t psi(w_t, x_t) [o, c, L] for seen [T, 1, c, L], by operations that autograd can follow.

        `mask` [T, L] says which of the values count (sums only).
        """
        return self.pool(_psi(nodal, w, seen), 0)

    def summed(self, nodal: Nodal, w: Tensor, seen: Tensor, chosen: Tensor | None) -> Tensor:
        """The pooled values summed over channels [o, L], in float64: long sums in one order lose digits.

        A strategy that selects writes which tap it was into `chosen` [o, c, L], unless that is None.
        """
        raise NotImplementedError

    def pull_back(
        self,
        nodal: Nodal,
        w: Tensor,
        seen: Tensor,
        upstream: Tensor,  # [o, 1, L]
        chosen: Tensor | None,  # [o, c, L]
        to_seen: Tensor,  # [T, c, L]
    ) -> Tensor:
        """The gradient to w [T, o, c, 1]; that to what is seen is added to `to_seen`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Summed(Strategy):
    """A factor times the sum over taps."""

    factor: float = 1.0

    def pooled(self, nodal: Nodal, w: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
        values = _psi(nodal, w, seen)
        if mask is not None:
            values = torch.where(mask[:, None, None], values, 0.0)
        return values.sum(0) * self.factor

    def summed(self, nodal: Nodal, w: Tensor, seen: Tensor, chosen: Tensor | None) -> Tensor:
        size = torch.broadcast_shapes(w.shape[1:], seen.shape[1:])
        total = seen.new_zeros((size[0], size[2]), dtype=torch.float64)
        for start in range(0, len(w), TOGETHER):
            some = slice(start, start + TOGETHER)
            part = reduce(torch.add, map(nodal, w[some], seen[some])).expand(size)
            total += part[:, 0] if size[1] == 1 else part.sum(1, dtype=torch.float64)
        return total * self.factor if self.factor != 1 else total

    def pull_back(
        self,
        nodal: Nodal,
        w: Tensor,
        seen: Tensor,
        upstream: Tensor,
        chosen: Tensor | None,
        to_seen: Tensor,
    ) -> Tensor:
        grad = upstream * self.factor if self.factor != 1 else upstream
        to_w = torch.empty_like(w)
        known = form(nodal)
        for tap, (one_w, one_seen) in enumerate(zip(w, seen, strict=True)):
            if known is None:
                to_w[tap], found = _slopes(nodal, one_w, one_seen, grad)
            else:
                z = one_w * one_seen
                slope = (known.slope(nodal, z) * grad).expand(z.shape).transpose(0, 1)  # [c, o, L]
                to_w[tap] = torch.bmm(slope, one_seen[..., None]).transpose(0, 1)
                found = torch.bmm(one_w.permute(1, 2, 0), slope)[:, 0]
            to_seen[tap] += found
        return to_w


@dataclass(frozen=True)
class Selected(Strategy):
    """A factor times the rank-th smallest tap; the gradient goes to that tap."""

    factor: float = 1.0
    rank: int = 0

    def pooled(self, nodal: Nodal, w: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
        size = (self.count, *torch.broadcast_shapes(w.shape[1:], seen.shape[1:]))
        with torch.no_grad():
            where = torch.empty(size[1:], dtype=torch.long, device=w.device)
            choose(_keys(nodal, w, seen), self.count, self.rank, where)
        tap = where[None]
        return _psi(nodal, w.expand(size).gather(0, tap), seen.expand(size).gather(0, tap))[0] * self.factor

    def summed(self, nodal: Nodal, w: Tensor, seen: Tensor, chosen: Tensor | None) -> Tensor:
        best = choose(_keys(nodal, w, seen), self.count, self.rank, chosen)
        if _rises(nodal):
            best = nodal(best.new_ones(()), best)
        total = best.sum(1, dtype=torch.float64)
        return total * self.factor if self.factor != 1 else total

    def pull_back(
        self,
        nodal: Nodal,
        w: Tensor,
        seen: Tensor,
        upstream: Tensor,
        chosen: Tensor | None,
        to_seen: Tensor,
    ) -> Tensor:
        if chosen is None:
            chosen = torch.empty((*w.shape[1:3], seen.shape[2]), dtype=torch.int16, device=w.device)
            choose(_keys(nodal, w, seen), self.count, self.rank, chosen)
        grad = upstream * self.factor if self.factor != 1 else upstream
        where = chosen.long()  # [o, c, L]
        place = torch.arange(seen[0].numel(), device=w.device).view(seen.shape[1:])
        flat = torch.add(place, where, alpha=seen[0].numel()).flatten()
        one_w = w[..., 0].permute(1, 2, 0).contiguous().gather(2, where)
        one_seen = seen.view(-1).index_select(0, flat).view_as(where)
        known = form(nodal)
        if known is None:
            found_w, found = _slopes(nodal, one_w, one_seen, grad)
        else:
            slope = known.slope(nodal, one_w * one_seen) * grad
            found_w, found = slope * one_seen, slope * one_w
        to_seen.view(-1).scatter_add_(0, flat, found.flatten())
        to_w = w.new_zeros((*where.shape[:2], self.count), dtype=torch.float64)
        to_w.scatter_add_(2, where, found_w.double())
        return to_w.permute(2, 0, 1)[..., None]


@dataclass(frozen=True)
class Differentiated(Strategy):
    """Any pool, through autograd of the pool itself."""

    def summed(self, nodal: Nodal, w: Tensor, seen: Tensor, chosen: Tensor | None) -> Tensor:
        return self.pool(_psi(nodal, w, seen[:, None]), 0).sum(1, dtype=torch.float64)

    def pull_back(
        self,
        nodal: Nodal,
        w: Tensor,
        seen: Tensor,
        upstream: Tensor,
        chosen: Tensor | None,
        to_seen: Tensor,
    ) -> Tensor:
        leaves = w.detach().requires_grad_(), seen.detach().requires_grad_()
        with torch.enable_grad():
            pooled = self.pool(_psi(nodal, leaves[0], leaves[1][:, None]), 0)
        to_w, found = _gradients(pooled, leaves, upstream)
        to_seen += found
        return to_w


@lru_cache(maxsize=256)
def strategy(pool: Pool, count: int) -> Strategy:
    """The way to compute that pool over `count` taps."""
    ranks = {"minimum": 0, "median": (count - 1) // 2, "maximum": count - 1}
    known = pool_kind(pool)
    if known in ("sum", "mean"):
        return Summed(pool, count, factor=pool_factor(pool, count))
    if known in ranks:
        buffers = 1 if ranks[known] in (0, count - 1) else max(2, count // 8)
        return Selected(pool, count, buffers, True, factor=pool_factor(pool, count), rank=ranks[known])
    return Differentiated(pool, count, buffers=2 * count)


def _psi(nodal: Nodal, w: Tensor, seen: Tensor) -> Tensor:
    """psi in its full shape, which an operator that ignores w or x does not give by itself."""
    return nodal(w, seen).expand(torch.broadcast_shapes(w.shape, seen.shape))


def _rises(nodal: Nodal) -> bool:
    known = form(nodal)
    return known is not None and known.key is not None


def _keys(nodal: Nodal, w: Tensor, seen: Tensor) -> Iterator[Tensor]:
    """For each tap what orders it among them: psi, or a number that psi rises with, which is cheaper to have."""
    known = form(nodal)
    for one_w, one_seen in zip(w, seen, strict=True):
        yield _psi(nodal, one_w, one_seen) if known is None or known.key is None else known.key(one_w * one_seen)


def _slopes(nodal: Nodal, w: Tensor, seen: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients to w and to what is seen, in their shapes: autograd through psi, its own backward rule included."""
    leaves = w.detach().requires_grad_(), seen.detach().requires_grad_()
    with torch.enable_grad():
        values = _psi(nodal, *leaves)
    return _gradients(values, leaves, upstream)


def _gradients(values: Tensor, leaves: tuple[Tensor, Tensor], upstream: Tensor) -> tuple[Tensor, Tensor]:
    if not values.requires_grad:
        return torch.zeros_like(leaves[0]), torch.zeros_like(leaves[1])
    found = torch.autograd.grad(values, leaves, upstream.expand_as(values), allow_unused=True)
    return _or_zero(found[0], leaves[0]), _or_zero(found[1], leaves[1])


def _or_zero(grad: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if grad is None else grad
