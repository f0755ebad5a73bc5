"""The relative error of a layer's expansion at real outputs, and of its gradients there, against psi in float64."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onn_runner.compute import tapwise
from onn_runner.compute.base import Call, Memory
from onn_runner.compute.coefficients import SAMPLES
from onn_runner.compute.convolution import convolve
from onn_runner.compute.correlation import POSITIONS
from onn_runner.compute.expansion import Expansion
from onn_runner.compute.geometry import at, neurons, output_size, pool_factor, taps
from onn_runner.compute.probing import HUGE
from onn_runner.seeding import generator

ACCEPTED = (0.7, 0.5, 0.8)
"""The parts of the tolerances of outputs and gradients that are accepted, 32 outputs do not see everything, and of what
rounding leaves of gradients to weights over thousands of positions, which do.
"""
CROPS = 12
"""Small inputs that a transposed layer is checked on."""
BULK = 0.1
"""The part of a neuron's size that the random outputs count as at least, taken without the one that sees the most."""
OUTPUTS = 32
"""Random ones, and the one that sees the largest |x|."""


@dataclass(frozen=True)
class Exact:
    """A layer at some outputs in float64, without bias: at N single ones, or at all M of N small transposed layers."""

    windows: Tensor  # [N, C, *span], what they see
    upstream: Tensor  # [N, O, ...], random gradients
    y: Tensor  # [M, O]
    plain: Tensor  # [2 O], the relative error of the same in the layer's own precision
    to_windows: Tensor  # [N, C, ...], for the inputs that are seen
    to_weight: Tensor  # [2, O, C/G, T], of all outputs, and of the random ones alone
    shares: Tensor  # [M, 1], the root of how many outputs each one stands for
    where: list[tuple[int, ...]]
    """The single outputs (b, *p)."""


@dataclass(frozen=True)
class Errors:
    """Relative errors, of all outputs and of the random ones alone, since a later batch may lack the one that sees the
    most; infinite where something is not finite or huge.
    """

    output: Tensor  # [2 O]
    plain: Tensor  # [2 O], of plain evaluation
    to_weight: Tensor  # [2 O]
    to_x: Tensor  # [2]
    rounding: Tensor  # [O], of the gradient to the weights over many positions

    def accepted(self, output: float, gradient: float) -> bool:
        """Whether they are within the accepted parts of these tolerances; the plain error is accepted too."""
        allowed = torch.clamp(self.plain, min=output * ACCEPTED[0])
        slopes = torch.cat([self.to_weight, self.to_x])
        seen_in_part = bool((self.output <= allowed).all()) and bool((slopes <= gradient * ACCEPTED[1]).all())
        return seen_in_part and bool((self.rounding <= gradient * ACCEPTED[2]).all())


