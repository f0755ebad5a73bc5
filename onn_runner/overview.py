"""What a run is about to do, before it starts: data, folds, layers and, for a dry run, the time it would take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.text import Text

from onn_runner.errors import RunError
from onn_runner.network.summary import Summary, summarise
from onn_runner.partition import split as splitting
from onn_runner.partition.base import Fold
from onn_runner.report import screen
from onn_runner.trainer.device import choose_device, sensible_threads, threads
from onn_runner.trainer.divergence import NonFiniteError
from onn_runner.trainer.estimate import seconds_per_step
from onn_runner.trainer.fold import check

if TYPE_CHECKING:
    from onn_runner.crossvalidation import Experiment


def describe(out: Console, experiment: Experiment, folds: Sequence[Fold]) -> Summary:
    """Print what is about to run: data, folds, layers."""
    source, settings = experiment.source, experiment.settings
    size = f"{len(folds)} folds x {settings.starts} starts x {settings.epochs} epochs"
    out.print(Text(f"{experiment.name}: {size}, seed {experiment.seed}"))
    for line in [*source.describe(), *splitting.describe(folds, source)]:
        out.print(Text(f"  {line}"))
    with threads(1):
        example = example_batch(experiment, folds)
        summary = summarise(experiment.example_network(), source.shape.input, example=example)
    show_summary(out, summary)
    return summary


def threads_for(experiment: Experiment, summary: Summary) -> int:
    """`trainer.threads`, or as many as a training step of this network keeps busy."""
    settings = experiment.settings
    if settings.threads is not None:
        return settings.threads
    return sensible_threads(summary.macs * settings.batch_size)


def show_device(out: Console, experiment: Experiment, count: int) -> None:
    """What computes: `Computing on cpu (1 thread), fp32`."""
    device = choose_device(experiment.settings.device)
    where = f"{device} ({count} thread{'s' * (count != 1)})" if device.type == "cpu" else f"{device}"
    out.print(Text(f"Computing on {where}, {experiment.settings.precision}"))


def example_batch(experiment: Experiment, folds: Sequence[Fold]) -> torch.Tensor:
    """A batch of real training items, so that what computes each layer is chosen for real ranges and sizes."""
    chosen = folds[0].train[: experiment.settings.batch_size]
    items = experiment.source.training(chosen, key=("example",))
    return torch.stack([items[index]["input"] for index in range(len(chosen))])


def show_summary(out: Console, summary: Summary) -> None:
    """Layer, operators with neuron counts, non-linearity index, parameters, MACs, output shape, what computes it."""
    headings = ("layer", "neurons", "non-linearity", "parameters", "MACs", "output", "computed by")
    rows = []
    for row in summary.rows:
        operators = " ".join(f"{name}:{count}" for name, count in row.facts.operators)
        index = "-" if row.facts.nonlinearity is None else f"{row.facts.nonlinearity:.3f}"
        shape = "x".join(map(str, row.output_shape))
        computed = row.facts.computed_by + (f" ({row.facts.reason})" if row.facts.reason else "")
        rows.append(
            (
                row.name,
                f"{row.facts.kind} {operators}".strip(),
                index,
                f"{row.parameters:,}",
                f"{row.macs:,}",
                shape,
                computed,
            )
        )
    rows.append(("total", "", "", f"{summary.parameters:,}", f"{summary.macs:,}", "", ""))
    screen.show_rows(out, "Network, per sample", headings, rows, sections=(len(rows) - 1,), left=(0, 1, 6))
    for text in summary.warnings:
        out.print(Text(f"  warning: {text}"))


def describe_only(experiment: Experiment) -> None:
    """dry_run: everything built and printed, the time estimated from a few real steps, nothing trained or written."""
    out = screen.console()
    folds = experiment.partition.split(experiment.source)
    summary = describe(out, experiment, folds)
    for fold in folds:
        check(experiment.job(fold, Path()))
    settings, source = experiment.settings, experiment.source
    count = threads_for(experiment, summary)
    show_device(out, experiment, count)
    try:
        with threads(count):
            step = seconds_per_step(experiment.job(folds[0], Path()))
    except NonFiniteError as error:
        raise RunError(
            f"the first training steps already diverge ({error.what}): lower optimizer.lr, or the range or order of "
            "what the neurons compute (operators.<name>.omega, model.q)"
        ) from error
    steps = sum(-(-len(fold.train) // settings.batch_size) for fold in folds) * settings.epochs * settings.starts
    # Validation is a forward pass without gradients: about a third of a step for the same items.
    share = 1 + sum(len(fold.validation) for fold in folds) / (3 * sum(len(fold.train) for fold in folds))
    minutes, seconds = divmod(round(step * steps * share), 60)
    work = f"{steps:,} steps of {step * 1000:.0f} ms, {len(source)} items"
    out.print(Text(f"Estimated training time: {minutes} min {seconds} s ({work})"))
    out.print(Text("dry_run=true: nothing was trained or written."))
