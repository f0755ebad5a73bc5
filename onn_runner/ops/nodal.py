"""psi(w, x), the nodal operators of the catalogue: one frozen dataclass of numbers for each.

Parameters: `k` is the text's K, the fixed factor on w; `omega` the half-width of the initial range of `scale * w`.

The default omegas are the smallest round ones that leave a fresh neuron visibly non-linear: over 5 % of the pooled
sum's variance is out of reach of the best linear fit in x, whatever the pool. With x uniform in [-1, 1] and omega
1.57, sin(K w x) would leave 0.5 %: a convolution. Sine needs 3 (8 %), sinh, flatter at the origin, 3.5 (7 %); exp
has its even part and is content with 1.57 (9 %), as is DoG (10 %). Chirp, Gaussian and sinc are even in x, so that no
range makes them linear; theirs is chosen for the size of the mean beside the spread, which falls as omega grows.
Where psi is w g(x) (mul, cubic, quadratic, log) omega is only a unit for w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor

from onn_runner.errors import ConfigError
from onn_runner.ops.base import Nodal, Parity


@dataclass(frozen=True, kw_only=True)
class Parametrised(Nodal):
    """A Nodal whose parameters are all finite numbers above 0.

    Raises: ConfigError naming the parameter that is not.
    """

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value <= 0:
                raise ConfigError(
                    f"{field.name} of the operator {type(self).__name__} must be a finite number above 0, "
                    f"not {value!r}; give one such as {field.name}={field.default}"
                )


@dataclass(frozen=True, kw_only=True)
class Scaled(Parametrised):
    """A Parametrised operator that sees w as K w."""

    k: float = 1.0

    @property
    def scale(self) -> float:
        return self.k


@dataclass(frozen=True, kw_only=True)
class Multiply(Parametrised):
    """w x: with the sum pool, a convolution."""

    parity: ClassVar[Parity | None] = "odd"

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return w * x


@dataclass(frozen=True, kw_only=True)
class Cubic(Scaled):
    """K w x^3. The powers build up from w, so that w = 0 gives 0 where x^3 alone overflows."""

    parity: ClassVar[Parity | None] = "odd"

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return self.k * w * x * x * x


@dataclass(frozen=True, kw_only=True)
class Quadratic(Scaled):
    """K w x^2."""

    parity: ClassVar[Parity | None] = "even"

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return self.k * w * x * x


@dataclass(frozen=True, kw_only=True)
class Sine(Scaled):
    """sin(K w x)."""

    parity: ClassVar[Parity | None] = "odd"
    omega: float = 3.0

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return torch.sin(self.k * w * x)


@dataclass(frozen=True, kw_only=True)
class Exponential(Parametrised):
    """exp(w x) - 1, without the cancellation at small w x."""

    omega: float = 1.57

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return torch.expm1(w * x)


@dataclass(frozen=True, kw_only=True)
class Sinh(Scaled):
    """sinh(K w x)."""

    parity: ClassVar[Parity | None] = "odd"
    omega: float = 3.5

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return torch.sinh(self.k * w * x)


@dataclass(frozen=True, kw_only=True)
class Sinc(Scaled):
    """A sin(K z)/z with z = w x, and its limit A K at z = 0."""

    parity: ClassVar[Parity | None] = "even"
    omega: float = 6.28
    a: float = 1.0

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return self.a * self.k * _sinc(self.k * w * x)


@dataclass(frozen=True, kw_only=True)
class Chirp(Scaled):
    """sin(K w x^2)."""

    parity: ClassVar[Parity | None] = "even"
    omega: float = 1.57

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return torch.sin(self.k * w * x * x)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Scaled):
    """w exp(-K w^2 x^2). As K w^2 x^2 = (sqrt(K) w x)^2, the factor on w is sqrt(K)."""

    parity: ClassVar[Parity | None] = "even"
    omega: float = 3.0

    @property
    def scale(self) -> float:
        return math.sqrt(self.k)

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return w * torch.exp(-_bell_argument(self.scale * w * x).square())


@dataclass(frozen=True, kw_only=True)
class DoG(Scaled):
    """w x exp(-K w^2 x^2) = u exp(-u^2) / sqrt(K) with u = sqrt(K) w x, which is right at huge w x too."""

    parity: ClassVar[Parity | None] = "odd"
    omega: float = 1.57

    @property
    def scale(self) -> float:
        return math.sqrt(self.k)

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        u = _bell_argument(self.scale * w * x)
        return u * torch.exp(-u.square()) / self.scale


@dataclass(frozen=True, kw_only=True)
class Log(Parametrised):
    """w log(a + b x), with a + b x kept at or above FLOOR.

    At a = cosh 1, b = sinh 1 the logarithm is -1 at x = -1 and 1 at x = 1. Below x = -a/b = -1.313, which a little
    noise reaches, there is no logarithm: there psi stays at w log(FLOOR) and has no slope in x. FLOOR is no smaller,
    since a + b x carries the rounding of a, 1e-7 in single precision, and its logarithm the relative error 1e-7/FLOOR.
    """

    FLOOR: ClassVar[float] = 1e-3

    a: float = math.cosh(1.0)
    b: float = math.sinh(1.0)

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        # b is taken out of the logarithm, since b x overflows for the largest finite x
        argument = torch.clamp(x + self.a / self.b, min=self.FLOOR / self.b)
        return w * (torch.log(argument) + math.log(self.b))


_SERIES = tuple((-1) ** n / math.factorial(2 * n + 1) for n in range(8))


def _sinc(u: Tensor) -> Tensor:
    """sin(u)/u with right derivatives everywhere: the series where |u| < 1/2, whose rest is below 1e-17 there.

    Dividing near 0 would be right for the value only: the derivative (u cos u - sin u)/u^2 cancels, and its rounding
    error grows as 1/u.
    """
    near = u.abs() < 0.5
    square = torch.where(near, u, 0.0).square()
    series = torch.full_like(square, _SERIES[-1])
    for coefficient in _SERIES[-2::-1]:
        series = series * square + coefficient
    # a product w x that overflowed still has the quotient 0
    limit = torch.finfo(u.dtype).max
    away = torch.where(near, 1.0, u).clamp(-limit, limit)
    return torch.where(near, series, torch.sin(away) / away)


def _bell_argument(u: Tensor) -> Tensor:
    """u within +-30, where exp(-u^2) is 0 in every precision; without it huge values give infinity times zero."""
    return u.clamp(-30.0, 30.0)
