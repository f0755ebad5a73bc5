"""About how long a layer takes by each kernel, forward and backward: what `auto` compares where several are accurate.

An estimate is a sum of amounts (calls, values of psi, multiplications, ...) times a price each. The prices in
nanoseconds were fitted on one core of a server by `python scripts/benchmark.py --table cost`, which also tells how
often the estimates name the faster kernel. Those for CUDA come from reasoning about launches, bandwidth and arithmetic
and have not been measured. Only ratios count; more threads make all kernels faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onn_runner.compute.base import Call

CLEARLY = 0.7
"""Another kernel is clearly cheaper where its estimate is below this part: estimates are about so exact."""

BLOCK = 1 << 17
"""Values of psi that tapwise computes at once, about."""

CLASSES: Mapping[str, str] = {
    "Multiply": "plain",
    "Cubic": "plain",
    "Quadratic": "plain",
    "Exponential": "steep",
    "Sinh": "steep",
}
"""What a value of psi costs, by the operator's type: `plain`, `smooth` (all others, a user's too) or `steep`."""

SELECTING = ("maximum", "minimum", "median")

Amounts = dict[str, float]

PRICES: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "cpu": {
        "chebyshev": {"call": 4e5, "bank": 2e5, "sample": 30.0, "basis": 8.0, "map": 8.0, "mac": 0.08, "output": 2.0},
        "tapwise": {
            "call": 1.5e5,
            "step": 4e4,
            "patch": 5.0,
            "plain": 1.4,
            "smooth": 5.0,
            "steep": 22.0,
            "choose": 3.0,
        },
    },
    "cuda": {
        "chebyshev": {"call": 1e6, "bank": 6e5, "sample": 0.1, "basis": 0.02, "map": 0.02, "mac": 2e-4, "output": 0.01},
        "tapwise": {
            "call": 2e5,
            "step": 2e5,
            "patch": 0.02,
            "plain": 0.04,
            "smooth": 0.05,
            "steep": 0.05,
            "choose": 0.1,
        },
        "fused": {"call": 4e5, "plain": 5e-4, "smooth": 2e-3, "steep": 3e-3, "choose": 2e-3},
    },
}
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
    batch, channels = x_shape[:2]
    per_neuron, positions = math.prod(weight_shape[1:]), _positions(call, x_shape, weight_shape)
    # a step is one tap of as many neurons as a block holds, of one sample and group
    held = max(1, BLOCK // max(1, positions * weight_shape[1]))
    per_window = sum(math.ceil(max(1, (b.stop - b.start) / call.groups) / held) for b in call.blocks)
    windows = batch * call.groups * math.ceil(positions * weight_shape[1] / BLOCK)
    taps = per_neuron // weight_shape[1]
    steps, patch = windows * per_window * taps, batch * channels * taps * positions
    return {"call": 1.0, "step": float(steps), "patch": float(patch), **values}


def _values(call: Call, x_shape: Sequence[int], weight_shape: Sequence[int]) -> Amounts:
    """Values of psi by their class, and those that a pool chooses among."""
    per_neuron = x_shape[0] * _positions(call, x_shape, weight_shape) * math.prod(weight_shape[1:])
    found = {"plain": 0.0, "smooth": 0.0, "steep": 0.0, "choose": 0.0}
    for block in call.blocks:
        count = (block.stop - block.start) * per_neuron
        found[CLASSES.get(type(block.nodal).__name__, "smooth")] += count
        if call.pool.name in SELECTING:
            found["choose"] += count
    return found


def _expanded(
    call: Call, x_shape: Sequence[int], weight_shape: Sequence[int], terms: Sequence[tuple[int, int]]
) -> Amounts:
    batch, positions = x_shape[0], _positions(call, x_shape, weight_shape)
    inputs, per_neuron = math.prod(x_shape), math.prod(weight_shape[1:])
    found = {"call": 1.0, "bank": float(len(terms)), "map": float(inputs)}
    found |= dict.fromkeys(("sample", "basis", "mac", "output"), 0.0)
    for members, neurons in terms:
        # convolutions compute eight neurons of a group at once
        wide = math.ceil(neurons / call.groups / 8) * 8 * call.groups
        found["sample"] += (members + 1) * neurons * per_neuron
        found["basis"] += members * inputs
        found["mac"] += members * wide * per_neuron * batch * positions
        found["output"] += batch * neurons * positions
    return found


def _positions(call: Call, x_shape: Sequence[int], weight_shape: Sequence[int]) -> int:
    """L, or where each input value meets each tap (transposed) the positions of the input."""
    if call.transposed:
        return math.prod(x_shape[2:])
    axes = zip(x_shape[2:], weight_shape[2:], call.stride, call.dilation, strict=True)
    return math.prod(max(0, (size - d * (k - 1) - 1) // s + 1) for size, k, s, d in axes)
