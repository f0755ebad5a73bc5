"""About how long a layer takes by each kernel, forward and backward: what `auto` compares where several are accurate.

An estimate is a sum of amounts (calls, values of psi, multiplications, ...) times a price each. The prices in
nanoseconds were fitted on one core of a server by `python scripts/benchmark.py --table cost`, which also tells how
often the estimates name the faster kernel. Those for CUDA come from reasoning about launches, bandwidth and arithmetic
and have not been measured. Only ratios count; more threads make all kernels faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onn_runner.compute import fourier
from onn_runner.compute.base import Block, Call
from onn_runner.compute.correlation import by_fourier
from onn_runner.compute.geometry import pool_kind

CLEARLY = 0.7
"""Another kernel is clearly cheaper where its estimate is below this part. Estimates are off by a fifth; where kernels
are closer than that, it does not matter which of them serves, and nothing changes with small changes of a batch."""

VALUES = 1 << 16
"""About as many values of psi tapwise computes at once, per tap."""

CLASSES: Mapping[str, str] = {
    "Multiply": "plain",
    "Cubic": "plain",
    "Quadratic": "plain",
    "Gaussian": "composed",
    "DoG": "composed",
    "Sinc": "composed",
    "Exponential": "steep",
    "Sinh": "steep",
}
"""What a value of psi costs, by the operator's type: as a product, one function of w x (`smooth`: all that are not
named, a user's too), several steps, or a slow function."""

EFFORTS = {"composed": 2.0}
"""Of a sample of psi for the coefficients, beside those of other classes."""

SELECTING = ("maximum", "minimum", "median")

Amounts = dict[str, float]

PRICES: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "cpu": {
        "chebyshev": {
            "call": 1e5, "product": 4e5, "bank": 7.5e5, "map": 0.5, "sample": 26.0, "basis": 2.0, "mac": 0.08,
            "spectrum": 14.0, "output": 3.0,
        },
        "tapwise": {
            "call": 5e4, "tile": 1.6e5, "step": 4.6e4, "patch": 1.0, "plain": 0.8, "smooth": 4.0, "composed": 9.0,
            "steep": 13.0, "choose": 3.0,
        },
    },
    "cuda": {
        "chebyshev": {
            "call": 5e5, "product": 5e5, "bank": 1e6, "map": 0.02, "sample": 0.1, "basis": 0.02, "mac": 2e-4,
            "spectrum": 0.02, "output": 0.01,
        },
        "tapwise": {
            "call": 2e5, "tile": 6e5, "step": 2e5, "patch": 0.02, "plain": 0.04, "smooth": 0.05, "composed": 0.08,
            "steep": 0.05, "choose": 0.1,
        },
        "fused": {"call": 4e5, "plain": 5e-4, "smooth": 2e-3, "composed": 4e-3, "steep": 3e-3, "choose": 2e-3},
    },
}  # fmt: skip
"""Nanoseconds by device type, kernel and amount."""


def estimate(
    kernel: str,
    call: Call,
    x_shape: Sequence[int],  # [B, C, *S], padded
    weight_shape: Sequence[int],  # [O, C/G, *k]
    terms: Sequence[tuple[int, int]] | None,
    device: str,
) -> float:
    """About how many nanoseconds a forward and backward pass takes; infinite for a kernel without prices there.

    `terms`: of each convolution that an expansion makes, how many members of the basis it reads and to how many neurons
    they go; for `chebyshev` only. `device` is torch's device type; those that are not known are taken for `cuda`.
    """
    prices = PRICES.get(device, PRICES["cuda"]).get(kernel)
    if prices is None:
        return math.inf
    found = amounts(kernel, call, x_shape, weight_shape, terms)
    return sum(prices[name] * amount for name, amount in found.items())


def describe(chosen: str, estimates: Mapping[str, float]) -> str:
    """The reason in short: "est. 12 ms against 410 ms tapwise"; `estimates` are those of all kernels compared."""
    others = [f"{_time(value)} {name}" for name, value in estimates.items() if name != chosen and math.isfinite(value)]
    own = f"est. {_time(estimates[chosen])}"
    return f"{own} against {' and '.join(others)}" if others else own


