"""Where the time of an operational layer goes: convolutions, basis, coefficients, plan and the rest."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import networks
from benchmarks.layer import SETS, SMALL, Shape, Step, banks_of, bound, method, request, step, tensors
from benchmarks.measure import Settings
from benchmarks.report import Table
from onn_runner.compute import convolution, correlation, plan
from onn_runner.compute.base import Memory

NAME = "parts"
SHAPES = (SMALL, Shape(16, 32, 7, 60, 2), Shape(1, 16, 21, 94, 1))
TINY = (Shape(2, 4, 3, 8, 2),)
PARTS: dict[str, tuple[tuple[Any, str], ...]] = {
    "convolutions": ((correlation, "forward"), (correlation, "backward")),
    "basis": ((convolution._Layer, "_members"), (convolution._Layer, "_pull_back")),
    "coefficients": ((convolution, "kernels"), (convolution, "kernels_pull_back")),
    "plan": ((plan, "find"),),
}
"""None of these calls another one."""
HEADER = ("step", "ms", "the bound: one convolution, R C channels, ms", *PARTS, "rest")


@contextlib.contextmanager
def watched(spent: dict[str, float]) -> Iterator[None]:
    """Add up the seconds that each part takes."""
    originals = [(owner, name, getattr(owner, name)) for places in PARTS.values() for owner, name in places]
    for part, places in PARTS.items():
        for owner, name in places:
            setattr(owner, name, _timed(getattr(owner, name), part, spent))
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _timed(function: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    def run(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        result = function(*arguments, **named)
        spent[part] += time.perf_counter() - began
        return result

    return run


def fastest(run: Step, repetitions: int) -> tuple[float, dict[str, float]]:
    """Seconds of the fastest of some steps, and of its parts."""
    found: list[tuple[float, dict[str, float]]] = []
    for _ in range(repetitions + 1):
        spent: dict[str, float] = defaultdict(float)
        with watched(spent):
            began = time.perf_counter()
            run()
            found.append((time.perf_counter() - began, spent))
    return min(found, key=lambda one: one[0])


def tables(settings: Settings, say: Callable[[str], None]) -> list[Table]:
    """One row for each layer, and the training steps of FastONN's README network; on the CPU."""
    if settings.device != "cpu":
        return []
    repetitions = 4 * settings.repetitions
    rows, data = [], []

    def add(name: str, run: Step, least: float | None) -> None:
        total, spent = fastest(run, repetitions)
        shares = [spent[part] / total for part in PARTS]
        cells = [f"{share:.0%}" for share in (*shares, 1 - sum(shares))]
        rows.append([name, f"{1e3 * total:.2f}", "–" if least is None else f"{1e3 * least:.2f}", *cells])
        data.append({"step": name, "seconds": total, "bound": least, "parts": dict(spent)})
        say(" | ".join(rows[-1]))

    shapes = {"full": SHAPES, "quick": SHAPES[:1], "tiny": TINY}[settings.size]
    for shape in shapes:
        for operators, nodals in SETS.items():
            call, memory = request(shape, nodals), Memory()
            x, w = tensors(shape, call, settings.main)
            run = step(method("chebyshev", call, memory), x, w)
            limit = bound(shape, banks_of(call, memory), x)
            run()
            add(f"{shape}, {operators}", run, fastest(limit, repetitions)[0])
    size = 8 if settings.size == "tiny" else 60
    for operators in networks.LAYERS:
        run = networks.training(operators, "ours", size, "cpu")
        run()
        add(f"FastONN's network, {operators}", run, None)
    title = "Where the time goes: the fastest step of some, forward and backward, float32"
    return [Table(NAME, title, HEADER, rows, (), data)]
