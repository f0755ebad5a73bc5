"""`onn join`: runs that trained some folds each become one run of all folds, with the results of an undivided one."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from onn_runner import plain
from onn_runner.cli.parts import Part, key_of, parts_in, trouble
from onn_runner.errors import ConfigError, OnnRunnerError

PLACE = "joined"


def join(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDERS...", help="Runs of some folds each, or folders with such runs.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where joined runs go; by default `joined` in the folder that holds them all.")
    ] = None,
) -> None:
    """Runs of some folds each (partition.only=...) become one run of all folds; they themselves stay as they are."""
    from onn_runner.report import screen, table

    parts = list(parts_in(folders))
    if not parts:
        raise ConfigError(
            f"{', '.join(map(str, folders))}: there is no run of a part of its folds here, such as partition.only=0 "
            "makes"
        )
    joined, notes = _join(parts, out or _common(parts) / PLACE)
    for note in notes:
        print(f"onn: {note}", file=sys.stderr)
    for folder in joined:
        screen.show_table(screen.console(), table.build(plain.read_json(folder / "results.json")))
        print(f"Joined: {screen.relative(folder)}")
    if not joined:
        raise ConfigError("nothing was joined")


def join_parts(sweep: Path) -> list[Path]:
    """Join the jobs of a sweep that are parts of a run, below <sweep>/joined; what cannot be is told on stderr.

    Joined runs of before are replaced. Empty where the sweep has no such jobs.
    """
    from onn_runner.report import screen

    joined, notes = _join(list(parts_in([sweep])), sweep / PLACE)
    for note in notes:
        print(f"onn-run: {note}", file=sys.stderr)
    for folder in joined:
        print(f"onn-run: folds joined: {screen.relative(folder)}", file=sys.stderr)
    return joined


def _common(parts: Sequence[Part]) -> Path:
    """The innermost folder that holds them all."""
    return Path(os.path.commonpath([part.folder.resolve().parent for part in parts]))


def _join(parts: Sequence[Part], where: Path) -> tuple[list[Path], list[str]]:
    """(the joined runs' folders, why others are not joined)."""
    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.alike, []).append(part)
    joined, notes = [], []
    for name, group in _named(list(groups.values())).items():
        if why := trouble(group):
            notes.append(f"{name} is not joined: {why}")
            continue
        try:
            joined.append(_whole(group, where / name))
        except OnnRunnerError as error:
            notes.append(f"{name} is not joined: {error}")
    return joined, notes


def _named(groups: Sequence[Sequence[Part]]) -> dict[str, Sequence[Part]]:
    """Folder name -> group, made of what a sweep varies; outside sweeps of all overrides."""
    from onn_runner.cli.resolvers import slug

    names: dict[str, Sequence[Part]] = {}
    for group in groups:
        first = group[0]
        constant = _constants(first.folder.parent)
        varying = [text for text in first.overrides if key_of(text) not in {*constant, "name"}]
        name = slug("_".join(text.lstrip("+").replace("=", "-") for text in varying)) or "run"
        if name in names:
            name = f"{name}-{hashlib.blake2b(first.alike.encode(), digest_size=4).hexdigest()}"
        names[name] = group
    return names


def _constants(sweep: Path) -> tuple[str, ...]:
    """Keys that all jobs of a sweep share; empty where `sweep` is none."""
    try:
        return tuple(map(key_of, plain.read_json(sweep / "sweep.json")["constants"]))
    except (ConfigError, LookupError, TypeError, AttributeError):
        return ()


def _whole(group: Sequence[Part], destination: Path) -> Path:
    """The joined run's folder: made beside its place, and moved there when it is complete."""
    from onn_runner import storage
    from onn_runner.report.folder import make

    make(destination.parent)
    building = destination.with_name(f".{destination.name}.{os.getpid()}")
    former = building.with_name(f"{building.name}.former")
    try:
        for folder in (building, former):
            shutil.rmtree(folder, ignore_errors=True)
        _take_over(group, building)
        _work_out(group, building)
        if destination.exists():
            destination.rename(former)
        building.rename(destination)
    except OSError as error:
        raise storage.failure(destination, error) from error
    finally:
        for folder in (building, former):
            shutil.rmtree(folder, ignore_errors=True)
    return destination


def _take_over(group: Sequence[Part], folder: Path) -> None:
    """A run folder with all folds of the parts, and with the config, split and record of an undivided run."""
    import yaml

    from onn_runner import storage
    from onn_runner.report.folder import RunFolder

    first = group[0]
    folder.mkdir()
    for part in group:
        RunFolder(part.folder).refuse_links()
        for number in part.folds:
            shutil.copytree(
                part.folder / f"fold_{number:02d}",
                folder / f"fold_{number:02d}",
                copy_function=_link_weights,
                ignore=shutil.ignore_patterns(".*.partial"),
            )
    config = {**first.config, "partition": {**first.config["partition"], "only": None}}
    storage.write_text(folder / "config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    folds = sorted((fold for part in group for fold in part.split["folds"]), key=lambda fold: int(fold["index"]))
    storage.write_json(folder / "split.json", {**first.split, "folds": folds})
    record = {
        **first.record,
        "command": ["onn-run", *first.record.get("flags", []), *first.overrides],
        "overrides": first.overrides,
        "started": min(str(part.record.get("started")) for part in group),
        "resumed": [],
        "joined": [{"folder": str(part.folder), "folds": list(part.folds)} for part in group],
    }
    storage.write_json(folder / "run.json", record)


def _link_weights(source: str, destination: str) -> None:
    """Checkpoints, which nobody changes in place, as hard links where the file system has them; copies of the rest."""
    if source.endswith((".pt", ".safetensors")):
        try:
            os.link(source, destination)
            return
        except OSError:
            pass
    shutil.copy2(source, destination)


def _work_out(group: Sequence[Part], folder: Path) -> None:
    """Results, tables, curves and events of all folds, as at the end of an undivided run; nothing is trained."""
    import io
    import time
    from dataclasses import replace

    from rich.console import Console

    from onn_runner import crossvalidation
    from onn_runner.cli.reopening import open_run
    from onn_runner.overview import describe
    from onn_runner.session import Session
    from onn_runner.trainer.interrupt import StopRequest
    from onn_runner.trainer.progress import QuietReporter

    first = group[0]
    unseen = Console(file=io.StringIO())
    opened = open_run(folder, device="cpu")
    config = {**opened.experiment.config, "name": first.config.get("name")}
    experiment = replace(opened.experiment, name=str(first.results["name"]), config=config)
    shown = describe(unseen, experiment, opened.folds)
    began = time.monotonic() - sum(float(part.results.get("seconds") or 0) for part in group)
    with opened.folder.lock(), StopRequest().install() as stop, QuietReporter() as reporter:
        for text in dict.fromkeys(text for part in group for text in part.results.get("warnings", [])):
            reporter.warn(text)
        session = Session(experiment, opened.folder, opened.folds, shown, reporter, stop, unseen, began)
        session.start()
        for fold in opened.folds:
            session.train(fold, resume=True)
    crossvalidation.finish(session)
