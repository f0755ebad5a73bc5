"""Maximum and median of every operator of the catalogue: FastONN's formulation against the exact kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import gate, layer
from benchmarks.layer import SMALL, Shape, Step
from benchmarks.measure import Settings, interleaved, milliseconds, peak, ratio
from benchmarks.report import Table, beside, megabytes
from benchmarks.sums import TINY, exact_kernels
from onn_runner import ops
from onn_runner.compute.base import Memory
from onn_runner.ops import gop

NAME = "tapwise"
CATALOGUE: Mapping[str, ops.Nodal] = {
    **{
        made.__name__.lower(): made()
        for made in (
            ops.Multiply, ops.Cubic, ops.Quadratic, ops.Sine, ops.Exponential, ops.Sinh, ops.Sinc, ops.Chirp,
            ops.Gaussian, ops.DoG, ops.Log,
        )
    },
    **{f"gop {made.__name__.lower()}": made() for made in (gop.Quadratic, gop.Exponential, gop.Gaussian, gop.DoG)},
}  # fmt: skip
FASTER = {"max": 3.0, "median": 5.0}
PEAK = 40.0
HEADER = (
    "operator", "pool", "kernel", "error", "× faster than FastONN's", "target", "ms", "FastONN's peak MB", "peak MB",
    "FastONN's / kernel", "target",
)  # fmt: skip


def tables(settings: Settings, say: Callable[[str], None]) -> list[Table]:
    """One row for each operator, pool and kernel."""
    shape = TINY[0] if settings.size == "tiny" else SMALL
    names = {"full": list(CATALOGUE), "quick": ["sine", "exponential"], "tiny": ["sine"]}[settings.size]
    rows: list[list[str]] = []
    data: list[dict[str, Any]] = []
    for name in names:
        for pool, faster in FASTER.items():
            for kernel, found in measure(shape, name, pool, settings).items():
                peaks = found["peaks"]
                whole, own = peaks["broadcast"], peaks[kernel]
                rows.append([
                    name,
                    pool,
                    kernel,
                    f"{found['error']:.0e}",
                    *beside(found["ratio"], faster),
                    f"{found['milliseconds'][kernel]:.0f}",
                    *map(megabytes, (whole, own)),
                    *beside(whole / own if whole and own else None, PEAK),
                ])  # fmt: skip
                data.append(found | {"operator": name, "pool": pool, "ratio": dataclasses.asdict(found["ratio"])})
                say(" | ".join(rows[-1]))
    title = f"Maximum and median, {shape}, \\|K w\\| ≤ {settings.main:g}, forward and backward, float32"
    return [Table(NAME, title, HEADER, rows, (), data)]


def measure(shape: Shape, operator: str, pool: str, settings: Settings) -> dict[str, dict[str, Any]]:
    """For each kernel that serves it: error, ratio of times, milliseconds, peaks.

    Raises GateError where one misses its accuracy.
    """
    call = layer.request(shape, (CATALOGUE[operator],), pool)
    x, w = layer.tensors(shape, call, settings.main, settings.device)
    runs = {name: layer.method(name, call, Memory()) for name in exact_kernels(call, settings.device)}
    errors = {name: gate.check(f"{name} ({operator}, {pool})", run, call, x, w) for name, run in runs.items()}
    everyone = {**runs, "broadcast": layer.method("broadcast", call, Memory())}
    seconds = interleaved({name: layer.step(run, x, w) for name, run in everyone.items()}, settings)
    case = {"table": NAME, "shape": dataclasses.astuple(shape), "operator": operator, "pool": pool}
    peaks = {name: peak({**case, "method": name, "reach": settings.main}, settings) for name in everyone}
    return {
        name: {
            "error": errors[name],
            "ratio": ratio(seconds, "broadcast", name),
            "milliseconds": milliseconds(seconds),
            "peaks": peaks,
        }
        for name in runs
    }


def memory_case(case: dict[str, Any]) -> tuple[Step, Callable[[], Step]]:
    """A warm-up that loads the code, and what makes the step whose peak is asked for."""
    shape = Shape(*case["shape"])

    def made(size: Shape) -> Step:
        call = layer.request(size, (CATALOGUE[case["operator"]],), case["pool"])
        x, w = layer.tensors(size, call, case["reach"], case["device"])
        return layer.step(layer.method(case["method"], call, Memory()), x, w)

    small = Shape(1, 1, shape.kernel, shape.kernel, 1)
    return made(small), lambda: made(shape)
