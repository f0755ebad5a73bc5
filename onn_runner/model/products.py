"""y = (A x + a)(B x + b) + L x + S x^2 + c, or a part of it, keeping x, or the convolutions' results, for backward.

Plain autograd keeps the factors: 2 S where S is an output, 5 S with a batch norm on each convolution. Here backward
computes them again. Its formulas are torch's own operations, so that they can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onn_runner.model import tiles
from onn_runner.model.base import LayerSpec
from onn_runner.model.conv import at_least_single, autocast_dtype, convolve, convolve_backward, without_autocast

Statistics = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Form:
    """What does not change from call to call."""

    branches: tuple[str, ...]
    """Of `a`, `b` (factors; one alone is squared), `linear` and `square`, in this order."""
    spec: LayerSpec
    keeps_convolutions: bool
    """False: x only."""
    normed: bool
    """Whether a batch norm follows each convolution; else the shifts are the convolutions' biases."""
    training: bool = False
    """Of the norms: whether the batch's statistics are used."""
    eps: float = 0.0

    @property
    def factors(self) -> tuple[str, ...]:
        return tuple(name for name in self.branches if name in ("a", "b"))

    @property
    def needed(self) -> tuple[str, ...]:
        """The branches whose convolutions backward reads."""
        return self.branches if self.normed else self.factors


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

    def flat(self) -> tuple[Any, ...]:
        columns = (self.weights, self.shifts, self.scales, self.means, self.variances)
        return (self.base, *(column.get(name) for column in columns for name in self.weights))

    @classmethod
    def of(cls, flat: Any, form: Form) -> Operands:
        """From what `flat` gave, or from as many of anything else."""
        base, *rest = flat
        count = len(form.branches)
        columns = [dict(zip(form.branches, rest[i * count : (i + 1) * count], strict=True)) for i in range(5)]
        return cls(base, *columns)


def products(
    x: Tensor,  # [B, C, *S], padded
    form: Form,
    operands: Operands,
) -> tuple[Tensor, dict[str, Statistics]]:
    """y [B, O, *S'] in single precision or better, and each branch's mean and unbiased variance over the batch [O].

    The latter for norms in training only.
    """
    y, *told = _Products.apply(x, form, *operands.flat())
    return y, dict(zip(form.branches, zip(told[::2], told[1::2], strict=True), strict=bool(told)))


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, form: Form, *flat: Tensor | None) -> tuple[Tensor, ...]:
        own = Operands.of(flat, form)
        dtype = autocast_dtype(x, own.weights[form.branches[0]])
        kept: list[Tensor] = []
        used: list[Tensor] = []
        told: list[Tensor] = []

        def respond(x: Tensor) -> Tensor:
            results = {}
            for name in form.branches:
                z = _convolved(x, name, form, own, dtype)
                if form.keeps_convolutions and name in form.needed:
                    kept.append(z)
                z = _shifted(z, name, form, own, dtype)
                if form.normed and form.training:
                    z, statistics, batch = _normed_by_batch(z, name, form, own)
                    used.extend(statistics)
                    told.extend(batch)
                elif form.normed:
                    z = _normed(z, name, own, own.means[name], own.variances[name], form.eps)
                results[name] = z
            return _combined(results, own.base)

        with without_autocast(x):
            y = tiles.apply(respond, x, at_once=_at_once(x, form))
        ctx.form, ctx.dtype, ctx.counts = form, dtype, (len(kept), len(used))
        ctx.save_for_backward(x, *kept, *used, *flat)
        ctx.mark_non_differentiable(*told)
        return y, *told

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        form: Form = ctx.form
        x, *saved = ctx.saved_tensors
        first, second = ctx.counts[0], sum(ctx.counts)
        kept, used, flat = saved[:first], saved[first:second], saved[second:]
        if torch.is_grad_enabled():  # what was kept has no graph
            kept = []
        run = _Backward(form, Operands.of(flat, form), Operands.of(ctx.needs_input_grad[2:], form), ctx.dtype)
        run.needs_x = ctx.needs_input_grad[0]
        run.statistics = dict(zip(form.branches, zip(used[::2], used[1::2], strict=True), strict=bool(used)))
        with without_autocast(x):
            grad_x = run(x, grads[0], kept)
        return grad_x if run.needs_x else None, None, *run.of_operands()


