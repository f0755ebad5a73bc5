"""psi(w, x) as GOP defines it, where that differs from the catalogue: what `operators=gop` puts in place.

GOP's other two are the catalogue's: multiplication is Multiply, harmonic is Sine with K = 1. Operators that GOP does
not have (cubic, sinh, sinc, chirp, log) keep the catalogue's definition with K = 1. `k` is 1 in GOP; it multiplies w
inside the non-linearity, so that the parameters of conf/ops are accepted and mean something.

Source: PyGOP, table of nodal operators; all exponents are clipped to +-LIMIT and have no slope beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from onn_runner.ops.base import Parity
from onn_runner.ops.nodal import Parametrised, Scaled

LIMIT = 10.0


@dataclass(frozen=True, kw_only=True)
class Exponential(Parametrised):
    """exp(w x) - 1, w x clipped."""

    omega: float = 1.57

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return torch.expm1(_clip(w * x))


@dataclass(frozen=True, kw_only=True)
class Quadratic(Scaled):
    """(K w x)^2, x clipped."""

    parity: ClassVar[Parity | None] = "even"

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return (self.k * w * _clip(x)).square()


@dataclass(frozen=True, kw_only=True)
class Gaussian(Scaled):
    """w exp(-K w x^2), the exponent clipped. It grows with |x| where w is negative."""

    parity: ClassVar[Parity | None] = "even"
    omega: float = 1.57

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return w * torch.exp(-_clip(self.k * w * x * x))


@dataclass(frozen=True, kw_only=True)
class DoG(Scaled):
    """w x exp(-K w x^2), the exponent clipped. (PyGOP clips x inside it too: another value for |x| > 10, |w| < 0.1.)"""

    parity: ClassVar[Parity | None] = "odd"
    omega: float = 1.57

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return w * x * torch.exp(-_clip(self.k * w * x * x))


def _clip(value: Tensor) -> Tensor:
    return value.clamp(-LIMIT, LIMIT)
