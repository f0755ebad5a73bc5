"""How much data may be kept in memory, and how much is."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

from onn_runner.checks import flag

SHARE = 0.5
"""Of the memory that is free: the network, its gradients and other programs need the rest."""


def budget(in_memory: object) -> float:
    """Bytes that data may take: by `data.in_memory` all (true), none (false), or a share of what is free (null)."""
    if in_memory is None:
        return SHARE * free_bytes()
    return math.inf if flag("data.in_memory", in_memory) else 0


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def free_bytes() -> int:
    with contextlib.suppress(OSError, ValueError, LookupError, StopIteration):
        # Linux: what it would give back of its cache of files counts as free.
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except ValueError:
        # Not every system tells what is free.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
