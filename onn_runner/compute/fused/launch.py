"""Which kernel runs on which grid with which arguments: the tensors' shapes turned into numbers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import triton
from torch import Tensor

from onn_runner.compute.base import Block, Call
from onn_runner.compute.fused.backward import backward_w, backward_x
from onn_runner.compute.fused.catalogue import operator, pooling
from onn_runner.compute.fused.forward import forward
from onn_runner.compute.geometry import output_size, pool_factor, taps
from onn_runner.compute.selection import network
from onn_runner.ops.base import Pool

LANES = 128
"""Positions of one tile: the threads of four warps side by side read consecutive numbers."""
ROWS = 4
"""Neurons or channels of one tile, which share what they read: four values in each thread's registers."""
WEIGHT_ROWS = 8
"""Weights of one tile, with half as many positions: they share the gradient."""
PROGRAMS = 4096
"""So many programs of the gradient to w fill any GPU. It decides how sums are cut, so it must not depend on the GPU."""


@dataclass(frozen=True)
class Launch:
    """One kernel, its number of programs and all its arguments by name."""

    kernel: Any
    programs: int
    arguments: dict[str, Any]
    warps: int

    def run(self) -> None:
        self.kernel[(self.programs,)](**self.arguments, num_warps=self.warps)


@dataclass(frozen=True)
class Layer:
    """The numbers of one layer's call on tensors of given shapes."""

    call: Call
    x: Tensor  # [B, C, *S], contiguous
    weight: Tensor  # [O, C/G, *k], contiguous
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, call: Call, x: Tensor, weight: Tensor) -> Layer:
        """Raises ConfigError where the window does not fit into the padded input."""
        return cls(call, x, weight, output_size(call, x, weight))

    @property
    def positions(self) -> int:
        return math.prod(self.sizes)

    @property
    def pool(self) -> str:
        return str(pooling(self.call.pool))

    @property
    def factor(self) -> float:
        return _factor(self.call.pool, taps(self.weight))

    def forward(
        self, block: Block, gain: Tensor | None, bias: Tensor | None, y: Tensor, index: Tensor | None
    ) -> Launch:
        """The kernel that fills y [B, O, *S'] and the index for one block of neurons; gain and bias are [O]."""
        across = _power(self.positions, 16, LANES)
        # a median holds all taps of a value in registers, so one value for a thread
        down = 1 if self.pool == "median" else _power(self._group_size, 1, ROWS)
        tiles = self._tiles(block, self._group_size, down)
        n, m = _three(self.x.shape[2:]), _three(self.sizes)
        arguments = {
            **self._common(block, index, y),
            **tiles,
            "gain": y if gain is None else gain,
            "bias": y if bias is None else bias,
            "y": y,
            "n1": n[1],
            "n2": n[2],
            "m1": m[1],
            "m2": m[2],
            "POOL": self.pool,
            "GAIN": gain is not None,
            "BIAS": bias is not None,
            "KEEP": index is not None,
            "FACTOR": self.factor,
            "STEPS": _steps(taps(self.weight)) if self.pool == "median" else (),
            "BO": down,
            "BL": across,
        }
        programs = tiles["tiles"] * triton.cdiv(self.positions, across) * self.x.shape[0]
        return Launch(forward, programs, arguments, _warps(down * across))

    def backward_x(self, block: Block, grad: Tensor, index: Tensor | None, to_x: Tensor) -> Launch:
        """The kernel that adds one block's share to to_x [B, C, *S]."""
        n, m, stride = _three(self.x.shape[2:]), _three(self.sizes), _three(self.call.stride)
        inputs = math.prod(triton.cdiv(size, step) for size, step in zip(n, stride, strict=True))
        across = _power(inputs, 16, LANES)
        down = _power(self.weight.shape[1], 1, ROWS)
        tiles = self._tiles(block, self.weight.shape[1], down)
        arguments = {
            **self._common(block, index, grad),
            **tiles,
            "grad": grad,
            "to_x": to_x,
            **{f"n{axis}": size for axis, size in enumerate(n)},
            **{f"m{axis}": size for axis, size in enumerate(m)},
            "SELECTS": index is not None,
            "FACTOR": self.factor,
            "BC": down,
            "BI": across,
        }
        programs = tiles["tiles"] * math.prod(stride) * triton.cdiv(inputs, across) * self.x.shape[0]
        return Launch(backward_x, programs, arguments, _warps(down * across))

    def backward_w(self, block: Block, grad: Tensor, index: Tensor | None) -> tuple[Launch, Tensor]:
        """The kernel for one block's gradient to w, and its parts [chunks, o, C/G T] in float64, which are to be summed
        over chunks and multiplied by `factor`."""
        across = _power(self.positions, 16, LANES // 2)
        row = self.weight[0].numel()
        down = _power(row, 1, WEIGHT_ROWS)
        tiles = triton.cdiv(row, down)
        neurons = block.stop - block.start
        blocks = triton.cdiv(self.positions, across) * self.x.shape[0]
        chunk = triton.cdiv(blocks, min(blocks, triton.cdiv(PROGRAMS, neurons * tiles)))
        chunks = triton.cdiv(blocks, chunk)
        partial = self.x.new_empty((chunks, neurons, row), dtype=torch.float64)
        n, m = _three(self.x.shape[2:]), _three(self.sizes)
        arguments = {
            **self._common(block, index, grad),
            "grad": grad,
            "partial": partial,
            "chunk": chunk,
            "all_blocks": blocks,
            "tiles": tiles,
            "n1": n[1],
            "n2": n[2],
            "m1": m[1],
            "m2": m[2],
            "SELECTS": index is not None,
            "BK": down,
            "BL": across,
        }
        return Launch(backward_w, tiles * neurons * chunks, arguments, _warps(down * across)), partial

    @property
    def _group_size(self) -> int:
        return int(self.weight.shape[0]) // self.call.groups

    def _common(self, block: Block, index: Tensor | None, instead: Tensor) -> dict[str, Any]:
        """What all three kernels take; where there is no index, `instead` stands for it and is not read."""
        described = operator(block.nodal)
        assert described is not None, f"{block.name} was to be refused"
        return {
            "x": self.x,
            "w": self.weight,
            "index": instead if index is None else index,
            "start": block.start,
            "stop": block.stop,
            "group_size": self._group_size,
            "outputs": self.weight.shape[0],
            "channels": self.x.shape[1],
            "inputs": self.weight.shape[1],
            "plane": math.prod(self.x.shape[2:]),
            "positions": self.positions,
            "OP": described[0],
            "P": described[1],
            "KERNEL": _three(self.weight.shape[2:]),
            "STRIDE": _three(self.call.stride),
            "DILATION": _three(self.call.dilation),
        }

    def _tiles(self, block: Block, rows: int, down: int) -> dict[str, int]:
        """Tiles of `down` out of the `rows` of each group that has neurons of the block."""
        first, last = block.start // self._group_size, (block.stop - 1) // self._group_size
        each = triton.cdiv(rows, down)
        return {"first_group": first, "group_tiles": each, "tiles": each * (last - first + 1)}


@contextlib.contextmanager
def device_of(x: Tensor) -> Iterator[None]:
    """Kernels are started on the current device: make it that of x."""
    if x.is_cuda:
        with torch.cuda.device(x.device):
            yield
    else:
        yield


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on tensors of the CPU."""
    return bool(triton.knobs.runtime.interpret)


@lru_cache(maxsize=256)
def _factor(pool: Pool, count: int) -> float:
    return float(pool_factor(pool, count))


def _three(numbers: tuple[int, ...]) -> tuple[int, int, int]:
    """Axes that are missing stand in front."""
    a, b, c = (1,) * (3 - len(numbers)) + tuple(int(n) for n in numbers)
    return a, b, c


def _power(size: int, least: int, most: int) -> int:
    """The power of two that holds `size`, within bounds."""
    return max(least, min(most, int(triton.next_power_of_2(size))))


def _warps(values: int) -> int:
    """One thread for one value, up to four warps."""
    return max(1, min(4, values // 32))


@lru_cache(maxsize=64)
def _steps(count: int) -> tuple[tuple[int, int], ...]:
    """The comparators of the median of `count` taps."""
    return tuple((i, j) for i, j, _ in network(count, (count - 1) // 2)[0])
