"""A = 1/sqrt(C v), v = E_w Var_x P_t psi(w, x): the fixed gain that gives a fresh neuron unit variance.

The taps are independent, x uniform in [-1, 1], w uniform in +-weight_bound. Sums and means over taps come from a
Gauss-Legendre product rule, exact to rounding for smooth psi; for other pools the split between w and x and the linear
share come from keyed samples of the pool itself, sharpened by what is known exactly of ranks and products. The error
in v is below 5 %. Everything is float64 and a function of its arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from onn_runner.errors import ConfigError
from onn_runner.ops.base import Nodal, Pool
from onn_runner.ops.examine import describe, evaluate
from onn_runner.ops.pool import Correlation, Linear, Multilinear, OrderStatistic, Reduction
from onn_runner.seeding import generator

NODES = 128
SAMPLES = 1_000_000
VARIANCE_OF_X = 1 / 3
HUGE = 1e30
"""Of psi: single precision ends at 3e38."""
LEAST_VARIANCE = 1e-12
"""Of the mean square: less is a constant in single precision."""


@dataclass(frozen=True)
class Calibration:
    """What a fresh layer needs to know about its operator and pool."""

    gain: float
    """A: the fixed factor on the pooled sum."""
    mean: float
    """Mean over w and x of A sum_c P_t psi(w, x): the initial bias is -mean (or, exact for the weights drawn, -A times
    `neuron_means`)."""
    nonlinearity: float
    """Share of the pooled sum's variance over x, averaged over w, that the best linear fit in x leaves: 0 to 1."""


@dataclass(frozen=True)
class Moments:
    """Of one pooled value, over w and x."""

    mean: float
    variance: float  # E_w Var_x
    linear: float  # the part of it that the best linear fit explains
    square: float  # mean square, for its order of magnitude

    def rescaled(self, variance: float, *, mean: float) -> Moments:
        """These with an exact mean and variance, and the linear share as it was."""
        share = self.linear / self.variance if self.variance > 0 else 0.0
        return Moments(mean, variance, share * variance, self.square)


