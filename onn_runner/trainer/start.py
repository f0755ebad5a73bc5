"""Train one random start of a fold: epochs, the best of them, the scores of the best on the test part."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from onn_runner.errors import Interrupted
from onn_runner.metric.base import ItemMetric
from onn_runner.trainer import batches, checkpoint, records, weights
from onn_runner.trainer.batches import Batch, Turn
from onn_runner.trainer.best import Best, Mean
from onn_runner.trainer.board import open_board
from onn_runner.trainer.checking import make_checks
from onn_runner.trainer.checkpoint import Checkpoint
from onn_runner.trainer.consumption import Consumption, Usage
from onn_runner.trainer.device import choose_device
from onn_runner.trainer.divergence import NonFiniteError, finite_weights, retrace
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.evaluate import BadBatchError, Evaluator
from onn_runner.trainer.interrupt import StopRequest
from onn_runner.trainer.job import FoldJob
from onn_runner.trainer.monitor import Monitor, train_metrics
from onn_runner.trainer.preview import Preview
from onn_runner.trainer.progress import Reporter
from onn_runner.trainer.result import Divergence, StartResult
from onn_runner.trainer.resuming import earlier_state, publish_last, tell
from onn_runner.trainer.sums import Sums
from onn_runner.trainer.tensor_statistics import make_statistics
from onn_runner.trainer.testing import test_scores
from onn_runner.trainer.validation import Validation


class StartTraining:
    """`run` gives the result; whatever happens before, the folder holds a state from which another run goes on."""

    def __init__(
        self,
        job: FoldJob,
        start: int,
        *,
        reporter: Reporter,
        stop: StopRequest,
        monitors: tuple[Monitor, ...],
        rivals: dict[str, float],
    ) -> None:
        self.job, self.start, self.reporter, self.stop = job, start, reporter, stop
        self.monitors = monitors
        self.folder, self.where = job.start_folder(start), f"fold {job.fold.index}, start {start}"
        self.consumption = Consumption(choose_device(job.settings.device))
        self.engine = Engine(job, start, higher=monitors[0].higher)
        scoring, training = self._metrics(), self._metrics()
        self.checks = make_checks(job, start, self.engine, reporter)
        self.evaluator = Evaluator(
            engine=self.engine, task=job.task, metrics=scoring, stop=stop, inspect=self.checks.look
        )
        self.validation = Validation(job, self.evaluator, reporter, self.where)
        self.sums = Sums({name: training[name] for name in train_metrics(job.settings, monitors)})
        self.best = Best(job, start, self.folder, monitors, rivals)
        self.preview = Preview(job, self.engine)
        self.epoch = 0
        self.origin = 0
        """Epoch whose weights the current one begins with: the last one, or the one gone back to."""
        self.best_state: dict[str, Any] = {}
        self.history: list[dict[str, float]] = []
        self.usage = Usage()
        """What training took until the last checkpoint."""
        self.saved = time.monotonic()
        self._restore()
        self.statistics = make_statistics(job, start, self.engine, epoch=self.epoch, step=self.sums.step)

    @property
    def stopped_early(self) -> bool:
        patience = self.job.settings.patience
        return patience is not None and self.epoch - (self.best.epoch or 0) >= patience

    @property
    def finished(self) -> bool:
        return self.epoch >= self.job.settings.epochs or self.stopped_early

    def run(self) -> StartResult:
        """Raises Interrupted, after saving, when asked to stop."""
        self.board = open_board(self.folder, epoch=self.epoch, wanted=self.job.settings.tensorboard)
        self.reporter.start_started(self.job.fold.index, self.start, self.epoch)
        tell(self.reporter, self.where, epoch=self.epoch, step=self.sums.step, finished=self.finished)
        batch: Batch = {}
        try:
            self._tell_beginning()
            while not self.finished:
                for batch in self._steps():
                    self._step(batch)
                self._finish_epoch()
            return self._finish()
        except NonFiniteError as error:
            return self._diverged(error, batch)
        finally:
            self.board.close()

    def _metrics(self) -> dict[str, ItemMetric]:
        return {name: metric.to(self.engine.device) for name, metric in self.job.build_metrics().items()}

    def _key(self) -> tuple[int, int, int, int]:
        return (self.job.seed, self.job.fold.index, self.start, self.epoch + 1)

    def _steps(self) -> Iterator[Batch]:
        """The batches of the current epoch that are not done yet."""
        train, settings = self.job.fold.train, self.job.settings
        whole = self.job.limited(batches.order(len(train), settings, self._key()))
        self.turns = batches.turns(whole, settings.accumulate)
        order = whole[self.sums.step :]
        if order:
            data = self.job.source.training(train, key=self._key())
            loaded = batches.load(data, order, device=self.engine.device, stop=self.stop, workers=settings.workers)
            try:
                yield from loaded
            except Interrupted:
                self._save()
                raise

    def _step(self, batch: Batch) -> None:
        engine = self.engine
        if self.stop.requested:
            self._save()
            raise Interrupted(f"stopped by {self.stop.reason}")
        if time.monotonic() - self.saved > 60 * self.job.settings.save_minutes:
            self._save()
        engine.network.train()
        engine.random.key("step", *self._key(), self.sums.step)
        engine.turn = self.turns[self.sums.step]
        engine.losses.clear()
        engine.norms.clear()
        rate = engine.rate
        with self.checks.step(batch), self.statistics.step(self.epoch + 1, self.sums.step):
            output = self.job.task.train_step(engine.training, batch, engine.step)
        loss = engine.losses[0] if len(engine.losses) == 1 else float(output.loss)
        self.sums.add(output, loss=loss, norms=engine.norms, rate=rate, items=len(batch["index"]))
        self.consumption.look()
        self.reporter.step_done(self.sums.step, self.job.steps)

    def _finish_epoch(self) -> None:
        if not finite_weights(self.engine.network):
            raise NonFiniteError("the weights are not finite")
        self.checks.after_epoch()
        values = {"epoch": float(self.epoch + 1), **self.sums.means()}
        values |= self._validate()
        monitored = values[self.monitors[0].key]
        rose = bool(self.history) and values["train/loss"] > self.history[-1]["train/loss"]
        for schedule in self.engine.schedules.values():
            schedule.after_epoch(monitored, rose=rose)
        self.epoch += 1
        self.sums.clear()
        self.history.append(values)
        scored = not math.isnan(values.get("val/loss", 0.0))
        if scored and (unusable := self.monitors[0].unusable(monitored)):
            self.reporter.warn(f"{self.where}: {unusable}.")
        improved = self.best.take(values, self.engine.scored)
        is_best = self.monitors[0] in improved
        self.preview.draw(self.board, values, self.epoch)
        self.statistics.draw(self.board, self.epoch)
        self.origin = self.epoch
        if self.job.settings.restore_best_on_rise:
            self._go_back(rose, improved)
        self._save()
        if self.origin == self.epoch:
            self._save_best(improved)
        records.append_metrics(self.job.folder, records.epoch_rows(self.job.fold.index, self.start, values))
        shown = {key: value for key, value in values.items() if key != "epoch"}
        self.reporter.epoch_done(self.job.fold.index, self.start, self.epoch, shown, is_best=is_best)

    def _go_back(self, rose: bool, improved: list[Monitor]) -> None:
        """To the best epoch so far where the training loss rose; the learning rate stays the one of now.

        The next loss is compared with the risen one, not with that of the best epoch: an epoch's loss is a mean over
        its steps, which its last weights may not reach at any rate, and training would stand still.
        """
        if self.monitors[0] in improved:
            self.best_state = copy.deepcopy(self.engine.weights())
        elif rose and self.best_state:
            # Now, since the state that is saved next no longer has these weights.
            self._save_best(improved)
            self.engine.go_back(self.best_state)
            self.origin = self.best.epoch or self.epoch

    def _save_best(self, improved: list[Monitor]) -> None:
        """After last.pt: a kill in between is mended from there, since the last epoch then is the best."""
        self.best.save(improved, self.engine.scored.state_dict(), self.history[-1])

    def _validate(self) -> dict[str, float]:
        before = self._checkpoint(self.usage)
        try:
            return self.validation.scores(self.epoch + 1)
        except Interrupted:
            # Layers may have learned ranges from half the part; the state from before it is the one to repeat.
            self.usage = self.consumption.usage()
            checkpoint.save_last(self.folder, replace(before, usage=asdict(self.usage)))
            raise

    def _tell_beginning(self) -> None:
        """What the weights that training begins with score, where they are not fresh."""
        if self.job.initial is None or self.epoch or self.sums.step:
            return
        found = self._validate()
        if found:
            shown = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
            self.reporter.note(f"{self.where} begins with {shown}")

    def _finish(self) -> StartResult:
        """The best weights on the test part and on whole originals."""
        epoch = self.best.epoch
        if epoch is None:
            where = self.validation.overflow or "the metric"
            raise NonFiniteError(f"{self.monitors[0].key} was never finite", layer=where)
        mean = self.best.try_mean(self.evaluator, self.history[epoch - 1])
        if mean is not None:
            self.reporter.note(f"{self.where}: {mean}")
        self.engine.load_network(weights.load_best(self.folder / self.monitors[0].file).network)
        scores = test_scores(self.evaluator, self.job, self.start)
        self.board.scalars(scores.means, epoch)
        records.write_items(self.folder, scores.rows)
        return self._result(test=scores.means, left_out=scores.left_out, mean=mean)

    def _result(
        self,
        *,
        test: dict[str, float],
        left_out: dict[str, int],
        mean: Mean | None = None,
        diverged: Divergence | None = None,
    ) -> StartResult:
        return StartResult(
            start=self.start,
            status="diverged" if diverged else "done",
            epochs_run=self.epoch,
            stopped_early=not diverged and self.epoch < self.job.settings.epochs,
            seconds_per_epoch=self.usage.seconds / self.epoch if self.epoch else 0.0,
            **asdict(self.usage),
            **self.best.facts(self.history, mean),
            test=test,
            left_out=left_out,
            diverged=diverged,
        )

    def _diverged(self, error: NonFiniteError, batch: Batch) -> StartResult:
        testing = isinstance(error, BadBatchError)
        batch = error.batch if isinstance(error, BadBatchError) else batch
        step = 0 if testing or self.finished or self.sums.step >= self.job.steps else self.sums.step + 1
        epoch = self.epoch if self.finished else self.epoch + 1
        self.engine.random.key("step", *self._key(), self.sums.step)
        layer = error.layer or retrace(self.engine, self.job.task, batch, testing=testing)
        records.drop_items(self.folder)
        result = self._result(test={}, left_out={}, diverged=Divergence(epoch, step, layer, error.what))
        self.reporter.warn(f"{self.where} diverged: {result.diverged}.")
        return result

    def _checkpoint(self, usage: Usage | None = None) -> Checkpoint:
        self.usage = usage or self.consumption.usage()
        return Checkpoint(
            config=self.job.config,
            seed=self.job.seed,
            fold=self.job.fold.index,
            start=self.start,
            epoch=self.epoch,
            step=self.sums.step,
            running=self.sums.state(),
            origin=self.origin if self.origin != self.epoch else 0,
            best=dict(self.best.found),
            best_state=self.best_state,
            candidates=dict(self.best.candidates),
            history=list(self.history),
            usage=asdict(self.usage),
            **self.engine.state(),
        )

    def _save(self) -> None:
        checkpoint.save_last(self.folder, self._checkpoint())
        publish_last(self.folder, self.job.folder)
        self.saved = time.monotonic()

    def _restore(self) -> None:
        state = earlier_state(self.folder, self.job.settings, self.reporter)
        if state is None:
            if self.job.initial is not None:
                self.engine.begin_with(self.job.initial(), near=self.job.near)
            return
        self.engine.load(state)
        # An update that was begun goes on with the gradients that it has.
        self.engine.turn = Turn(last=not state.gradients)
        self.epoch, self.usage = state.epoch, state.used
        self.consumption.earlier = self.usage
        self.origin, self.best_state = state.origin or state.epoch, state.best_state
        self.history = list(state.history)
        self.best.found, self.best.candidates = dict(state.best), dict(state.candidates)
        self.sums.load(state.running)
        publish_last(self.folder, self.job.folder)
        if state.step == 0 and not state.origin:
            self._save_best([m for m in self.monitors if self.best.found.get(m.key, {}).get("epoch") == self.epoch])
