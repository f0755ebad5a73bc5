"""One convolution over x, x^2 .. x^q that keeps x and the weights only and recomputes the powers in backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onn_runner.model import tiles
from onn_runner.model.base import LayerSpec
from onn_runner.model.conv import (
    at_least_single,
    autocast_dtype,
    convolve,
    convolve_backward,
    transforming,
    without_autocast,
)


def convolve_powers(
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, Q C/G, *k]
    bias: Tensor | None,  # [O]
    *,
    q: int,
    spec: LayerSpec,
) -> Tensor:  # [B, O, *S']
    """b_o + sum_q conv(x^q, W_q)[o], the powers in single precision or better; any order of differentiation.

    Under a transform of torch.func it is composed of torch's operations, which keep the powers.
    """
    if transforming():
        return _composed(x, weight, bias, q, spec, autocast_dtype(x, weight) or weight.dtype)
    result: Tensor = _PowerConvolution.apply(x, weight, bias, q, spec)
    return result


def powers(
    x: Tensor,  # [B, C, *S]
    q: int,
    *,
    groups: int = 1,
) -> Tensor:  # [B, G Q C/G, *S]
    """x, x^2 .. x^q of each group's channels, group by group: a grouped convolution sees its own channels only."""
    grouped = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    terms = [grouped]
    for _ in range(q - 1):
        terms.append(terms[-1] * grouped)
    return torch.cat(terms, dim=2).flatten(1, 2)


def _composed(x: Tensor, weight: Tensor, bias: Tensor | None, q: int, spec: LayerSpec, dtype: torch.dtype) -> Tensor:
    with without_autocast(x):
        terms = powers(at_least_single(x), q, groups=spec.groups).to(dtype)
        return convolve(terms, weight.to(dtype), spec=spec, bias=None if bias is None else bias.to(dtype))


class _PowerConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, q: int, spec: LayerSpec) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.q, ctx.spec, ctx.dtype = q, spec, autocast_dtype(x, weight) or weight.dtype
        return tiles.apply(lambda part: _composed(part, weight, bias, q, spec, ctx.dtype), x, at_once=tiles.samples(x))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        total: Tensor | None = None

        def grad_of(x: Tensor, grad: Tensor) -> Tensor:
            """To a few samples of x; adds to the total of the weight's."""
            nonlocal total
            base = at_least_single(x)
            terms = powers(base, ctx.q, groups=ctx.spec.groups).to(ctx.dtype)
            grad_terms, grad_weight = convolve_backward(
                grad, terms, weight.to(ctx.dtype), spec=ctx.spec, needs=(needs_x, needs_weight)
            )
            if grad_weight is not None:
                grad_weight = grad_weight.to(weight.dtype)
                total = grad_weight if total is None else total + grad_weight
            if grad_terms is None:
                return x[:, :0]
            return _through_powers(grad_terms.to(base.dtype), base, ctx.q, ctx.spec.groups).to(x.dtype)

        with without_autocast(x):
            grad_x = None
            if needs_x or needs_weight:
                grad_x = tiles.apply(grad_of, x, grad, at_once=tiles.samples(x))
            grad_bias = grad.to(weight.dtype).flatten(2).sum((0, 2)) if needs_bias else None
        return grad_x if needs_x else None, total, grad_bias, None, None


def _through_powers(grad_terms: Tensor, x: Tensor, q: int, groups: int) -> Tensor:
    """sum_q q x^(q-1) g_q, by Horner's rule from the highest power down."""
    inputs = x.shape[1] // groups
    parts = grad_terms.reshape(x.shape[0], groups, q, inputs, *x.shape[2:]).unbind(2)
    grouped = x.reshape(x.shape[0], groups, inputs, *x.shape[2:])
    total = q * parts[-1]
    for power in range(q - 1, 0, -1):
        total = torch.add(total * grouped, parts[power - 1], alpha=power)
    return total.reshape(x.shape)