def _time(nanoseconds: float) -> str:
    milliseconds = nanoseconds / 1e6
    if milliseconds >= 1e4:
        return f"{milliseconds / 1e3:.0f} s"
    return f"{milliseconds:.{2 if milliseconds < 1 else 1 if milliseconds < 10 else 0}f} ms"


def amounts(
    kernel: str,
    call: Call,
    x_shape: Sequence[int],  # [B, C, *S], padded
    weight_shape: Sequence[int],  # [O, C/G, *k]
    terms: Sequence[tuple[int, int]] | None,
) -> Amounts:
    """What there is to do, by the names of PRICES."""
    if kernel == "chebyshev":
        assert terms is not None, "an expansion has terms"
        return _expanded(call, x_shape, weight_shape, terms)
    values = _values(call, x_shape, weight_shape)
    if kernel == "fused":
        return {"call": float(len(call.blocks)), **values}
    taps, positions = math.prod(weight_shape[2:]), x_shape[0] * _positions(call, x_shape, weight_shape)
    # a tile: some neurons of one operator and group, of some channels and positions; in it tap by tap
    tiles = sum(
        call.groups * math.ceil((block.stop - block.start) / call.groups * weight_shape[1] * positions / VALUES)
        for block in call.blocks
    )
    patch = x_shape[1] * taps * positions
    return {"call": 1.0, "tile": float(tiles), "step": float(tiles * taps), "patch": float(patch), **values}


def _values(call: Call, x_shape: Sequence[int], weight_shape: Sequence[int]) -> Amounts:
    """Values of psi by their class, and those that a pool chooses among."""
    per_neuron = x_shape[0] * _positions(call, x_shape, weight_shape) * math.prod(weight_shape[1:])
    found = {"plain": 0.0, "smooth": 0.0, "composed": 0.0, "steep": 0.0, "choose": 0.0}
    for block in call.blocks:
        count = (block.stop - block.start) * per_neuron
        found[_class(block)] += count
        if pool_kind(call.pool) in SELECTING:
            found["choose"] += count
    return found


def _class(block: Block) -> str:
    return CLASSES.get(type(block.nodal).__name__, "smooth")


def _expanded(
    call: Call, x_shape: Sequence[int], weight_shape: Sequence[int], terms: Sequence[tuple[int, int]]
) -> Amounts:
    batch, positions = x_shape[0], _positions(call, x_shape, weight_shape)
    effort = sum(EFFORTS.get(_class(block), 1.0) * (block.stop - block.start) for block in call.blocks)
    effort /= call.blocks[-1].stop
    inputs, per_neuron = math.prod(x_shape), math.prod(weight_shape[1:])
    found = {"call": 1.0, "map": float(inputs)}
    found |= dict.fromkeys(("product", "bank", "sample", "basis", "mac", "spectrum", "output"), 0.0)
    for members, neurons in terms:
        maps = (batch, members * x_shape[1], *x_shape[2:])
        kernel = (neurons, members * weight_shape[1], *weight_shape[2:])
        # convolutions compute eight neurons of a group at once
        wide = math.ceil(neurons / call.groups / 8) * 8 * call.groups
        # one member is nearly always that of a product, whose coefficients are the weights
        found["product" if members == 1 else "bank"] += 1
        found["sample"] += (members + 1) * neurons * per_neuron * effort if members > 1 else 0
        found["basis"] += members * inputs
        if by_fourier(call, maps, kernel):
            rows, columns = (fourier.fast_size(size) for size in x_shape[2:])
            found["spectrum"] += batch * rows * (columns // 2 + 1) * neurons * members * x_shape[1]
        else:
            found["mac"] += members * wide * per_neuron * batch * positions
        found["output"] += batch * neurons * positions
    return found


def _positions(call: Call, x_shape: Sequence[int], weight_shape: Sequence[int]) -> int:
    """L, or where each input value meets each tap (transposed) the positions of the input."""
    if call.transposed:
        return math.prod(x_shape[2:])
    axes = zip(x_shape[2:], weight_shape[2:], call.stride, call.dilation, strict=True)
    return math.prod(max(0, (size - d * (k - 1) - 1) // s + 1) for size, k, s, d in axes)
