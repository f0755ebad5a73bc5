"""What networks cost, as tables: by layer, side by side, by size of the input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onn_runner.analysis.costs import Cost, NetworkCost

LAYER_HEADINGS = (
    *("layer", "neurons", "output", "parameters", "MACs", "computed MACs", "psi values", "activations"),
    *("kept", "forward", "backward"),
)
GROWTH_HEADINGS = (
    *("network", "input", "MACs", "computed MACs", "kept for backward", "peak of a step", "forward", "backward"),
)
COUNTS = ("parameters", "macs", "computed_macs", "nodal", "activations", "kept", "forward", "backward")
"""Fields of a Cost, in the order of the tables."""


@dataclass(frozen=True)
class Profile:
    label: str
    own: NetworkCost
    """At the data's own size, by layer."""
    growth: tuple[NetworkCost, ...]
    """At every size, `own` among them."""

    def as_plain(self) -> dict[str, Any]:
        return {
            "name": self.label,
            "own": self.own.as_plain(),
            "sizes": [
                {"size": list(one.size), "batch": one.batch, "peak": one.peak, **asdict(one.total)}
                for one in self.growth
            ],
        }


def layer_rows(cost: NetworkCost) -> list[tuple[str, ...]]:
    """A row a layer, then what lies between them and the total; times with their share of the step."""
    step = cost.total.forward + cost.total.backward
    rows = [
        (row.name, row.kind, by(row.output_shape), *_cells(row.cost, step)) for row in cost.layers
    ]  # fmt: skip
    between = (*_cells(cost.between, step)[:-2], "", "")
    return [*rows, ("between layers", "", "", *between), ("total", "", "", *_cells(cost.total, step))]


def _cells(cost: Cost, step: float) -> tuple[str, ...]:
    counts = [f"{getattr(cost, name):,}" for name in COUNTS[:5]]
    times = [f"{milliseconds(value)} ({100 * value / step:.0f} %)" for value in (cost.forward, cost.backward)]
    return (*counts, mebibytes(cost.kept), *times)


def side_by_side(first: Any, second: Any) -> list[tuple[str, ...]]:
    """What each costs in all, and the first over the second."""
    words = {
        "parameters": "parameters", "macs": "MACs", "computed_macs": "computed MACs", "nodal": "psi values",
        "activations": "activations", "kept": "kept for backward", "forward": "forward", "backward": "backward",
    }  # fmt: skip
    rows = [
        (words[name], *(_figure(name, getattr(one.own.total, name)) for one in (first, second)),
         _ratio(*(getattr(one.own.total, name) for one in (first, second))))
        for name in COUNTS
    ]  # fmt: skip
    peaks = [one.own.peak for one in (first, second)]
    return [*rows, ("peak of a step", *map(mebibytes, peaks), _ratio(*peaks))]


def _figure(name: str, value: float) -> str:
    if name == "kept":
        return mebibytes(int(value))
    return milliseconds(value) if name in ("forward", "backward") else f"{value:,}"


def _ratio(first: float, second: float) -> str:
    return f"{first / second:.2f}" if second else "-"


def growth_rows(profiles: Sequence[Profile]) -> list[tuple[str, ...]]:
    return [
        (
            *(one.label, by(cost.size), f"{cost.total.macs:,}", f"{cost.total.computed_macs:,}"),
            *(mebibytes(cost.total.kept), mebibytes(cost.peak)),
            *(milliseconds(cost.total.forward), milliseconds(cost.total.backward)),
        )
        for one in profiles
        for cost in one.growth
    ]


def table(profiles: Sequence[Profile]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """(header, rows) of a tidy file: layers at the data's own size, totals at every size."""
    header = ("network", "input", "batch", "layer", "neurons", "output", *COUNTS, "peak")
    rows: list[tuple[Any, ...]] = []
    for one in profiles:
        for row in one.own.layers:
            place = (one.label, by(one.own.size), one.own.batch, row.name, row.kind, by(row.output_shape))
            rows.append((*place, *(getattr(row.cost, name) for name in COUNTS), ""))
        for cost in one.growth:
            place = (one.label, by(cost.size), cost.batch, "total", "", "")
            rows.append((*place, *(getattr(cost.total, name) for name in COUNTS), cost.peak))
    return header, rows


def notes(device: str) -> list[str]:
    """What the columns mean."""
    peak = (
        "by torch's count of the GPU's memory" if device.startswith("cuda")
        else "the tensors that are made, without what kernels need inside themselves"
    )  # fmt: skip
    return [
        "MACs: of a sample by definition, one for each weight and output position (operational neurons: one psi(w, x) "
        "each, so that they equal the psi values; quadratic ones: each of their convolutions; Self-ONN: each power)",
        "computed MACs: of the convolutions and matrix products that a forward really carries out; elementwise work, "
        "such as psi evaluated tap by tap, is none",
        "kept: what the batch's forward keeps for backward, storages counted once, without parameters; by the layer "
        "that kept them first",
        f"peak of a step: forward and backward beyond parameters, gradients and batch; {peak}",
        "times: the shortest of several runs; of layers alone on what they are given, so that they need not add up",
    ]


def by(size: Sequence[int]) -> str:
    return "x".join(map(str, size))


def mebibytes(count: int) -> str:
    """`1.25 MiB`; three digits."""
    value = count / 2**20
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f} MiB"


def milliseconds(seconds: float) -> str:
    """Three digits of milliseconds."""
    value = 1000 * seconds
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 2
    return f"{value:,.{min(digits, 4)}f} ms"
