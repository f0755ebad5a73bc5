"""Sum-pooled layers: FastONN's formulation, the kernels, a plain convolution, and one convolution over R C channels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks import gate, layer
from benchmarks.layer import SETS, SMALL, Bank, Shape, Step
from benchmarks.measure import Settings, Spread, available, interleaved, milliseconds, peak, ratio
from benchmarks.report import Table, beside, megabytes
from onn_runner.compute import KERNELS
from onn_runner.compute.base import Call, Memory

NAME = "sum"
SHAPES = (SMALL, Shape(16, 32, 7, 60, 2), Shape(1, 16, 21, 94, 1), Shape(64, 64, 3, 64, 8))
TINY = (Shape(2, 4, 3, 8, 2),)
TENSORS = 4
"""As many tensors of all values of psi are alive at the peak of FastONN's formulation, about (measured: 3 to 5)."""


@dataclass(frozen=True)
class Targets:
    """At |K w| <= 1.57: times faster than FastONN's formulation, by operators; times one convolution with R C input
    channels; FastONN's peak memory and a plain convolution's against the kernel's."""

    faster: dict[str, float]
    bound: float | None
    peak: float | None = None
    against_convolution: float | None = None


TARGETS = {
    SHAPES[0]: Targets({"sine": 42, "exp": 38, "four operators": 35}, 1.3, 40, 2.2),
    SHAPES[1]: Targets({"sine": 55, "exp": 48, "four operators": 48}, 1.15, 110, 4),
    SHAPES[2]: Targets({"sine": 70, "exp": 58, "four operators": 50}, 0.3, 25),
    SHAPES[3]: Targets({}, 1.15, None, 2),
}
RATIOS = {
    "faster": ("broadcast", "chebyshev"),
    "bound": ("chebyshev", "bound"),
    "plain": ("chebyshev", "convolution"),
    "tapwise": ("broadcast", "tapwise"),
    "fused": ("broadcast", "fused"),
}
TIME_HEADER = (
    "layer", "operators", "\\|K w\\| ≤", "terms", "error", "× faster than FastONN's", "target",
    "× one convolution, R C channels", "target", "× a plain convolution", "ms", "tapwise, fused: × faster",
)  # fmt: skip
PEAK_HEADER = (
    "layer", "operators", "FastONN's", "chebyshev", "FastONN's / chebyshev", "target", "plain convolution",
    "chebyshev / plain", "target", "chebyshev, first step",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """One layer's numbers: ratios by RATIOS, milliseconds and peaks in MB by method."""

    shape: Shape
    operators: str
    reach: float
    banks: tuple[Bank, ...]
    errors: dict[str, float]
    milliseconds: dict[str, float]
    ratios: dict[str, Spread]
    peaks: dict[str, float | None]

    @property
    def targets(self) -> Targets:
        """What the issue asks for; nothing at other ranges and shapes."""
        stated = TARGETS.get(self.shape) if self.reach == 1.57 else None
        return stated or Targets({}, None)

    def times(self) -> list[str]:
        targets, exact = self.targets, [self.ratios.get(name) for name in ("tapwise", "fused")]
        return [
            str(self.shape),
            self.operators,
            f"{self.reach:g}",
            " + ".join(f"{bank.members}" for bank in self.banks),
            f"{self.errors['chebyshev']:.0e}",
            *beside(self.ratios.get("faster"), targets.faster.get(self.operators)),
            *beside(self.ratios["bound"], targets.bound, at_least=False),
            str(self.ratios["plain"]),
            f"{self.milliseconds['chebyshev']:.2f}",
            ", ".join(str(spread) for spread in exact if spread) or "–",
        ]

    def peak_row(self) -> list[str]:
        targets = self.targets
        broadcast, own, plain = (self.peaks.get(name) for name in ("broadcast", "chebyshev", "convolution"))
        return [
            str(self.shape),
            self.operators,
            *map(megabytes, (broadcast, own)),
            *beside(broadcast / own if broadcast and own else None, targets.peak),
            megabytes(plain),
            *beside(own / plain if own and plain else None, targets.against_convolution, at_least=False),
            megabytes(self.peaks.get("first")),
        ]


def fits(shape: Shape, device: str) -> bool:
    """Whether FastONN's formulation takes half of the free memory at most."""
    return 4 * TENSORS * shape.values <= available(device) / 2


def tables(settings: Settings, say: Callable[[str], None]) -> list[Table]:
    """Times, and peaks at the main range of weights."""
    shapes = {"full": SHAPES, "quick": SHAPES[:1], "tiny": TINY}[settings.size]
    found, notes = [], []
    for shape in shapes:
        if not fits(shape, settings.device):
            size = 4 * TENSORS * shape.values / 1e9
            notes.append(
                f"{shape}: FastONN's formulation would take about {size:.0f} GB, more than half of the free memory; "
                "it is left out."
            )
        for operators in SETS:
            for reach in settings.ranges:
                found.append(measure(shape, operators, reach, settings))
                say(f"{shape}, {operators}, |K w| <= {reach:g}: " + " | ".join(found[-1].times()[4:]))
    data = [dataclasses.asdict(one) | {"shape": str(one.shape)} for one in found]
    title = "Sum-pooled layers, forward and backward, float32: time, median (lowest–highest)"
    made = [Table("sum-time", title, TIME_HEADER, [one.times() for one in found], notes, data)]
    if settings.memory:
        rows = [one.peak_row() for one in found if one.peaks]
        title = f"Sum-pooled layers, \\|K w\\| ≤ {settings.main:g}: peak extra memory of a step in MB"
        made.append(Table("sum-memory", title, PEAK_HEADER, rows, notes))
    return made


def exact_kernels(call: Call, device: str) -> list[str]:
    """The kernels besides chebyshev that serve a call on that device."""
    found = ["tapwise"]
    if device.startswith("cuda") and "fused" in KERNELS and KERNELS["fused"].refuse(call) is None:
        found.append("fused")
    return found


def measure(shape: Shape, operators: str, reach: float, settings: Settings) -> Measured:
    """One layer: the gate, then all methods in turn.

    Raises GateError where a kernel misses its accuracy.
    """
    call = layer.request(shape, SETS[operators])
    x, w = layer.tensors(shape, call, reach, settings.device)
    memory, main = Memory(), reach == settings.main
    accurate = {"chebyshev": layer.method("chebyshev", call, memory)}
    others = {"convolution": layer.method("convolution", call, Memory())}
    if fits(shape, settings.device):
        others["broadcast"] = layer.method("broadcast", call, Memory())
        if main:
            accurate |= {name: layer.method(name, call, Memory()) for name in exact_kernels(call, settings.device)}
    with torch.no_grad():
        # the plan is made for the whole batch, of which the gate sees a part
        accurate["chebyshev"](x, w)
    where = f"{shape}, {operators}, |K w| <= {reach:g}"
    errors = {name: gate.check(f"{name} ({where})", run, call, x, w) for name, run in accurate.items()}
    banks = layer.banks_of(call, memory)
    steps: dict[str, Step] = {name: layer.step(run, x, w) for name, run in {**accurate, **others}.items()}
    steps["bound"] = layer.bound(shape, banks, x)
    seconds = interleaved(steps, settings)
    ratios = {name: ratio(seconds, *pair) for name, pair in RATIOS.items() if set(pair) <= seconds.keys()}
    peaks = peaks_of(shape, operators, reach, settings) if main and settings.memory else {}
    return Measured(shape, operators, reach, banks, errors, milliseconds(seconds), ratios, peaks)


def peaks_of(shape: Shape, operators: str, reach: float, settings: Settings) -> dict[str, float | None]:
    """Peaks of a step after the first one, by method, and of chebyshev's first one, which makes the plan."""
    case = {"table": NAME, "shape": dataclasses.astuple(shape), "operators": operators, "reach": reach}
    found = {
        "chebyshev": peak({**case, "method": "chebyshev"}, settings),
        "first": peak({**case, "method": "chebyshev", "first": True}, settings),
        "convolution": peak({**case, "method": "convolution"}, settings),
    }
    if fits(shape, settings.device):
        found["broadcast"] = peak({**case, "method": "broadcast"}, settings)
    return found


def memory_case(case: dict[str, Any]) -> tuple[Step, Callable[[], Step]]:
    """A warm-up that loads the code, and what makes the step whose peak is asked for."""
    shape, nodals = Shape(*case["shape"]), SETS[case["operators"]]

    def made(size: Shape) -> Step:
        call = layer.request(size, nodals)
        x, w = layer.tensors(size, call, case["reach"], case["device"])
        return layer.step(layer.method(case["method"], call, Memory()), x, w)

    small = Shape(1, len(nodals), shape.kernel, shape.kernel, 1)
    return made(small), lambda: made(shape)
