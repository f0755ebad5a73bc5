"""`onn join`: runs that trained some folds each become one run of all folds, with the results of an undivided one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from onn_runner.errors import ConfigError, OnnRunnerError

ONLY = "partition.only"
PLACE = "joined"
PASSED_OVER = (PLACE, "earlier")
"""Folders of a sweep in which no parts are looked for."""
ENDED = ("done", "diverged")


@dataclass(frozen=True)
class Part:
    """A run of some folds of its partition, as its folder tells."""

    folder: Path
    config: Mapping[str, Any]
    split: Mapping[str, Any]
    record: Mapping[str, Any]
    results: Mapping[str, Any]

    @cached_property
    def folds(self) -> tuple[int, ...]:
        return tuple(int(fold["index"]) for fold in self.split["folds"])

    @cached_property
    def alike(self) -> str:
        """The same text for runs whose configs differ in nothing but `name` and which folds they train."""
        partition = {key: value for key, value in self.config["partition"].items() if key != "only"}
        config = {key: value for key, value in self.config.items() if key != "name"}
        return json.dumps([{**config, "partition": partition}, self.split["of"]], sort_keys=True)

    @property
    def overrides(self) -> list[str]:
        """Those that compose the whole run."""
        return [text for text in self.record["overrides"] if _key(text) != ONLY]


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
        screen.show_table(screen.console(), table.build(_json(folder / "results.json")))
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


def parts_in(folders: Iterable[Path]) -> Iterator[Part]:
    """Every part of a run in these folders, by path, once. Raises ConfigError for a folder that is not there."""
    seen = set()
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: there is no such folder; give runs', such as outputs/<name>/<time-stamp>")
        for run in _runs(folder):
            if run.resolve() not in seen:
                seen.add(run.resolve())
                part = _read(run)
                if part is not None:
                    yield part


def _runs(folder: Path) -> Iterator[Path]:
    if (folder / "run.json").is_file():
        yield folder
        return
    for below in sorted(folder.iterdir()):
        if (
            below.is_dir()
            and not below.is_symlink()
            and not below.name.startswith(".")
            and below.name not in PASSED_OVER
        ):
            yield from _runs(below)


def _read(folder: Path) -> Part | None:
    """None for a run of all folds, and for one whose files cannot be read."""
    import yaml

    try:
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        split, record = _json(folder / "split.json"), _json(folder / "run.json")
        results = _json(folder / "results.json") if (folder / "results.json").is_file() else {}
        part = Part(folder, config, split, record, results)
        if config["partition"].get("only") is None or len(part.folds) >= split["of"]:
            return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
        return None
    return part


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


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
        if trouble := _trouble(group):
            notes.append(f"{name} is not joined: {trouble}")
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
        varying = [text for text in first.overrides if _key(text) not in {*constant, "name"}]
        name = slug("_".join(text.lstrip("+").replace("=", "-") for text in varying)) or "run"
        if name in names:
            name = f"{name}-{hashlib.blake2b(first.alike.encode(), digest_size=4).hexdigest()}"
        names[name] = group
    return names


def _constants(sweep: Path) -> tuple[str, ...]:
    """Keys that all jobs of a sweep share; empty where `sweep` is none."""
    try:
        return tuple(map(_key, _json(sweep / "sweep.json")["constants"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ()


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def _trouble(group: Sequence[Part]) -> str:
    """Why these parts are no whole run; empty where they are one."""
    first, of = group[0], group[0].split["of"]
    owners: dict[int, Part] = {}
    for part in group:
        for number in part.folds:
            if number in owners:
                return f"fold {number} is in {owners[number].folder} and in {part.folder}: leave one of them out"
            owners[number] = part
    for part in group:
        if part.results.get("status") not in ENDED:
            status = part.results.get("status") or part.record.get("status")
            return f"{_folds(part.folds, of)} not finished ({status}): onn-run resume={part.folder}"
        for what, mine, theirs in (
            ("data", part.split.get("fingerprint"), first.split.get("fingerprint")),
            ("code", part.record.get("code"), first.record.get("code")),
        ):
            if mine != theirs:
                return f"{part.folder} was computed with other {what} than {first.folder}: train one of them anew"
    missing = sorted(set(range(of)) - set(owners))
    return f"{_folds(missing, of)} missing" if missing else ""


def _folds(numbers: Sequence[int], of: int) -> str:
    """`fold 1 of 3 is`, `folds 0 and 2 of 3 are`"""
    from onn_runner.report.table import part_words

    return f"{part_words({'folds': numbers, 'of': of})} {'are' if len(numbers) > 1 else 'is'}"


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

    first = group[0]
    folder.mkdir()
    for part in group:
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
