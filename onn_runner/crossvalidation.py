"""Train and test every fold of an experiment, with baselines on the same folds; keep the run folder up to date."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from onn_runner import plain, seeding, storage
from onn_runner.comparison import grouping
from onn_runner.data.base import Source
from onn_runner.errors import ConfigError, Interrupted, OnnRunnerError, Pruned
from onn_runner.metric.base import ItemMetric
from onn_runner.overview import describe, show_device, threads_for
from onn_runner.partition import split as splitting
from onn_runner.partition.base import Fold, Partition
from onn_runner.partition.selecting import Selecting
from onn_runner.report import folder as folders
from onn_runner.report import screen, table
from onn_runner.report import tensorboard as events
from onn_runner.report.differences import differences
from onn_runner.report.folder import RunFolder
from onn_runner.session import Session
from onn_runner.task.base import Task
from onn_runner.trainer.device import busy, threads
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.fold import check
from onn_runner.trainer.interrupt import StopRequest
from onn_runner.trainer.job import FoldJob
from onn_runner.trainer.progress import QuietReporter, make_reporter
from onn_runner.trainer.schedule import never_warm
from onn_runner.trainer.settings import Settings


@dataclass(frozen=True)
class Twin:
    """The same topology of other neurons, trained and tested on the same folds, seeds, starts and items."""

    name: str
    """The option of `baseline`: "conv"."""
    build_network: Callable[[], nn.Module]


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
    twin: Twin | None = None
    initial: Callable[[Fold, str], nn.Module] | None = None
    """(fold, the data's fingerprint) -> the first-order network that the model's training begins with."""
    near: bool = False
    """Whether neurons that cannot be a convolution may start close to it."""

    def example_network(self) -> nn.Module:
        """A network to look at; leaves torch's random state as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seeding.derive("example", self.seed))
            return self.build_network()

    def folds(self) -> Sequence[Fold]:
        """Those of the partition, partition.only, or the first trainer.limit_folds."""
        return self.partition.split(self.source)[: self.settings.limit_folds]

    def count(self) -> int:
        """How many folds the partition has, those that are left out counted."""
        partition = self.partition
        return len(partition.every(self.source) if isinstance(partition, Selecting) else partition.split(self.source))

    def of_twin(self) -> Experiment | None:
        """The same experiment with the twin's network; None without a twin."""
        if self.twin is None:
            return None
        return replace(self, build_network=self.twin.build_network, twin=None, initial=None)

    def job(self, fold: Fold, folder: Path) -> FoldJob:
        """What the trainer needs for one fold; where classes have weights, those of its training part."""
        initial = self.initial
        return FoldJob(
            fold=fold,
            folder=folder,
            seed=self.seed,
            source=self.source,
            task=self._task(fold),
            build_network=self.build_network,
            build_optimizer=self.build_optimizer,
            build_scheduler=self.schedule,
            build_metrics=self.build_metrics,
            settings=self.settings,
            initial=None if initial is None else lambda: initial(fold, self.source.fingerprint()),
            near=self.near,
            config=dict(self.config),
        )

    def _task(self, fold: Fold) -> Task:
        labels, weighted = self.source.labels, getattr(self.task, "for_training", None)
        if labels is None or weighted is None:
            return self.task
        task: Task = weighted([labels[index] for index in fold.train])
        return task


def carry_out(
    experiment: Experiment,
    *,
    fixed_folder: Path | None,
    resume: Path | None,
    check_resumable: Callable[[Mapping[str, Any]], None],
    origin: Mapping[str, Any],
    after_fold: Callable[[int, int, float], None] | None = None,
) -> tuple[int, float | None, Path, dict[str, Any]]:
    """(exit code, score for a sweeper, run folder, objectives). Raises OnnRunnerError; what was done is kept."""
    out = screen.console()
    if resume is None:
        folds: Sequence[Fold] = experiment.folds()
        shown = describe(out, experiment, folds)
        count = threads_for(experiment, shown.model.summary)
        folder = begin(experiment, folds, fixed_folder, {**origin, "threads": count})
    else:
        folder = RunFolder(resume)
        folds = reopen(experiment, folder, check_resumable)
        shown = describe(out, experiment, folds)
        # Sums over another number of threads differ in their last bits.
        count = folder.read_record().get("threads") or threads_for(experiment, shown.model.summary)
    with threads(count), folder.lock(), StopRequest().install() as stop, make_reporter() as reporter:
        show_device(out, experiment, count)
        warning = busy(count)
        if warning:
            reporter.warn(warning)
            reporter.note(f"warning: {warning}")
        if resume is not None:
            note_resumption(experiment, folder, origin, reporter)
        if experiment.settings.limit_folds is not None:
            reporter.warn(f"trainer.limit_folds={experiment.settings.limit_folds}: the other folds are left out")
        if told := never_warm(experiment.schedule, epochs=experiment.settings.epochs):
            reporter.warn(told)
        session = Session(experiment, folder, folds, shown, reporter, stop, out, time.monotonic(), after_fold)
        session.part = splitting.part_of(json.loads(folder.split.read_text(encoding="utf-8")), folds)
        session.start()
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
        for one in filter(None, (experiment, experiment.of_twin())):
            job = one.job(folds[0], Path())
            engine = Engine(job, 0, higher=True)
            if job.initial is not None:
                engine.begin_with(job.initial(), near=job.near)
    folder = folders.create(experiment.name, root=Path("outputs"), fixed=fixed)
    storage.write_text(folder.config, as_yaml(experiment.config))
    fingerprint, names = experiment.source.fingerprint(), experiment.source.names
    split = splitting.as_plain(
        folds, fingerprint=fingerprint, names=names, of=experiment.count(), grouping=grouping(experiment.source)
    )
    storage.write_json(folder.split, split)
    # Last: what has a run.json can be resumed.
    storage.write_json(folder.record, folders.describe(**origin))
    return folder


def note_resumption(
    experiment: Experiment, folder: RunFolder, origin: Mapping[str, Any], reporter: QuietReporter
) -> None:
    """Record who goes on and with what; warnings of the processes before stay."""
    record = folder.read_record()
    entry, warning = folders.resumption(record, origin["command"], code=origin["code"])
    with contextlib.suppress(ConfigError, TypeError, LookupError):
        for text in plain.read_json(folder.results)["warnings"]:
            reporter.warn(plain.printable(str(text)))
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
    folder.refuse_links()
    folder.read_record()
    try:
        stored, split = plain.read_yaml(folder.config), plain.read_json(folder.split)
    except ConfigError as error:
        raise ConfigError(f"resume={folder.path}: config.yaml or split.json cannot be read ({error})") from error
    if not isinstance(stored, dict):
        raise ConfigError(f"resume={folder.path}: config.yaml is empty or damaged: restore it, or start a new run")
    check_resumable(stored)
    return splitting.from_plain(split, fingerprint=experiment.source.fingerprint(), items=len(experiment.source))


@contextlib.contextmanager
def closing(session: Session) -> Iterator[None]:
    """Whatever ends the training early is written down, and the reader told how to go on."""
    try:
        yield
    except Pruned:
        results = session.save("pruned")
        events.write_run(session.folder.path, results, parameters=session.experiment.config, failed=True)
        session.reporter.note(f"pruned after {len(session.results)} of {len(session.folds)} folds")
        raise
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


def finish(session: Session) -> tuple[int, float | None, Path, dict[str, Any]]:
    """The final table, on the screen and as Markdown, and the run's TensorBoard summary."""
    results = session.save("done")
    shown = [table.build(results), *filter(None, [differences(results)])]
    storage.write_text(session.folder.path / "table.md", "\n".join(map(table.markdown, shown)))
    failed = bool(results["status"] == "diverged")
    events.write_run(session.folder.path, results, parameters=session.experiment.config, failed=failed)
    for one in shown:
        screen.show_table(session.out, one)
    twin, pictures = results["twin"] is not None, session.experiment.settings.pictures
    screen.show_places(session.out, session.folder.path, monitor=results["monitor"], twin=twin, pictures=pictures)
    return int(failed), score(results), session.folder.path, objectives(results)


def objectives(results: Mapping[str, Any]) -> dict[str, Any]:
    """What a search can weigh: the score, MACs and parameters of the model, seconds of its training."""
    network, cost = results["network"], results.get("cost") or {}
    return {
        "score": score(results),
        "macs": network.get("macs"),
        "parameters": network.get("parameters"),
        "seconds": cost.get("seconds", results["seconds"]),
    }


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
