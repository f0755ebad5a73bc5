"""`onn profile`: what a network costs, layer by layer and as images grow, alone or beside another one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onn_runner.errors import ConfigError, OnnRunnerError, RunError, out_of_memory

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor

    from onn_runner.cli.composed import Composed
    from onn_runner.report.costs import Profile

NAME = "profile"


def profile(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN] [KEY=VALUE ...]", help="A run folder, or what would be typed for onn-run."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Measure beside it: other neurons (conv), or one KEY=VALUE that differs.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Sizes of inputs, such as 16,32,64 or 48x64; the data's own, half and twice.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Items of a batch; trainer.batch_size.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    repeats: Annotated[int, typer.Option(help="Timed runs, of which the shortest counts.")] = 5,
    output: Annotated[str | None, typer.Option(help="Folder for profile.csv, profile.json and profile.png.")] = None,
    config_dir: Annotated[
        str | None, typer.Option("--config-dir", "-cd", help="A folder with more options, as for onn-run.")
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option("--module", help="A module of your own that the config may use, as for onn-run; several times."),
    ] = None,
) -> None:
    """Parameters, MACs, memory for backward and time of a network, by layer and by image size; nothing is trained."""
    from onn_runner.cli.composed import composed, words_of
    from onn_runner.report import screen
    from onn_runner.trainer.device import choose_device, matmul_precision

    for name, value in (("--batch", batch), ("--repeats", repeats)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} (={value}) must be a whole number of at least 1")
    where = choose_device(device)
    out = screen.console()
    given = words_of(words or [], config_dir=config_dir, modules=module or ())
    found = [composed(given if against is None or "=" in against else _with(given, f"baseline={against}"))]
    if against is not None and "=" in against:
        found.append(composed(_with(given, against)))
    x = _example(found[0], batch)
    asked = _sizes(sizes, tuple(x.shape[2:]))
    with matmul_precision("fp32"):
        profiles = [
            _measured(label, network, x.to(where), asked, repeats=repeats, out=out)
            for label, network in _networks(found, against)
        ]
    _show(out, profiles, device=str(where))
    if output is not None:
        _write(out, Path(output), profiles, device=str(where))


def _with(words: Sequence[str], other: str) -> tuple[str, ...]:
    """The words with one override more, in place of the one it replaces."""
    from onn_runner.cli import argv

    command = argv.read(words)
    return (*command.composing_flags, *argv.merge(command.overrides, argv.read([other]).overrides))


def _networks(found: Sequence[Composed], against: str | None) -> list[tuple[str, Any]]:
    """(label, network), the one to be compared with last."""
    first = found[0]
    networks = [(first.model, first.experiment.example_network())]
    if len(found) > 1:
        networks = [(f"{first.model}, as given", networks[0][1])]
        return [*networks, (f"{found[1].model}, {against}", found[1].experiment.example_network())]
    twin = first.experiment.of_twin() if against is not None else None
    return networks if twin is None else [*networks, (str(against), twin.example_network())]


def _example(composed: Composed, batch: int | None) -> Tensor:
    """A batch of training items, by whose ranges what computes a layer is chosen."""
    from onn_runner.overview import example_batch

    experiment = composed.experiment
    if batch is not None:
        experiment = replace(experiment, settings=replace(experiment.settings, batch_size=batch))
    return example_batch(experiment, experiment.partition.split(experiment.source))


def _sizes(text: str | None, own: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The sizes to measure, the data's own among them, growing. Raises ConfigError for what is no size."""
    import math

    dims = len(own)
    if text is None:
        half, twice = tuple(max(1, length // 2) for length in own), tuple(2 * length for length in own)
        return [half, own, twice]
    found = {own}
    for word in text.split(","):
        if re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", word.strip()) is None:
            raise ConfigError(f"--sizes {text}: '{word}' is no size; write 32, or 48x64 for each axis")
        lengths = tuple(map(int, word.split("x")))
        if len(lengths) not in (1, dims):
            raise ConfigError(f"--sizes {text}: {word} has {len(lengths)} axes, the data have {dims}")
        found.add(lengths * dims if len(lengths) == 1 else lengths)
    return sorted(found, key=math.prod)


def _measured(
    label: str, network: Any, x: Tensor, sizes: Sequence[tuple[int, ...]], *, repeats: int, out: Console
) -> Profile:
    """The costs at every size that the network takes; others are named on the screen."""
    from torch.nn import functional

    from onn_runner.analysis.costs import measure
    from onn_runner.report.costs import Profile

    own, growth = tuple(x.shape[2:]), []
    method = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(own)]
    try:
        base = measure(network, x, repeats=repeats)
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, OnnRunnerError) or not out_of_memory(error):
            raise
        raise RunError(f"{label}: not enough memory for a batch of {len(x)}; give a smaller --batch") from error
    for size in sizes:
        if size == own:
            growth.append(base)
            continue
        resized = functional.interpolate(x, size=size, mode=method, align_corners=False)
        try:
            growth.append(measure(network, resized, by_layer=False, repeats=repeats))
        except (RuntimeError, ValueError) as error:
            full = isinstance(error, RuntimeError) and out_of_memory(error)
            reason = "not enough memory" if full else " ".join(str(error).split())
            out.print(f"  {label} at {'x'.join(map(str, size))}: left out ({reason})", markup=False)
    return Profile(label, base, tuple(growth))


def _show(out: Console, profiles: Sequence[Profile], *, device: str) -> None:
    from rich.text import Text

    from onn_runner.report import costs, screen

    first = profiles[0].own
    size = "x".join(map(str, first.size))
    out.print(Text(f"Inputs of {size}, batch of {first.batch}, {device}, single precision", style="bold"))
    for one in profiles:
        rows = costs.layer_rows(one.own)
        screen.show_rows(
            out, f"{one.label}: by layer", costs.LAYER_HEADINGS, rows, sections=(len(rows) - 2,), left=(0, 1)
        )
    if len(profiles) > 1:
        titles = ("", *(one.label for one in profiles), "ratio")
        screen.show_rows(out, "Side by side", titles, costs.side_by_side(*profiles))
    screen.show_rows(
        out, "By size of the input", costs.GROWTH_HEADINGS, costs.growth_rows(profiles), notes=costs.notes(device),
        left=(0, 1),
    )  # fmt: skip


def _write(out: Console, folder: Path, profiles: Sequence[Profile], *, device: str) -> None:
    from rich.text import Text

    from onn_runner import storage
    from onn_runner.report import costs, results, screen
    from onn_runner.report import folder as folders
    from onn_runner.report.figures_profile import profile_figure

    folders.make(folder)
    header, rows = costs.table(profiles)
    results.write_table(folder / f"{NAME}.csv", header, rows)
    plain = {"device": device, "versions": dict(folders.versions()), "notes": costs.notes(device)}
    storage.write_json(folder / f"{NAME}.json", {**plain, "networks": [one.as_plain() for one in profiles]})
    storage.write(folder / f"{NAME}.png", profile_figure(profiles, device=device))
    out.print(Text(f"Written: {screen.relative(folder)}/{NAME}.csv, {NAME}.json, {NAME}.png"), soft_wrap=True)
