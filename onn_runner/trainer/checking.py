"""trainer.checks: look at data, gradients, parameters and layers while training, and say what is wrong where."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from onn_runner.errors import RunError
from onn_runner.trainer.batches import Batch
from onn_runner.trainer.divergence import NonFiniteError
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.job import FoldJob
from onn_runner.trainer.layers import compare_layers
from onn_runner.trainer.progress import Reporter


class Checks:
    """None at all: what training calls where trainer.checks is off."""

    def look(self, split: str, batch: Batch) -> None:
        """At a batch before it is used, `train` or one that is scored."""

    @contextlib.contextmanager
    def step(self, batch: Batch) -> Iterator[None]:
        """Around a training step."""
        yield

    def after_epoch(self) -> None: ...


class EveryCheck(Checks):
    """Of one start. Warns by name; raises where going on would make no sense:

    RunError for items of another shape than the source says, NonFiniteError for values that are not finite,
    RunError for a layer whose kernel is less exact than promised. No number of the training depends on it.
    """

    def __init__(self, job: FoldJob, start: int, engine: Engine, reporter: Reporter) -> None:
        self.job, self.engine, self.reporter = job, engine, reporter
        self.where = f"fold {job.fold.index}, start {start}"
        self.compared = self.told = False
        self.learning = {name: p for name, p in engine.network.named_parameters() if p.requires_grad}
        self.before: dict[str, Tensor] = {}
        self.reached: set[str] = set()
        self.updates = 0

    def look(self, split: str, batch: Batch) -> None:
        source = self.job.source
        classes = getattr(source, "classes", None)
        shapes = {"input": source.shape.input, "target": source.shape.target if classes is None else ()}
        for name, shape in shapes.items():
            values: Tensor = batch[name]
            if split != "photo" and tuple(values.shape[1:]) != tuple(shape):
                raise RunError(
                    f"trainer.checks: {name}s of the {split} items are {tuple(values.shape[1:])}, the data says "
                    f"{tuple(shape)}: the source does not keep its word."
                )
            if not bool(values.isfinite().all()):
                raise NonFiniteError(f"{split} {name}s are not finite", layer=f"the data ({_items(batch, values)})")
            if name == "target" and classes is not None:
                _classes(split, values, len(classes))
            else:
                self._range(split, name, values)

    def _range(self, split: str, name: str, values: Tensor) -> None:
        """Targets lie in the range; noise may carry inputs beyond it, but not by more than its width."""
        low, high = self.job.source.data_range
        margin = (high - low) * (1.0 if name == "input" else 1e-6)
        least, most = (float(value) for value in values.aminmax())
        if least < low - margin or most > high + margin:
            far = "far " if name == "input" else ""
            self.reporter.warn(
                f"trainer.checks: {split} {name}s reach {far}beyond the data's range of {low:g} to {high:g}."
            )

    @contextlib.contextmanager
    def step(self, batch: Batch) -> Iterator[None]:
        self.look("train", batch)
        if not self.compared:
            self.compared = True
            with self.engine.random.forked():
                compare_layers(self.engine, self.job.task, batch)
        if not self.before:
            self.before = {name: p.detach().clone() for name, p in self.learning.items()}
        with _anomalies():
            yield
        self.updates += self.engine.turn.last
        self.reached |= {name for name, p in self.learning.items() if p.grad is not None and bool(p.grad.any())}

    def after_epoch(self) -> None:
        """Once, after an epoch: the parameters that were not reached until then.

        Not after a single update, since nothing passes through a last layer that begins with zeros.
        """
        if self.told or self.updates < 2:
            return
        self.told = True
        without = [name for name in self.learning if name not in self.reached]
        still = [name for name in self.reached if torch.equal(self.learning[name], self.before[name])]
        for names, what in ((without, "got no gradient"), (sorted(still), "got gradients but did not change")):
            if names:
                self.reporter.warn(
                    f"trainer.checks: {self.where}: {', '.join(names)} {what} in {self.updates} updates."
                )


def make_checks(job: FoldJob, start: int, engine: Engine, reporter: Reporter) -> Checks:
    return EveryCheck(job, start, engine, reporter) if job.settings.checks else Checks()


@contextlib.contextmanager
def strict(wanted: bool) -> Iterator[None]:
    """Autograd's anomaly detection, and deterministic algorithms where the device has them, for a block."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.autograd.set_detect_anomaly(True):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@contextlib.contextmanager
def _anomalies() -> Iterator[None]:
    """Raises NonFiniteError, with the function and its line, for what anomaly detection finds.

    Torch tells the line by a warning, which holds the whole way to it.
    """
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    except RuntimeError as error:
        if "returned nan values" not in str(error):
            raise
        traces = [str(item.message) for item in caught if "Error detected in" in str(item.message)]
        lines = [line.strip() for line in "".join(traces).partition("(Triggered")[0].splitlines() if line.strip()]
        line = f": {lines[-1]}" if lines else ""
        raise NonFiniteError(f"{str(error).splitlines()[0].rstrip('.')}{line}") from error
    for item in caught:
        warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)


def _classes(split: str, values: Tensor, count: int) -> None:
    """Raises RunError for targets that are no numbers of classes."""
    if values.dtype != torch.int64 or not bool(((values >= 0) & (values < count)).all()):
        raise RunError(
            f"trainer.checks: targets of the {split} items are not all int64 classes from 0 to {count - 1}: the source "
            "does not keep its word."
        )


def _items(batch: dict[str, Any], values: Tensor) -> str:
    bad = [str(int(index)) for index, value in zip(batch["index"], values, strict=True) if not value.isfinite().all()]
    return "items " + ", ".join(bad[:5]) + (", ..." if len(bad) > 5 else "")
