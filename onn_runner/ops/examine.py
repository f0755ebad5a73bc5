"""What an operator has to be, tried on a grid of w and x: torch functions of both that give a gradient, elementwise."""

from __future__ import annotations

import functools
import traceback
from functools import lru_cache

import torch
from torch import Tensor

from onn_runner.errors import ConfigError, OnnRunnerError
from onn_runner.ops.base import FunctionNodal, Nodal

POINTS = 24


def describe(nodal: Nodal) -> str:
    """An operator by its class and parameters, or by its function's name."""
    if not isinstance(nodal, FunctionNodal):
        return f"the operator {nodal!r}"
    function = nodal.function
    while isinstance(function, functools.partial):
        function = function.func
    return f"the operator {getattr(function, '__name__', type(function).__name__)}"


def examine(nodal: Nodal, bound: float) -> None:
    """Raise ConfigError for an operator that fails, is random, is not elementwise, or from which weights cannot learn.

    Whether its values are finite and of the right shape is seen by `calibrate`.
    """
    try:
        _examine_once(nodal, bound)
    except TypeError:  # not hashable
        _examine(nodal, bound)


def evaluate(nodal: Nodal, w: Tensor, x: Tensor) -> Tensor:
    """psi(w, x); what a user's formula raises becomes one sentence that names its line."""
    try:
        values: Tensor = nodal(w, x)
    except (OnnRunnerError, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = (str(error).splitlines() or [""])[0]
        raise ConfigError(
            f"{describe(nodal)} failed with {type(error).__name__}: {what} ({last.filename}, line {last.lineno}); "
            "correct its formula"
        ) from error
    return values


def _examine(nodal: Nodal, bound: float) -> None:
    grid = torch.linspace(-1.0, 1.0, POINTS, dtype=torch.float64)
    w = (bound * grid)[:, None].expand(-1, POINTS).clone().requires_grad_()
    x = grid.flip(0)[None].expand(POINTS, -1).clone().requires_grad_()
    with torch.enable_grad():
        values = evaluate(nodal, w, x)
        if not isinstance(values, Tensor) or values.shape != w.shape:
            return
        found = torch.autograd.grad(values.sum(), w, allow_unused=True)[0] if values.requires_grad else None
    if found is None or not bool(found.any()):
        raise ConfigError(
            f"{describe(nodal)} has no gradient to w, so that its weights cannot learn; write it with differentiable "
            "torch functions of w, without detach, item, numpy, round or integers"
        )
    with torch.no_grad():
        # values of one pair may differ in the last bits with the place that it has in a tensor
        bound_of_rounding = 1e-6 * float(values.detach().abs().nan_to_num(posinf=0.0).max())
        if not _same(values, evaluate(nodal, w.detach(), x.detach()), bound_of_rounding):
            raise ConfigError(f"{describe(nodal)} gives other values each time; an operator is a function of w and x")
        for part in (slice(None, POINTS // 3), slice(POINTS // 3, None)):
            again = evaluate(nodal, w.detach()[:, part], x.detach()[:, part])
            if not _same(values[:, part], again, bound_of_rounding):
                raise ConfigError(
                    f"{describe(nodal)} depends on more than its own w and x, such as a mean or a maximum of the "
                    "tensor; write it with elementwise functions"
                )


_examine_once = lru_cache(maxsize=256)(_examine)


def _same(one: Tensor, other: Tensor, bound: float) -> bool:
    return bool(torch.isclose(one.double(), other.double(), rtol=1e-6, atol=bound, equal_nan=True).all())
