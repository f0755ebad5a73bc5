"""y = sum over banks of conv(E(x), a(w)) + bias as one autograd function that keeps x and w only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onn_runner.compute import basis, centring, correlation, plain
from onn_runner.compute.base import Call
from onn_runner.compute.coefficients import Samples, kernels, kernels_pull_back
from onn_runner.compute.expansion import Bank, Expansion, banks, factor, matrices
from onn_runner.compute.geometry import output_size, pool_factor, taps

TILE = 1 << 19
"""Basis values of as many samples as this holds are formed at a time: they stay in the cache, and the peak is low.
Larger tiles are up to a tenth faster with two threads, and take two to three times the memory.
"""


def convolve(
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    call: Call,
    expansion: Expansion,
) -> Tensor:  # [B, O, *S']
    """The layer by its expansion, in the precision of x; it can be differentiated any number of times."""
    output: Tensor = _Convolution.apply(x.contiguous(), weight, gain, bias, call, expansion)
    return output


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        gain: Tensor | None,
        bias: Tensor | None,
        call: Call,
        expansion: Expansion,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, gain)
        ctx.call, ctx.expansion = call, expansion
        scale = _scale(call, weight, gain)
        weights, constants = kernels(call, expansion, weight, scale)
        layer = _Layer(call, expansion, banks(expansion, call.groups), weights)
        y = x.new_empty((x.shape[0], weight.shape[0], *output_size(call, x, weight)))
        for start, stop in layer.tiles(x):
            layer.respond(x[start:stop], constants, bias, y[start:stop])
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, gain = ctx.saved_tensors
        call, expansion = ctx.call, ctx.expansion
        needs = ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[3]

        def first() -> plain.Gradients:
            with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
                return gradients(call, expansion, x, weight, gain, grad.contiguous(), needs)

        if torch.is_grad_enabled():
            found = plain.gradients(call, x, weight, gain, expansion, grad, needs, first=first)
        else:
            found = first()
        return found[0], found[1], None, found[2], None, None


def gradients(
    call: Call,
    expansion: Expansion,
    x: Tensor,
    weight: Tensor,
    gain: Tensor | None,
    grad: Tensor,
    needs: tuple[bool, bool, bool],
) -> plain.Gradients:
    need_x, need_weight, need_bias = needs
    # in float64: where psi hardly depends on x, this sum is what the gradient to the weights comes from
    total = grad.sum((0, *range(2, grad.dim())), dtype=torch.float64)
    to_bias = total.to(grad.dtype) if need_bias else None
    if not (need_x or need_weight):
        return None, None, to_bias
    scale = _scale(call, weight, gain)
    kept: list[Samples] = []
    weights, _ = kernels(call, expansion, weight, scale, kept if need_weight else None)
    layer = _Layer(call, expansion, banks(expansion, call.groups), weights)
    # in float64, since a batch may be cut into many tiles
    to_weights = [torch.zeros_like(kernel, dtype=torch.float64) for kernel in weights] if need_weight else None
    to_x = torch.empty_like(x) if need_x else None
    for start, stop in layer.tiles(x):
        into = None if to_x is None else to_x[start:stop]
        layer.pull_back(x[start:stop], grad[start:stop], into, to_weights)
    to_weight = None
    if to_weights is not None:
        to_constants = total.view(-1, *(1,) * len(call.stride))
        if call.transposed:
            to_constants = centring.per_tap(grad, x, weight, call)
        to_weight = kernels_pull_back(call, expansion, weight, scale, to_weights, to_constants, kept)
    return to_x, to_weight, to_bias


@dataclass(frozen=True)
class _Layer:
    call: Call
    expansion: Expansion
    banks: tuple[Bank, ...]
    weights: list[Tensor]  # [O_bank, R C/G, *k] for each bank

    def tiles(self, x: Tensor) -> list[tuple[int, int]]:
        """Ranges of samples whose basis values are about TILE at most."""
        if x.shape[0] == 0:
            return []
        size = max(1, TILE // (x[0].numel() * max(max(bank.count, bank.members) for bank in self.banks)))
        return [(start, min(x.shape[0], start + size)) for start in range(0, x.shape[0], size)]

    def respond(self, x: Tensor, constants: Tensor, bias: Tensor | None, y: Tensor) -> None:
        """Write a tile's outputs [b, O, *S'] into `y`; constants [O, *k] are psi(w, 0) summed over channels."""
        call = self.call
        offset = constants if call.transposed else constants.flatten(1).sum(1)
        if bias is not None and not call.transposed:
            offset = offset + bias
        seen: set[int] = set()
        for bank, kernel in zip(self.banks, self.weights, strict=True):
            members, means = self._members(x, bank)
            fresh = [index for index in bank.blocks if index not in seen]
            shift = None if means is None else self._shift(kernel, means)
            if call.transposed:
                inner = kernel.new_zeros(len(kernel))
                if shift is not None:
                    offset = offset + self._spread(shift, bank)
            else:
                parts = [_part(offset, call, index, index in fresh) for index in bank.blocks]
                inner = (torch.cat(parts) if shift is None else torch.cat(parts) + shift).to(x.dtype)
            self._add(y, correlation.forward(members, kernel, inner, call), bank, seen)
            seen.update(fresh)
        if call.transposed:
            y += centring.everywhere(offset, x, call).to(x.dtype)
            if bias is not None:
                y += bias.view(-1, *(1,) * len(call.stride))

    def pull_back(self, x: Tensor, grad: Tensor, to_x: Tensor | None, to_weights: list[Tensor] | None) -> None:
        """Write a tile's gradient to x into `to_x`, and add those to the banks' weights to `to_weights`."""
        for position, (bank, kernel) in enumerate(zip(self.banks, self.weights, strict=True)):
            members, means = self._members(x, bank)
            seen = self._take(grad, bank)
            total = None if to_weights is None else to_weights[position]
            to_members = correlation.backward(
                seen, members, kernel, self.call, total=total, need_members=to_x is not None
            )
            del members
            if total is not None and means is not None:
                centring.add_shift(total, seen, means, x, kernel, self.call)
            if to_x is not None and to_members is not None:
                found = self._pull_back(x, to_members, bank)
                if position == 0:
                    to_x.copy_(found)
                else:
                    to_x += found

    def _members(self, x: Tensor, bank: Bank) -> tuple[Tensor, Tensor | None]:
        """E_r(x), mixtures of them, or g(x), stacked on channels, [b, G R C/G, *S]; centred, with their means then."""
        call = self.call
        if bank.form == "product":
            values = factor(_reader(bank, call), x)
            if not self.expansion.centred:
                return values, None
            means = centring.means(values)
            return values - means.view(-1, *(1,) * (x.dim() - 2)), means
        values = x.new_empty((x.shape[0], bank.members * x.shape[1], *x.shape[2:]))
        basis.evaluate(_grouped(x, call), self.expansion.interval, bank.form, self._slots(values, bank, x.shape[1]))
        if bank.mix is not None:
            matrix, _ = matrices(bank.mix, x.dtype, x.device)
            split = values.view(x.shape[0] * call.groups, bank.members, -1)
            values = torch.matmul(matrix, split).view(x.shape[0], bank.count * x.shape[1], *x.shape[2:])
        if not self.expansion.centred:
            return values, None
        means = centring.means(values)
        return values.sub_(means.view(-1, *(1,) * (x.dim() - 2))), means

    def _pull_back(self, x: Tensor, grad: Tensor, bank: Bank) -> Tensor:
        """The gradient to x [b, C, *S] from that to the channels of a bank."""
        if bank.form == "product":
            leaf = x.detach().requires_grad_()
            with torch.enable_grad():
                value = factor(_reader(bank, self.call), leaf)
            return torch.autograd.grad(value, leaf, grad)[0] if value.requires_grad else torch.zeros_like(x)
        grad = grad.contiguous()
        if bank.mix is not None:
            matrix, _ = matrices(bank.mix, x.dtype, x.device)
            split = grad.view(x.shape[0] * self.call.groups, bank.count, -1)
            grad = torch.matmul(matrix.T, split).view(x.shape[0], bank.members * x.shape[1], *x.shape[2:])
        slots = self._slots(grad, bank, x.shape[1])
        return basis.pull_back(_grouped(x, self.call), self.expansion.interval, bank.form, slots).view_as(x)

    def _slots(self, values: Tensor, bank: Bank, channels: int) -> list[Tensor]:
        """Views [b, G, C/G, *S] of the members by ascending degree; unmixed, the highest one lies first."""
        groups = self.call.groups
        split = values.view(values.shape[0], groups, bank.members, channels // groups, *values.shape[2:])
        order = range(bank.members) if bank.mix is not None else reversed(range(bank.members))
        return [split[:, :, index] for index in order]

    def _shift(self, kernel: Tensor, means: Tensor) -> Tensor:
        """What the means [G R C/G] add: [O_bank], or [O_bank, *k] in a transposed layer, in float64."""
        spread = centring.met(means, kernel, self.call)
        if self.call.transposed:
            return (kernel.double() * spread.view(*spread.shape, *(1,) * (kernel.dim() - 2))).sum(1)
        return (kernel.flatten(2).sum(2, dtype=torch.float64) * spread).sum(1)

    def _spread(self, values: Tensor, bank: Bank) -> Tensor:
        """A bank's values [O_bank, ...] at their neurons' places among all [O, ...]."""
        total = values.new_zeros((self.call.blocks[-1].stop, *values.shape[1:]))
        self._add(total[None], values[None], bank, set())
        return total

    def _add(self, y: Tensor, values: Tensor, bank: Bank, seen: set[int]) -> None:
        """Put a bank's outputs [b, O_bank, ...] where they belong: written first, added later."""
        first = 0
        for index in bank.blocks:
            block = self.call.blocks[index]
            part = values[:, first : first + block.stop - block.start]
            target = y[:, block.start : block.stop]
            if index in seen:
                target.add_(part)
            else:
                target.copy_(part)
            first += block.stop - block.start

    def _take(self, grad: Tensor, bank: Bank) -> Tensor:
        """The gradient [b, O_bank, *S'] to a bank's outputs."""
        blocks = self.call.blocks
        if len(bank.blocks) == len(blocks):
            return grad
        return torch.cat([grad[:, blocks[index].start : blocks[index].stop] for index in bank.blocks], 1)


def _scale(call: Call, weight: Tensor, gain: Tensor | None) -> Tensor:
    """Gain and pool factor [O], float64."""
    factor = pool_factor(call.pool, taps(weight))
    if gain is None:
        return torch.full((weight.shape[0],), factor, dtype=torch.float64, device=weight.device)
    return gain.detach().to(torch.float64) * factor


def _grouped(x: Tensor, call: Call) -> Tensor:
    return x.view(x.shape[0], call.groups, x.shape[1] // call.groups, *x.shape[2:])


def _reader(bank: Bank, call: Call) -> Any:
    """The one block that reads a product's bank."""
    (index,) = (index for index, share in zip(bank.blocks, bank.shares, strict=True) if share)
    return call.blocks[index]


def _part(constant: Tensor, call: Call, index: int, fresh: bool) -> Tensor:
    """A block's constant, once: zeros where an earlier bank has added it."""
    block = call.blocks[index]
    part = constant[block.start : block.stop]
    return part if fresh else torch.zeros_like(part)
