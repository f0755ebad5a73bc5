"""Backward passes that cannot be differentiated again, and say so when they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from onn_runner.errors import RunError

Backward = Callable[[Any, Tensor], tuple[Tensor | None, ...]]


def once(backward: Backward) -> Backward:
    """A `backward` without a graph of its own; differentiating its results raises RunError.

    torch's own decorator lets them pass as constants where the incoming gradient is one: a gradient penalty would be
    silently lost.
    """

    @wraps(backward)
    def run(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        again = torch.is_grad_enabled()
        with torch.no_grad():
            results = backward(ctx, grad)
        if not again:
            return results
        anchors = [t for t in (grad, *ctx.saved_tensors) if t is not None and t.requires_grad]
        return tuple(None if result is None else _Refusal.apply(result, *anchors) for result in results)

    return run


class _Refusal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Tensor, *anchors: Tensor) -> Tensor:
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        raise RunError(
            "an operational layer computed by chebyshev or tapwise cannot be differentiated twice, as a gradient "
            "penalty does; use compute=reference"
        )
