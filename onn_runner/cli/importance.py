"""`onn reduce`: how much each layer of a trained network is missed, and the command of the network without some."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onn_runner.errors import ConfigError, unknown

if TYPE_CHECKING:
    from onn_runner.analysis.importance import Importance
    from onn_runner.cli.reopening import Opened
    from onn_runner.network.summary import Summary
    from onn_runner.report.importance import Reduction
    from onn_runner.trainer.engine import Engine

NAME = "layer_importance"


def reduce(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder.")],
    fold: Annotated[int, typer.Option(help="Whose best weights and validation items.")] = 0,
    drop: Annotated[int | None, typer.Option(help="How many layers or blocks to leave out; 1.")] = None,
    keep: Annotated[int | None, typer.Option(help="How many of those that can be left out shall stay.")] = None,
    metric: Annotated[str | None, typer.Option(help="What must not fall, such as accuracy; the monitored one.")] = None,
    mask: Annotated[
        str, typer.Option(help="zero: a layer's weights are 0; skip: layers that keep the shape are passed by.")
    ] = "zero",
    train: Annotated[bool, typer.Option("--train", help="Train the reduced network at once.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    output: Annotated[str | None, typer.Option(help="Folder for the tables and the picture; the fold's.")] = None,
    module: Annotated[
        list[str] | None,
        typer.Option("--module", help="A module of your own that the config may use, as for onn-run; several times."),
    ] = None,
) -> None:
    """Rank layers by cost over loss without them, and propose the network without the first of them."""
    from onn_runner import targets
    from onn_runner.analysis.importance import MASKS
    from onn_runner.cli.reopening import open_run

    targets.allow(targets.names(module))
    if mask not in MASKS:
        raise unknown("--mask", mask, MASKS)
    if drop is not None and keep is not None:
        raise ConfigError("--drop and --keep exclude each other: say how many go, or how many stay")
    for name, value in (("--drop", drop), ("--keep", keep)):
        if value is not None and value < 0:
            raise ConfigError(f"{name} (={value}) must be a whole number from 0 on")
    opened = open_run(run, device=device)
    reduction = _reduction(opened, fold, metric, mask)
    chosen = _chosen(reduction.rows, drop, keep)
    words = _proposed(opened, reduction, chosen) if chosen else ()
    _tell(opened, reduction, chosen, words, fold, output)
    if train and words:
        from onn_runner.cli.run import main

        raise typer.Exit(main(words))


def _reduction(opened: Opened, fold: int, metric: str | None, mask: str) -> Reduction:
    """Every unit's importance by the fold's best weights."""
    import torch

    from onn_runner.analysis.importance import importances
    from onn_runner.network.summary import summarise
    from onn_runner.report.importance import Reduction
    from onn_runner.trainer.device import Randomness, matmul_precision

    engine, job = opened.engine(fold), opened.job(fold)
    metrics = job.build_metrics()
    name = metric if metric is not None else job.settings.monitor.partition("/")[2]
    if name not in (*metrics, "loss"):
        raise unknown("--metric", name, (*metrics, "loss"))
    higher = False if name == "loss" else metrics[name].higher_is_better
    if higher is None:
        raise ConfigError(f"--metric {name} does not say whether more of it is better; choose another")
    part = job.fold.validation or job.fold.train
    items = job.source.fixed(part)
    example = torch.stack([items[n]["input"] for n in range(min(len(part), job.settings.batch_size))])
    with matmul_precision("fp32"), Randomness(engine.device).forked():
        summary = summarise(engine.scored, job.source.shape.input, example=example)
        score = _score(opened, engine, fold, name)
        whole, rows = importances(engine.scored, summary, score, higher=bool(higher), mask=mask)
    where = "validation items" if job.fold.validation else "training items (the fold has no validation part)"
    return Reduction(
        title=f"{opened.experiment.name}, fold {fold}, best epoch {opened.best(fold).best_epoch}",
        metric=name,
        higher=bool(higher),
        whole=whole,
        rows=tuple(rows),
        parameters=summary.parameters,
        macs=summary.macs,
        mask=mask,
        items=f"{sum(map(len, job.limited(_order(opened, fold))))} {where}",
    )


def _order(opened: Opened, fold: int) -> Sequence[list[int]]:
    from onn_runner.trainer import batches

    job = opened.job(fold)
    return batches.in_order(len(job.fold.validation or job.fold.train), job.settings.eval_batch_size)


def _score(opened: Opened, engine: Engine, fold: int, name: str) -> Callable[[], float]:
    """The metric on the validation items, or the training items where there are none; NaN for a loss that is none."""
    from onn_runner.trainer.divergence import NonFiniteError
    from onn_runner.trainer.evaluate import Evaluator
    from onn_runner.trainer.interrupt import StopRequest

    job = opened.job(fold)
    part, order = job.fold.validation or job.fold.train, job.limited(_order(opened, fold))
    metrics = {key: metric.to(engine.device) for key, metric in job.build_metrics().items() if key == name}
    evaluator = Evaluator(engine=engine, task=job.task, metrics=metrics, stop=StopRequest())

    def score() -> float:
        try:
            return evaluator.score("val", job.source.fixed(part), order).means[f"val/{name}"]
        except NonFiniteError:
            return math.nan

    return score


def _chosen(rows: Sequence[Importance], drop: int | None, keep: int | None) -> list[Importance]:
    """The first in rank. Raises ConfigError for more than can be left out."""
    removable = sorted((row for row in rows if row.rank is not None), key=lambda row: row.rank or 0)
    count = len(removable) - keep if keep is not None else min(1, len(removable)) if drop is None else drop
    if not 0 <= count <= len(removable):
        asked = f"--keep {keep}" if keep is not None else f"--drop {drop}"
        names = ", ".join(row.name for row in rows if row.rank is not None) or "none"
        raise ConfigError(f"{asked}: {len(removable)} layers or blocks can be left out ({names})")
    return removable[:count]


def _proposed(opened: Opened, reduction: Reduction, chosen: Sequence[Importance]) -> tuple[str, ...]:
    """The words after onn-run of the reduced network, () where this network cannot be told to leave layers out."""
    from onn_runner.cli import argv
    from onn_runner.cli.reduced import override

    changed = override(opened.experiment.config["network"], reduction.rows, chosen)
    if changed is None:
        return ()
    return (*opened.flags, *argv.merge(opened.overrides, argv.read(list(changed)).overrides))


def _tell(
    opened: Opened, reduction: Reduction, chosen: Sequence[Importance], words: Sequence[str], fold: int,
    output: str | None,
) -> None:  # fmt: skip
    """On the screen and in files."""
    from rich.text import Text

    from onn_runner import storage
    from onn_runner.report import folder as folders
    from onn_runner.report import importance as tables
    from onn_runner.report import results, screen, table
    from onn_runner.report.figures_importance import importance_figure

    out = screen.console()
    shown = tables.table(reduction)
    screen.show_rows(out, shown.title, shown.headings, shown.rows, notes=shown.notes, left=(1,))
    lines = _lines(reduction, chosen, words)
    for line in (*opened.notes, *lines):
        out.print(Text(line), soft_wrap=True)
    folder = opened.folder.path / f"fold_{fold:02d}" if output is None else Path(output)
    folders.make(folder)
    names = [row.name for row in chosen]
    results.write_table(folder / f"{NAME}.csv", *tables.rows(reduction))
    plain: dict[str, Any] = {**reduction.as_plain(), "chosen": names, "command": ["onn-run", *words] if words else None}
    storage.write_json(folder / f"{NAME}.json", plain)
    storage.write_text(folder / f"{NAME}.md", table.markdown(shown) + "".join(f"- {line}\n" for line in lines))
    storage.write(folder / f"{NAME}.png", importance_figure(reduction, chosen=names))
    out.print(Text(f"Written: {screen.relative(folder)}/{NAME}.csv, .json, .md, .png"), soft_wrap=True)


def _lines(reduction: Reduction, chosen: Sequence[Importance], words: Sequence[str]) -> list[str]:
    """What is proposed, and what it would cost."""
    if not chosen:
        return ["Nothing is left out."]
    names = ", ".join(row.name for row in chosen)
    if not words:
        return [f"First to leave out: {names}; this network has no key to leave layers out, so write a smaller one."]
    after = _summary(words)
    counts = [
        f"{before:,} -> {now:,} {what} ({100 * (now / before - 1):+.1f} %)"
        for before, now, what in (
            (reduction.parameters, after.parameters, "parameters"),
            (reduction.macs, after.macs, "MACs"),
        )
    ]
    return [f"Without {names}: {', '.join(counts)}", f"onn-run {shlex.join(words)}"]


def _summary(words: Sequence[str]) -> Summary:
    """The reduced network, built. Raises ConfigError where it cannot be."""
    from onn_runner.cli.composed import composed
    from onn_runner.network.summary import summarise

    experiment = composed(words).experiment
    return summarise(experiment.example_network(), experiment.source.shape.input)
