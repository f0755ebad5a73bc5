"""The relative error of 32 real outputs of a layer's expansion against psi summed in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from onn_runner.compute.base import Call
from onn_runner.compute.convolution import convolve
from onn_runner.compute.expansion import SAMPLES, Expansion
from onn_runner.compute.geometry import at, neurons, output_size, pool_factor, taps
from onn_runner.compute.truncation import HUGE
from onn_runner.seeding import generator

OUTPUTS = 32


def spot_error(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    expansion: Expansion,
) -> float:
    """The worst one over output channels; infinite where an output is not finite or huge."""
    sizes = output_size(call, x, weight)
    where = _positions(call, x, tuple(weight.shape[2:]), sizes)
    y = convolve(x, weight, gain, None, call, expansion)
    got = torch.stack([at(y, b, slice(None), *position) for b, *position in where]).double()
    exact = _exact(call, torch.stack([_window(call, x, weight, w) for w in where]), weight)
    if gain is not None:
        exact = exact * gain.double()
    if not float(got.abs().max()) <= HUGE or not float(exact.abs().max()) <= HUGE:
        return float("inf")
    error, size = (got - exact).square().sum(0), exact.square().sum(0)
    floor = max(1e-25 * float(size.max()), 1e-200)
    return float((error / size.clamp(min=floor)).max().sqrt())


def _positions(call: Call, x: Tensor, kernel: tuple[int, ...], sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Random outputs (b, *p), and one that sees the largest |x| where there is one."""
    shape = (x.shape[0], *sizes)
    keyed = generator("outputs", *shape)
    columns = [torch.randint(size, (OUTPUTS - 1,), generator=keyed).tolist() for size in shape]
    found = [tuple(row) for row in zip(*columns, strict=True)]
    place = [int(i) for i in torch.unravel_index(x.abs().argmax(), x.shape)]
    seer = [place[0]]
    for at, k, stride, dilation, size in zip(place[2:], kernel, call.stride, call.dilation, sizes, strict=True):
        starts = [at - t * dilation for t in range(k)]
        seer.append(next((s // stride for s in starts if s % stride == 0 and 0 <= s // stride < size), 0))
    return [*found, tuple(seer)]


def _window(call: Call, x: Tensor, weight: Tensor, where: tuple[int, ...]) -> Tensor:
    """What the output `where` sees, [C, *k]."""
    b, *position = where
    slices = (
        slice(p * stride, p * stride + dilation * (k - 1) + 1, dilation)
        for p, stride, dilation, k in zip(position, call.stride, call.dilation, weight.shape[2:], strict=True)
    )
    return at(x, b, slice(None), *slices)


def _exact(call: Call, windows: Tensor, weight: Tensor) -> Tensor:
    """sum psi over windows [N, C, *k], float64, with the pool's factor: [N, O]."""
    inputs = weight.shape[1]
    count = windows.shape[0]
    seen = windows.double().flatten(2)
    total = torch.empty((count, weight.shape[0]), dtype=torch.float64, device=weight.device)
    most = max(1, SAMPLES // (count * weight[0].numel()))
    for block, group, start, stop in neurons(call, weight.shape[0], most):
        w = weight[start:stop].double().flatten(2)[None]
        part = seen[:, None, group * inputs : (group + 1) * inputs]
        total[:, start:stop] = block.nodal(w, part).sum((2, 3))
    return total * pool_factor(call.pool, taps(weight))
