"""Train and test every fold of an experiment, with baselines on the same folds; keep the run folder up to date."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console
from torch import nn

from onn_runner import seeding, storage
from onn_runner.data.base import Source
from onn_runner.errors import ConfigError, Interrupted, OnnRunnerError, RunError, out_of_memory
from onn_runner.metric.base import ItemMetric
from onn_runner.overview import describe, show_device, threads_for
from onn_runner.partition import split as splitting
from onn_runner.partition.base import Fold, Partition
from onn_runner.report import folder as folders
from onn_runner.report import results as reporting
from onn_runner.report import screen, table
from onn_runner.report import tensorboard as events
from onn_runner.report.folder import RunFolder
from onn_runner.task import baseline
from onn_runner.task.base import Task
from onn_runner.trainer.device import busy, threads
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.fold import check, train_fold
from onn_runner.trainer.interrupt import StopRequest
from onn_runner.trainer.job import FoldJob
from onn_runner.trainer.progress import QuietReporter, make_reporter
from onn_runner.trainer.result import FoldResult
from onn_runner.trainer.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The parts of one experiment; the builders make fresh objects for every fold and start."""

    name: str
    config: Mapping[str, Any]
    seed: int
    source: Source
    partition: Partition
    task: Task
    build_network: Callable[[], nn.Module]
    build_optimizer: Callable[..., torch.optim.Optimizer]
    schedule: Any
    build_metrics: Callable[[], dict[str, ItemMetric]]
    settings: Settings

    def example_network(self) -> nn.Module:
        """A network to look at; leaves torch's random state as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seeding.derive("example", self.seed))
            return self.build_network()

    def job(self, fold: Fold, folder: Path) -> FoldJob:
        """What the trainer needs for one fold."""
        return FoldJob(
            fold=fold,
            folder=folder,
            seed=self.seed,
            source=self.source,
            task=self.task,
            build_network=self.build_network,
            build_optimizer=self.build_optimizer,
            build_scheduler=self.schedule,
            build_metrics=self.build_metrics,
            settings=self.settings,
            config=dict(self.config),
        )


@dataclass
class Session:
    """One process working on one run folder."""

    experiment: Experiment
    folder: RunFolder
    folds: Sequence[Fold]
    network: Mapping[str, Any]
    reporter: QuietReporter
    stop: StopRequest
    out: Console
    began: float
    results: dict[int, FoldResult]
    baselines: dict[int, Mapping[str, Mapping[str, float]]]

    def status(self, default: str) -> str:
        diverged = any(result.any_diverged for result in self.results.values())
        return "diverged" if default == "done" and diverged else default

    def collect(self, status: str) -> dict[str, Any]:
        """results.json's content as far as it is known."""
        experiment = self.experiment
        metrics = experiment.build_metrics()
        return reporting.collect(
            name=experiment.name,
            status=self.status(status),
            monitor=experiment.settings.monitor,
            higher_is_better={name: metric.higher_is_better for name, metric in metrics.items()},
            network=self.network,
            folds=[asdict(self.results[index]) for index in sorted(self.results)],
            baselines=self.baselines,
            warnings=self.reporter.warnings,
            seconds=time.monotonic() - self.began,
        )

    def save(self, status: str) -> dict[str, Any]:
        """Write results.json, the joined CSV files and the status in run.json.

        Raises RunError where a table of a finished fold was removed: its rows must not vanish from the joined ones.
        """
        for index, result in self.results.items():
            for path in (self.folder.path / f"fold_{index:02d}" / name for name in ("metrics.csv", "test_items.csv")):
                if result.status == "done" and not path.is_file():
                    raise RunError(
                        f"{path} is gone: remove status.json beside it, then resume: the fold is scored again"
                    )
        results = self.collect(status)
        storage.write_json(self.folder.results, results)
        for name in reporting.TABLES:
            reporting.join_tables(
                [self.folder.path / f"fold_{fold.index:02d}" / name for fold in self.folds], self.folder.path / name
            )
        self.folder.update_record(status=results["status"])
        return results

    def train(self, fold: Fold, *, resume: bool) -> None:
        """Train and test one fold, then the baselines on it; what an earlier process finished is read."""
        folder = self.folder.fold(fold.index)
        job = self.experiment.job(fold, folder)
        try:
            self.results[fold.index] = train_fold(job, reporter=self.reporter, stop=self.stop, resume=resume)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, OnnRunnerError) or not out_of_memory(error):
                raise
            raise RunError(
                f"fold {fold.index}: not enough memory on {self.experiment.settings.device}: lower trainer.batch_size, "
                "trainer.eval_batch_size or network.channels"
            ) from error
        self.baselines[fold.index] = self._score_baselines(fold, folder / "baselines.json")
        self.save("running")
        if self.stop.requested:
            raise Interrupted(f"stopped by {self.stop.reason}")

    def _score_baselines(self, fold: Fold, path: Path) -> Mapping[str, Mapping[str, float]]:
        # What is missing or damaged is scored again.
        with contextlib.suppress(OSError, ValueError):
            known: Mapping[str, Mapping[str, float]] = json.loads(path.read_text(encoding="utf-8"))
            return known
        self.reporter.note(f"fold {fold.index}: scoring the baselines")
        source, clip = self.experiment.source, getattr(self.experiment.task, "clip_range", None)
        scored = baseline.measure(source, fold, self.experiment.build_metrics, clip=clip)
        means = {name: dict(result.means) for name, result in scored.items()}
        rows = baseline.item_rows(fold.index, scored, source, fold)
        reporting.write_table(path.with_name("baseline_items.csv"), baseline.ITEMS_HEADER, rows)
        storage.write_json(path, means)
        return means


