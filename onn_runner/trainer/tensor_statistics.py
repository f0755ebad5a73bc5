"""Mean, spread, norm, zeros and maximum of every weight and its gradient, and how far an update moves it."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from onn_runner import storage
from onn_runner.model.operational import OperationalLayer
from onn_runner.model.self_onn import SelfONNLayer
from onn_runner.trainer.board import Board
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.job import FoldJob

FILE = "statistics.csv"
MEASURES = ("mean", "std", "norm", "zeros", "max")
"""`zeros`: the share of values that are 0; `max`: the largest absolute value."""
VALUES = (*(f"{what}_{measure}" for what in ("weight", "gradient") for measure in MEASURES), "update_ratio")
HEADER = ("fold", "start", "epoch", "parameter", "term", "count", *VALUES)
Row = tuple[str, ...]


class Statistics:
    """None at all: what training calls where trainer.statistics is off."""

    @contextlib.contextmanager
    def step(self, epoch: int, position: int) -> Iterator[None]:
        """Around a training step, the `position`th of the epoch."""
        yield

    def draw(self, board: Board, epoch: int) -> None:
        """After an epoch."""


class EveryTensor(Statistics):
    """Of one start: at the last update of the first and of every Nth epoch, in the fold's statistics.csv and as events.

    Gradients are as the optimizer gets them, clipped if they are. No number of the training depends on it.
    """

    def __init__(self, job: FoldJob, start: int, engine: Engine, *, epoch: int, step: int) -> None:
        """`epoch`, `step`: what is done already; rows of what is done again are dropped."""
        self.every, self.last = int(job.settings.statistics), job.steps - 1
        self.path, self.engine = job.folder / FILE, engine
        self.key = (str(job.fold.index), str(start))
        self.taken = 0
        """The epoch whose gradients are still there."""
        _keep(self.path, self.key, until=epoch + (step > self.last))

    def due(self, epoch: int) -> bool:
        return epoch == 1 or epoch % self.every == 0

    @contextlib.contextmanager
    def step(self, epoch: int, position: int) -> Iterator[None]:
        if not self.due(epoch) or position != self.last:
            yield
            return
        before = {name: p.detach().clone() for name, p in self.engine.network.named_parameters()}
        yield
        self.taken = epoch
        rows = [(*self.key, str(epoch), *row) for row in rows_of(self.engine.network, before)]
        _append(self.path, rows)

    def draw(self, board: Board, epoch: int) -> None:
        if not self.due(epoch):
            return
        values: dict[str, float] = {}
        for row in _read(self.path):
            if (row["fold"], row["start"]) == self.key and row["epoch"] == str(epoch):
                name = row["parameter"] + (f"[{row['term']}]" if row["term"] else "")
                values |= {f"statistics/{key}/{name}": float(row[key]) for key in VALUES if row[key]}
        board.scalars(values, epoch)
        found = {}
        for name, parameter in self.engine.network.named_parameters():
            found[f"weights/{name}"] = parameter.detach()
            if parameter.grad is not None and self.taken == epoch:
                found[f"gradients/{name}"] = parameter.grad
        board.histograms({name: one for name, one in found.items() if bool(one.isfinite().all())}, epoch)


def make_statistics(job: FoldJob, start: int, engine: Engine, *, epoch: int, step: int) -> Statistics:
    return EveryTensor(job, start, engine, epoch=epoch, step=step) if job.settings.statistics else Statistics()


@torch.no_grad()
def rows_of(network: nn.Module, before: Mapping[str, Tensor]) -> list[Row]:
    """From `parameter` on; `before`: the weights before the update, by name."""
    found = []
    for name, parameter in network.named_parameters():
        for term, part in terms(network, name).items():
            weight, old = parameter.detach()[part], before[name][part]
            gradient = None if parameter.grad is None else parameter.grad[part]
            norm = float(old.double().norm())
            ratio = repr(float((weight.double() - old.double()).norm()) / norm) if norm > 0 else ""
            numbers = (*_measured(weight), *(_measured(gradient) if gradient is not None else [""] * len(MEASURES)))
            found.append((name, term, str(weight.numel()), *numbers, ratio))
    return found


def terms(network: nn.Module, name: str) -> dict[str, tuple[slice, ...]]:
    """Term -> its part of the parameter: the powers of Self-ONN weights, the operators of nodal ones, or the whole."""
    path, _, own = name.rpartition(".")
    layer = network.get_submodule(path)
    if own == "weight" and isinstance(layer, SelfONNLayer) and layer.q > 1:
        inputs = layer.weight_shape[1]
        return {f"q={q + 1}": (slice(None), slice(q * inputs, (q + 1) * inputs)) for q in range(layer.q)}
    if own == "weight" and isinstance(layer, OperationalLayer) and len(layer.blocks) > 1:
        return {block.name: (slice(block.start, block.stop),) for block in layer.blocks}
    return {"": ()}


def _measured(values: Tensor) -> list[str]:
    if not values.numel():
        return [""] * len(MEASURES)
    exact = values.double()
    numbers = torch.stack(
        [exact.mean(), exact.std(correction=0), exact.norm(), (exact == 0).double().mean(), exact.abs().amax()]
    )
    return [repr(number) for number in numbers.tolist()]


def _read(path: Path) -> list[dict[str, str]]:
    """Whole rows; one that a kill cut short is left out."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage.failure(path, error) from error
    whole = text[: text.rfind("\n") + 1]
    rows = csv.DictReader(io.StringIO(whole), fieldnames=HEADER)
    return [row for row in rows if None not in row.values() and row["epoch"].isdigit()]


def _keep(path: Path, key: tuple[str, str], *, until: int) -> None:
    """Drop the start's rows of later epochs."""
    rows = _read(path)
    kept = [row for row in rows if (row["fold"], row["start"]) != key or int(row["epoch"]) <= until]
    content = _text([HEADER, *([row[name] for name in HEADER] for row in kept)]).encode()
    if not path.is_file() or path.read_bytes() != content:
        storage.write(path, content)


def _append(path: Path, rows: Iterable[Sequence[str]]) -> None:
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            file.write(_text(rows))
    except OSError as error:
        raise storage.failure(path, error) from error


def _text(rows: Iterable[Sequence[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()
