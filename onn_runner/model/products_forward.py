"""The pieces of y = (A x + a)(B x + b) + sum_j s_j (A_j x)^2 + L x + S x^2 + c: convolution, norm, shift and sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onn_runner.model.base import LayerSpec
from onn_runner.model.conv import at_least_single, convolve
from onn_runner.model.quadratic_types import is_factor, squared

Statistics = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Form:
    """What does not change from call to call."""

    branches: tuple[str, ...]
    """Of `a` and `b` (multiplied), or `a` or `a1`, `a2`, ... (squared), `linear` and `square`, in this order."""
    spec: LayerSpec
    keeps_convolutions: bool
    """False: x only."""
    normed: bool
    """Whether a batch norm follows each convolution; else the shifts are the convolutions' biases."""
    training: bool = False
    """Of the norms: whether the batch's statistics are used."""
    eps: float = 0.0
    subtracted: frozenset[str] = frozenset()
    """Branches whose squares are subtracted, not added."""

    @property
    def squared(self) -> tuple[str, ...]:
        return squared(self.branches)

    @property
    def needed(self) -> tuple[str, ...]:
        """The branches whose convolutions backward reads."""
        return self.branches if self.normed else tuple(name for name in self.branches if is_factor(name))


@dataclass(frozen=True)
class Operands:
    """A tensor of each branch: weights [O, C/G, *k], the others [O]. None where there is none."""

    base: Any
    """[O], added to the whole."""
    weights: dict[str, Any]
    shifts: dict[str, Any]
    scales: dict[str, Any]
    means: dict[str, Any]
    """The norms' running statistics, for evaluation mode."""
    variances: dict[str, Any]
    signs: dict[str, Any]
    """Learned factors of squares."""

    def flat(self) -> tuple[Any, ...]:
        columns = (self.weights, self.shifts, self.scales, self.means, self.variances, self.signs)
        return (self.base, *(column.get(name) for column in columns for name in self.weights))

    @classmethod
    def of(cls, flat: Any, form: Form) -> Operands:
        """From what `flat` gave, or from as many of anything else."""
        base, *rest = flat
        count = len(form.branches)
        columns = [dict(zip(form.branches, rest[i * count : (i + 1) * count], strict=True)) for i in range(6)]
        return cls(base, *columns)


def convolved(x: Tensor, name: str, form: Form, own: Operands, dtype: torch.dtype | None) -> Tensor:
    """The branch's convolution, of the square in single precision or better; with its shift unless that comes later."""
    weight, bias = own.weights[name], None if shifts_later(name, form, dtype) else own.shifts[name]
    if name == "square":
        x = at_least_single(x).square()
        dtype = x.dtype
    if dtype is not None:
        x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    return convolve(x, weight, spec=form.spec, bias=bias)


def shifts_later(name: str, form: Form, dtype: torch.dtype | None) -> bool:
    """By the norm, or because autocast would round the shift."""
    return form.normed or (dtype is not None and name != "square")


def shifted(z: Tensor, name: str, form: Form, own: Operands, dtype: torch.dtype | None) -> Tensor:
    """The convolution in single precision or better, with its shift unless a norm follows."""
    z, shift = at_least_single(z), own.shifts[name]
    if form.normed or shift is None or not shifts_later(name, form, dtype):
        return z
    return z + along_channels(shift, z)


def normed(z: Tensor, name: str, own: Operands, mean: Tensor, variance: Tensor, eps: float) -> Tensor:
    scale, shift = own.scales[name].to(z.dtype), own.shifts[name].to(z.dtype)
    result: Tensor = torch.native_batch_norm(z, scale, shift, mean, variance, False, 0.0, eps)[0]
    return result


def normed_by_batch(z: Tensor, name: str, form: Form, own: Operands) -> tuple[Tensor, Statistics, Statistics]:
    """The normed z, its (mean, 1 / deviation) as the norm divides by it, and its (mean, unbiased variance)."""
    scale, shift = own.scales[name].to(z.dtype), own.shifts[name].to(z.dtype)
    mean, variance = torch.zeros_like(scale), torch.zeros_like(scale)
    # with a momentum of 1 the running statistics are the batch's
    n, *statistics = torch.native_batch_norm(z, scale, shift, mean, variance, True, 1.0, form.eps)
    return n, (statistics[0], statistics[1]), (mean, variance)


def combined(
    results: dict[str, Tensor],
    base: Tensor | None,  # [O]
    *,
    subtracted: frozenset[str],
    signs: dict[str, Tensor | None],  # [O]
) -> Tensor:
    """base + a b, or base + the signed squares of a, a1, a2, ..., + linear + square."""
    some = next(iter(results.values()))
    terms = [results[name] for name in ("linear", "square") if name in results]
    if base is not None:
        terms.append(along_channels(base, some))
    rest = sum(terms[1:], start=terms[0]) if terms else None
    names = squared(results)
    if "b" in results or names == ("a",):
        a, b = results["a"], results.get("b", results["a"])
        return a * b if rest is None else torch.addcmul(rest, a, b)
    if not names:
        assert rest is not None
        return rest
    # by themselves, so that equal ones of opposite signs leave exactly nothing
    total: Tensor | None = None
    for name in names:
        sign = signs.get(name)
        part = results[name].square() if sign is None else along_channels(sign, some) * results[name].square()
        if total is None:
            total = -part if name in subtracted else part
        else:
            total = total - part if name in subtracted else total + part
    assert total is not None
    return total if rest is None else rest + total


def along_channels(
    values: Tensor,  # [O]
    like: Tensor,  # [B, O, *S]
) -> Tensor:  # [O, *1]
    return values.reshape(-1, *[1] * (like.dim() - 2))
