"""The first weights of quadratic neurons: unit variance in equal parts of each term, or a first-order neuron."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from onn_runner.model import padding, quadratic_matrix
from onn_runner.model.base import Unrepresentable
from onn_runner.model.conv import fill_uniform, input_moments
from onn_runner.model.quadratic_types import is_factor, names_with, squared

if TYPE_CHECKING:
    from onn_runner.model.quadratic_layer import QuadraticLayer

SMALL = 1e-4
"""The variance of the convolution behind a square that nothing cancels, in a start near the first order."""


@torch.no_grad()
def balanced(layer: QuadraticLayer) -> None:
    """Unit variance in equal parts from each term; the bias takes away the means of squares."""
    variances = _variances(layer)
    for branch in layer.branches:
        _fill(layer, branch, variances[branch])
    for branch, norm in layer.norms.items():
        assert isinstance(norm.weight, nn.Parameter)
        norm.weight.fill_(math.sqrt(variances[branch]))
    if layer.bias is None:
        return
    for branch in squared(layer.branches):
        layer.bias.sub_(layer.turns[branch] * variances[branch])
    second, _ = _moments(layer)
    for branch in ("square", "matrix"):
        if branch in layer.branches and branch not in layer.norms:
            squares = layer.weight_of(branch)
            if branch == "matrix":
                squares = squares[:, quadratic_matrix.diagonal(layer.fan_in)]
            layer.bias.sub_(second / padding.phases(layer.spec) * squares.flatten(1).sum(1))


def _variances(layer: QuadraticLayer) -> dict[str, float]:
    """Of each convolution and of x^T W x, so that the whole has 1.

    A product of independent factors has the product of their variances, the square of a normal variable twice its
    squared variance, and a (b + 1) that of a besides.
    """
    formula, branches = layer.formula, layer.branches
    shared = len(formula.terms) - formula.multiplies
    found = dict.fromkeys(branches, 1 / shared)
    if formula.factor_biases or formula.unit:
        found = dict.fromkeys(branches, 1 / (shared + 1)) | {"b": 1.0}
    elif formula.multiplies:
        found["a"] = found["b"] = math.sqrt(1 / shared)
    rows = squared(branches)
    return found | dict.fromkeys(rows, math.sqrt(1 / (2 * shared * max(len(rows), 1))))


def _moments(layer: QuadraticLayer) -> tuple[float, float]:
    return input_moments(layer.spec, layer.own_activation)


def _fill(layer: QuadraticLayer, branch: str, variance: float) -> None:
    """Weights with which the branch has that variance."""
    second, fourth = _moments(layer)
    count = layer.reads
    each = count * second
    if branch == "square":
        each = count * (fourth - second**2)
    elif branch == "matrix":
        each = count * (fourth - second**2) + count * (count - 1) / 2 * second**2
    fill_uniform(layer.weight_of(branch), variance / each)


def relinear(layer: QuadraticLayer) -> None:
    """A first-order neuron exactly, with weights of its own; no product is dead, since one factor is not 0."""
    weight = torch.empty(layer.weight_shape)
    fill_uniform(weight, 1 / (layer.reads * _moments(layer)[0]))
    load_first_order(layer, weight, None, near=False)


@torch.no_grad()
def load_first_order(layer: QuadraticLayer, weight: Tensor, bias: Tensor | None, *, near: bool) -> None:
    """As `Layer.load_first_order`: the other terms become 0, their first gradients not all.

    Bit for bit where the bias belongs to the convolution itself: t2_4 and t4 take it as the factor's, the types with
    a linear term as that one's. qres adds it afterwards, which may round the last digit differently.
    """
    layer.check_first_order(weight, bias)
    _check(layer, near)
    offset = torch.zeros(layer.spec.out_channels) if bias is None else bias
    carrier = layer.formula.first_order
    for branch in layer.branches:
        if branch == carrier:
            layer.weight_of(branch).copy_(weight)
        elif is_factor(branch) and branch != "b":
            _fill(layer, branch, 1.0 if layer.formula.multiplies else _variances(layer)[branch])
        else:
            layer.weight_of(branch).zero_()
    _cancel_squares(layer)
    if layer.formula.factor_biases:
        layer.bias_a.copy_(offset)
        layer.bias_b.fill_(1.0)
        offset = torch.zeros_like(offset)
    if layer.bias is not None:
        layer.bias.copy_(offset)


def _cancel_squares(layer: QuadraticLayer) -> None:
    """Each two rows become equal, and their signs opposite; one that is left over gets a sign of 0, or small."""
    rows = squared(layer.branches)
    for first, second in zip(rows[::2], rows[1::2], strict=False):
        layer.weight_of(second).copy_(layer.weight_of(first))
    layer.reset_signs()
    if len(rows) % 2:
        learned = layer.signs()[rows[-1]]
        if learned is not None:
            learned.zero_()
        else:
            _fill(layer, rows[-1], SMALL)


def _check(layer: QuadraticLayer, near: bool) -> None:
    """Raises Unrepresentable, with what could be done."""
    where = f"layer {layer.spec.index}: {layer.kind}"
    if layer.formula.first_order is None:
        raise Unrepresentable(
            f"{where} has no term of first order: where inputs are small its response is smaller still, so that it is "
            f"no convolution, nor close to one; use model.type={names_with('first_order')}, or "
            "model.type=t4 model.factor_biases=true"
        )
    if layer.norms:
        raise Unrepresentable(
            f"{where} normalises each convolution (model.norm=batch), which changes its scale; use model.norm=none"
        )
    odd = len(squared(layer.branches)) % 2 == 1
    if odd and not near and not any(sign is not None for sign in layer.signs().values()):
        raise Unrepresentable(
            f"{where} adds an odd number of squares with fixed signs, which cannot cancel; use an even model.rank or "
            "model.signs=learned"
        )
