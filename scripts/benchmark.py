"""Check the kernels against float64, then time them: ratios to the definition and to a plain convolution.

    python scripts/benchmark.py            all shapes
    python scripts/benchmark.py --quick    the smallest one

Forward and backward, float32, weights uniform with |w| <= `--range`, |x| <= 1, median of interleaved repetitions in one
process, so that the ratios hold on a noisy machine; the milliseconds are those of this machine today. The extra memory
is the peak resident memory of a process of its own, above what it holds before the first call. Nothing is timed when a
kernel misses its accuracy. Writes JSON and a Markdown table where `--out` says.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from onn_runner import compute, ops
from onn_runner.compute.base import Block, Call, Memory


@dataclass(frozen=True)
class Shape:
    inputs: int
    neurons: int
    kernel: int
    size: int
    batch: int

    def __str__(self) -> str:
        return f"{self.inputs} -> {self.neurons}, k {self.kernel}, {self.size}x{self.size}, B {self.batch}"


SHAPES = (Shape(16, 32, 3, 60, 4), Shape(16, 32, 7, 60, 2), Shape(1, 16, 21, 94, 1))
SETS = {
    "sine": (ops.Sine(),),
    "exp": (ops.Exponential(),),
    "four operators": (ops.Sine(), ops.Exponential(), ops.Sinh(), ops.Multiply()),
}
POOLED = {"maximum, sine": ("max", (ops.Sine(),)), "median, sine": ("median", (ops.Sine(),))}
TOLERANCE = 1e-6
"""Of an output channel's norm in float32: the promise of the Chebyshev kernel."""

Step = Callable[[], None]


def broadcast(x: Tensor, weight: Tensor, call: Call) -> Tensor:
    """Operational layers as they are usually written: unfold, then psi over [B, C, O, T, L] at once."""
    kernel, padding = weight.shape[-1], 0
    patches = F.unfold(x, kernel, padding=padding)
    patches = patches.view(x.shape[0], x.shape[1], 1, kernel * kernel, -1)
    parts = []
    for block in call.blocks:
        w = weight[block.start : block.stop].flatten(2).transpose(0, 1)[None, :, :, :, None]
        parts.append(call.pool(block.nodal(w, patches), 3).sum(1))
    side = x.shape[-1] - kernel + 1
    return torch.cat(parts, 1).view(x.shape[0], -1, side, side)


def request(shape: Shape, nodals: tuple[ops.Nodal, ...], pool: str) -> Call:
    edges = [round(i * shape.neurons / len(nodals)) for i in range(len(nodals) + 1)]
    blocks = tuple(Block(type(n).__name__.lower(), n, a, b) for n, a, b in zip(nodals, edges, edges[1:], strict=False))
    return Call(blocks, ops.named(pool), (1, 1), (1, 1))


