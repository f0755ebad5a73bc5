"""One process at work on one run folder: folds trained, baselines scored, everything compared and written down."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from onn_runner import storage
from onn_runner.comparison import Scored, compared, fold_differences, gone, with_parts
from onn_runner.errors import Interrupted, OnnRunnerError, RunError, out_of_memory
from onn_runner.illustration import draw_fold, draw_run
from onn_runner.overview import Shown
from onn_runner.partition.base import Fold
from onn_runner.report import results as reporting
from onn_runner.report.folder import RunFolder, make
from onn_runner.task import baseline, baseline_classes
from onn_runner.trainer.fold import train_fold
from onn_runner.trainer.interrupt import StopRequest
from onn_runner.trainer.progress import QuietReporter
from onn_runner.trainer.result import FoldResult

if TYPE_CHECKING:
    from onn_runner.crossvalidation import Experiment

TWIN = "baseline"
"""The twin's folder, in every fold's and in the run's."""
OWN_TABLES = ("metrics.csv", "test_items.csv")
"""What training a fold leaves, the model's as the twin's."""


@dataclass
class Session:
    """What is known of a run so far."""

    experiment: Experiment
    folder: RunFolder
    folds: Sequence[Fold]
    shown: Shown
    reporter: QuietReporter
    stop: StopRequest
    out: Console
    began: float
    after_fold: Callable[[int, int, float], None] | None = None
    """Told of every fold that is finished and saved, if others are left; see experiment.Request."""
    results: dict[int, FoldResult] = field(default_factory=dict)
    twins: dict[int, FoldResult] = field(default_factory=dict)
    baselines: dict[int, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    differences: dict[int, Scored] = field(default_factory=dict)
    part: Mapping[str, Any] | None = None
    """{folds: [0, 2], of: 3} where the partition has folds that this run does not train."""

    def start(self) -> None:
        """Tell the reporter how much there is to do."""
        settings = self.experiment.settings
        kinds = 1 if self.experiment.twin is None else 2
        self.reporter.run_started(kinds * len(self.folds), settings.starts, settings.epochs)

    def status(self, default: str) -> str:
        diverged = any(result.any_diverged for result in [*self.results.values(), *self.twins.values()])
        return "diverged" if default == "done" and diverged else default

    def collect(self, status: str) -> dict[str, Any]:
        """results.json's content as far as it is known."""
        experiment = self.experiment
        higher = {name: metric.higher_is_better for name, metric in experiment.build_metrics().items()}
        return reporting.collect(
            name=experiment.name,
            status=self.status(status),
            monitor=experiment.settings.monitor,
            higher_is_better=higher,
            network=self.shown.model.as_plain(),
            folds=[asdict(self.results[index]) for index in sorted(self.results)],
            twin=self._twin(),
            baselines=self.baselines,
            comparison=compared(self.folds, self.differences, higher=higher, source=experiment.source),
            part=self.part,
            warnings=self.reporter.warnings,
            seconds=time.monotonic() - self.began,
        )

    def _twin(self) -> dict[str, Any] | None:
        if self.experiment.twin is None or self.shown.twin is None:
            return None
        return {
            "name": self.experiment.twin.name,
            "network": self.shown.twin.as_plain(),
            "folds": [asdict(self.twins[index]) for index in sorted(self.twins)],
        }

    def save(self, status: str) -> dict[str, Any]:
        """Write results.json, the joined CSV files and the status in run.json.

        Raises RunError where a table of a finished fold was removed: its rows must not vanish from the joined ones.
        """
        for results, below in ((self.results, ""), (self.twins, TWIN)):
            for index, result in results.items():
                for path in (self._fold(index) / below / name for name in OWN_TABLES):
                    if result.status == "done" and not path.is_file():
                        raise gone(path)
        results_now = self.collect(status)
        storage.write_json(self.folder.results, results_now)
        for name in reporting.TABLES:
            self._join(name, "")
        if self.twins:
            make(self.folder.path / TWIN)
            for name in OWN_TABLES:
                self._join(name, TWIN)
        self.folder.update_record(status=results_now["status"])
        return results_now

    def _join(self, name: str, below: str) -> None:
        parts = [self._fold(fold.index) / below / name for fold in self.folds]
        reporting.join_tables(parts, self.folder.path / below / name)

    def _fold(self, index: int) -> Path:
        return self.folder.path / f"fold_{index:02d}"

    def train(self, fold: Fold, *, resume: bool) -> None:
        """Train and test one fold, then its twin, then the baselines on it; what was finished earlier is read."""
        folder = self.folder.fold(fold.index)
        self.results[fold.index] = self._trained(self.experiment, fold, folder, resume=resume)
        twin = self.experiment.of_twin()
        if twin is not None and self.experiment.twin is not None:
            with self.reporter.training(self.experiment.twin.name):
                self.twins[fold.index] = self._trained(twin, fold, folder / TWIN, resume=resume)
        self.baselines[fold.index] = self._score_baselines(fold, folder / "baselines.json")
        self._compare(fold, folder)
        self.save("running")
        self._draw_curves()
        if self.stop.requested:
            raise Interrupted(f"stopped by {self.stop.reason}")
        if self.after_fold is not None and len(self.results) < len(self.folds):
            self.after_fold(len(self.results), fold.index, self._monitored(fold.index))

    def _monitored(self, index: int) -> float:
        """The monitored value of a finished fold, the worst there is where no start has one."""
        key, best = self.experiment.settings.monitor, self.results[index].best
        value = math.nan if best is None else best.validation.get(key, math.nan)
        return value if math.isfinite(value) else self.worst()

    def worst(self) -> float:
        """The worst value that the monitor could have."""
        metric = self.experiment.build_metrics().get(self.experiment.settings.monitor.partition("/")[2])
        return -math.inf if metric is not None and metric.higher_is_better else math.inf

    def _trained(self, experiment: Experiment, fold: Fold, folder: Path, *, resume: bool) -> FoldResult:
        job = experiment.job(fold, folder)
        try:
            result = train_fold(job, reporter=self.reporter, stop=self.stop, resume=resume)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, OnnRunnerError) or not out_of_memory(error):
                raise
            raise RunError(
                f"fold {fold.index}: not enough memory on {experiment.settings.device}: lower trainer.batch_size, "
                "trainer.eval_batch_size or network.channels"
            ) from error
        if not self.stop.requested:
            draw_fold(job, result, self.reporter)
        return result

    def _draw_curves(self) -> None:
        """The model's and the twin's."""
        experiment, numbers = self.experiment, [fold.index for fold in self.folds]
        for name, below in ((experiment.name, ""), (experiment.twin.name if experiment.twin else "", TWIN)):
            if experiment.settings.pictures and name:
                draw_run(
                    self.folder.path, below, name=name, monitor=experiment.settings.monitor, folds=numbers,
                    reporter=self.reporter,
                )  # fmt: skip

    def _score_baselines(self, fold: Fold, path: Path) -> Mapping[str, Mapping[str, float]]:
        if not fold.test:
            return {}
        items = path.with_name("baseline_items.csv")
        # What is missing or damaged is scored again.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            known = json.loads(path.read_text(encoding="utf-8"))
            if items.is_file():
                # JSON has no NaN.
                return {
                    name: {key: math.nan if value is None else value for key, value in scores.items()}
                    for name, scores in known.items()
                }
        self.reporter.note(f"fold {fold.index}: scoring the baselines")
        source, metrics = self.experiment.source, self.experiment.build_metrics
        most = self.experiment.settings.most_scored
        if getattr(source, "classes", None) is not None:
            scored = baseline_classes.measure(source, fold, metrics, self.reporter.note, most=most)
        else:
            clip = getattr(self.experiment.task, "clip_range", None)
            scored = baseline.measure(source, fold, metrics, clip=clip, most=most)
        means = {name: dict(result.means) for name, result in scored.items()}
        rows = baseline.item_rows(fold.index, scored, source, fold)
        reporting.write_table(items, baseline.ITEMS_HEADER, rows)
        storage.write_json(path, means)
        return means

    def _compare(self, fold: Fold, folder: Path) -> None:
        """The model's scores of the fold's items against the twin's and the baselines', where there are such scores."""
        best = self.results[fold.index].best
        if best is None:
            return
        means = dict(self.baselines[fold.index])
        others = dict.fromkeys(self.baselines[fold.index], folder / "baseline_items.csv")
        twin = self.twins.get(fold.index)
        if self.experiment.twin is not None and twin is not None and twin.best is not None:
            others = {self.experiment.twin.name: folder / TWIN / "test_items.csv", **others}
            means[self.experiment.twin.name] = twin.best.test
        found = fold_differences(folder / "test_items.csv", others, fold, self.experiment.source)
        self.differences[fold.index] = with_parts(found, best.test, means, fold)
