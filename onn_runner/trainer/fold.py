"""Train one fold: its random starts one after another, from wherever an earlier run left them."""

from __future__ import annotations

from pathlib import Path

from onn_runner import storage
from onn_runner.errors import ConfigError, Interrupted, RunError, unknown
from onn_runner.trainer import checkpoint, mending, records, weights
from onn_runner.trainer.checking import strict
from onn_runner.trainer.device import (
    Randomness,
    check_compile,
    check_precision,
    choose_device,
    matmul_precision,
    threads,
)
from onn_runner.trainer.interrupt import StopRequest
from onn_runner.trainer.job import FoldJob
from onn_runner.trainer.monitor import Monitor, monitors, train_metrics
from onn_runner.trainer.progress import Reporter
from onn_runner.trainer.result import FoldResult, StartResult, Status, read_status, write_status
from onn_runner.trainer.start import StartTraining


def train_fold(job: FoldJob, *, reporter: Reporter, stop: StopRequest, resume: bool = False) -> FoldResult:
    """Everything about the fold is in `job.folder` afterwards; what is finished already is not done again.

    Raises ConfigError before anything is trained, RunError when the folder cannot be written, Interrupted after the
    state was saved.
    """
    chosen = check(job)
    _open(job.folder, resume=resume)
    earlier = _earlier(job.folder, reporter)
    done = {start.start: start for start in (earlier.starts if earlier else ()) if _finished(start, job)}
    finished = earlier is not None and len(done) == job.settings.starts and earlier.status in ("done", "diverged")
    _mend(job, done, chosen, reporter, finished=finished)
    if earlier is not None and finished and len(done) == job.settings.starts:
        reporter.fold_done(earlier)
        return earlier
    if job.settings.limit_batches is not None:
        reporter.warn(
            f"trainer.limit_batches={job.settings.limit_batches}: the scores are of the first batches of every part "
            "only, and of a network trained on a part; they say nothing about the data."
        )
    reporter.fold_started(job.fold.index)
    device = choose_device(job.settings.device)
    settings = job.settings
    with (
        threads(settings.threads),
        matmul_precision(settings.precision),
        Randomness(device).forked(),
        strict(settings.checks),
    ):
        try:
            result = _train_starts(job, done, chosen, reporter, stop)
        except Interrupted as error:
            write_status(job.folder, _summary(job, done, chosen, status="interrupted"))
            raise Interrupted(f"fold {job.fold.index} {error}; its state is saved.") from error
    reporter.fold_done(result)
    return result


def check(job: FoldJob) -> tuple[Monitor, ...]:
    """What is monitored. Raises ConfigError for settings that do not fit the fold or its metrics."""
    metrics = job.build_metrics()
    chosen = monitors(job.settings, metrics, validation=bool(job.fold.validation))
    for name in train_metrics(job.settings, chosen):
        if name not in metrics:
            raise unknown("metric in trainer.train_metrics:", name, metrics)
    device = choose_device(job.settings.device)
    check_precision(job.settings.precision, device)
    if job.settings.compile:
        check_compile(device)
    return chosen


def _train_starts(
    job: FoldJob, done: dict[int, StartResult], chosen: tuple[Monitor, ...], reporter: Reporter, stop: StopRequest
) -> FoldResult:
    write_status(job.folder, _summary(job, done, chosen, status="running"))
    _rewrite_metrics(job, done)
    for start in range(job.settings.starts):
        if start in done:
            continue
        if stop.requested:
            raise Interrupted(f"stopped by {stop.reason}")
        _make(job.start_folder(start))
        rivals = _best_values(done, chosen)
        training = StartTraining(job, start, reporter=reporter, stop=stop, monitors=chosen, rivals=rivals)
        done[start] = training.run()
        records.append_metrics(job.folder, records.test_rows(job.fold.index, done[start]))
        reporter.start_done(job.fold.index, done[start])
        write_status(job.folder, _summary(job, done, chosen, status="running"))
    every = all(start.status == "diverged" for start in done.values())
    result = _summary(job, done, chosen, status="diverged" if every else "done")
    _publish(job, done, chosen, result)
    if job.settings.starts > 1:
        # Starts that went on with more epochs were appended after later ones.
        _rewrite_metrics(job, done)
    write_status(job.folder, result)
    return result


