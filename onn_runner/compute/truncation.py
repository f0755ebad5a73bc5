"""How far a truncated expansion of psi is from psi itself, at real weights and real inputs, in float64.

No rule on coefficient tails is reliable (a bell narrower than the node spacing samples as zero), so that psi, its
slope in w and its slope in x are compared at inputs that do not belong to the interpolation: at few inputs for many
weights, and at many inputs for few weights, since a feature of psi may be narrow in x.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onn_runner.compute import basis
from onn_runner.compute.basis import Interval, Kind, transform
from onn_runner.compute.expansion import Bank, Form, Series, matrices, rows
from onn_runner.compute.probing import Precision, Probe, moderate, slopes

SINGLE = 1.5
"""What a single weight may exceed half of its tolerance by where members are mixed."""


def fewest(seen: Probe, kind: Form, interval: Interval, precision: Precision, most: int | None = None) -> Series | None:
    """The shortest series whose truncation is half of what is allowed at most; None if there is none."""
    if kind == "product":
        return Series("product", 1)
    limit = most or (precision.nodes if kind == "line" else precision.nodes // 2)
    start = min(limit, _guess(seen, kind, interval, precision))
    count = smallest(lambda n: within(seen, Series(kind, n), interval, precision), limit, start)
    return None if count is None else Series(kind, count)


def _guess(seen: Probe, kind: Kind, interval: Interval, precision: Precision) -> int:
    """How many terms the coefficients of the largest weight suggest, to begin a search with."""
    limit = precision.nodes if kind == "line" else precision.nodes // 2
    points, matrix = transform(kind, limit, interval, seen.w.device)
    w = seen.w.reshape(-1)
    values = seen.block.nodal(w[w.abs().argmax()], points).to(torch.float64).expand(len(points))
    size = (matrix @ (values[:-1] - values[-1])).abs()
    needed = (size > precision.output / 4 * size.max()).nonzero()
    return int(needed.max()) + 1 if len(needed) else 1


def within(seen: Probe, series: Series, interval: Interval, precision: Precision, parts: tuple[Bank, ...] = ()) -> bool:
    """Whether the truncation of a series, as the banks `parts` hold it, is half of what is allowed at most.

    Where banks are mixed, neurons of a single weight, which no layer at hand need have, may reach three quarters.
    """
    if excess(seen, series, interval, precision, parts, stop=1.0) > 1:
        return False
    most = SINGLE if parts else 1.0
    return seen.close is None or excess(seen.close, series, interval, precision, parts, stop=most) <= most


def smallest(enough: Callable[[int], bool], limit: int, start: int) -> int | None:
    """The smallest count that is enough: downwards from `start` while it is, or up in growing steps and back.

    Or below `start` after all: in float64 too many terms lose to rounding what they gain.
    """
    if enough(start):
        while start > 1 and enough(start - 1):
            start -= 1
        return start
    low, step = start, 1
    while True:
        if low == limit:
            return smallest(enough, start - 1, 1) if start > 1 else None
        high = min(limit, low + step)
        if enough(high):
            break
        low, step = high, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def excess(
    seen: Probe,
    series: Series,
    interval: Interval,
    precision: Precision,
    parts: tuple[Bank, ...] = (),
    stop: float = float("inf"),
) -> float:
    """The worst truncation error over half its tolerance: psi and slope in w by neuron, slope in x by layer.

    As soon as it is above `stop`, what was found so far.
    """
    points, matrix = transform(series.kind, series.count, interval, seen.w.device)
    w = seen.w.reshape(-1)
    leaf = w.expand(len(points), -1).clone().requires_grad_()
    with torch.enable_grad():
        samples = seen.block.nodal(leaf, points[:, None].expand_as(leaf)).to(torch.float64)
    (slope,) = slopes(samples, leaf)
    samples = samples.detach()
    if not (moderate(samples) and moderate(slope)):
        return float("inf")
    members, derivatives = _functions(seen.x, interval, series, parts)
    series_value = (matrix @ (samples[:-1] - samples[-1])).T
    worst = 0.0
    for kind in ("value", "slope in w", "slope in x"):
        if kind == "value":
            value, error = seen.value, seen.value - samples[-1][:, None] - series_value @ members
        elif kind == "slope in w":
            series_slope = (matrix @ (slope[:-1] - slope[-1])).T
            value, error = seen.slope_w, seen.slope_w - slope[-1][:, None] - series_slope @ members
        else:
            value, error = seen.slope_x, seen.slope_x - series_value @ derivatives
        for part in seen.parts:
            if kind == "slope in x":
                ratio = _by_layer(seen, error[:, part], value[:, part])
            else:
                ratio = _by_neuron(seen, error[:, part], value[:, part], coherent=kind == "value")
                if kind == "slope in w":
                    ratio = max(ratio, _by_mean(seen, error[:, part], value[:, part]))
            worst = max(worst, 2 * ratio / (precision.output if kind == "value" else precision.gradient))
            if worst > stop:
                return worst
    return worst


def _functions(x: Tensor, interval: Interval, series: Series, parts: tuple[Bank, ...]) -> tuple[Tensor, Tensor]:
    """What each coefficient of a series multiplies at x, and its derivative, [R, I] each: members, or what is mixed."""
    if not any(bank.mix for bank in parts):
        return _members(x, interval, series.kind, series.count)
    values = torch.empty((series.count, len(x)), dtype=torch.float64, device=x.device)
    slopes = torch.empty_like(values)
    for bank in parts:
        where = rows(series, bank.form)
        found = _members(x, interval, bank.kind, bank.members)
        if bank.mix is not None:
            onto, back = matrices(bank.mix, torch.float64, x.device)
            found = (back.T @ (onto @ found[0]), back.T @ (onto @ found[1]))
        for target, source in zip((values, slopes), found, strict=True):
            target[where.take] = where.signed(source[: len(where.sign)])
    return values, slopes


def _members(x: Tensor, interval: Interval, kind: Kind, count: int) -> tuple[Tensor, Tensor]:
    """All members at x and their derivatives, [R, I] each."""
    members = torch.empty((count, len(x)), dtype=torch.float64, device=x.device)
    basis.evaluate(x, interval, kind, list(members))
    unit = torch.eye(count, dtype=torch.float64, device=x.device)[:, :, None].expand(-1, -1, len(x))
    return members, basis.pull_back(x.expand(count, -1), interval, kind, list(unit.unbind(1)))


def _by_neuron(seen: Probe, error: Tensor, value: Tensor, *, coherent: bool) -> float:
    """The worst relative error [o m, I] of a neuron; the mean over inputs adds up over taps in full where coherent."""
    shape = (*seen.w.shape, error.shape[1])
    error_size, size = (_size(q.view(shape), seen.share, coherent) for q in (error, value))
    # a neuron whose psi is zero everywhere has only rounding to lose
    floor = max(seen.floor * float(size.max()), 1e-200)
    return float((error_size / size.clamp(min=floor)).max().sqrt())


def _size(values: Tensor, share: float, coherent: bool) -> Tensor:
    """The expected square of the sum over taps [o], inputs taken as independent."""
    if not coherent:
        return values.square().sum((1, 2))
    mean = values.mean(2)
    spread = values.square().mean(2).sum(1) - mean.square().sum(1)
    return mean.sum(1).square() / share + spread.clamp(min=0)


def _by_mean(seen: Probe, error: Tensor, value: Tensor) -> float:
    """The worst mean over inputs of a neuron's slopes in w [o m, I]: what is left where all outputs count alike.

    Three weights at many inputs are one neuron.
    """
    shape = (1 if seen.close is None else len(seen.w), -1, error.shape[1])
    own, whole = error.view(shape), value.view(shape)
    # the mean of the slopes may cancel, but hardly below what chance leaves
    chance = whole.square().sum((1, 2)) / error.shape[1] ** 2
    size = torch.maximum(whole.mean(2).square().sum(1), chance)
    floor = max(seen.floor * float(size.max()), 1e-200)
    return float((own.mean(2).square().sum(1) / size.clamp(min=floor)).max().sqrt())


def _by_layer(seen: Probe, error: Tensor, value: Tensor) -> float:
    shape = (*seen.w.shape, error.shape[1])
    gain = seen.gain.view(-1, 1, 1)
    top = (error.view(shape) * gain).norm()
    return float(top / (value.view(shape) * gain).norm().clamp(min=1e-100))
