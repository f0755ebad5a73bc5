"""The gradients of products of convolutions, which compute again what was not kept; torch's own operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from onn_runner.model import tiles
from onn_runner.model.conv import at_least_single, convolve_backward
from onn_runner.model.products_forward import (
    Form,
    Operands,
    Statistics,
    along_channels,
    convolved,
    normed,
    normed_by_batch,
    shifted,
)


def channel_sum(values: Tensor) -> Tensor:  # [O]
    return values.flatten(2).sum((0, 2))


class Backward:
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
            self._add("base", "", channel_sum(grad))
        made = kept or [convolved(x, name, self.form, self.own, self.dtype) for name in self.form.needed]
        z = {
            name: shifted(value, name, self.form, self.own, self.dtype)
            for name, value in zip(self.form.needed, made, strict=True)
        }
        grads = self._through_product(z, grad)
        for name in self.form.branches:
            if self.form.normed:
                grads[name] = self._through_norm(z.pop(name), grads[name], name)
            elif self.wanted.shifts[name]:
                self._add("shifts", name, channel_sum(grads[name]))
        return list(grads.values())

    def of_operands(self) -> tuple[Tensor | None, ...]:
        """In the order of `Operands.flat`, of the operands' types."""
        columns = ("weights", "shifts", "scales", "means", "variances", "signs")
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
        if "b" in self.form.branches:
            grads["a"], grads["b"] = (grad * self._response(z[name], name) for name in ("b", "a"))
        for name in self.form.squared:
            factor, sign = self._response(z[name], name), self.own.signs[name]
            grads[name] = (-2 if name in self.form.subtracted else 2) * grad * factor
            if sign is None:
                continue
            if self.wanted.signs[name]:
                self._add("signs", name, channel_sum(grad * factor.square()))
            grads[name] = grads[name] * along_channels(sign, grad)
        return grads

    def _response(self, z: Tensor, name: str) -> Tensor:
        """What the branch contributes to the product."""
        if not self.form.normed:
            return z
        if not self.form.training:
            return normed(z, name, self.own, self.own.means[name], self.own.variances[name], self.form.eps)
        if torch.is_grad_enabled():  # the statistics depend on x
            return normed_by_batch(z, name, self.form, self.own)[0]
        mean, inverse = self.statistics[name]
        return normed(z, name, self.own, mean, inverse.pow(-2), 0.0)

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