def calibrate(
    nodal: Nodal,
    pool: Pool,
    *,
    taps: int,
    channels: int,  # that one neuron sums over: C/G
    seed: int = 0,  # of the samples, for pools other than sum and mean
    weight_bound: float | None = None,  # where the weights start elsewhere than in +-nodal.weight_bound
) -> Calibration:
    """Gain, mean and non-linearity index of fresh neurons.

    Raises: ConfigError for a psi that is not finite, does not depend on x, or is not elementwise.
    """
    for name, value in (("taps", taps), ("channels", channels)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")
    bound = float(nodal.weight_bound if weight_bound is None else weight_bound)
    if not math.isfinite(bound) or bound <= 0:
        raise ConfigError(f"{describe(nodal)} starts with weights in +-{bound:g}; give it an omega above 0")
    moments = (_cached_moments if _hashable(nodal, pool) else _moments)(nodal, pool, taps, bound, seed)
    gain = 1.0 / math.sqrt(channels * moments.variance)
    index = min(max(1.0 - moments.linear / moments.variance, 0.0), 1.0)
    return Calibration(gain, gain * channels * moments.mean, index)


def neuron_means(
    nodal: Nodal,
    pool: Pool,
    weight: Tensor,  # [O, C/G, *k]
    *,
    seed: int = 0,
) -> Tensor:  # [O] float64, on the CPU
    """sum_c E_x P_t psi(w, x) for the weights at hand, before the gain: -A times it centres every single neuron.

    Neurons differ: the mean of w x^2 over x is w/3. Over a layer the spread of these means is as large as that of the
    signal (quadratic, chirp, Gaussian) and would start tanh saturated.
    """
    w = weight.detach().cpu().double().flatten(2)
    _, channels, taps = w.shape
    if isinstance(pool, Multilinear):
        nodes, shares = _rule(NODES // 2)
        x = nodes
    else:
        keyed = generator("neuron means", seed, pool.name, channels, taps)
        x = torch.rand(channels, 2 * NODES, taps, generator=keyed, dtype=torch.float64) * 2 - 1
    neurons = max(1, SAMPLES // (channels * taps * 2 * NODES))
    means = []
    for start in range(0, len(w), neurons):
        part = w[start : start + neurons]
        if isinstance(pool, Multilinear):
            values = pool(_psi(nodal, part[..., None], x) @ shares, -1)
        else:
            values = pool(_psi(nodal, part[:, :, None, :], x), -1).mean(-1)
        means.append(values.sum(1))
    return torch.cat(means)


def _moments(nodal: Nodal, pool: Pool, taps: int, bound: float, seed: int) -> Moments:
    """Moments of the pooled value of one input channel."""
    if isinstance(pool, Reduction):
        pool.factor(taps)
    values, shares = _on_grid(nodal, bound)
    if isinstance(pool, Linear):
        moments = _of_linear(pool, taps, values, shares)
    else:
        moments = _by_samples(nodal, pool, taps, bound, seed)
        if isinstance(pool, Correlation):
            moments = _sharpened_by_products(moments, pool, taps, values, shares)
        elif isinstance(pool, OrderStatistic):
            moments = _sharpened_by_ranks(moments, pool, taps, values, shares)
    if moments.variance <= max(LEAST_VARIANCE * moments.square, torch.finfo(torch.float64).tiny):
        raise ConfigError(
            f"{describe(nodal)} does not change with x for |w| <= {bound:g} and |x| <= 1; "
            "raise its omega or correct its formula"
        )
    return moments


_cached_moments = lru_cache(maxsize=1024)(_moments)


def _hashable(nodal: Nodal, pool: Pool) -> bool:
    """True where equal objects compute equally: hashable, and with no state beside the fields that are compared."""
    for part in (nodal, pool):
        if not set(vars(part)) <= {field.name for field in fields(part) if field.compare}:
            return False
        try:
            hash(part)
        except TypeError:
            return False
    return True


@lru_cache
def _rule(count: int) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes in [-1, 1] and the shares, adding up to 1, of a mean over it."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return torch.from_numpy(nodes), torch.from_numpy(weights / 2)


def _psi(nodal: Nodal, w: Tensor, x: Tensor) -> Tensor:
    """psi(w, x), checked: one number of reasonable size for each pair."""
    with torch.no_grad():
        values = evaluate(nodal, w, x)
    shape = np.broadcast_shapes(w.shape, x.shape)
    if not isinstance(values, Tensor) or values.shape != shape:
        got = f"shape {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise ConfigError(
            f"{describe(nodal)} must give one number for each pair of w {list(w.shape)} and x {list(x.shape)}, "
            f"a tensor of shape {list(shape)}, not {got}; write psi(w, x) with elementwise functions of both"
        )
    if not bool((values.abs() < HUGE).all()):
        raise ConfigError(
            f"{describe(nodal)} is not finite, or above {HUGE:g}, for |w| <= {float(w.abs().max()):.3g} and |x| <= 1; "
            "lower its omega or correct its formula"
        )
    return values.double()


def _on_grid(nodal: Nodal, bound: float) -> tuple[Tensor, Tensor]:
    """psi at the product of the nodes, [w, x], and the nodes' shares."""
    nodes, shares = _rule(NODES)
    return _psi(nodal, bound * nodes[:, None], nodes[None]), shares


def _of_linear(pool: Linear, taps: int, values: Tensor, shares: Tensor) -> Moments:
    """Exact moments of a multiple of the sum over taps, from the `values` of psi on the grid [w, x]."""
    nodes, _ = _rule(NODES)
    factor = float(pool(torch.ones(taps, dtype=torch.float64), 0)) / taps
    mean = values @ shares
    variance = (values - mean[:, None]).square() @ shares
    slope = values @ (nodes * shares) / VARIANCE_OF_X
    scale = factor**2 * taps
    return Moments(
        mean=factor * taps * float(mean @ shares),
        variance=scale * float(variance @ shares),
        linear=scale * float(slope.square() @ shares) * VARIANCE_OF_X,
        square=scale * float(shares @ values.square() @ shares),
    )


def _by_samples(nodal: Nodal, pool: Pool, taps: int, bound: float, seed: int) -> Moments:
    """Moments of the pooled value from keyed samples.

    The explained part is unbiased: squares of the covariance of P and x_t are products over two halves of the inputs.
    """
    keyed = generator("calibrate", seed, pool.name, taps)
    # few inputs share a draw of weights: what limits the error in the variance is the number of weights tried
    inputs = 8 if taps < 16 else 16
    count = max(SAMPLES // (inputs * max(taps, 4)), 64)
    w = bound * (torch.rand(count, 1, taps, generator=keyed, dtype=torch.float64) * 2 - 1)
    x = torch.rand(count, inputs, taps, generator=keyed, dtype=torch.float64) * 2 - 1
    pooled = pool(_psi(nodal, w, x), -1)
    halves = [
        ((p - p.mean(1, keepdim=True))[..., None] * z).sum(1) / (inputs // 2 - 1)
        for p, z in zip(pooled.chunk(2, 1), x.chunk(2, 1), strict=True)
    ]
    return Moments(
        mean=float(pooled.mean()),
        variance=float(pooled.var(1).mean()),
        linear=float((halves[0] * halves[1]).mean(0).sum()) / VARIANCE_OF_X,
        square=float(pooled.square().mean()),
    )


def _sharpened_by_products(moments: Moments, pool: Correlation, taps: int, values: Tensor, shares: Tensor) -> Moments:
    """`moments` with the exact mean and variance of a sum of products of neighbouring, independent taps.

    Two products that are `lag` taps apart share all factors but `lag` of each.
    """
    means = values @ shares
    one, between = float(means @ shares), float(means.square() @ shares)
    square = float(shares @ values.square() @ shares)
    count, factor = pool.least_taps, pool.factor(taps)
    products = taps - count + 1
    variance = factor**2 * sum(
        (2 if lag else 1)
        * max(products - lag, 0)
        * one ** (2 * lag)
        * (square ** (count - lag) - between ** (count - lag))
        for lag in range(count)
    )
    return moments.rescaled(variance, mean=factor * products * one**count)


def _sharpened_by_ranks(moments: Moments, pool: OrderStatistic, taps: int, values: Tensor, shares: Tensor) -> Moments:
    """`moments` with the exact mean and total variance over w and x; its part over x alone keeps the sampled share.

    P(the rank-th smallest <= v) = sum_{j >= rank} C(T, j) F(v)^j (1 - F(v))^(T - j), F the distribution of psi.
    """
    ordered, order = values.flatten().sort()
    below = torch.outer(shares, shares).flatten()[order].cumsum(0).clamp(0.0, 1.0)
    total = torch.zeros_like(below)
    for j in range(pool.rank(taps), taps + 1):
        choices = math.lgamma(taps + 1) - math.lgamma(j + 1) - math.lgamma(taps - j + 1)
        total += torch.exp(choices + torch.xlogy(j, below) + torch.xlogy(taps - j, 1 - below))
    chances = total.diff(prepend=total.new_zeros(1)) / total[-1]
    factor = pool.factor(taps)
    mean = factor * float(chances @ ordered)
    variance = float(chances @ (factor * ordered - mean).square())
    share = moments.variance / max(moments.square - moments.mean**2, moments.variance, torch.finfo(torch.float64).tiny)
    return moments.rescaled(variance * share, mean=mean)
