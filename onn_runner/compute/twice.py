"""Gradients that can be differentiated again: the fast backward pass of a layer with an exact one behind it.

What is behind it is the layer's definition on small tiles and its derivatives by autograd, one order after another as
they are asked for; only what a tile needs is held at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from onn_runner.compute.base import Block, Call
from onn_runner.compute.geometry import inserted, output_size, patches, taps
from onn_runner.compute.strategy import strategy
from onn_runner.compute.tiles import batches, tiles, windows
from onn_runner.errors import RunError, out_of_memory

Backward = Callable[[Any, Tensor], tuple[Tensor | None, ...]]
OfTile = Callable[..., tuple[Tensor, ...]]
"""(block, tensors of a tile) -> tensors of a tile, by operations that autograd can follow."""

VALUES = 1 << 18
"""Values of psi in a tile, over all taps; autograd keeps several tensors of that size."""


def twice(backward: Backward) -> Backward:
    """A `backward` that runs as it is, without a graph, and whose results can be differentiated any number of times.

    For a function applied to (x, weight, gain, bias, call, ...) that sets ctx.call, saves x, weight and gain first, and
    computes A_o sum_c P_t psi(w, x) + b_o. The gain has no gradient.
    """

    @wraps(backward)
    def run(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled():
            return backward(ctx, grad)
        with torch.no_grad():
            found = [*backward(ctx, grad)]
        x, weight, gain = ctx.saved_tensors[:3]
        if found[3] is not None:
            found[3] = grad.sum((0, *range(2, grad.dim())))
        if gain is not None:
            grad = grad * gain.view(-1, *(1,) * (grad.dim() - 2))
        known = [index for index in range(2) if found[index] is not None]
        order = _Order(ctx.call, _definition(ctx.call), "xw", "y").pulled_back(known)
        results = _Tilewise.apply(order, [found[index] for index in known], x, weight, grad)
        for index, result in zip(known, results, strict=True):
            found[index] = result
        return tuple(found)

    return run


@dataclass(frozen=True)
class _Order:
    """A derivative of a layer, by that of its tiles: which kinds of tensors it takes and gives (see Tile.of)."""

    call: Call
    of_tile: OfTile
    given: str
    """Begins with x and the weight."""
    wanted: str

    def pulled_back(self, needed: Sequence[int]) -> _Order:
        """The next order: also given the gradients to what this one gives, those to what it is given at `needed`."""
        return replace(
            self,
            of_tile=_pulled_back(self.of_tile, len(self.given), needed),
            given=self.given + self.wanted,
            wanted="".join(self.given[index] for index in needed),
        )

    def compute(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Tile by tile, summed in float64."""
        x, weight = tensors[:2]
        shapes = {
            "x": x.shape,
            "w": weight.shape,
            "y": (len(x), len(weight), *output_size(self.call, x, weight)),
        }
        totals = [x.new_zeros(shapes[kind], dtype=torch.float64) for kind in self.wanted]
        values = VALUES // taps(weight)
        for samples in batches(self.call, x, weight, values):
            for window in windows(self.call, x, weight, samples, values):
                for tile in tiles(self.call, len(weight), window, values):
                    parts = [tile.of(kind, tensor) for kind, tensor in zip(self.given, tensors, strict=True)]
                    for kind, total, found in zip(self.wanted, totals, self.of_tile(tile.block, *parts), strict=True):
                        tile.of(kind, total).add_(found)
        return tuple(total.to(x.dtype) for total in totals)


class _Tilewise(torch.autograd.Function):
    """An order of a layer's derivatives, which can be differentiated: that is the next order."""

    @staticmethod
    def forward(ctx: Any, order: _Order, known: list[Tensor] | None, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)
        ctx.order = order
        if known is not None:
            return tuple(result.view_as(result) for result in known)
        with torch.autocast(tensors[0].device.type, enabled=False):
            return order.compute(tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        needed = [index for index, need in enumerate(ctx.needs_input_grad[2:]) if need]
        results: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        found = _Tilewise.apply(ctx.order.pulled_back(needed), None, *ctx.saved_tensors, *grads)
        for index, result in zip(needed, found, strict=True):
            results[2 + index] = result
        return tuple(results)


def _definition(call: Call) -> OfTile:
    """sum_c P_t psi(w, x) on a tile."""

    def of_tile(block: Block, x: Tensor, weight: Tensor) -> tuple[Tensor]:  # [c, b, *S], [o, c, *k] -> [o, b, *S']
        kernel, size = tuple(weight.shape[2:]), tuple(x.shape[2:])
        sizes = output_size(call, x, weight)
        mask = None
        if call.transposed:
            index, mask = inserted(call, kernel, size, x.device)
            seen, mask = x.flatten(2)[:, :, index].permute(2, 0, 1, 3).flatten(2), mask.repeat(1, x.shape[1])
        else:
            seen = patches(call, x, kernel, sizes).flatten(2)
        w = weight.flatten(2).permute(2, 0, 1)[..., None]
        values = strategy(call.pool, taps(weight)).pooled(block.nodal, w, seen[:, None], mask)
        return (values.sum(1).view(len(weight), -1, *sizes),)

    return of_tile


def _pulled_back(of_tile: OfTile, count: int, needed: Sequence[int]) -> OfTile:
    """The gradients to the needed ones of the `count` inputs, from the inputs and the gradients to the outputs."""

    def pulled(block: Block, *tensors: Tensor) -> tuple[Tensor, ...]:
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            # fresh ones, since two inputs may be one tensor
            inputs = [
                t.view_as(t) if again and t.requires_grad else t.detach().requires_grad_() for t in tensors[:count]
            ]
            results = of_tile(block, *inputs)
            pairs = [pair for pair in zip(results, tensors[count:], strict=True) if pair[0].requires_grad]
            wanted = [inputs[index] for index in needed]
            found: Sequence[Tensor | None] = [None] * len(wanted)
            if pairs and wanted:
                found = _gradients(block, pairs, wanted, again)
        return tuple(torch.zeros_like(i) if f is None else f for i, f in zip(wanted, found, strict=True))

    return pulled


def _gradients(
    block: Block,
    pairs: Sequence[tuple[Tensor, Tensor]],  # values, and the gradients to them
    wanted: Sequence[Tensor],
    again: bool,
) -> Sequence[Tensor | None]:
    values, upstream = zip(*pairs, strict=True)
    try:
        found = torch.autograd.grad(values, wanted, upstream, create_graph=again, allow_unused=True)
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        raise _once(block) from error
    if again and _forbidden(found):
        raise _once(block)
    return found


def _forbidden(results: Sequence[Tensor | None]) -> bool:
    """Whether torch marked a result as one that must not be differentiated.

    It raises when that mark is reached on the way to a leaf, but goes past it on the way to chosen tensors.
    """
    waiting = [result.grad_fn for result in results if result is not None]
    seen: set[torch.autograd.graph.Node] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if node.name().endswith("autograd::Error"):
            return True
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
    return False


def _once(block: Block) -> RunError:
    return RunError(
        f"the operator {block.name} cannot be differentiated again, as a gradient penalty does, since its own backward "
        "rule cannot; write that rule with operations that torch can differentiate"
    )
