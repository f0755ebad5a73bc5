"""How well `auto` estimates costs: chebyshev and tapwise over a grid of layers, and prices fitted to their times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy
import scipy.optimize
import torch

from benchmarks import layer
from benchmarks.layer import Shape
from benchmarks.measure import Settings, interleaved, milliseconds
from benchmarks.report import Table
from onn_runner import ops
from onn_runner.compute import cost
from onn_runner.compute.base import Call, Memory
from onn_runner.errors import ConfigError

NAME = "cost"
SIZES = (
    (1, 1, 1, 4, 1), (1, 1, 1, 64, 4), (1, 1, 3, 8, 1), (1, 1, 3, 60, 4), (1, 8, 3, 60, 4), (1, 16, 21, 74, 1),
    (2, 2, 5, 16, 8), (3, 16, 7, 48, 1), (4, 4, 3, 16, 2), (8, 1, 1, 32, 4), (8, 8, 1, 8, 1), (8, 8, 7, 12, 2),
    (16, 1, 3, 60, 2), (16, 16, 1, 32, 4), (16, 32, 3, 16, 8), (16, 32, 3, 40, 1),
    (32, 32, 5, 12, 1), (64, 64, 1, 16, 2), (64, 64, 3, 4, 2), (64, 1, 3, 32, 1),
)  # fmt: skip
GRID = tuple(Shape(*sizes) for sizes in SIZES)
OPERATORS: Sequence[tuple[tuple[ops.Nodal, ...], float]] = (
    ((ops.Multiply(),), 1.0),
    ((ops.Sine(),), 0.01),
    ((ops.Sine(),), 1.57),
    ((ops.Exponential(),), 1.57),
    ((ops.DoG(),), 1.57),
    ((ops.Gaussian(),), 3.0),
    ((ops.Sine(),), 8.0),
    ((ops.Sine(),), 25.0),
    ((ops.Chirp(),), 50.0),
    ((ops.Sine(), ops.Exponential()), 1.57),
    ((ops.Cubic(), ops.Log(), ops.Chirp()), 1.57),
)
KERNELS = ("chebyshev", "tapwise")
HEADER = (
    "layers",
    "faster: chebyshev",
    "the estimate names the faster",
    "loss where not, median",
    "largest",
    "error of an estimate, median",
)


@dataclass(frozen=True)
class Case:
    """A layer's times in ms and estimates in ms, by kernel, and the amounts that they are made of."""

    shape: str
    operator: str
    terms: list[tuple[int, int]]
    measured: dict[str, float]
    estimated: dict[str, float]
    amounts: dict[str, cost.Amounts]

    @property
    def loss(self) -> float:
        """How many times longer the kernel takes that the estimate names than the faster one."""
        return self.measured[named(self.estimated)] / min(self.measured.values())


def named(estimates: dict[str, float]) -> str:
    """What `auto` takes: the exact kernel where it is clearly cheaper."""
    return "tapwise" if estimates["tapwise"] < cost.CLEARLY * estimates["chebyshev"] else "chebyshev"


def tables(settings: Settings, say: Callable[[str], None]) -> list[Table]:
    """One row; the prices that would fit best are in the notes and `data`."""
    shapes = {"full": GRID, "quick": GRID[::4], "tiny": GRID[:2]}[settings.size]
    cases = [case for shape in shapes for case in measure(shape, settings, say)]
    missed = [case.loss for case in cases if case.loss > 1]
    errors = [
        max(c.estimated[kernel] / c.measured[kernel], c.measured[kernel] / c.estimated[kernel])
        for c in cases
        for kernel in KERNELS
    ]
    row = [
        str(len(cases)),
        str(sum(case.measured["chebyshev"] < case.measured["tapwise"] for case in cases)),
        f"{100 * (1 - len(missed) / len(cases)):.0f} %",
        f"{statistics.median(missed):.2f} ×" if missed else "–",
        f"{max(missed):.2f} ×" if missed else "–",
        f"{statistics.median(errors):.2f} ×",
    ]
    prices = {kernel: fitted(cases, kernel) for kernel in KERNELS}
    notes = [f"Prices fitted to this run, {kernel}: {prices[kernel]}" for kernel in KERNELS]
    title = "The cost estimate, one forward and backward pass of layers from tiny to large, 1 to 64 terms"
    say(" | ".join([*row, *notes]))
    return [Table(NAME, title, HEADER, [row], (), [asdict(case) for case in cases] + [prices])]


def measure(shape: Shape, settings: Settings, say: Callable[[str], None]) -> list[Case]:
    """A shape with all operators that have an expansion there."""
    found = []
    for nodals, reach in OPERATORS if settings.size != "tiny" else OPERATORS[:2]:
        if len(nodals) > shape.neurons:
            continue
        call = layer.request(shape, nodals)
        operator = f"{', '.join(block.name for block in call.blocks)} {reach:g}"
        x, w = layer.tensors(shape, call, reach, settings.device)
        memory = Memory()
        runs = {
            "chebyshev": layer.method("chebyshev", call, memory),
            "tapwise": layer.method("tapwise", call, Memory()),
        }
        try:
            with torch.no_grad():
                runs["chebyshev"](x, w)
        except ConfigError:
            # no expansion is accurate there, so that there is nothing to choose
            continue
        seconds = interleaved({name: layer.step(run, x, w) for name, run in runs.items()}, settings)
        terms = [(bank.members, bank.neurons) for bank in layer.banks_of(call, memory)]
        found.append(_case(shape, call, operator, terms, milliseconds(seconds), settings.device))
        say(f"{shape}, {found[-1].operator}, {terms}: {found[-1].measured}, estimated {found[-1].estimated}")
    return found


def _case(
    shape: Shape, call: Call, operator: str, terms: list[tuple[int, int]], measured: dict[str, float], device: str
) -> Case:
    side = shape.size + shape.kernel - 1
    shapes = (shape.batch, shape.inputs, side, side), (shape.neurons, shape.inputs, shape.kernel, shape.kernel)
    kind = torch.device(device).type
    estimated = {name: cost.estimate(name, call, *shapes, terms, kind) / 1e6 for name in KERNELS}
    amounts = {name: cost.amounts(name, call, *shapes, terms) for name in KERNELS}
    return Case(str(shape), operator, terms, measured, estimated, amounts)


def fitted(cases: Sequence[Case], kernel: str) -> dict[str, float]:
    """Prices of at least 0 in nanoseconds with the smallest squares of relative errors."""
    names = list(cases[0].amounts[kernel])
    rows = [[case.amounts[kernel].get(name, 0.0) for name in names] for case in cases]
    times = numpy.array([1e6 * case.measured[kernel] for case in cases])
    scaled = numpy.array(rows) / times[:, None]
    size = numpy.maximum(scaled.max(0), 1e-300)
    found: Any = scipy.optimize.nnls(scaled / size, numpy.ones(len(cases)))[0] / size
    return {name: float(f"{value:.2g}") for name, value in zip(names, found, strict=True)}