def tensors(shape: Shape, reach: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    side = shape.size + shape.kernel - 1
    x = torch.rand((shape.batch, shape.inputs, side, side), generator=generator) * 2 - 1
    w = torch.rand((shape.neurons, shape.inputs, shape.kernel, shape.kernel), generator=generator) * 2 - 1
    return x, w * reach


def step_of(method: str, shape: Shape, call: Call, reach: float) -> Step:
    """Forward and backward by one method."""
    x, w = tensors(shape, reach)
    x.requires_grad_()
    w.requires_grad_()
    memory = Memory(requested=method)

    def forward() -> Tensor:
        if method == "convolution":
            return F.conv2d(x, w)
        if method == "broadcast":
            return broadcast(x, w, call)
        return compute.run(call, x, w, None, None, memory)

    def step() -> None:
        x.grad = w.grad = None
        forward().square().sum().backward()

    return step


def check(shape: Shape, nodals: tuple[ops.Nodal, ...], pool: str, method: str, reach: float) -> float:
    """The largest relative error over output channels, against the definition in float64, on one sample.

    Exits where it is above the tolerance and above twice that of the definition in float32.
    """
    call = request(shape, nodals, pool)
    x, w = tensors(shape, reach)
    x = x[:1]
    exact = broadcast(x.double(), w.double(), call)

    def errors(y: Tensor) -> Tensor:
        difference = (y.double() - exact).transpose(0, 1).flatten(1).norm(dim=1)
        return difference / exact.transpose(0, 1).flatten(1).norm(dim=1)

    with torch.no_grad():
        error = errors(compute.run(call, x, w, None, None, Memory(requested=method)))
        allowed = (2 * errors(broadcast(x, w, call))).clamp(min=TOLERANCE)
    if bool((error > allowed).any()):
        raise SystemExit(f"{method} misses its accuracy at {shape}: {float(error.max()):.1e}; nothing is timed")
    return float(error.max())


def interleaved(steps: dict[str, Step], repetitions: int) -> dict[str, float]:
    """Median seconds of each, one after another in every repetition."""
    for step in steps.values():
        step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repetitions):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_megabytes(method: str, shape: Shape, pool: str, operators: str, reach: float) -> float:
    """Peak resident memory of a step in a process of its own, above what was held before; nan where not on Linux."""
    if not Path("/proc/self/clear_refs").exists():
        return float("nan")
    words = [str(value) for value in (shape.inputs, shape.neurons, shape.kernel, shape.size, shape.batch)]
    command = [sys.executable, __file__, "--memory-of", method, pool, operators, str(reach), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


def memory_of(words: list[str]) -> None:
    method, pool, operators, reach = words[0], words[1], words[2], float(words[3])
    shape = Shape(*(int(word) for word in words[4:]))
    nodals = (POOLED | {name: ("sum", nodals) for name, nodals in SETS.items()})[operators][1]
    warm_up = Shape(1, len(nodals), shape.kernel, shape.kernel, 1)
    step_of(method, warm_up, request(warm_up, nodals, pool), reach)()
    step = step_of(method, shape, request(shape, nodals, pool), reach)
    # The peak so far, which a process also inherits from the one that started it, is forgotten.
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_kilobytes()
    step()
    print((peak_kilobytes() - before) / 1024)


def peak_kilobytes() -> int:
    """Peak resident memory of this process since it was last cleared (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def measure(shape: Shape, name: str, pool: str, nodals: tuple[ops.Nodal, ...], options: argparse.Namespace) -> dict:
    method = "chebyshev" if pool == "sum" else "tapwise"
    error = check(shape, nodals, pool, method, options.range)
    call = request(shape, nodals, pool)
    methods = ("broadcast", method, "convolution")
    seconds = interleaved({m: step_of(m, shape, call, options.range) for m in methods}, options.repetitions)
    memory = {m: peak_megabytes(m, shape, pool, name, options.range) for m in methods}
    return {
        "shape": str(shape),
        "operators": name,
        "kernel": method,
        "error": error,
        "milliseconds": {m: 1e3 * s for m, s in seconds.items()},
        "faster_than_broadcast": seconds["broadcast"] / seconds[method],
        "against_convolution": seconds[method] / seconds["convolution"],
        "peak_megabytes": memory,
    }


def table(rows: list[dict]) -> str:
    lines = [
        "| shape | operators | kernel | error | x faster than broadcast | x a convolution's time "
        "| peak MB: broadcast, kernel, convolution |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        peaks = ", ".join(f"{row['peak_megabytes'][m]:.0f}" for m in ("broadcast", row["kernel"], "convolution"))
        lines.append(
            f"| {row['shape']} | {row['operators']} | {row['kernel']} | {row['error']:.1e} "
            f"| {row['faster_than_broadcast']:.1f} | {row['against_convolution']:.1f} | {peaks} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the first shape only")
    parser.add_argument("--range", type=float, default=1.57, help="largest |w|")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--out", type=Path, help="a folder for benchmark.json and benchmark.md")
    parser.add_argument("--memory-of", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        memory_of(options.memory_of)
        return
    rows = []
    cases = {name: ("sum", nodals) for name, nodals in SETS.items()} | POOLED
    for shape in SHAPES[:1] if options.quick else SHAPES:
        for name, (pool, nodals) in cases.items():
            rows.append(measure(shape, name, pool, nodals, options))
            print(f"{shape}, {name}: {rows[-1]['faster_than_broadcast']:.1f} x", file=sys.stderr)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, |w| <= {options.range}\n")
    print(table(rows))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "benchmark.json").write_text(json.dumps(rows, indent=2) + "\n")
        (options.out / "benchmark.md").write_text(table(rows))


if __name__ == "__main__":
    main()
