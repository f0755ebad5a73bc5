"""A layer as one operation that torch.compile does not look into: no graph break, and the numbers of eager mode.

Which expansion serves depends on values, which no compiler knows. The operation is told the number of a Handle, behind
which are the layer's call and memory, and the geometry that its shape depends on.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from onn_runner.compute import convolution
from onn_runner.compute.base import Call, Memory
from onn_runner.compute.choice import KERNELS, decide, perform
from onn_runner.compute.decision import Decision
from onn_runner.compute.geometry import output_size
from onn_runner.errors import RunError
from onn_runner.ops.base import Pool

_NUMBERS = itertools.count(1)
_HANDLES: WeakValueDictionary[int, Handle] = WeakValueDictionary()


class Handle:
    """The number by which an operation finds a layer's call and memory; copies have numbers of their own."""

    def __init__(self, call: Call, memory: Memory) -> None:
        self.call, self.memory = call, memory
        self.decisions: dict[Decision, int] = {}
        self.number = next(_NUMBERS)
        _HANDLES[self.number] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return Handle, (self.call, self.memory)


def run(
    handle: Handle,
    x: Tensor,  # [B, C, *S], padded, in single or double precision
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    *,
    training: bool,
) -> Tensor:  # [B, O, *S']
    """The layer as one operation, which can be differentiated once."""
    call = handle.call
    geometry = list(call.stride), list(call.dilation), call.transposed
    y: Tensor = torch.ops.onn_runner.operational(x, weight, gain, bias, handle.number, training, *geometry)[0]
    return y


_FORWARD = (
    "(Tensor x, Tensor weight, Tensor? gain, Tensor? bias, SymInt handle, bool training, "
    "SymInt[] stride, SymInt[] dilation, bool transposed) -> (Tensor, Tensor)"
)
_BACKWARD = (
    "(Tensor grad, Tensor x, Tensor weight, Tensor? gain, Tensor decided, SymInt handle, bool[] needs) "
    "-> (Tensor, Tensor, Tensor)"
)


@torch.library.custom_op("onn_runner::operational", mutates_args=(), schema=_FORWARD)
def _forward(
    x: Tensor, weight: Tensor, gain: Tensor | None, bias: Tensor | None, handle: int, training: bool, *geometry: Any
) -> tuple[Tensor, Tensor]:
    """The output, and the number of what was decided, int64 [1] on the CPU."""
    layer = _find(handle)
    layer.memory.training = training
    with _as_usual(x), torch.no_grad():
        decision = decide(layer.call, x, weight, gain, layer.memory)
        y = perform(decision, layer.call, x, weight, gain, bias, layer.memory)
    number = layer.decisions.setdefault(decision, len(layer.decisions))
    return y.contiguous(), torch.tensor([number])


@torch.library.custom_op("onn_runner::operational_backward", mutates_args=(), schema=_BACKWARD)
def _backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    gain: Tensor | None,
    decided: Tensor,
    handle: int,
    needs: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients to x, weight and bias; one that is not needed is [0]."""
    layer = _find(handle)
    decision = list(layer.decisions)[int(decided)]
    need_x, need_weight, need_bias = needs
    with _as_usual(x), torch.no_grad():
        if decision.expansion is not None:
            wanted = need_x, need_weight, need_bias
            found = convolution.gradients(
                layer.call, decision.expansion, x.contiguous(), weight, gain, grad.contiguous(), wanted
            )
        else:
            to_bias = grad.sum((0, *range(2, grad.dim()))) if need_bias else None
            found = (*_gradients(layer.call, decision, x, weight, gain, grad, need_x, need_weight), to_bias)
    to_x, to_weight, to_bias = (
        like.new_empty(0) if value is None else value.contiguous()
        for value, like in zip(found, (x, weight, weight), strict=True)
    )
    return to_x, to_weight, to_bias


def _gradients(
    call: Call,
    decision: Decision,
    x: Tensor,
    weight: Tensor,
    gain: Tensor | None,
    grad: Tensor,
    need_x: bool,
    need_weight: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Those of an exact kernel, which is computed again for them."""
    leaves = x.detach().requires_grad_(need_x), weight.detach().requires_grad_(need_weight)
    if not (need_x or need_weight):
        return None, None
    with torch.enable_grad():
        y = KERNELS[decision.kernel].run(call, *leaves, gain, None, Memory())
    found = iter(torch.autograd.grad(y, [leaf for leaf in leaves if leaf.requires_grad], grad, materialize_grads=True))
    return next(found) if need_x else None, next(found) if need_weight else None


def _find(number: int) -> Handle:
    handle = _HANDLES.get(number)
    if handle is None:
        raise RunError(
            "the layer that this compiled operation belongs to is gone: keep the network until backward ends"
        )
    return handle


@contextlib.contextmanager
def _as_usual(x: Tensor) -> Iterator[None]:
    """Autograd and autocast as outside of an operation: kernels and plans differentiate on their own."""
    guard = torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False)
    with guard, torch.autocast(x.device.type, enabled=False):
        yield


@_forward.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    handle: int,
    training: bool,
    stride: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
) -> tuple[Tensor, Tensor]:
    call = Call((), Pool(), tuple(stride), tuple(dilation), transposed=transposed)
    y = x.new_empty((x.shape[0], weight.shape[0], *output_size(call, x, weight)))
    return y, torch.empty(1, dtype=torch.int64, device="cpu")


@_backward.register_fake
def _(
    grad: Tensor, x: Tensor, weight: Tensor, gain: Tensor | None, decided: Tensor, handle: int, needs: Sequence[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    to_x = x.new_empty(x.shape if needs[0] else 0)
    to_weight = weight.new_empty(weight.shape if needs[1] else 0)
    return to_x, to_weight, weight.new_empty(weight.shape[0] if needs[2] else 0)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, gain, _, ctx.handle = inputs[:5]
    ctx.save_for_backward(x, weight, gain, output[1])


def _differentiate(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    needs = [ctx.needs_input_grad[index] for index in (0, 1, 3)]
    found = torch.ops.onn_runner.operational_backward(grad, *ctx.saved_tensors, ctx.handle, needs)
    to_x, to_weight, to_bias = (value if need else None for value, need in zip(found, needs, strict=True))
    return to_x, to_weight, None, to_bias, *(None,) * 5


_forward.register_autograd(_differentiate, setup_context=_keep)


def _one_by_one(operation: Any, info: Any, axes: tuple[int | None, ...], arguments: tuple[Any, ...]) -> Any:
    """An operation on a stack, element by element: what each of them needs depends on its values."""
    found = [
        operation(*(a if axis is None else a.select(axis, index) for a, axis in zip(arguments, axes, strict=True)))
        for index in range(info.batch_size)
    ]
    results = tuple(torch.stack(parts) for parts in zip(*found, strict=True))
    return results, (0,) * len(results)


_forward.register_vmap(partial(_one_by_one, _forward))
_backward.register_vmap(partial(_one_by_one, _backward))
