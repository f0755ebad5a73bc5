"""Activations f by name, each with the range its values lie in (the next layer's `input_bound`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onn_runner.errors import unknown

Bound = tuple[float, float]

EXCLUDED = frozenset(
    {"Threshold", "RReLU", "GLU", "MultiheadAttention", "Softmin", "Softmax", "Softmax2d", "LogSoftmax"}
)
"""torch activations that are not a map of one number to one number, need arguments or draw random numbers."""


@dataclass(frozen=True)
class _Entry:
    make: Callable[[], nn.Module]
    bound: Bound | None = None


class _Function(nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Activation(nn.Module):
    """An elementwise f that knows its name and its range; `bound` is None where one side is open."""

    def __init__(self, name: str, function: nn.Module, bound: Bound | None) -> None:
        super().__init__()
        self.name = name
        self.function = function
        self.bound = bound

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.function(x)
        return result

    def extra_repr(self) -> str:
        return f"{self.name}, bound={self.bound}"


def lincut(x: Tensor) -> Tensor:
    """clamp(x / 10, -1, 1). Source: Kiranyaz et al., Operational Neural Networks (2020)."""
    return torch.clamp(x / 10, -1.0, 1.0)


def soft_linear(x: Tensor) -> Tensor:
    """log(1 + e^x). Source: Tran et al., Heterogeneous Multilayer Generalized Operational Perceptron (2019)."""
    return F.softplus(x)


def inverse_absolute(x: Tensor) -> Tensor:
    """x / (1 + |x|). Source: as soft_linear."""
    return F.softsign(x)


def exp_linear(x: Tensor) -> Tensor:
    """x for x >= 0, e^x - 1 below. Source: as soft_linear."""
    return F.elu(x)


def _function(function: Callable[[Tensor], Tensor], bound: Bound | None = None) -> _Entry:
    return _Entry(functools.partial(_Function, function), bound)


_OWN: dict[str, _Entry] = {
    "tanh": _Entry(nn.Tanh, (-1.0, 1.0)),
    "lincut": _function(lincut, (-1.0, 1.0)),
    "relu": _Entry(nn.ReLU),
    "leaky_relu": _Entry(nn.LeakyReLU),
    "sigmoid": _Entry(nn.Sigmoid, (0.0, 1.0)),
    "identity": _Entry(nn.Identity),
    "none": _Entry(nn.Identity),
    "linear": _Entry(nn.Identity),
    "soft_linear": _function(soft_linear),
    "inverse_absolute": _function(inverse_absolute, (-1.0, 1.0)),
    "exp_linear": _function(exp_linear),
}

_TORCH_BOUNDS: dict[str, Bound] = {
    "Tanh": (-1.0, 1.0),
    "Sigmoid": (0.0, 1.0),
    "Hardtanh": (-1.0, 1.0),
    "Hardsigmoid": (0.0, 1.0),
    "ReLU6": (0.0, 6.0),
    "Softsign": (-1.0, 1.0),
}


@functools.cache
def _table() -> dict[str, _Entry]:
    """Our names, then every torch.nn activation by its class name and by that name in lower case."""
    torch_entries: dict[str, _Entry] = {}
    for name in torch.nn.modules.activation.__all__:
        made: type[nn.Module] = getattr(nn, name)
        if name not in EXCLUDED and issubclass(made, nn.Module):
            entry = _Entry(made, _TORCH_BOUNDS.get(name))
            torch_entries[name] = torch_entries[name.lower()] = entry
    return torch_entries | {"Identity": _OWN["identity"]} | _OWN


def names() -> list[str]:
    """Every name that `named` knows, once: our names and torch's class names."""
    return sorted(name for name in _table() if name in _OWN or not name.islower())


def named(name: str | None) -> Activation:
    """The activation of that name; None is the identity.

    Raises ConfigError for an unknown name.
    """
    key = "identity" if name is None else str(name)
    entry = _table().get(key)
    if entry is None:
        raise unknown("activation", key, names())
    shown = "identity" if key in ("none", "linear", "Identity") else key
    return Activation(shown, entry.make(), entry.bound)


@functools.cache
def moments(name: str | None) -> tuple[float, float]:
    """E f(z)^2 and E f(z)^4 for z of the unit normal distribution: what the next layer's initial weights divide by."""
    z = torch.linspace(-8.0, 8.0, 4001, dtype=torch.float64)
    density = torch.exp(-z * z / 2)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        value = named(name).double()(z)
    share = density / density.sum()
    return float((share * value**2).sum()), float((share * value**4).sum())
