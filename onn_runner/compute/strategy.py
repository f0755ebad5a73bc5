"""P_t psi(w_t, x_t) and its gradients for one block of values: sums, order statistics, and any other pool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from onn_runner.compute.geometry import pool_factor
from onn_runner.compute.selection import index_of, select
from onn_runner.ops.base import Nodal, Pool


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
        total = seen.new_zeros((w.shape[1], *seen.shape[1:]), dtype=torch.float64)
        for pair in zip(w, seen, strict=True):
            total += nodal(*pair)
        return total.sum(1) * self.factor

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
        for tap, pair in enumerate(zip(w, seen, strict=True)):
            to_w[tap], found = _slopes(nodal, *pair, grad)
            to_seen[tap] += found
        return to_w


@dataclass(frozen=True)
class Selected(Strategy):
    """A factor times the rank-th smallest tap; the gradient goes to that tap."""

    factor: float = 1.0
    rank: int = 0

    def pooled(self, nodal: Nodal, w: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
        with torch.no_grad():
            values = [*_psi(nodal, w, seen)]
            where = index_of(select(values, self.rank), values).long()[None]
        size = (self.count, *where.shape[1:])
        return _psi(nodal, w.expand(size).gather(0, where), seen.expand(size).gather(0, where))[0] * self.factor

    def summed(self, nodal: Nodal, w: Tensor, seen: Tensor, chosen: Tensor | None) -> Tensor:
        values = [_psi(nodal, *pair) for pair in zip(w, seen, strict=True)]
        best = select(values, self.rank)
        if chosen is not None:
            chosen.copy_(index_of(best, values))
        return best.sum(1, dtype=torch.float64) * self.factor

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
            values = [_psi(nodal, *pair) for pair in zip(w, seen, strict=True)]
            chosen = index_of(select(values, self.rank), values)
        where = chosen.long()  # [o, c, L]
        one_w = w[..., 0].permute(1, 2, 0).contiguous().gather(2, where)
        by_channel = where.transpose(0, 1)  # [c, o, L]
        channels = seen.transpose(0, 1)  # [c, T, L]
        one_seen = channels.gather(1, by_channel).transpose(0, 1)
        to_w, found = _slopes(nodal, one_w, one_seen, upstream * self.factor)
        to_seen.transpose(0, 1).scatter_add_(1, by_channel, found.transpose(0, 1))
        found_w = to_w.new_zeros((*where.shape[:2], self.count), dtype=torch.float64)
        found_w.scatter_add_(2, where, to_w.double())
        return found_w.permute(2, 0, 1)[..., None]


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
    if pool.name in ("sum", "mean"):
        return Summed(pool, count, factor=pool_factor(pool, count))
    if pool.name in ranks:
        return Selected(pool, count, 4, True, factor=pool_factor(pool, count), rank=ranks[pool.name])
    return Differentiated(pool, count, buffers=2 * count)


def _psi(nodal: Nodal, w: Tensor, seen: Tensor) -> Tensor:
    """psi in its full shape, which an operator that ignores w or x does not give by itself."""
    return nodal(w, seen).expand(torch.broadcast_shapes(w.shape, seen.shape))


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
