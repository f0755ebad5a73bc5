"""Activations against their formulas, and their ranges against what they give."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from onn_runner.errors import ConfigError
from onn_runner.model.activation import EXCLUDED, moments, named, names

X = torch.linspace(-30, 30, 601, dtype=torch.float64)

FORMULAS = {
    "tanh": lambda x: (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x)),
    "lincut": lambda x: torch.where(x > 10, 1.0, torch.where(x < -10, -1.0, x / 10)),
    "relu": lambda x: x * (x > 0),
    "leaky_relu": lambda x: torch.where(x > 0, x, 0.01 * x),
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "identity": lambda x: x,
    "none": lambda x: x,
    "linear": lambda x: x,
    "soft_linear": lambda x: torch.log(1 + torch.exp(x)),
    "inverse_absolute": lambda x: x / (1 + x.abs()),
    "exp_linear": lambda x: torch.where(x >= 0, x, torch.exp(x) - 1),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name: str) -> None:
    # torch's softplus is x itself above 20: 2e-9 off.
    torch.testing.assert_close(named(name)(X), FORMULAS[name](X), rtol=1e-12, atol=3e-9)


@pytest.mark.parametrize("name", names())
def test_every_name_gives_values_within_its_bound(name: str) -> None:
    value: Tensor = named(name).double()(X)
    assert value.shape == X.shape
    bound = named(name).bound
    if bound is None:
        assert value.abs().max() > 15, "without a bound, so it must grow"
    else:
        assert bound[0] - 1e-12 <= value.min()
        assert value.max() <= bound[1] + 1e-12


def test_torch_class_names_in_any_case_and_none() -> None:
    torch.testing.assert_close(named("GELU")(X), torch.nn.GELU()(X))
    torch.testing.assert_close(named("gelu")(X), torch.nn.GELU()(X))
    torch.testing.assert_close(named(None)(X), X)
    assert not EXCLUDED & set(names())


def test_unknown_name_gives_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"unknown activation 'tanhh'. Did you mean tanh"):
        named("tanhh")
    with pytest.raises(ConfigError, match="unknown activation 'Softmax'"):
        named("Softmax")


@pytest.mark.parametrize(("name", "second", "fourth"), [("identity", 1.0, 3.0), ("relu", 0.5, 1.5)])
def test_moments_of_a_normal_variable(name: str, second: float, fourth: float) -> None:
    assert math.isclose(moments(name)[0], second, rel_tol=1e-3)
    assert math.isclose(moments(name)[1], fourth, rel_tol=1e-3)
