"""Quadratic layers: what the modes of memory cost in time, and what they keep for backward."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.gate import GRADIENT, OUTPUT, GateError
from benchmarks.layer import SMALL, Shape, Step, step_of_module
from benchmarks.measure import Settings, interleaved, kept, milliseconds, peak, ratio
from benchmarks.polynomials import input_of, spec_of
from benchmarks.report import Table, beside, megabytes
from benchmarks.sums import SHAPES, TINY
from onn_runner.model.quadratic import Quadratic, QuadraticLayer

NAME = "quadratic"
TYPES = ("t4", "quadralib")
NORMS = ("none", "batch")
MODES = ("keep", "save_conv", "recompute")
TIME = {
    ("recompute", "none"): 1.25,
    ("recompute", "batch"): 1.45,
    ("save_conv", "none"): 1.15,
    ("save_conv", "batch"): 1.15,
}
HEADER = (
    "type, norms", "layer", "memory", "× the time of keep", "target", "ms", "MB kept beside x and weights",
    "in output planes", "peak MB",
)  # fmt: skip


def layer_of(shape: Shape, form: str, norm: str, memory: str, device: str) -> QuadraticLayer:
    """A layer without an activation and without a batch norm behind it."""
    torch.manual_seed(0)
    made = Quadratic(form, activation="identity", norm=norm, output_norm="none", memory=memory)
    return made(spec_of(shape)).to(device)


def answers(layer: QuadraticLayer, x: Tensor) -> list[Tensor]:
    """y and the gradients to x and all parameters."""
    x = x.clone().requires_grad_()
    y = layer(x)
    upstream = torch.rand(y.shape, generator=torch.Generator().manual_seed(1)).to(y)
    return [y.detach(), *torch.autograd.grad(y, (x, *layer.parameters()), upstream)]


def check(shape: Shape, form: str, norm: str, device: str) -> None:
    """Raises GateError where a mode misses its accuracy against `keep` in float64."""
    x = input_of(shape, device)[:1]
    exact = answers(layer_of(shape, form, norm, "keep", device).double(), x.double())
    plain = [_error(a, b) for a, b in zip(answers(layer_of(shape, form, norm, "keep", device), x), exact, strict=True)]
    for mode in MODES[1:]:
        own = [_error(a, b) for a, b in zip(answers(layer_of(shape, form, norm, mode, device), x), exact, strict=True)]
        for position, (error, inherent) in enumerate(zip(own, plain, strict=True)):
            if not error <= max(GRADIENT if position else OUTPUT, 2 * inherent):
                raise GateError(f"quadratic {form}, norms {norm}, {mode} misses its accuracy at {shape}: {error:.1e}")


def _error(got: Tensor, exact: Tensor) -> float:
    return float((got.double() - exact).norm() / exact.norm().clamp(min=1e-12))


def tables(settings: Settings, say: Callable[[str], None]) -> list[Table]:
    """One row for each type, norms, shape and mode."""
    shapes = {"full": (SHAPES[0], SHAPES[3]), "quick": (SMALL,), "tiny": TINY}[settings.size]
    rows: list[list[str]] = []
    data: list[dict[str, Any]] = []
    for form in TYPES:
        for norm in NORMS:
            for shape in shapes:
                check(shape, form, norm, settings.device)
                for found in measure(shape, form, norm, settings):
                    rows.append(found.pop("row"))
                    data.append(found)
                    say(" | ".join(rows[-1]))
    return [Table(NAME, "Quadratic layers in training, forward and backward, float32", HEADER, rows, (), data)]


def measure(shape: Shape, form: str, norm: str, settings: Settings) -> list[dict[str, Any]]:
    """The modes in turn."""
    x = input_of(shape, settings.device)
    layers = {mode: layer_of(shape, form, norm, mode, settings.device) for mode in MODES}
    seconds = interleaved(
        {mode: step_of_module(layer, x, layer.parameters()) for mode, layer in layers.items()}, settings
    )
    found = []
    for mode, layer in layers.items():
        leaf = x.clone().requires_grad_()
        size = kept(partial(layer, leaf), leaf, *layer.parameters(), *layer.buffers())
        plane = 4 * shape.batch * shape.neurons * shape.size**2
        case = {"table": NAME, "shape": dataclasses.astuple(shape), "form": form, "norm": norm, "memory": mode}
        top, time = peak(case, settings), ratio(seconds, mode, "keep")
        row = [
            f"{form}, {norm}",
            str(shape),
            mode,
            *beside(time, TIME.get((mode, norm)), at_least=False),
            f"{milliseconds(seconds)[mode]:.2f}",
            megabytes(size / 2**20),
            f"{size / plane:.2f} S",
            megabytes(top),
        ]
        found.append(
            {**case, "shape": str(shape), "ratio": dataclasses.asdict(time), "kept": size, "peak": top, "row": row}
        )
    return found


def memory_case(case: dict[str, Any]) -> tuple[Step, Callable[[], Step]]:
    """A warm-up that loads the code, and what makes the step whose peak is asked for."""
    shape = Shape(*case["shape"])

    def made(size: Shape) -> Step:
        layer = layer_of(size, case["form"], case["norm"], case["memory"], case["device"])
        return step_of_module(layer, input_of(size, case["device"]), layer.parameters())

    # a batch norm needs more than one value
    return made(Shape(1, 1, shape.kernel, shape.kernel, 2)), lambda: made(shape)
