"""x^T W x over the patches of an input: one number for each pair of a patch's numbers and each neuron.

A patch holds the K = C/G k^d numbers that a neuron of its group reads. W is its upper triangle, K (K + 1) / 2 numbers,
since x_i x_j = x_j x_i: twice as many would compute nothing more, and half of them would get no gradient of their own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from onn_runner.model.base import LayerSpec
from onn_runner.model.conv import at_least_single, transforming, without_autocast

VALUES = 1 << 22
"""Neurons times K times positions at once: 16 MiB in single precision."""
POSITIONS = 64
"""At once at least: with fewer, the matrix is read more often than multiplied."""


def pairs(count: int) -> int:
    """How many numbers the upper triangle of a matrix over that many has."""
    return count * (count + 1) // 2


def diagonal(count: int) -> Tensor:  # [K]
    """Where the triangle's rows begin, which is at the squares."""
    rows, columns = torch.triu_indices(count, count)
    return (rows == columns).nonzero().flatten()


def quadratic_form(
    x: Tensor,  # [B, C, *S], padded
    triangle: Tensor,  # [O, K (K + 1) / 2]
    *,
    spec: LayerSpec,
    recomputes: bool,
) -> Tensor:  # [B, O, *S']
    """In single precision or better. `recomputes`: for backward x and the matrix are kept, not patches and products."""
    with without_autocast(x):
        x, triangle = at_least_single(x), at_least_single(triangle)
        matrix = _dense(triangle, spec)
        if torch.compiler.is_compiling() or transforming() or not x.shape[0]:
            return _of_patches(x, matrix, spec)
        if not recomputes and torch.is_grad_enabled():
            return _of_patches(x, matrix, spec)
        positions = math.prod(windows(x, spec).shape[2 : 2 + spec.dims])
        at_once = max(VALUES // matrix.shape[0] // matrix.shape[1], POSITIONS)
        parts = [_by_rows(part, matrix, spec, at_once) for part in x.split(max(at_once // positions, 1))]
        return torch.cat(parts) if len(parts) > 1 else parts[0]


def _by_rows(x: Tensor, matrix: Tensor, spec: LayerSpec, at_once: int) -> Tensor:
    """Of a few samples: by rows of the output where one sample has too many positions."""
    samples, _, length, *others = windows(x, spec).shape[: 2 + spec.dims]
    rows = max(at_once // (samples * math.prod(others)), 1)
    reach = spec.dilation[0] * (spec.kernel_size[0] - 1) + 1
    parts = []
    for first in range(0, length, rows):
        last = min(first + rows, length) - 1
        seen = x[:, :, first * spec.stride[0] : last * spec.stride[0] + reach]
        if torch.is_grad_enabled():
            part = checkpoint(_of_patches, seen, matrix, spec, use_reentrant=False, preserve_rng_state=False)
        else:
            part = _of_patches(seen, matrix, spec)
        assert isinstance(part, Tensor)
        parts.append(part)
    return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]


def _of_patches(
    x: Tensor,  # [B, C, *S]
    matrix: Tensor,  # [G, O/G K, K]
    spec: LayerSpec,
) -> Tensor:  # [B, O, *S']
    """sum_i x_i (W x)_i at each position."""
    seen = windows(x, spec)
    batch, positions = seen.shape[0], seen.shape[2 : 2 + spec.dims]
    dims = spec.dims
    grouped = seen.unflatten(1, (spec.groups, -1))
    # group, channel, taps, sample, positions
    order = (1, 2, *range(3 + dims, 3 + 2 * dims), 0, *range(3, 3 + dims))
    patches = grouped.permute(order).reshape(spec.groups, matrix.shape[2], -1)
    multiplied = torch.bmm(matrix, patches).unflatten(1, (-1, matrix.shape[2]))
    y = (multiplied * patches.unsqueeze(1)).sum(2)  # [G, O/G, B positions]
    return y.flatten(0, 1).unflatten(1, (batch, *positions)).transpose(0, 1)


def windows(
    x: Tensor,  # [B, C, *S]
    spec: LayerSpec,
) -> Tensor:  # [B, C, *S', *k]
    """What each output position sees, as a view."""
    for axis, (taps, stride, dilation) in enumerate(zip(spec.kernel_size, spec.stride, spec.dilation, strict=True)):
        x = x.unfold(2 + axis, dilation * (taps - 1) + 1, stride)[..., ::dilation]
    return x


def _dense(triangle: Tensor, spec: LayerSpec) -> Tensor:  # [G, O/G K, K]
    size = spec.in_channels // spec.groups * math.prod(spec.kernel_size)
    rows, columns = torch.triu_indices(size, size, device=triangle.device)
    empty = triangle.new_zeros(triangle.shape[0], size * size)
    return empty.index_copy(1, rows * size + columns, triangle).reshape(spec.groups, -1, size)