def _summary(job: FoldJob, done: dict[int, StartResult], chosen: tuple[Monitor, ...], *, status: Status) -> FoldResult:
    return FoldResult(
        fold=job.fold.index,
        status=status,
        monitor=chosen[0].key,
        starts=tuple(done[start] for start in sorted(done)),
        best_start=_best_start(done, chosen[0]),
    )


def _best_start(done: dict[int, StartResult], monitor: Monitor) -> int | None:
    """The earliest of equals; a start that diverged is never the best."""
    best: StartResult | None = None
    for _, result in sorted(done.items()):
        record = best.best[monitor.key] if best else None
        if result.status == "done" and monitor.better(result.best[monitor.key], record):
            best = result
    return best.start if best else None


def _best_values(done: dict[int, StartResult], chosen: tuple[Monitor, ...]) -> dict[str, float]:
    """The value to beat, for every monitored key."""
    values: dict[str, float] = {}
    for monitor in chosen:
        for result in done.values():
            value = result.best.get(monitor.key)
            if result.status == "done" and value is not None and monitor.better(value, values.get(monitor.key)):
                values[monitor.key] = value
    return values


def _publish(job: FoldJob, done: dict[int, StartResult], chosen: tuple[Monitor, ...], result: FoldResult) -> None:
    """The best start's files in the fold's folder, where the starts have their own."""
    if job.settings.starts == 1:
        return
    if result.best_start is None:
        records.drop_items(job.folder)
        return
    for monitor in chosen:
        best = _best_start({n: start for n, start in done.items() if monitor.key in start.best}, monitor)
        if best is not None:
            weights.publish_best(job.start_folder(best) / monitor.file, job.folder)
    storage.publish(job.start_folder(result.best_start) / records.ITEMS, job.folder / records.ITEMS)


def _rewrite_metrics(job: FoldJob, done: dict[int, StartResult]) -> None:
    rows: list[records.Row] = []
    for start in range(job.settings.starts):
        state = checkpoint.load_last(job.start_folder(start))
        for values in state.history if state else []:
            rows += records.epoch_rows(job.fold.index, start, values)
        if start in done:
            rows += records.test_rows(job.fold.index, done[start])
    records.rewrite_metrics(job.folder, rows)


def _finished(start: StartResult, job: FoldJob) -> bool:
    """More epochs than before open a finished start again, but not one that stopped early or diverged."""
    return start.status == "diverged" or start.stopped_early or start.epochs_run >= job.settings.epochs


def _mend(
    job: FoldJob, done: dict[int, StartResult], chosen: tuple[Monitor, ...], reporter: Reporter, *, finished: bool
) -> None:
    """Damaged files of all starts are set aside or written again; starts that need training again are not `done`."""
    for start in range(job.settings.starts):
        told, again = mending.mend(job.start_folder(start), chosen, finished=finished)
        if told:
            reporter.warn(told)
            reporter.note(f"warning: {told}")
        if again:
            done.pop(start, None)
    if job.settings.starts > 1 and len(done) == job.settings.starts:
        result = _summary(job, done, chosen, status="done")
        if result.best is not None and not all(_whole(job.folder / monitor.file) for monitor in chosen):
            _publish(job, done, chosen, result)


def _whole(path: Path) -> bool:
    try:
        checkpoint.load(path)
    except RunError:
        return False
    return True


def _earlier(folder: Path, reporter: Reporter) -> FoldResult | None:
    try:
        return read_status(folder)
    except RunError as error:
        reporter.warn(str(error))
        return None


def _open(folder: Path, *, resume: bool) -> None:
    _make(folder)
    used = any((folder / name).exists() for name in (checkpoint.LAST, checkpoint.PREVIOUS, "status.json"))
    if used and not resume:
        raise ConfigError(f"{folder} already holds a training: resume it, or choose another folder.")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage.failure(folder, error) from error
