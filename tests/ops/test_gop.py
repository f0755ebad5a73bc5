"""GOP's operators against its formulas, clipping included."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from onn_runner.errors import ConfigError
from onn_runner.ops import Nodal, gop


def clip(value: float) -> float:
    return min(max(value, -10.0), 10.0)


TABLE: dict[str, tuple[Nodal, Callable[[float, float], float]]] = {
    "exp": (gop.Exponential(), lambda w, x: math.exp(clip(w * x)) - 1),
    "quadratic": (gop.Quadratic(), lambda w, x: (w * clip(x)) ** 2),
    "gaussian": (gop.Gaussian(), lambda w, x: w * math.exp(-clip(w * x * x))),
    "dog": (gop.DoG(), lambda w, x: w * x * math.exp(-clip(w * x * x))),
}
VALUES = (-40.0, -11.0, -3.3, -1.0, -0.2, 0.0, 0.4, 1.0, 2.9, 10.0, 12.5, 300.0)


@pytest.mark.parametrize("name", TABLE)
def test_equals_the_formula(name: str) -> None:
    nodal, formula = TABLE[name]
    w = torch.tensor(VALUES, dtype=torch.float64)[:, None]
    x = torch.tensor(VALUES, dtype=torch.float64)
    expected = torch.tensor([[formula(a, b) for b in VALUES] for a in VALUES], dtype=torch.float64)
    # the same double-precision operations but expm1: a few roundings
    torch.testing.assert_close(nodal(w, x), expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", TABLE)
def test_gradcheck_inside_the_clip(name: str) -> None:
    w = torch.tensor([[-1.2], [0.3], [0.0], [1.9]], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([[-2.0, -0.4, 0.0, 0.7, 1.6]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(TABLE[name][0], (w, x))


def test_has_no_slope_beyond_the_clip() -> None:
    w = torch.tensor(4.0, dtype=torch.float64, requires_grad=True)
    x = torch.tensor(20.0, dtype=torch.float64, requires_grad=True)
    for nodal, by_w, by_x in (
        (gop.Exponential(), 0.0, 0.0),
        (gop.Quadratic(), 2 * 4.0 * 100, 0.0),
        (gop.Gaussian(), math.exp(-10), 0.0),
        (gop.DoG(), 20 * math.exp(-10), 4 * math.exp(-10)),
    ):
        slopes = torch.autograd.grad(nodal(w, x), (w, x), allow_unused=True, materialize_grads=True)
        assert [slope.item() for slope in slopes] == pytest.approx([by_w, by_x], rel=1e-12)


@pytest.mark.parametrize("name", TABLE)
def test_parity_hints_are_true(name: str) -> None:
    nodal, _ = TABLE[name]
    w = torch.linspace(-3, 3, 41, dtype=torch.float64)[:, None]
    x = torch.linspace(0, 15, 37, dtype=torch.float64)
    signs = {"odd": -1.0, "even": 1.0}
    parities = {parity for parity, sign in signs.items() if torch.equal(nodal(w, -x), sign * nodal(w, x))}
    assert parities == ({nodal.parity} if nodal.parity else set())


@pytest.mark.parametrize("name", TABLE)
def test_nan_goes_through(name: str) -> None:
    assert TABLE[name][0](torch.tensor(1.0), torch.tensor(math.nan)).isnan()


def test_refuses_a_parameter_out_of_range() -> None:
    with pytest.raises(ConfigError, match="k of the operator Gaussian must be a finite number above 0, not -1"):
        gop.Gaussian(k=-1)
