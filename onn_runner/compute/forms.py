"""psi(w, x) = f(w x): the slope f' of such operators of the catalogue, and by what those that rise order the taps.

Known for these classes only, and not for what derives from them: nothing is assumed of an operator of the user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onn_runner.ops import gop, nodal
from onn_runner.ops.base import Nodal


@dataclass(frozen=True)
class Form:
    """An operator psi(w, x) = f(z), z = w x."""

    slope: Callable[[Any, Tensor], Tensor]
    """(operator, z) -> f'(z), or something that broadcasts to it."""
    key: Callable[[Tensor], Tensor] | None = None
    """z -> a number v of which f is a rising function, with f(v) = f(z); None where f falls somewhere."""


def _cosh(z: Tensor) -> Tensor:
    """cosh by exp, which is vectorised; halved before it is squared, so that it overflows where cosh does."""
    root = torch.exp(z.abs() * 0.5)
    return root * (root * 0.5) + 0.5 / (root * root)


def _clipped(z: Tensor) -> Tensor:
    return z.clamp(-gop.LIMIT, gop.LIMIT)


FORMS: dict[type[Nodal], Form] = {
    nodal.Multiply: Form(lambda psi, z: z.new_ones(()), lambda z: z),
    nodal.Sine: Form(lambda psi, z: torch.cos(psi.k * z) * psi.k),
    nodal.Exponential: Form(lambda psi, z: torch.exp(z), lambda z: z),
    nodal.Sinh: Form(lambda psi, z: _cosh(psi.k * z) * psi.k, lambda z: z),
    gop.Exponential: Form(lambda psi, z: torch.exp(_clipped(z)) * (z.abs() <= gop.LIMIT), _clipped),
}


def form(psi: Nodal) -> Form | None:
    """What is known of the operator."""
    return FORMS.get(type(psi))
