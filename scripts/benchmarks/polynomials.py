"""Self-ONN of order 3: powers recomputed, against concatenated powers under plain autograd."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gate import GRADIENT, OUTPUT, GateError
from benchmarks.layer import SMALL, Shape, Step, step_of_module
from benchmarks.measure import Settings, interleaved, kept, milliseconds, peak, ratio
from benchmarks.report import Table, beside, megabytes
from benchmarks.sums import SHAPES, TINY
from onn_runner.model.base import LayerSpec
from onn_runner.model.self_onn import SelfONN, SelfONNLayer

NAME = "self_onn"
ORDER = 3
TIME = 1.1
HEADER = (
    "layer", "× the time of concatenated powers", "target", "ms", "MB kept beside x and weights: concatenated", "ours",
    "target", "peak MB: concatenated", "ours",
)  # fmt: skip


def spec_of(shape: Shape) -> LayerSpec:
    """The layer of that shape, without padding."""
    return LayerSpec(
        in_channels=shape.inputs,
        out_channels=shape.neurons,
        kernel_size=(shape.kernel,) * 2,
        stride=(1, 1),
        dilation=(1, 1),
        padding="valid",
        input_bound=(-1.0, 1.0),
    )


def input_of(shape: Shape, device: str) -> Tensor:
    """Uniform in [-1, 1], and the same each time."""
    side = shape.size + shape.kernel - 1
    size = (shape.batch, shape.inputs, side, side)
    return (torch.rand(size, generator=torch.Generator().manual_seed(0)) * 2 - 1).to(device)


def layer_of(shape: Shape, device: str) -> SelfONNLayer:
    """The layer without an activation."""
    torch.manual_seed(0)
    return SelfONN(ORDER, activation="identity")(spec_of(shape)).to(device)


def concatenated(x: Tensor, layer: SelfONNLayer) -> Tensor:
    """The same as it is usually written."""
    return F.conv2d(torch.cat([x, x**2, x**3], 1), layer.weight, layer.bias)


def methods(layer: SelfONNLayer) -> dict[str, Callable[[Tensor], Tensor]]:
    return {"concatenated": lambda x: concatenated(x, layer), "ours": layer}


def check(shape: Shape, device: str) -> None:
    """Raises GateError where the layer misses its accuracy against concatenated powers in float64."""
    layer, x = layer_of(shape, device), input_of(shape, device)[:1]
    double = layer_of(shape, device).double()
    answers = [_answers(run, layer, x) for run in methods(layer).values()]
    exact = _answers(methods(double)["concatenated"], double, x.double())
    for position, promise in enumerate((OUTPUT, GRADIENT, GRADIENT)):
        plain, own = (float((a[position].double() - exact[position]).norm() / exact[position].norm()) for a in answers)
        if not own <= max(promise, 2 * plain):
            raise GateError(f"self_onn misses its accuracy at {shape}: {own:.1e}")


def _answers(run: Callable[[Tensor], Tensor], layer: SelfONNLayer, x: Tensor) -> tuple[Tensor, ...]:
    x = x.clone().requires_grad_()
    y = run(x)
    return y.detach(), *torch.autograd.grad(y.square().sum(), (x, layer.weight))


def tables(settings: Settings, say: Callable[[str], None]) -> list[Table]:
    """One row for each shape."""
    shapes = {"full": (SHAPES[0], SHAPES[1], SHAPES[3]), "quick": (SMALL,), "tiny": TINY}[settings.size]
    rows: list[list[str]] = []
    data: list[dict[str, Any]] = []
    for shape in shapes:
        check(shape, settings.device)
        found = measure(shape, settings)
        bytes_kept, peaks = found["kept"], found["peaks"]
        rows.append([
            str(shape),
            *beside(found["ratio"], TIME, at_least=False),
            f"{found['milliseconds']['ours']:.2f}",
            megabytes(bytes_kept["concatenated"]),
            *beside(bytes_kept["ours"], 0.0, at_least=False),
            megabytes(peaks["concatenated"]),
            megabytes(peaks["ours"]),
        ])  # fmt: skip
        data.append(found | {"shape": str(shape), "ratio": dataclasses.asdict(found["ratio"])})
        say(" | ".join(rows[-1]))
    return [Table(NAME, f"Self-ONN, q = {ORDER}, forward and backward, float32", HEADER, rows, (), data)]


def measure(shape: Shape, settings: Settings) -> dict[str, Any]:
    """Ratio of times, milliseconds, MB kept and peaks of both."""
    layer, x = layer_of(shape, settings.device), input_of(shape, settings.device)
    runs = methods(layer)

    seconds = interleaved({name: step_of_module(run, x, layer.parameters()) for name, run in runs.items()}, settings)
    leaf = x.clone().requires_grad_()
    case = {"table": NAME, "shape": dataclasses.astuple(shape)}
    return {
        "ratio": ratio(seconds, "ours", "concatenated"),
        "milliseconds": milliseconds(seconds),
        "kept": {name: kept(partial(run, leaf), leaf, *layer.parameters()) / 2**20 for name, run in runs.items()},
        "peaks": {name: peak({**case, "method": name}, settings) for name in runs},
    }


def memory_case(case: dict[str, Any]) -> tuple[Step, Callable[[], Step]]:
    """A warm-up that loads the code, and what makes the step whose peak is asked for."""
    shape = Shape(*case["shape"])

    def made(size: Shape) -> Step:
        layer = layer_of(size, case["device"])
        return step_of_module(methods(layer)[case["method"]], input_of(size, case["device"]), layer.parameters())

    return made(Shape(1, 1, shape.kernel, shape.kernel, 1)), lambda: made(shape)
