"""Valid correlations with large kernels through the discrete Fourier transform: y = conv(x, w) and its gradients.

A kernel has few taps beside the map, so that its transform, and the inverse one of its gradient, are matrix products
with the columns that count; maps go through rfft2. Sizes are rounded up to products of 2, 3 and 5. Two spatial axes,
stride and dilation 1, one group.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor


def forward(
    x: Tensor,  # [B, C, H, W]
    weight: Tensor,  # [O, C, *k]
) -> Tensor:  # [B, O, H - k + 1, W - k + 1]
    """sum over c, t of w[o,c,t] x[c,p+t]."""
    size = _size(x)
    product = _contract(torch.fft.rfft2(x, size), _of_weight(weight, size).conj(), "bchw,ochw->bohw")
    y = torch.fft.irfft2(product, size)
    rows, columns = (n - k + 1 for n, k in zip(x.shape[2:], weight.shape[2:], strict=True))
    return y[..., :rows, :columns].contiguous()


def backward(
    grad: Tensor,  # [B, O, *S']
    x: Tensor,  # [B, C, H, W]
    weight: Tensor,  # [O, C, *k]
    needs: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients to x and to the weights, those that are needed."""
    size = _size(x)
    spectrum = torch.fft.rfft2(grad, size)
    to_x = to_weight = None
    if needs[0]:
        product = _contract(spectrum, _of_weight(weight, size), "bohw,ochw->bchw")
        to_x = torch.fft.irfft2(product, size)[..., : x.shape[2], : x.shape[3]]
    if needs[1]:
        product = _contract(spectrum.conj(), torch.fft.rfft2(x, size), "bohw,bchw->ochw")
        to_weight = _weight_of(product, size, tuple(weight.shape[2:]))
    return to_x, to_weight


def _contract(a: Tensor, b: Tensor, equation: str) -> Tensor:
    """A sum of products at each frequency. One at a time: complex batched products of small matrices are slow."""
    left, rest = equation.split(",")
    right, out = rest.split("->")
    (summed,) = (letter for letter in left if letter not in out)
    parts = zip(a.unbind(left.index(summed)), b.unbind(right.index(summed)), strict=True)
    total: Tensor | None = None
    keep_a, keep_b = left.replace(summed, ""), right.replace(summed, "")
    for one, other in parts:
        one = one.unsqueeze(out.index(keep_b[0])) if keep_a[0] != keep_b[0] else one
        other = other.unsqueeze(out.index(keep_a[0])) if keep_a[0] != keep_b[0] else other
        total = one * other if total is None else total.addcmul_(one, other)
    assert total is not None
    return total


def _size(x: Tensor) -> tuple[int, int]:
    """The sizes of the transform: those of the map, which is larger than the output, rounded up."""
    return fast_size(x.shape[2]), fast_size(x.shape[3])


@lru_cache(maxsize=1024)
def fast_size(least: int) -> int:
    """The smallest even product of 2, 3 and 5 that is not below `least`."""
    size = least
    while True:
        rest = size
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1 and size % 2 == 0:
            return size
        size += 1


@lru_cache(maxsize=32)
def _columns(size: int, taps: int, half: bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    """exp(-2 pi i f t / n), [n or n/2 + 1, k]."""
    frequencies = size // 2 + 1 if half else size
    with torch.inference_mode(False):
        product = torch.arange(frequencies, dtype=torch.float64)[:, None] * torch.arange(taps, dtype=torch.float64)
        angle = product.remainder(size) * (2 * math.pi / size)
        kind = torch.complex128 if dtype == torch.float64 else torch.complex64
        return torch.complex(torch.cos(angle), -torch.sin(angle)).to(device=device, dtype=kind)


def _of_weight(weight: Tensor, size: tuple[int, int]) -> Tensor:
    """The transform [O, C, n1, n2/2 + 1] of [O, C, *k]."""
    rows = _columns(size[0], weight.shape[2], False, weight.dtype, weight.device)
    columns = _columns(size[1], weight.shape[3], True, weight.dtype, weight.device)
    # a real matrix product over the last axis, real and imaginary parts side by side
    parts = torch.matmul(weight, torch.cat([columns.real, columns.imag]).T)
    real, imaginary = parts.chunk(2, dim=-1)
    return torch.matmul(rows, torch.complex(real.contiguous(), imaginary.contiguous()))


def _weight_of(spectrum: Tensor, size: tuple[int, int], kernel: tuple[int, ...]) -> Tensor:
    """The first k positions of the inverse transform, [O, C, *k]."""
    dtype = torch.float64 if spectrum.dtype == torch.complex128 else torch.float32
    rows = _columns(size[0], kernel[0], False, dtype, spectrum.device)
    columns = _columns(size[1], kernel[1], True, dtype, spectrum.device)
    part = torch.view_as_real(torch.matmul(rows.conj().T, spectrum))
    # frequencies between 0 and n/2 stand for themselves and for their conjugates
    weight = torch.full((size[1] // 2 + 1, 1), 2.0, dtype=dtype, device=spectrum.device)
    weight[0] = weight[-1] = 1.0
    found = torch.matmul(part[..., 0], weight * columns.real) + torch.matmul(part[..., 1], weight * columns.imag)
    return found / (size[0] * size[1])
