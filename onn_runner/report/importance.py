"""How much each layer of a network is missed, as tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from onn_runner.analysis.importance import Importance
from onn_runner.report.table import UNITS, Table, figure

HEADER = (
    *("rank", "unit", "layers", "parameters", "macs", "parameter_share", "mac_share", "value", "drop", "importance"),
    "stays_because",
)


@dataclass(frozen=True, kw_only=True)
class Reduction:
    title: str
    metric: str
    higher: bool
    whole: float
    """The metric of the whole network."""
    rows: tuple[Importance, ...]
    """In the network's order."""
    parameters: int
    macs: int
    mask: str
    items: str
    """`24 validation items`."""

    @property
    def by_rank(self) -> list[Importance]:
        """What can be left out, the first to go first; then the others in the network's order."""
        return sorted(self.rows, key=lambda row: math.inf if row.rank is None else row.rank)

    def as_plain(self) -> dict[str, Any]:
        names = ("title", "metric", "higher", "whole", "parameters", "macs", "mask", "items")
        return {**{name: getattr(self, name) for name in names}, "units": [row.as_plain() for row in self.by_rank]}


def rows(reduction: Reduction) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """(header, rows) of a tidy file; numbers as they are."""
    found = [
        (
            *("" if row.rank is None else row.rank, row.name, " ".join(row.layers), row.parameters, row.macs),
            *(repr(value) for value in (row.parameter_share, row.mac_share, row.value, row.drop, row.importance)),
            row.stays_because,
        )
        for row in reduction.by_rank
    ]
    return HEADER, found


def table(reduction: Reduction) -> Table:
    """For the screen and as Markdown."""
    metric, unit = reduction.metric, UNITS.get(reduction.metric)
    name = metric.upper() + (f" [{unit}]" if unit else "")
    headings = ("rank", "without", "parameters", "", "MACs", "", name, "drop", "RI")
    return Table(
        title=f"{reduction.title}: {name} of {figure(reduction.whole, metric)} without each",
        headings=headings,
        rows=tuple(
            (
                "-" if row.rank is None else str(row.rank),
                row.name,
                *(f"{row.parameters:,}", f"{100 * row.parameter_share:.1f} %"),
                *(f"{row.macs:,}", f"{100 * row.mac_share:.1f} %"),
                *(figure(row.value, metric), figure(row.drop, metric)),
                row.stays_because or ("free" if math.isinf(row.importance) else f"{row.importance:.3g}"),
            )
            for row in reduction.by_rank
        ),
        sections=(),
        notes=(
            f"on {reduction.items}, by the best weights; {_masked(reduction.mask)}",
            f"RI = share of parameters x share of MACs / drop of {name}: what is large costs much and is missed little",
            "free: not missed at all (a drop of 0 or less), ranked first, the costliest first",
            "each alone: what several together are worth only training the reduced network tells",
            *_chain(reduction),
        ),
    )


def _masked(mask: str) -> str:
    if mask == "skip":
        return "what keeps channels and size hands on its input, the weights of the rest are 0"
    return "its weights are 0, so that of a residual block the shortcut is left"


def _chain(reduction: Reduction) -> list[str]:
    """Where every layer's zeros end the same way."""
    drops = [round(row.drop, 9) for row in reduction.rows if not row.stays_because]
    if reduction.mask != "zero" or len(drops) < 2 or len(set(drops)) > 1:
        return []
    return [
        "every drop is the same: in a chain a layer of zeros leaves nothing of the input; --mask skip tells more where "
        "layers keep channels and size"
    ]