def exact(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    scale: Tensor,  # [O], float64: gain and pool factor
) -> Exact:
    """The outputs to check, computed by psi itself.

    A random output stands for its share of all outputs, the one that sees the largest |x| for itself: their numbers
    come multiplied by the root of that.
    """
    if call.transposed:
        return _exact_transposed(call, x, weight, scale)
    sizes = output_size(call, x, weight)
    where = _positions(call, x, tuple(weight.shape[2:]), sizes)
    windows = torch.stack([_window(call, x, weight, w) for w in where])
    upstream = torch.randn((OUTPUTS, len(weight)), generator=generator("upstream", len(weight)), dtype=torch.float64)
    upstream = upstream.to(x.device) * _shares(x.shape[0] * math.prod(sizes), x.device)
    inputs = weight.shape[1]
    seen = at(windows, ..., *(slice(None, None, step) for step in call.dilation)).double().flatten(2)
    to_seen = torch.zeros_like(seen)
    to_weight = weight.new_zeros((2, *weight.flatten(2).shape), dtype=torch.float64)
    y, plain = torch.empty_like(upstream), torch.empty_like(upstream)
    most = max(1, SAMPLES // (OUTPUTS * weight[0].numel()))
    for block, group, start, stop in neurons(call, len(weight), most):
        channels = slice(group * inputs, (group + 1) * inputs)
        leaf_w = weight[start:stop].double().flatten(2).requires_grad_()
        leaf_x = seen[:, None, channels].clone().requires_grad_()
        with torch.enable_grad():
            shape = torch.broadcast_shapes(leaf_w[None].shape, leaf_x.shape)
            part = block.nodal(leaf_w[None], leaf_x).expand(shape).sum((2, 3)) * scale[start:stop]
        y[:, start:stop] = part.detach()
        rounded = block.nodal(weight[start:stop].flatten(2)[None], seen[:, None, channels].to(x.dtype))
        plain[:, start:stop] = rounded.expand(shape).sum(3).sum(2) * scale[start:stop]
        if part.requires_grad:
            found = _gradients(part, leaf_x, leaf_w, upstream[:, start:stop], OUTPUTS - 1)
            to_seen[:, channels] += found[0][:, 0]
            to_weight[:, start:stop] = found[1]
    shares = _shares(x.shape[0] * math.prod(sizes), x.device)
    inherent = _twice((plain * shares).T, (y * shares).T, OUTPUTS - 1)
    return Exact(windows, upstream, y, inherent, to_seen, to_weight, shares, where)


def _exact_transposed(call: Call, x: Tensor, weight: Tensor, scale: Tensor) -> Exact:
    """The same for transposed layers, at all outputs of some crops of the input, the largest |x| in the last one."""
    spans = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], call.dilation, strict=True)]
    size = [min(n, max(2, -(-span // s))) for n, span, s in zip(x.shape[2:], spans, call.stride, strict=True)]
    keyed = generator("crops", *x.shape)
    highest = [x.shape[0] - 1, *(n - m for n, m in zip(x.shape[2:], size, strict=True))]
    starts = [[int(torch.randint(top + 1, (1,), generator=keyed)) for top in highest] for _ in range(CROPS - 1)]
    largest = [int(i) for i in torch.unravel_index(x.abs().argmax(), x.shape)]
    starts.append([largest[0], *(min(i, top) for i, top in zip(largest[2:], highest[1:], strict=True))])
    windows = torch.stack(
        [at(x, b, slice(None), *(slice(i, i + m) for i, m in zip(p, size, strict=True))) for b, *p in starts]
    )
    gain = scale / pool_factor(call.pool, taps(weight))
    leaf_x, leaf_w = (t.double().detach().requires_grad_() for t in (windows, weight))
    with torch.enable_grad():
        y = tapwise.run(call, leaf_x, leaf_w, gain, None, Memory())
    upstream = torch.randn(y.shape, generator=generator("upstream", *y.shape), dtype=torch.float64).to(x.device)
    shares = torch.full((CROPS, 1), (max(x[:, 0].numel() / math.prod(size) - 1, 1) / (CROPS - 1)) ** 0.5).to(y)
    shares[-1] = 1.0
    upstream *= shares.view(-1, *(1,) * (y.dim() - 1))
    to_windows, to_weight = _gradients(y, leaf_x, leaf_w, upstream, CROPS - 1)
    plain = tapwise.run(call, windows, weight.detach(), gain.to(x.dtype), None, Memory()).double()
    rows, plain_rows = _rows(y.detach()), _rows(plain)
    shares = shares.repeat_interleave(len(rows) // CROPS, 0)
    inherent = _twice((plain_rows * shares).T, (rows * shares).T, len(rows) // CROPS * (CROPS - 1))
    return Exact(windows, upstream, rows, inherent, to_windows, to_weight.flatten(3), shares, [])


def _gradients(y: Tensor, x: Tensor, weight: Tensor, upstream: Tensor, random: int) -> tuple[Tensor, Tensor]:
    """The gradient to x; and those to the weights [2, ...], of all windows and of the first `random` ones."""
    grads = torch.autograd.grad(y, (x, weight), upstream, retain_graph=True, allow_unused=True)
    few = torch.cat([upstream[:random], torch.zeros_like(upstream[random:])])
    (part,) = torch.autograd.grad(y, weight, few, allow_unused=True)
    to_x, whole, few = (
        torch.zeros_like(leaf) if g is None else g for leaf, g in ((x, grads[0]), (weight, grads[1]), (weight, part))
    )
    return to_x, torch.stack([whole, few])


def _rows(y: Tensor) -> Tensor:
    """[N, O, *S'] as [M, O]."""
    return y.movedim(1, -1).reshape(-1, y.shape[1])


def errors(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    expansion: Expansion,
    truth: Exact,
) -> Errors:
    """Outputs come from the layer as it is, gradients from a batch of single windows; both from these if transposed."""
    leaf_x, leaf_w = truth.windows.clone().requires_grad_(), weight.clone().requires_grad_()
    with _single_precision(), torch.enable_grad():
        small = convolve(leaf_x, leaf_w, gain, None, call, expansion)
        random = len(small) - 1
        to_x, to_w = _gradients(small, leaf_x, leaf_w, truth.upstream.to(small.dtype).view_as(small), random)
    if call.transposed:
        got = _rows(small.detach()).double()
    else:
        with _single_precision():
            y = convolve(x, weight, gain, None, call, expansion)
        got = torch.stack([at(y, b, slice(None), *position) for b, *position in truth.where]).double()
        to_x = at(to_x, ..., *(slice(None, None, step) for step in call.dilation))
    with _single_precision(), torch.enable_grad():
        rounding = _rounding(call, x, weight, gain, expansion)
    rows = to_w.double().flatten(2), truth.to_weight.flatten(2)
    weights = [_relative(got_w, exact_w, rows[1][0]) for got_w, exact_w in zip(*rows, strict=True)]
    outputs = len(got) // len(small) * random
    return Errors(
        _twice((got * truth.shares).T, (truth.y * truth.shares).T, outputs),
        truth.plain,
        torch.cat(weights),
        _twice(to_x.double().reshape(1, -1), truth.to_windows.reshape(1, -1), random * to_x[0].numel()),
        rounding,
    )


def _rounding(call: Call, x: Tensor, weight: Tensor, gain: Tensor | None, expansion: Expansion) -> Tensor:
    """The relative error [O] of the gradient to the weights against the same in float64, over POSITIONS of a sample:
    where terms cancel, the rounding of long sums counts many times. A product has one term, and the error of plain
    evaluation.
    """
    sizes = tuple(x.shape[2:]) if call.transposed else output_size(call, x, weight)
    rows = min(sizes[0], max(1, POSITIONS // math.prod(sizes[1:])))
    keyed = generator("positions", *x.shape)
    sample, start = (int(torch.randint(n, (1,), generator=keyed)) for n in (len(x), sizes[0] - rows + 1))
    step, span = (1, 1) if call.transposed else (call.stride[0], call.dilation[0] * (weight.shape[2] - 1) + 1)
    seen = x[sample : sample + 1, :, start * step : (start + rows - 1) * step + span]
    found = []
    for dtype in (x.dtype, torch.float64):
        leaf = weight.to(dtype, copy=True).requires_grad_()
        y = convolve(seen.to(dtype), leaf, None if gain is None else gain.to(dtype), None, call, expansion)
        upstream = torch.randn(y.shape, generator=generator("many upstream", *y.shape)).to(y)
        found.append(torch.autograd.grad(y, leaf, upstream)[0].double().flatten(1))
    lost = _relative(found[0], found[1])
    for block, series in zip(call.blocks, expansion.series, strict=True):
        if series.form == "product":
            lost[block.start : block.stop] = 0
    return lost


@contextlib.contextmanager
def _single_precision() -> Iterator[None]:
    """Convolutions on GPUs without tf32: there its rounding is the bound, and no number of terms would pass."""
    backend: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = backend.fp32_precision
    backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        backend.fp32_precision = before


def _shares(outputs: int, device: torch.device) -> Tensor:
    """The root of how many outputs each checked one stands for, [N, 1]."""
    shares = torch.full((OUTPUTS, 1), (max(outputs - 1, 1) / (OUTPUTS - 1)) ** 0.5, dtype=torch.float64, device=device)
    shares[-1] = 1.0
    return shares


def _relative(got: Tensor, truth: Tensor, whole: Tensor | None = None) -> Tensor:
    """The relative error of each row, which counts as no smaller than BULK of that row of `whole`."""
    size = truth.norm(dim=1)
    if whole is not None:
        size = torch.maximum(size, BULK * whole.norm(dim=1))
    # a row that is zero has only rounding to lose
    floor = max(1e-12 * float(size.max()), 1e-100)
    moderate = (got.abs().amax(1) <= HUGE) & (truth.abs().amax(1) <= HUGE)
    return torch.where(moderate, (got - truth).norm(dim=1) / size.clamp(min=floor), torch.inf)


def _twice(got: Tensor, truth: Tensor, random: int) -> Tensor:
    """The relative error of each row, and that of its first `random` numbers."""
    return torch.cat([_relative(got, truth), _relative(got[:, :random], truth[:, :random], truth)])


def _positions(call: Call, x: Tensor, kernel: tuple[int, ...], sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Random outputs (b, *p), and one that sees the largest |x| where there is one."""
    shape = (x.shape[0], *sizes)
    keyed = generator("outputs", *shape)
    columns = [torch.randint(size, (OUTPUTS - 1,), generator=keyed).tolist() for size in shape]
    found = [tuple(row) for row in zip(*columns, strict=True)]
    largest = [int(i) for i in torch.unravel_index(x.abs().argmax(), x.shape)]
    seer = [largest[0]]
    for here, k, stride, dilation, size in zip(largest[2:], kernel, call.stride, call.dilation, sizes, strict=True):
        starts = [here - t * dilation for t in range(k)]
        seer.append(next((s // stride for s in starts if s % stride == 0 and 0 <= s // stride < size), 0))
    return [*found, tuple(seer)]


def _window(call: Call, x: Tensor, weight: Tensor, where: tuple[int, ...]) -> Tensor:
    """What the output `where` sees, [C, *span]; a dilated kernel passes over some of it."""
    b, *position = where
    slices = (
        slice(p * stride, p * stride + dilation * (k - 1) + 1)
        for p, stride, dilation, k in zip(position, call.stride, call.dilation, weight.shape[2:], strict=True)
    )
    return at(x, b, slice(None), *slices)