def carry_out(
    experiment: Experiment,
    *,
    fixed_folder: Path | None,
    resume: Path | None,
    check_resumable: Callable[[Mapping[str, Any]], None],
    origin: Mapping[str, Sequence[str]],
) -> tuple[int, float | None, Path]:
    """(exit code, score for a sweeper, run folder). Raises OnnRunnerError; what was done until then is kept."""
    out = screen.console()
    if resume is None:
        folds: Sequence[Fold] = experiment.partition.split(experiment.source)
        summary = describe(out, experiment, folds)
        count = threads_for(experiment, summary)
        folder = begin(experiment, folds, fixed_folder, {**origin, "threads": count})
    else:
        folder = RunFolder(resume)
        folds = reopen(experiment, folder, check_resumable)
        summary = describe(out, experiment, folds)
        # Sums over another number of threads differ in their last bits.
        count = folder.read_record().get("threads") or threads_for(experiment, summary)
    with threads(count), folder.lock(), StopRequest().install() as stop, make_reporter() as reporter:
        show_device(out, experiment, count)
        warning = busy(count)
        if warning:
            reporter.warn(warning)
            reporter.note(f"warning: {warning}")
        if resume is not None:
            note_resumption(experiment, folder, origin, reporter)
        session = Session(experiment, folder, folds, summary.as_plain(), reporter, stop, out, time.monotonic(), {}, {})
        reporter.run_started(len(folds), experiment.settings.starts, experiment.settings.epochs)
        with closing(session):
            for fold in folds:
                session.train(fold, resume=resume is not None)
    return finish(session)


def begin(experiment: Experiment, folds: Sequence[Fold], fixed: Path | None, origin: Mapping[str, Any]) -> RunFolder:
    """A new run folder with the config, the command and the split in it."""
    for fold in folds:
        check(experiment.job(fold, Path()))
    # Only here do the optimizer's values and frozen patterns meet a network: what is wrong is refused without a folder.
    with torch.random.fork_rng(devices=[]):
        Engine(experiment.job(folds[0], Path()), 0, higher=True)
    folder = folders.create(experiment.name, root=Path("outputs"), fixed=fixed)
    storage.write_text(folder.config, as_yaml(experiment.config))
    storage.write_json(folder.split, splitting.as_plain(folds, fingerprint=experiment.source.fingerprint()))
    # Last: what has a run.json can be resumed.
    storage.write_json(folder.record, folders.describe(**origin))
    return folder


def note_resumption(
    experiment: Experiment, folder: RunFolder, origin: Mapping[str, Sequence[str]], reporter: QuietReporter
) -> None:
    """Record who goes on and with what; warnings of the processes before stay."""
    record = folder.read_record()
    entry, warning = folders.resumption(record, origin["command"])
    with contextlib.suppress(OSError, ValueError):
        for text in json.loads(folder.results.read_text())["warnings"]:
            reporter.warn(text)
    if warning:
        reporter.warn(warning)
        reporter.note(f"warning: {warning}")
    # The overrides before the config: a run stopped here is resumed as it was asked for last.
    folder.update_record(status="running", overrides=list(origin["overrides"]), resumed=[*record["resumed"], entry])
    storage.write_text(folder.config, as_yaml(experiment.config))


def reopen(
    experiment: Experiment, folder: RunFolder, check_resumable: Callable[[Mapping[str, Any]], None]
) -> Sequence[Fold]:
    """The stored split of an earlier run, after its config and data were found to be the same."""
    folder.read_record()
    try:
        stored = yaml.safe_load(folder.config.read_text())
        split = json.loads(folder.split.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"resume={folder.path}: config.yaml or split.json cannot be read ({error})") from error
    if not isinstance(stored, dict):
        raise ConfigError(f"resume={folder.path}: config.yaml is empty or damaged: restore it, or start a new run")
    check_resumable(stored)
    return splitting.from_plain(split, fingerprint=experiment.source.fingerprint())


@contextlib.contextmanager
def closing(session: Session) -> Iterator[None]:
    """Whatever ends the training early is written down, and the reader told how to go on."""
    try:
        yield
    except BaseException as error:
        interrupted = isinstance(error, Interrupted | KeyboardInterrupt)
        status = "interrupted" if interrupted else "failed"
        with contextlib.suppress(OnnRunnerError, OSError):
            results = session.save(status)
            events.write_run(session.folder.path, results, parameters=session.experiment.config, failed=True)
        session.reporter.note(
            f"{status}: go on with  onn-run resume={screen.quoted(screen.relative(session.folder.path))}"
        )
        raise


def finish(session: Session) -> tuple[int, float | None, Path]:
    """The final table, on the screen and as Markdown, and the run's TensorBoard summary."""
    results = session.save("done")
    final = table.build(results)
    storage.write_text(session.folder.path / "table.md", table.markdown(final))
    failed = bool(results["status"] == "diverged")
    events.write_run(session.folder.path, results, parameters=session.experiment.config, failed=failed)
    screen.show_table(session.out, final)
    screen.show_places(session.out, session.folder.path, monitor=results["monitor"])
    return int(failed), score(results), session.folder.path


def score(results: Mapping[str, Any]) -> float | None:
    """The monitored value's mean over folds, for sweepers; the worst value where a fold has none."""
    monitor = results["monitor"]
    mean = results["cv"].get(monitor, {}).get("mean")
    if mean is None or any(fold["best_start"] is None for fold in results["folds"]):
        higher = results["higher_is_better"].get(monitor.partition("/")[2], False)
        return -math.inf if higher else math.inf
    return float(mean)


def as_yaml(config: Mapping[str, Any]) -> str:
    """The resolved config, keys in written order."""
    text: str = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
    return text
