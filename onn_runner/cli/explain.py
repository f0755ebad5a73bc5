"""`onn explain`: what the trained network of a run attends to, beside its baseline or the network of another run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onn_runner.errors import ConfigError, unknown
from onn_runner.plain import printable

if TYPE_CHECKING:
    from torch import Tensor

    from onn_runner.cli.reopening import Opened
    from onn_runner.trainer.engine import Engine


@dataclass(frozen=True, kw_only=True)
class Question:
    """The trained networks to look at, by label, and the items to show them."""

    engines: Mapping[str, Engine]
    names: Sequence[str]
    batch: Mapping[str, Any]
    task: Any
    title: str
    data_range: tuple[float, float]

    @property
    def inputs(self) -> Tensor:  # [B, C, *S]
        x: Tensor = self.batch["input"]
        return x


def explain(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder.")],
    method: Annotated[str, typer.Option(help="attention: where each layer responds.")] = "attention",
    fold: Annotated[int, typer.Option(help="Whose best weights and test items.")] = 0,
    items: Annotated[int, typer.Option(help="How many, spread evenly over the test part.")] = 4,
    against: Annotated[
        str | None, typer.Option(help="A run whose network is shown beside it; the run's own baseline.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    output: Annotated[str | None, typer.Option(help="Folder for the picture; the fold's pictures/.")] = None,
    module: Annotated[
        list[str] | None,
        typer.Option("--module", help="A module of your own that the config may use, as for onn-run; several times."),
    ] = None,
) -> None:
    """Pictures of what a trained network looks at, for a few items; also for TensorBoard."""
    from onn_runner import targets
    from onn_runner.cli.reopening import open_run
    from onn_runner.report import screen

    targets.allow(targets.names(module))
    methods = _methods()
    if method not in methods:
        raise unknown("--method", method, methods)
    if items < 1:
        raise ConfigError(f"--items (={items}) must be a whole number of at least 1")
    opened = open_run(run, device=device)
    other = None if against is None else open_run(against, device=device)
    question, notes = _question(opened, other, fold, items)
    picture = methods[method](question)
    for note in (*opened.notes, *notes):
        print(f"onn: {printable(note)}")
    path = _keep(picture, opened, fold, method, output)
    print(f"Written: {screen.relative(path)}")


def _methods() -> dict[str, Callable[[Question], bytes]]:
    """By name; each makes one PNG."""
    return {"attention": _attention}


def _attention(question: Question) -> bytes:
    from onn_runner.analysis.attention import attention
    from onn_runner.report.figures_attention import Row, attention_figure

    size = question.inputs.shape[2:]
    if len(size) > 2:
        raise ConfigError("--method attention draws images and signals, the data have three axes")
    rows = []
    for label, engine in question.engines.items():
        look = partial(question.task.eval_step, engine.evaluating, question.batch)
        rows.append(Row(label, attention(engine.scored, look, size)))
    inputs = question.inputs.detach().float().cpu().numpy()
    return attention_figure(
        question.names, inputs, rows, title=f"Attention, {question.title}", data_range=question.data_range
    )


def _question(opened: Opened, other: Opened | None, fold: int, items: int) -> tuple[Question, list[str]]:
    """The question, and what to be aware of. Raises ConfigError where the other run takes other inputs."""
    from onn_runner.trainer import batches

    experiment = opened.experiment
    source, split = experiment.source, opened.fold(fold)
    engine = opened.engine(fold)
    engines = {_kind(engine): engine}
    notes = []
    if other is not None:
        if other.experiment.source.shape.input[0] != source.shape.input[0]:
            raise ConfigError(
                f"{other.folder.path} takes inputs of {other.experiment.source.shape.input[0]} channels, "
                f"{opened.folder.path} of {source.shape.input[0]}: they cannot be shown the same items"
            )
        beside = other.engine(fold)
        same = _kind(beside) in engines
        label = f"{_kind(beside)}, {other.experiment.name}" if same else _kind(beside)
        engines[label] = beside
    elif experiment.twin is not None:
        engines[f"baseline {experiment.twin.name}"] = opened.engine(fold, twin=True)
    part = next(filter(None, (split.test, split.validation, split.train)))
    count = min(items, len(part))
    chosen = [part[(2 * n + 1) * len(part) // (2 * count)] for n in range(count)]
    if other is not None and _trained_on(other, fold, chosen, source.fingerprint()):
        notes.append(f"{other.folder.path} was trained on some of these items, or on other data")
    if not split.test:
        notes.append("the fold has no test part: these items took part in the training")
    batch = batches.collate(source.fixed(chosen), range(count), engine.device)
    question = Question(
        engines=engines,
        names=[source.names[index] for index in chosen],
        batch=batch,
        task=experiment.task,
        title=f"{experiment.name}, fold {fold}, best epoch {opened.best(fold).best_epoch}",
        data_range=source.data_range,
    )
    return question, notes


def _kind(engine: Engine) -> str:
    """`quadratic quadralib`: of the first layer."""
    from onn_runner.network.summary import layers_of

    return layers_of(engine.scored)[0][1].facts().kind


def _trained_on(other: Opened, fold: int, items: Sequence[int], fingerprint: str) -> bool:
    same = other.experiment.source.fingerprint() == fingerprint
    return not same or bool(set(items) & set(other.fold(fold).train))


def _keep(picture: bytes, opened: Opened, fold: int, method: str, output: str | None) -> Path:
    """The PNG, and the same as an event beside it, in place of earlier ones."""
    from onn_runner import illustration, storage
    from onn_runner.report.folder import make

    folder = opened.folder.path / f"fold_{fold:02d}" / illustration.FOLDER if output is None else Path(output)
    make(folder / method)
    path = folder / f"{method}.png"
    storage.write(path, picture)
    illustration.write_events(folder / method, {method: picture}, opened.best(fold).best_epoch or 0)
    return path
