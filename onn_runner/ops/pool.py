"""P over the taps t of psi(w_t, x_t): sums, order statistics and correlations of neighbouring taps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from onn_runner.errors import ConfigError, unknown
from onn_runner.ops.base import Pool


@dataclass(frozen=True, kw_only=True)
class Reduction(Pool):
    """A pool of the catalogue: `reduce`, times the number of taps on request."""

    least_taps: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not isinstance(self.scale_by_taps, bool):
            raise ConfigError(f"scale_by_taps of the pool {self.name} is true or false, not {self.scale_by_taps!r}")

    def factor(self, taps: int) -> int:
        """What the pooled value is multiplied by.

        Raises: ConfigError for fewer taps than the pool is defined for.
        """
        if taps < self.least_taps:
            raise ConfigError(
                f"the pool {self.name} multiplies {self.least_taps} neighbouring taps and the kernel has {taps}; "
                "use a larger kernel or the pool sum"
            )
        return taps if self.scale_by_taps else 1

    def __call__(self, values: Tensor, dim: int) -> Tensor:
        factor = self.factor(values.shape[dim])
        pooled = self.reduce(values, dim)
        return pooled if factor == 1 else pooled * factor

    def reduce(self, values: Tensor, dim: int) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not reduce")


@dataclass(frozen=True, kw_only=True)
class Multilinear(Reduction):
    """Sums of products of different taps: the mean over independent taps is the pool of the taps' means."""


@dataclass(frozen=True, kw_only=True)
class Linear(Multilinear):
    """A multiple of the sum."""


@dataclass(frozen=True, kw_only=True)
class OrderStatistic(Reduction):
    """The rank-th smallest tap. The gradient goes to the one tap that torch picks; NaN in, NaN out."""

    def rank(self, taps: int) -> int:
        """From 1, the smallest, to `taps`, the largest."""
        raise NotImplementedError(f"{type(self).__name__} has no rank")


@dataclass(frozen=True, kw_only=True)
class Sum(Linear):
    name: ClassVar[str] = "sum"

    def reduce(self, values: Tensor, dim: int) -> Tensor:
        return values.sum(dim)


@dataclass(frozen=True, kw_only=True)
class Mean(Linear):
    name: ClassVar[str] = "mean"

    def reduce(self, values: Tensor, dim: int) -> Tensor:
        return values.mean(dim)


@dataclass(frozen=True, kw_only=True)
class Median(OrderStatistic):
    """The lower one of the two middle taps where their number is even, as torch.median."""

    name: ClassVar[str] = "median"

    def rank(self, taps: int) -> int:
        return (taps + 1) // 2

    def reduce(self, values: Tensor, dim: int) -> Tensor:
        return values.median(dim).values


@dataclass(frozen=True, kw_only=True)
class Maximum(OrderStatistic):
    name: ClassVar[str] = "maximum"

    def rank(self, taps: int) -> int:
        return taps

    def reduce(self, values: Tensor, dim: int) -> Tensor:
        return values.max(dim).values


@dataclass(frozen=True, kw_only=True)
class Minimum(OrderStatistic):
    name: ClassVar[str] = "minimum"

    def rank(self, taps: int) -> int:
        return 1

    def reduce(self, values: Tensor, dim: int) -> Tensor:
        return values.min(dim).values


@dataclass(frozen=True, kw_only=True)
class Correlation(Multilinear):
    """The sum of all products of `least_taps` neighbouring taps."""

    def reduce(self, values: Tensor, dim: int) -> Tensor:
        length = values.shape[dim] - self.least_taps + 1
        product = values.narrow(dim, 0, length)
        for start in range(1, self.least_taps):
            product = product * values.narrow(dim, start, length)
        return product.sum(dim)


@dataclass(frozen=True, kw_only=True)
class Correlation2(Correlation):
    """Sum over t of v_t v_{t+1}, taps in raster order, without wrap-around: T - 1 products.

    Source: GOP, pool operator "1-correlation"; PyGOP pads the shifted taps with zeros, which is the same.
    """

    name: ClassVar[str] = "correlation2"
    least_taps: ClassVar[int] = 2


@dataclass(frozen=True, kw_only=True)
class Correlation3(Correlation):
    """Sum over t of v_t v_{t+1} v_{t+2}, taps in raster order, without wrap-around: T - 2 products.

    Source: GOP, pool operator "2-correlation".
    """

    name: ClassVar[str] = "correlation3"
    least_taps: ClassVar[int] = 3


POOLS: dict[str, type[Reduction]] = {
    pool.name: pool for pool in (Sum, Mean, Median, Maximum, Minimum, Correlation2, Correlation3)
}
ALIASES = {"max": "maximum", "min": "minimum"}


def named(name: str, scale_by_taps: bool = False) -> Pool:
    """The pool of that name; `max` and `min` are short for maximum and minimum."""
    full = ALIASES.get(str(name), str(name))
    if full not in POOLS:
        raise unknown("pool", str(name), POOLS)
    return POOLS[full](scale_by_taps=scale_by_taps)
