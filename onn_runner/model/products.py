"""y = (A x + a)(B x + b) + L x + S x^2 + c, or a part of it, keeping x, or the convolutions' results, for backward.

Squares with signs may stand in place of the product. Plain autograd keeps the factors: 2 S where S is an output, 5 S
with a batch norm on each convolution. Here backward computes them again. Its formulas are torch's own operations, so
that they can be differentiated again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onn_runner.model import tiles
from onn_runner.model.conv import autocast_dtype, without_autocast
from onn_runner.model.products_backward import Backward
from onn_runner.model.products_forward import (
    Form,
    Operands,
    Statistics,
    combined,
    convolved,
    normed,
    normed_by_batch,
    shifted,
)


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
                z = convolved(x, name, form, own, dtype)
                if form.keeps_convolutions and name in form.needed:
                    kept.append(z)
                z = shifted(z, name, form, own, dtype)
                if form.normed and form.training:
                    z, statistics, batch = normed_by_batch(z, name, form, own)
                    used.extend(statistics)
                    told.extend(batch)
                elif form.normed:
                    z = normed(z, name, own, own.means[name], own.variances[name], form.eps)
                results[name] = z
            return combined(results, own.base, subtracted=form.subtracted, signs=own.signs)

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
        run = Backward(form, Operands.of(flat, form), Operands.of(ctx.needs_input_grad[2:], form), ctx.dtype)
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
