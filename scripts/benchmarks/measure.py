"""Time by interleaved repetitions, peak memory in a process of its own, bytes kept for backward."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.layer import Step

SCRIPT = Path(__file__).resolve().parent.parent / "benchmark.py"
AT_LEAST = 0.04
"""Seconds of each method in a repetition: short steps are taken several times, and their median counts."""
PEAKS = Path("/proc/self/clear_refs")
"""Linux forgets a process's peak on writing 5 here."""

RETURNING = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""Makes the C library give freed tensors back at once, so that what is held is what is in use."""


@dataclass(frozen=True)
class Settings:
    """What a run of the benchmark was asked for."""

    device: str = "cpu"
    ranges: tuple[float, ...] = (0.5, 1.57, 3.0)
    repetitions: int = 7
    size: str = "full"
    """`full`, `quick` (one shape of each table) or `tiny` (shapes that say nothing, for tests)."""
    memory: bool = True
    """Whether to measure peaks, each in a process of its own."""

    @property
    def main(self) -> float:
        """The range of weights that targets are stated for, or the only one that was asked for."""
        return 1.57 if 1.57 in self.ranges else self.ranges[0]


@dataclass(frozen=True)
class Spread:
    """The median over repetitions, with the lowest and the highest."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_digits(self.median)} ({_digits(self.low)}–{_digits(self.high)})"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def seconds(step: Step, device: str) -> float:
    """Of one step: by events on a GPU, by the clock elsewhere."""
    if device.startswith("cuda"):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        step()
        ended.record()
        torch.cuda.synchronize()
        return began.elapsed_time(ended) / 1e3
    clock = time.perf_counter()
    step()
    return time.perf_counter() - clock


def interleaved(steps: Mapping[str, Step], settings: Settings) -> dict[str, list[float]]:
    """Seconds of each step in each repetition, one step after another, so that a noisy machine disturbs all alike."""
    counts = {}
    for name, step in steps.items():
        seconds(step, settings.device)
        counts[name] = min(20, math.ceil(AT_LEAST / max(seconds(step, settings.device), 1e-5)))
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(settings.repetitions):
        for name, step in steps.items():
            found[name].append(statistics.median(seconds(step, settings.device) for _ in range(counts[name])))
    return found


def ratio(times: Mapping[str, list[float]], over: str, under: str) -> Spread:
    """How many times longer `over` takes than `under`, repetition by repetition."""
    ratios = [a / b for a, b in zip(times[over], times[under], strict=True)]
    return Spread(statistics.median(ratios), min(ratios), max(ratios))


def milliseconds(times: Mapping[str, list[float]]) -> dict[str, float]:
    """Medians."""
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def peak(case: Mapping[str, Any], settings: Settings) -> float | None:
    """Megabytes that a step takes at its peak above what was held before it, in a process of its own.

    `case` names the table whose `memory_case` builds the step there. Measured is the second step, which finds plans and
    caches that the first one made, or with `first` that one. None where the system cannot tell (not Linux).
    """
    if not settings.memory or not (settings.device.startswith("cuda") or PEAKS.exists()):
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "case.pt")
        torch.save({**case, "device": settings.device, "threads": torch.get_num_threads()}, path)
        command = [sys.executable, str(SCRIPT), "--memory-of", str(path)]
        environment = {**os.environ, **RETURNING}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {dict(case)} failed:\n{done.stderr}")
    return float(done.stdout.split()[-1])


def peak_of(warm_up: Step, prepare: Callable[[], Step], case: Mapping[str, Any]) -> float:
    """In the process of its own: megabytes above what is held once the code is loaded and the tensors are made."""
    warm_up()
    step, device = prepare(), case["device"]
    if not case.get("first"):
        step()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return float(torch.cuda.max_memory_allocated() - before) / 2**20
    # the peak so far, which a process also inherits from the one that started it, is forgotten
    PEAKS.write_text("5")
    held = _peak_kilobytes()
    step()
    return (_peak_kilobytes() - held) / 1024


def _peak_kilobytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def kept(forward: Callable[[], Tensor], *given: Tensor) -> int:
    """Bytes that autograd keeps for backward besides `given`: storages, each counted once."""
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = forward()
    mine = {tensor.untyped_storage().data_ptr() for tensor in given}
    total = sum(size for place, size in storages.items() if place not in mine)
    del result
    return total


def available(device: str) -> float:
    """Bytes of memory that are free."""
    if device.startswith("cuda"):
        return float(torch.cuda.mem_get_info()[0])
    text = Path("/proc/meminfo").read_text() if Path("/proc/meminfo").exists() else ""
    words = text.partition("MemAvailable:")[2].split()
    return float(words[0]) * 1024 if words else math.inf
