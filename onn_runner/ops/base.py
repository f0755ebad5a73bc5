"""What an operational neuron computes: y_o(p) = f(A_o sum_c P_t psi(w[o,c,t], x[c,p+t]) + b_o).

Letters used in shape comments all over the package:

    B batch    C input channels    O output channels (neurons)    G groups    S spatial axes (1 to 3)
    k kernel size, one number per axis    T = prod(k) taps    L output positions
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

Parity = Literal["odd", "even"]


@dataclass(frozen=True, kw_only=True)
class Nodal:
    """The nodal operator psi(w, x): elementwise, broadcasting, any floating dtype, differentiable by autograd.

    A subclass implements `__call__` in torch; everything else is optional. `omega` is the half-width of the initial
    range of `scale * w`: it sets how non-linear a fresh neuron is. `parity` is a hint (psi odd or even in x) that the
    computation confirms by probing before it relies on it.
    """

    parity: ClassVar[Parity | None] = None
    own_backward: ClassVar[bool] = False
    """True where `__call__` customises its gradient: such an operator is served by exact kernels only."""

    omega: float = 1.0

    def __call__(
        self,
        w: Tensor,  # broadcastable against x
        x: Tensor,
    ) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not implement psi(w, x)")

    @property
    def scale(self) -> float:
        """The factor on w inside the non-linearity: the initial weights are uniform in +-omega/scale."""
        return 1.0

    @property
    def weight_bound(self) -> float:
        """Half-width of the initial weights, omega / scale."""
        return self.omega / self.scale


@dataclass(frozen=True, kw_only=True)
class FunctionNodal(Nodal):
    """A plain function psi(w, x) as an operator: what a user's one-line function becomes."""

    function: Callable[..., Tensor]

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return self.function(w, x)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The pool P over the psi values of one input channel's taps."""

    scale_by_taps: bool = False
    """Multiply by the number of taps: what FastONN's median and maximum mean."""

    name: ClassVar[str] = ""

    def __call__(
        self,
        values: Tensor,
        dim: int,  # the axis of the T taps, in raster order; it is removed
    ) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not pool")


def as_nodal(value: Any) -> Nodal:
    """`value` itself when it is a Nodal; a FunctionNodal around any other callable."""
    if isinstance(value, Nodal):
        return value
    if callable(value) and not isinstance(value, torch.nn.Module):
        return FunctionNodal(function=value)
    raise TypeError(f"an operator is a Nodal or a function psi(w, x), not {type(value).__name__}")
