"""What a run is about to do, before it starts: data, folds, layers and, for a dry run, the time it would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.text import Text

from onn_runner.checks import amount
from onn_runner.errors import ConfigError, RunError
from onn_runner.network.summary import Summary, summarise
from onn_runner.partition import split as splitting
from onn_runner.partition.base import Fold
from onn_runner.report import screen
from onn_runner.trainer.device import choose_device, sensible_threads, threads
from onn_runner.trainer.divergence import NonFiniteError
from onn_runner.trainer.estimate import seconds_per_step
from onn_runner.trainer.fold import check
from onn_runner.trainer.schedule import never_warm

if TYPE_CHECKING:
    from onn_runner.crossvalidation import Experiment


@dataclass(frozen=True)
class Look:
    """A network as it was shown."""

    summary: Summary
    matched: str | None
    """What network.match did to the widths, in words; None where nothing was asked for."""

    def as_plain(self) -> dict[str, Any]:
        return {**self.summary.as_plain(), "matched": self.matched}


@dataclass(frozen=True)
class Shown:
    """What the reader saw before anything was trained."""

    model: Look
    twin: Look | None


def describe(out: Console, experiment: Experiment, folds: Sequence[Fold]) -> Shown:
    """Print what is about to run: data, folds, layers, the twin."""
    source, settings = experiment.source, experiment.settings
    if not (settings.score_training or any(fold.test for fold in folds)):
        raise ConfigError(
            "this partition tests nothing, so that the run would end without a score: set trainer.score_training=true"
        )
    counts = ((len(folds), "fold"), (settings.starts, "start"), (settings.epochs, "epoch"))
    size = " x ".join(amount(count, noun) for count, noun in counts)
    limited = "" if settings.limit_folds is None else f" (trainer.limit_folds={settings.limit_folds})"
    if getattr(experiment.partition, "only", None) is not None:
        limited = f" (partition.only; the partition has {amount(experiment.count(), 'fold')})"
    out.print(Text(f"{experiment.name}: {size}{limited}, seed {experiment.seed}"))
    for line in [*source.describe(), *splitting.describe(folds, source)]:
        out.print(Text(f"  {line}"))
    if told := never_warm(experiment.schedule, epochs=settings.epochs):
        out.print(Text(f"  warning: {told}"))
    with threads(1):
        example = example_batch(experiment, folds)
        model = look(experiment, example)
        twin = experiment.of_twin()
        other = None if twin is None else look(twin, example)
    show_summary(out, model.summary)
    if model.matched:
        out.print(Text(f"  {model.matched}"))
    if other is not None and experiment.twin is not None:
        show_twin(out, experiment.twin.name, other, model)
    return Shown(model, other)


def look(experiment: Experiment, example: torch.Tensor) -> Look:
    """The experiment's network as a summary, and what was done to match its size."""
    network = experiment.example_network()
    summary = summarise(network, experiment.source.shape.input, example=example)
    return Look(summary, getattr(network, "matched", None))


def show_twin(out: Console, name: str, twin: Look, model: Look) -> None:
    """`Baseline conv: 3 layers (conv 16, conv 16, conv 1), 2,625 parameters (1.2 % fewer than the model), ...`."""
    layers = ", ".join(f"{row.facts.kind} {row.output_shape[0]}" for row in twin.summary.rows)
    ours, theirs = model.summary, twin.summary
    parameters = f"{theirs.parameters:,} parameters ({relative(theirs.parameters, ours.parameters)})"
    macs = f"{theirs.macs:,} MACs ({relative(theirs.macs, ours.macs)})"
    out.print(Text(f"Baseline {name}, trained on the same: {amount(len(twin.summary.rows), 'layer')} ({layers})"))
    out.print(Text(f"  {parameters}, {macs}"))
    for text in filter(None, (twin.matched, *(f"warning: {warning}" for warning in twin.summary.warnings))):
        out.print(Text(f"  {text}"))


def relative(count: int, reference: int) -> str:
    """`3.0 % more than the model`."""
    share = 100 * (count / reference - 1) if reference else 0.0
    if count == reference:
        return "as many as the model"
    return f"{abs(share):.1f} % {'more' if share > 0 else 'fewer'} than the model"


def threads_for(experiment: Experiment, summary: Summary) -> int:
    """`trainer.threads`, or as many as a training step of this network keeps busy."""
    settings = experiment.settings
    if settings.threads is not None:
        return settings.threads
    return sensible_threads(summary.macs * settings.batch_size)


def show_device(out: Console, experiment: Experiment, count: int) -> None:
    """What computes: `Computing on cpu (1 thread), fp32`."""
    device = choose_device(experiment.settings.device)
    where = f"{device} ({amount(count, 'thread')})" if device.type == "cpu" else f"{device}"
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
    folds = experiment.folds()
    shown = describe(out, experiment, folds)
    for fold in folds:
        check(experiment.job(fold, Path()))
    settings, source = experiment.settings, experiment.source
    count = threads_for(experiment, shown.model.summary)
    show_device(out, experiment, count)
    with threads(count):
        step = [step_time(experiment, folds[0], "")]
        twin = experiment.of_twin()
        step += [] if twin is None else [step_time(twin, folds[0], " of the baseline")]
    steps = sum(experiment.job(fold, Path()).steps for fold in folds) * settings.epochs * settings.starts
    # Validation is a forward pass without gradients: about a third of a step for the same items.
    share = 1 + sum(len(fold.validation) for fold in folds) / (3 * sum(len(fold.train) for fold in folds))
    minutes, seconds = divmod(round(sum(step) * steps * share), 60)
    each = " and ".join(f"{one * 1000:.0f} ms" for one in step)
    work = f"{amount(steps, 'step')} of {each}{' for the baseline' * (len(step) - 1)}, {amount(len(source), 'item')}"
    out.print(Text(f"Estimated training time: {minutes} min {seconds} s ({work})"))
    out.print(Text("dry_run=true: nothing was trained or written."))


def step_time(experiment: Experiment, fold: Fold, whose: str) -> float:
    """Seconds of a training step. Raises RunError where the first steps diverge already."""
    try:
        return seconds_per_step(experiment.job(fold, Path()))
    except NonFiniteError as error:
        raise RunError(
            f"the first training steps{whose} already diverge ({error.what}): lower optimizer.lr, or the range or "
            "order of what the neurons compute (operators.<name>.omega, model.q)"
        ) from error
