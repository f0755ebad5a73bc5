"""What serves a call: a kernel by name, and for chebyshev the expansion; plain values, so that it can be kept."""

from __future__ import annotations

from dataclasses import dataclass

from onn_runner.compute.expansion import Expansion


@dataclass(frozen=True)
class Decision:
    """Made from a call's values once; forward and backward pass obey it."""

    kernel: str
    reason: str | None = None
    """What to tell instead of the kernel's own words."""
    expansion: Expansion | None = None