def _at_once(x: Tensor, form: Form) -> int:
    """Of the forward pass: norms see the whole batch, and what is kept is kept whole."""
    if form.normed or form.keeps_convolutions:
        return max(x.shape[0], 1)
    return tiles.samples(x)


def _convolved(x: Tensor, name: str, form: Form, own: Operands, dtype: torch.dtype | None) -> Tensor:
    """The branch's convolution, of the square in single precision or better; with its shift unless that comes later."""
    weight, bias = own.weights[name], None if _shifts_later(name, form, dtype) else own.shifts[name]
    if name == "square":
        x = at_least_single(x).square()
        dtype = x.dtype
    if dtype is not None:
        x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    return convolve(x, weight, spec=form.spec, bias=bias)


def _shifts_later(name: str, form: Form, dtype: torch.dtype | None) -> bool:
    """By the norm, or because autocast would round the shift."""
    return form.normed or (dtype is not None and name != "square")


def _shifted(z: Tensor, name: str, form: Form, own: Operands, dtype: torch.dtype | None) -> Tensor:
    """The convolution in single precision or better, with its shift unless a norm follows."""
    z, shift = at_least_single(z), own.shifts[name]
    if form.normed or shift is None or not _shifts_later(name, form, dtype):
        return z
    return z + shift.reshape(-1, *[1] * form.spec.dims)


def _normed(z: Tensor, name: str, own: Operands, mean: Tensor, variance: Tensor, eps: float) -> Tensor:
    scale, shift = own.scales[name].to(z.dtype), own.shifts[name].to(z.dtype)
    result: Tensor = torch.native_batch_norm(z, scale, shift, mean, variance, False, 0.0, eps)[0]
    return result


def _normed_by_batch(z: Tensor, name: str, form: Form, own: Operands) -> tuple[Tensor, Statistics, Statistics]:
    """The normed z, its (mean, 1 / deviation) as the norm divides by it, and its (mean, unbiased variance)."""
    scale, shift = own.scales[name].to(z.dtype), own.shifts[name].to(z.dtype)
    mean, variance = torch.zeros_like(scale), torch.zeros_like(scale)
    # with a momentum of 1 the running statistics are the batch's
    n, *statistics = torch.native_batch_norm(z, scale, shift, mean, variance, True, 1.0, form.eps)
    return n, (statistics[0], statistics[1]), (mean, variance)


def _combined(results: dict[str, Tensor], base: Tensor | None) -> Tensor:
    """base + a b + linear + square."""
    terms = [results[name] for name in ("linear", "square") if name in results]
    if base is not None:
        dims = next(iter(results.values())).dim() - 2
        terms.append(base.reshape(-1, *[1] * dims))
    rest = sum(terms[1:], start=terms[0])
    if "a" not in results:
        return rest
    return torch.addcmul(rest, results["a"], results.get("b", results["a"]))


def _channel_sum(values: Tensor) -> Tensor:  # [O]
    return values.flatten(2).sum((0, 2))


