"""Whether the fused kernels compute what `tapwise` does, on this device and for these operators.

A compiler, a driver or a GPU that they were never tried on may get them wrong. So the first use in a process is
compared on a small crop of the real batch, outputs and gradients, and the verdict is remembered.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from onn_runner.compute import tapwise
from onn_runner.compute.base import Block, Call, Memory
from onn_runner.compute.fused.layer import run
from onn_runner.compute.fused.refusal import why_not
from onn_runner.compute.geometry import at
from onn_runner.errors import out_of_memory
from onn_runner.seeding import generator

NEURONS, CHANNELS, SAMPLES, OUTPUTS = 4, 8, 2, 8
"""Of a crop; OUTPUTS per axis."""
PLACES = (0.5, 0.0, 1.0)
"""Where the crops lie, between the start and the end of each axis. One that agrees is enough: where two taps are equal
but for rounding, either may be taken, and the gradients differ although nothing is wrong."""
TOLERANCES = {torch.float32: (1e-6, 3e-6), torch.float64: (1e-13, 3e-13)}
"""Of outputs and gradients, relative: the accuracy rule."""

_verdicts: dict[Hashable, str | None] = {}


def trusted(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    memory: Memory,
) -> str | None:
    """None where the fused kernels keep the accuracy rule here, else why they are not to be used, as half a sentence.

    The first time, it runs them and waits for the device.
    """
    reason = why_not(call, x, weight)
    if reason is not None or x.shape[0] == 0:
        return reason
    kernel = tuple(weight.shape[2:])
    for block in call.blocks:
        key = (x.device, x.dtype, block.nodal, call.pool, kernel, call.stride, call.dilation)
        if key not in _verdicts:
            verdict = _verdict(call, block, x, weight)
            if not verdict.lasting:
                return verdict.reason
            _verdicts[key] = verdict.reason
        if _verdicts[key] is not None:
            return _verdicts[key]
    return None


@dataclass(frozen=True)
class _Verdict:
    reason: str | None
    lasting: bool = True


def _verdict(call: Call, block: Block, x: Tensor, weight: Tensor) -> _Verdict:
    from triton.errors import TritonError

    seen = False
    for place in PLACES:
        crop = _crop(call, block, x, weight, place)
        try:
            with torch.inference_mode(False), torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
                agrees = _agrees(*crop)
        except (TritonError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            if isinstance(error, RuntimeError) and out_of_memory(error):
                raise
            first = (str(error).strip().splitlines() or [""])[0]
            return _Verdict(f"the fused kernel of {block.name} does not run here ({type(error).__name__}: {first})")
        if agrees:
            return _Verdict(None)
        seen = seen or agrees is not None
    if seen:
        return _Verdict(f"the fused kernel of {block.name} is not accurate on {x.device}")
    return _Verdict(f"the fused kernel of {block.name} had no finite values to be checked on", lasting=False)


def _crop(call: Call, block: Block, x: Tensor, weight: Tensor, place: float) -> tuple[Call, Tensor, Tensor]:
    """Some neurons of a block, some of their channels, and a piece of two samples."""
    group = block.start // (weight.shape[0] // call.groups)
    neurons = slice(block.start, min(block.stop, (group + 1) * (weight.shape[0] // call.groups), block.start + NEURONS))
    inputs = min(weight.shape[1], CHANNELS)
    sample, channel = int(place * max(0, x.shape[0] - SAMPLES)), group * weight.shape[1]
    where = [slice(sample, sample + SAMPLES), slice(channel, channel + inputs)]
    for size, k, stride, dilation in zip(x.shape[2:], weight.shape[2:], call.stride, call.dilation, strict=True):
        span = dilation * (k - 1) + 1 + stride * (OUTPUTS - 1)
        start = int(place * max(0, size - span))
        where.append(slice(start, start + span))
    part = Block(block.name, block.nodal, 0, neurons.stop - neurons.start)
    small = Call((part,), call.pool, call.stride, call.dilation)
    return small, at(x.detach(), *where), weight.detach()[neurons, :inputs]


def _agrees(call: Call, x: Tensor, weight: Tensor) -> bool | None:
    """Whether the error against float64 is within the tolerance, or twice that of `tapwise` in the same precision; None
    where there are values that are not finite."""
    exact = _results(tapwise.run, call, x, weight, torch.float64)
    if not all(bool(found.isfinite().all()) for found in exact):
        return None
    plain, got = (_results(kernel, call, x, weight, x.dtype) for kernel in (tapwise.run, run))
    output, gradient = TOLERANCES[x.dtype]
    for which, (axis, tolerance) in enumerate(((1, output), (None, gradient), (0, gradient))):
        inherent, error = (_errors(found[which], exact[which], axis) for found in (plain, got))
        # written so that NaN is refused
        if not bool((error <= torch.clamp(2 * inherent, min=tolerance)).all()):
            return False
    return True


def _results(
    kernel: Callable[..., Tensor], call: Call, x: Tensor, weight: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """y and the gradients to x and to w of a fixed random gradient."""
    leaves = x.to(dtype, copy=True).requires_grad_(), weight.to(dtype, copy=True).requires_grad_()
    y = kernel(call, *leaves, None, None, Memory())
    upstream = torch.randn(y.shape, generator=generator("trust", *y.shape)).to(y)
    to_x, to_weight = torch.autograd.grad(y, leaves, upstream)
    return y.detach(), to_x, to_weight


def _errors(got: Tensor, exact: Tensor, axis: int | None) -> Tensor:
    """The relative error, in the norm, of each slice along `axis`, or of the whole."""
    rows = [
        t.double().flatten()[None] if axis is None else t.double().movedim(axis, 0).flatten(1) for t in (got, exact)
    ]
    size = rows[1].norm(dim=1)
    # a row that is zero has only rounding to lose
    return (rows[0] - rows[1]).norm(dim=1) / size.clamp(min=max(1e-12 * float(size.max()), 1e-100))
