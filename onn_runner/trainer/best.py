"""The best weights of a start: which epoch by which monitor, their files, and the mean of the best few epochs."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from onn_runner.trainer import batches, weights
from onn_runner.trainer.averages import mean_of
from onn_runner.trainer.checkpoint import Checkpoint
from onn_runner.trainer.divergence import NonFiniteError
from onn_runner.trainer.evaluate import Evaluator
from onn_runner.trainer.job import FoldJob
from onn_runner.trainer.monitor import Monitor


@dataclass
class Best:
    job: FoldJob
    start: int
    folder: Path
    monitors: tuple[Monitor, ...]
    rivals: Mapping[str, float]
    """Monitored key -> what earlier starts of the fold reached."""
    found: dict[str, dict[str, float]] = field(default_factory=dict)
    """Monitored key -> {epoch, value}."""
    candidates: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Epoch -> {value, network} of the best trainer.average epochs."""

    @property
    def epoch(self) -> int | None:
        """The best by trainer.monitor; None where its value was never finite."""
        best = self.found.get(self.monitors[0].key)
        return int(best["epoch"]) if best else None

    def take(self, values: Mapping[str, float], network: nn.Module) -> list[Monitor]:
        """Look at a finished epoch; the monitors by which it is the best so far."""
        improved = [m for m in self.monitors if m.better(values[m.key], self.found.get(m.key, {}).get("value"))]
        self.found |= {m.key: {"epoch": values["epoch"], "value": values[m.key]} for m in improved}
        value, count = values[self.monitors[0].key], self.job.settings.average
        if count is not None and math.isfinite(value):
            state = copy.deepcopy(dict(network.state_dict()))
            self.candidates[int(values["epoch"])] = {"value": value, "network": state}
            self.candidates = {epoch: self.candidates[epoch] for epoch in self._ranked()[:count]}
        return improved

    def _ranked(self) -> list[int]:
        """Epochs of candidates, the best first, the earlier of equals first."""
        sign = -1 if self.monitors[0].higher else 1
        return sorted(self.candidates, key=lambda epoch: (sign * self.candidates[epoch]["value"], epoch))

    def save(self, improved: list[Monitor], network: Mapping[str, Any], row: Mapping[str, float]) -> None:
        """The network of the newest epoch, in the file of each monitor by which it is the best."""
        for monitor in improved:
            self._write(monitor, network, row)
            beaten = monitor.better(self.found[monitor.key]["value"], self.rivals.get(monitor.key))
            if self.folder != self.job.folder and beaten:
                weights.publish_best(self.folder / monitor.file, self.job.folder, often=True)

    def facts(self, history: Sequence[Mapping[str, float]], mean: Mean | None) -> dict[str, Any]:
        """The fields of a StartResult that tell of the best epoch and, where it is taken, of the mean."""
        row = dict(history[self.epoch - 1]) if self.epoch else {}
        best = {key: found["value"] for key, found in self.found.items()}
        if mean is not None and mean.taken and mean.key.startswith("val/"):
            row |= mean.scores
            best[mean.key] = mean.value
        return {
            "best_epoch": self.epoch,
            "averaged": mean.epochs if mean is not None and mean.taken else [],
            "best": best,
            "validation": {key: value for key, value in row.items() if key != "epoch"},
        }

    def try_mean(self, evaluator: Evaluator, row: Mapping[str, float]) -> Mean | None:
        """Score the mean of the candidates and the best of them on the monitored part; best.pt is what is not worse.

        A monitored training value is that of the training items as they are scored, not the one of training.
        None where there are fewer than two candidates.
        """
        ranked = self._ranked()
        if len(ranked) < 2:
            return None
        monitor = self.monitors[0]
        states = [self.candidates[epoch]["network"] for epoch in ranked]
        mean = mean_of(states)
        scores, alone = self._score(evaluator, mean), self._score(evaluator, states[0])
        value, best = scores.get(monitor.key, math.nan), alone.get(monitor.key, math.nan)
        taken = math.isfinite(value) and not monitor.better(best, value)
        epochs = sorted(ranked)
        self._write(monitor, mean if taken else states[0], row, averaged=epochs if taken else [])
        return Mean(epochs, taken, monitor.key, value, best, scores if taken else {})

    def _score(self, evaluator: Evaluator, state: dict[str, Any]) -> dict[str, float]:
        """Empty where a value is not finite."""
        split = self.monitors[0].key.partition("/")[0]
        part = self.job.fold.validation if split == "val" else self.job.fold.train
        order = self.job.limited(batches.in_order(len(part), self.job.settings.eval_batch_size))
        evaluator.engine.load_network(state)
        try:
            return evaluator.score(split, self.job.source.fixed(part), order).means
        except NonFiniteError:
            return {}

    def _write(
        self,
        monitor: Monitor,
        network: Mapping[str, Any],
        row: Mapping[str, float],
        *,
        averaged: list[int] | None = None,
    ) -> None:
        best = self.found[monitor.key]
        newest = Checkpoint(
            config=self.job.config,
            seed=self.job.seed,
            fold=self.job.fold.index,
            start=self.start,
            epoch=int(best["epoch"]),
            network=dict(network),
            best={monitor.key: best},
            history=[dict(row)],
            averaged=averaged or [],
        )
        weights.save_best(self.folder / monitor.file, newest)


@dataclass(frozen=True)
class Mean:
    """What became of the mean of the best epochs' weights."""

    epochs: list[int]
    taken: bool
    key: str
    value: float
    alone: float
    """The best epoch's value, scored in the same way."""
    scores: dict[str, float]
    """Of the monitored part by the mean, where it is taken."""

    def __str__(self) -> str:
        epochs = ", ".join(map(str, self.epochs))
        decision = "taken" if self.taken else "not taken"
        return (
            f"the mean of the weights of epochs {epochs} has {self.key} {self.value:.4g}, "
            f"the best epoch {self.alone:.4g}: {decision}"
        )
