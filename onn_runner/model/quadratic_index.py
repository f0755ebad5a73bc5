"""How far quadratic neurons are from linear ones: the share of their variance that no linear function of x explains.

With independent x of variance s and fourth moment m, x^T Q x has the variance
(m - s^2) sum_i Q_ii^2 + s^2 sum_{i<j} (Q_ij + Q_ji)^2, and is uncorrelated with x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from onn_runner.model import padding, quadratic_matrix
from onn_runner.model.quadratic_types import squared

if TYPE_CHECKING:
    from onn_runner.model.quadratic_layer import QuadraticLayer

S, M = 1 / 3, 1 / 5
"""Of x uniform on [-1, 1]."""
SQUARES = M - S * S
"""The variance of x^2."""


@torch.no_grad()
def nonlinearity(layer: QuadraticLayer) -> float:
    """Weights as they are, x uniform on [-1, 1]; over the phases of a transposed layer variances are summed."""
    rows = {branch: _row(layer, branch) for branch in layer.convolutions}
    some = next(iter(rows.values()))
    diagonal = rows.get("square", torch.zeros_like(some))
    linear = rows.get("linear", torch.zeros_like(some))
    mixed = torch.zeros_like(some[..., 0])
    signed = _as_squares(layer, rows)
    if signed is not None:
        factors, signs = signed
        gram = torch.einsum("jpok,hpok->jhpo", factors, factors)
        of_squares = (signs.unsqueeze(-1) * factors.square()).sum(0)
        diagonal = diagonal + of_squares
        mixed = 2 * (torch.einsum("jpo,hpo,jhpo->po", signs, signs, gram.square()) - of_squares.square().sum(-1))
    if layer.formula.multiplies:
        linear = linear + _shift(layer, "b") * rows["a"] + _shift(layer, "a") * rows["b"]
    for place, name in enumerate(squared(layer.branches)):
        assert signed is not None
        linear = linear + 2 * _shift(layer, name) * signed[1][place].unsqueeze(-1) * rows[name]
    if "matrix" in layer.branches:
        triangle, places = _triangle(layer), quadratic_matrix.diagonal(layer.fan_in)
        squares = triangle[:, places]
        diagonal = diagonal + squares
        mixed = mixed + triangle.square().sum(1) - squares.square().sum(1)
    quadratic = SQUARES * diagonal.square().sum(-1) + S * S * mixed
    total = quadratic + S * linear.square().sum(-1)
    return float((quadratic.sum() / total.sum()).clamp(0, 1)) if total.sum() > 0 else 0.0


def _as_squares(layer: QuadraticLayer, rows: dict[str, Tensor]) -> tuple[Tensor, Tensor] | None:
    """What is multiplied as signed squares [J, phases, O, K] and signs [J, phases, O]: ab = (a+b)^2/4 - (a-b)^2/4."""
    if layer.formula.multiplies:
        factors = torch.stack([rows["a"] + rows["b"], rows["a"] - rows["b"]]) / 2
        signs = torch.ones_like(factors[..., 0])
        signs[1] = -1
        return factors, signs
    names = squared(layer.branches)
    if not names:
        return None
    factors = torch.stack([rows[name] for name in names])
    signs = torch.ones_like(factors[..., 0])
    for place, name in enumerate(names):
        learned = layer.signs()[name]
        if learned is not None:
            signs[place] = learned.detach().cpu().double()
        if name in layer.subtracted:
            signs[place] *= -1
    return factors, signs


def _shift(layer: QuadraticLayer, factor: str) -> Tensor:  # [O, 1]
    """What is added to the factor, its norm's shift among it."""
    shift = torch.zeros(layer.spec.out_channels, dtype=torch.float64)
    own = layer.factor_shift(factor)
    if own is not None:
        shift = shift + own.cpu().double()
    if factor in layer.norms:
        norm = layer.norms[factor].bias
        assert isinstance(norm, Tensor)
        shift = shift + norm.cpu().double()
    return shift.unsqueeze(1)


def _row(layer: QuadraticLayer, branch: str) -> Tensor:  # [phases, O, C/G k^d]
    """The branch's weights, one row a neuron, as a fresh batch norm would scale them; 0 where a phase sees none."""
    row = layer.weight_of(branch).detach().cpu().double().flatten(1)
    seen = row * padding.shares(layer.spec).repeat(1, layer.weight_shape[1]).unsqueeze(1)
    variance = (SQUARES if branch == "square" else S) * seen.square().sum(-1, keepdim=True).mean(0)
    if branch == "square":
        # the means of squares differ from phase to phase
        variance = variance + S * S * seen.sum(-1, keepdim=True).var(0, correction=0)
    return seen * _scale(layer, branch, variance)


def _triangle(layer: QuadraticLayer) -> Tensor:  # [O, K (K + 1) / 2]
    triangle = layer.weight_of("matrix").detach().cpu().double()
    squares = triangle[:, quadratic_matrix.diagonal(layer.fan_in)].square().sum(1, keepdim=True)
    others = triangle.square().sum(1, keepdim=True) - squares
    return triangle * _scale(layer, "matrix", SQUARES * squares + S * S * others)


def _scale(layer: QuadraticLayer, branch: str, variance: Tensor) -> Tensor:  # [O, 1]
    """What a batch norm multiplies a branch of that variance with; 1 without."""
    if branch not in layer.norms:
        return torch.ones_like(variance)
    weight = layer.norms[branch].weight
    assert isinstance(weight, Tensor)
    return weight.detach().cpu().double().unsqueeze(1) / variance.sqrt().clamp_min(1e-30)
