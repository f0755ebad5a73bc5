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
from onn_runner.compute.base import Call
from onn_runner.compute.correlation import by_fourier

CLEARLY = 0.7
"""Another kernel is clearly cheaper where its estimate is below this part: estimates are about so exact."""

POSITIONS, VALUES = 1 << 12, 1 << 17
"""About what tapwise computes at once, per tap."""

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

SELECTING = ("maximum", "minimum", "median")

Amounts = dict[str, float]

PRICES: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "cpu": {
        "chebyshev": {
            "call": 4e5, "bank": 2e5, "sample": 17.0, "basis": 3.0, "map": 1.0, "mac": 0.08, "spectrum": 15.0,
            "output": 0.3,
        },
        "tapwise": {
            "call": 1.1e5, "window": 8e4, "step": 7e4, "patch": 1.2, "plain": 1.4, "smooth": 7.0, "composed": 10.0,
            "steep": 28.0, "choose": 3.0,
        },
    },
    "cuda": {
        "chebyshev": {
            "call": 1e6, "bank": 6e5, "sample": 0.1, "basis": 0.02, "map": 0.02, "mac": 2e-4, "spectrum": 2e-2,
            "output": 0.01,
        },
        "tapwise": {
            "call": 2e5, "window": 4e5, "step": 2e5, "patch": 0.02, "plain": 0.04, "smooth": 0.05, "composed": 0.08,
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
    batch, channels = x_shape[:2]
    positions, inputs, taps = _positions(call, x_shape, weight_shape), weight_shape[1], math.prod(weight_shape[2:])
    # cut as tapwise cuts it: windows of one sample and group, tiles of neurons that see one, and in those tap by tap
    length = max(1, min(positions, POSITIONS))
    width = max(1, min(inputs, VALUES // length))
    windows = batch * call.groups * math.ceil(positions / length) * math.ceil(inputs / width)
    most = max(1, VALUES // ((4 if call.pool.name in SELECTING else 1) * width * length))
    tiles = sum(math.ceil((block.stop - block.start) / call.groups / most) for block in call.blocks)
    patch = batch * channels * taps * positions
    return {
        "call": 1.0,
        "window": float(windows),
        "step": float(windows * tiles * taps),
        "patch": float(patch),
        **values,
    }


def _values(call: Call, x_shape: Sequence[int], weight_shape: Sequence[int]) -> Amounts:
    """Values of psi by their class, and those that a pool chooses among."""
    per_neuron = x_shape[0] * _positions(call, x_shape, weight_shape) * math.prod(weight_shape[1:])
    found = {"plain": 0.0, "smooth": 0.0, "composed": 0.0, "steep": 0.0, "choose": 0.0}
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
    found |= dict.fromkeys(("sample", "basis", "mac", "spectrum", "output"), 0.0)
    for members, neurons in terms:
        maps = (batch, members * x_shape[1], *x_shape[2:])
        kernel = (neurons, members * weight_shape[1], *weight_shape[2:])
        # convolutions compute eight neurons of a group at once
        wide = math.ceil(neurons / call.groups / 8) * 8 * call.groups
        found["sample"] += (members + 1) * neurons * per_neuron
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
