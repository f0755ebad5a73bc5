"""What a study knows: runs as their folders tell them, methods with one run a seed, and what was computed of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Status = Literal[
    "done", "diverged", "pruned", "interrupted", "failed", "running", "killed", "refused", "waiting", "unreadable"
]
Kind = Literal["model", "twin", "untrained"]
Test = Literal["signed-rank by item", "corrected t by fold", "signed-rank by fold"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run folder, or a job of a sweep that has none yet; whatever could not be read is None or empty."""

    folder: Path
    name: str
    status: Status
    reason: str = ""
    """Why it is not "done": the error of a failed job, where it diverged, what cannot be read."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """config.yaml, nested as it is."""
    overrides: tuple[str, ...] = ()
    """In Hydra's grammar: what the run was composed from."""
    command: str = ""
    """The exact command that repeats it, quoted for a shell."""
    results: Mapping[str, Any] | None = None
    """results.json."""
    split: Mapping[str, Any] | None = None
    """split.json."""
    fingerprint: str | None = None
    """That of the data."""
    code: str | None = None
    """Version and digest of the code that computed it."""
    seed: int | None = None
    folds_done: int = 0
    folds_planned: int | None = None
    started: str = ""
    sweep: Path | None = None
    """The folder of the sweep whose job it is."""
    whole: bool = True
    """False: it does not count, whatever its status, for the reason that `reason` gives."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """Runs that differ in their seed alone, of one split of the same data."""

    label: str
    """Short, made of the keys in which the study's runs differ: "onn sine+exp", "quadratic t4, lr 0.001"."""
    kind: Kind = "model"
    part: str = ""
    """Of a twin or an untrained baseline: its name in results.json."""
    runs: tuple[Run, ...] = ()
    """One for each seed, every fold with a result."""
    left_out: tuple[Run, ...] = ()
    """Half-finished, failed and repeated ones: named, never averaged."""

    @property
    def seeds(self) -> tuple[int | None, ...]:
        return tuple(run.seed for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class Study:
    """All methods of some folders: trained ones first, then twins, then untrained baselines."""

    methods: tuple[Method, ...]
    empty: tuple[Method, ...] = ()
    """Methods without a whole run."""
    failures: tuple[Run, ...] = ()
    """Every run that is not whole, each with its reason; those that methods left out are among them."""
    monitor: str = ""
    """"val/psnr"."""
    metrics: Mapping[str, bool | None] = field(default_factory=dict)
    """Score keys in the order to be shown, "test/psnr" -> whether a higher one is better; None: neither."""
    notes: tuple[str, ...] = ()

    def method(self, label: str) -> Method:
        return next(method for method in self.methods if method.label == label)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One score of one method. A fold's value is its mean over seeds; mean and std are over the folds' values."""

    label: str
    key: str
    mean: float | None
    std: float | None
    """Sample standard deviation over folds; None for a single one."""
    low: float | None
    high: float | None
    """95 % interval of the mean over folds, widened where the folds' training sets overlap."""
    std_seeds: float | None
    """Sample standard deviation over seeds of the mean over folds; None for a single seed."""
    values: tuple[float, ...]
    """The folds' values, in the order of `folds`."""
    folds: tuple[int, ...]
    seeds: tuple[int | None, ...]
    by_seed: tuple[tuple[float, ...], ...] = ()
    """Seed, then fold: the single values."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One test of one score: a method minus the baseline method, paired."""

    label: str
    baseline: str
    key: str
    test: Test
    unit: str
    """What counts as one number: "photographs", "groups", "items", "folds"."""
    n: int = 0
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    """95 % interval of the mean difference, not adjusted for the number of methods."""
    p: float | None = None
    p_holm: float | None = None
    """Adjusted for all methods that are compared with the baseline in this score by this test."""
    attainable: float | None = None
    """The smallest p that so many numbers can give; None where there is no such bound."""
    better: int | None = None
    worse: int | None = None
    left_out: int = 0
    """Items without a finite difference."""
    not_paired: str = ""
    """Why there is no comparison: "other data", "other split"."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What one method took; None where no run tells. Times and energy are of a run: the mean over seeds."""

    label: str
    parameters: int | None = None
    macs: int | None = None
    seconds: float | None = None
    """Training of all folds, s."""
    peak_memory: int | None = None
    """Bytes, the largest of all runs."""
    energy: float | None = None
    """J, of all folds."""
    energy_of: str = ""
    """What it counts: "cpu", "gpu", "cpu+gpu"."""
    devices: tuple[str, ...] = ()
