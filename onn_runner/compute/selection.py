"""The k-th smallest of T tensors, elementwise, by a network of minimum and maximum; and which of them it was."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
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
        extreme = torch.minimum if rank == 0 else torch.maximum
        best = values[0]
        for value in values[1:]:
            best = extreme(best, value)
        return best
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
    kind = torch.uint8 if len(values) <= 256 else torch.int16
    # float masks and lerp: boolean ones take three times as long
    found = torch.zeros_like(best)
    mask = torch.empty_like(best)
    for t, value in reversed([*enumerate(values)]):
        torch.eq(value, best, out=mask)
        found = torch.lerp(found, mask.new_tensor(float(t)).expand_as(mask), mask, out=found)
    return found.to(kind)
