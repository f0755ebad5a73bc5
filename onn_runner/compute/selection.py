"""The k-th smallest of T tensors, elementwise, by a network of minimum and maximum; and which of them it was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Literal

import torch
from torch import Tensor

Step = tuple[int, int, Literal["both", "low", "high"]]


@lru_cache(maxsize=64)
def network(count: int, rank: int) -> tuple[tuple[Step, ...], int]:
    """Comparators (i, j, which outputs matter) that leave the rank-th smallest (from 0) of `count` at the last index.

    Batcher's odd-even merge sort for the next power of two, without the comparators that touch the missing wires (they
    would hold infinity) and without those that the wanted wire does not depend on.
    """
    size = 1
    while size < count:
        size *= 2
    wanted = {rank}
    steps: list[Step] = []
    for i, j in reversed([pair for pair in _batcher(size) if pair[1] < count]):
        if i in wanted and j in wanted:
            steps.append((i, j, "both"))
        elif i in wanted or j in wanted:
            steps.append((i, j, "low" if i in wanted else "high"))
        wanted |= {i, j} if i in wanted or j in wanted else set()
    return tuple(reversed(steps)), rank


def _batcher(size: int) -> list[tuple[int, int]]:
    pairs = []
    p = 1
    while p < size:
        k = p
        while k >= 1:
            for j in range(k % p, size - k, 2 * k):
                for i in range(min(k, size - j - k)):
                    if (i + j) // (2 * p) == (i + j + k) // (2 * p):
                        pairs.append((i + j, i + j + k))
            k //= 2
        p *= 2
    return pairs


def select(values: Sequence[Tensor], rank: int) -> Tensor:
    """The rank-th smallest (from 0) of the tensors; NaN where one of them is NaN."""
    count = len(values)
    if rank in (0, count - 1):
        return reduce(torch.minimum if rank == 0 else torch.maximum, values)
    steps, last = network(count, rank)
    wires = list(values)
    for i, j, outputs in steps:
        a, b = wires[i], wires[j]
        if outputs != "high":
            wires[i] = torch.minimum(a, b)
        if outputs != "low":
            wires[j] = torch.maximum(a, b)
    return wires[last]


def index_of(best: Tensor, values: Sequence[Tensor]) -> Tensor:
    """The first t with values[t] == best, as uint8 (int16 beyond 256 tensors); 0 where there is none (NaN)."""
    found, mask = torch.zeros_like(best), torch.empty_like(best)
    for number, value in reversed([*zip(_numbers(len(values), best), values, strict=True)]):
        torch.eq(value, best, out=mask)
        torch.lerp(found, number, mask, out=found)
    return found.to(torch.uint8 if len(values) <= 256 else torch.int16)


def choose(
    values: Iterable[Tensor],  # `count` of them
    count: int,
    rank: int,
    chosen: Tensor | None,  # like one of them, of integers
) -> Tensor:
    """`select`, with `chosen` filled with the first t that has that value; with any t where it is NaN.

    The largest and the smallest are found one value after another: three tensors are held.
    """
    if rank not in (0, count - 1):
        values = [*values]
        best = select(values, rank)
        if chosen is not None:
            chosen.copy_(index_of(best, values))
        return best
    better, extreme = (torch.gt, torch.maximum) if rank else (torch.lt, torch.minimum)
    if chosen is None:
        return reduce(extreme, values)
    rest = iter(values)
    best = next(rest)
    found, mask = torch.zeros_like(best), torch.empty_like(best)
    for number, value in zip(_numbers(count, best)[1:], rest, strict=True):
        better(value, best, out=mask)
        best = extreme(best, value)
        torch.lerp(found, number, mask, out=found)
    chosen.copy_(found)
    return best


def _numbers(count: int, like: Tensor) -> tuple[Tensor, ...]:
    """0 to count - 1 as floats: float masks and lerp, since boolean masks take many times as long."""
    return torch.arange(count, dtype=like.dtype, device=like.device).unbind()