class _Backward:
    """The gradients, a few samples at a time; of the operands, which all samples share, it adds them up."""

    def __init__(self, form: Form, own: Operands, wanted: Operands, dtype: torch.dtype | None) -> None:
        self.form, self.own, self.wanted, self.dtype = form, own, wanted, dtype
        self.needs_x = True
        self.statistics: dict[str, Statistics] = {}
        self.total: dict[tuple[str, str], Tensor] = {}

    def __call__(self, x: Tensor, grad: Tensor, kept: Sequence[Tensor]) -> Tensor:
        """The gradient to x, empty where it is not wanted; `kept` are the needed convolutions, or nothing."""
        at_once = tiles.samples(grad)
        if not self.form.training:
            return tiles.apply(
                lambda x, grad, *kept: self._through_convolutions(x, *self._to_branches(x, grad, *kept)),
                x, grad, *kept, at_once=at_once
            )  # fmt: skip
        return tiles.apply(self._through_convolutions, x, *self._to_branches(x, grad, *kept), at_once=at_once)

    def _to_branches(self, x: Tensor, grad: Tensor, *kept: Tensor) -> list[Tensor]:
        """The gradient to each branch's convolution."""
        grad = at_least_single(grad)
        if self.wanted.base:
            self._add("base", "", _channel_sum(grad))
        made = kept or [_convolved(x, name, self.form, self.own, self.dtype) for name in self.form.needed]
        z = {
            name: _shifted(value, name, self.form, self.own, self.dtype)
            for name, value in zip(self.form.needed, made, strict=True)
        }
        grads = self._through_product(z, grad)
        for name in self.form.branches:
            if self.form.normed:
                grads[name] = self._through_norm(z.pop(name), grads[name], name)
            elif self.wanted.shifts[name]:
                self._add("shifts", name, _channel_sum(grads[name]))
        return list(grads.values())

    def of_operands(self) -> tuple[Tensor | None, ...]:
        """In the order of `Operands.flat`, of the operands' types."""
        columns = ("weights", "shifts", "scales", "means", "variances")
        keys = [("base", ""), *((kind, name) for kind in columns for name in self.form.branches)]
        types = self.own.flat()
        return tuple(
            self.total[key].to(operand.dtype) if key in self.total and wanted else None
            for key, operand, wanted in zip(keys, types, self.wanted.flat(), strict=True)
        )

    def _add(self, kind: str, name: str, value: Tensor) -> None:
        key = (kind, name)
        self.total[key] = self.total[key] + value if key in self.total else value

    def _through_product(self, z: dict[str, Tensor], grad: Tensor) -> dict[str, Tensor]:
        """The gradient to each branch's response."""
        grads = dict.fromkeys(self.form.branches, grad)
        factors = [self._response(z[name], name) for name in self.form.factors]
        if len(factors) == 1:
            grads["a"] = 2 * grad * factors[0]
        elif factors:
            grads["a"], grads["b"] = grad * factors[1], grad * factors[0]
        return grads

    def _response(self, z: Tensor, name: str) -> Tensor:
        """What the branch contributes to the product."""
        if not self.form.normed:
            return z
        if not self.form.training:
            return _normed(z, name, self.own, self.own.means[name], self.own.variances[name], self.form.eps)
        if torch.is_grad_enabled():  # the statistics depend on x
            return _normed_by_batch(z, name, self.form, self.own)[0]
        mean, inverse = self.statistics[name]
        return _normed(z, name, self.own, mean, inverse.pow(-2), 0.0)

    def _through_norm(self, z: Tensor, grad: Tensor, name: str) -> Tensor:
        mean, inverse = self.statistics.get(name, (None, None))
        grad, of_scale, of_shift = torch.ops.aten.native_batch_norm_backward(
            grad, z, self.own.scales[name].to(z.dtype), self.own.means[name], self.own.variances[name], mean, inverse,
            self.form.training, self.form.eps, (True, True, True)
        )  # fmt: skip
        self._add("scales", name, of_scale)
        self._add("shifts", name, of_shift)
        return grad

    def _through_convolutions(self, x: Tensor, *grads: Tensor) -> Tensor:
        """To x. One convolution at a time: over stacked weights they took longer, and stacking more memory."""
        total: Tensor | None = None
        for name, grad in zip(self.form.branches, grads, strict=True):
            weight, seen, dtype = self.own.weights[name], x, self.dtype or x.dtype
            needs = (self.needs_x, self.wanted.weights[name])
            if not any(needs):
                continue
            if name == "square":
                base = at_least_single(x)
                seen, dtype = base.square(), base.dtype
            to_seen, to_weight = convolve_backward(
                grad.to(dtype), seen.to(dtype), weight.to(dtype), spec=self.form.spec, needs=needs
            )
            if to_weight is not None:
                self._add("weights", name, to_weight.to(weight.dtype))
            if to_seen is not None:
                part = (2 * base * to_seen if name == "square" else to_seen).to(x.dtype)
                total = part if total is None else total + part
        return x[:, :0] if total is None else total
