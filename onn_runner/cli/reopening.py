"""A finished run, opened again: its experiment, its folds and, of each fold, the network with the best weights.

Built from the config.yaml that the run stored, not composed anew: defaults that changed since do not enter.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from onn_runner import plain, targets
from onn_runner.checks import path_of
from onn_runner.cli import argv, resolvers
from onn_runner.cli.stored import stored_command
from onn_runner.errors import ConfigError
from onn_runner.partition import split as splitting
from onn_runner.partition.base import Fold
from onn_runner.report import folder as folders
from onn_runner.report.folder import RunFolder

if TYPE_CHECKING:
    from torch import nn

    from onn_runner.crossvalidation import Experiment
    from onn_runner.trainer.engine import Engine
    from onn_runner.trainer.job import FoldJob
    from onn_runner.trainer.result import StartResult

TWIN = "baseline"
"""The twin's folder in a fold's."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A run as it was computed, in single precision and uncompiled, on the device that was asked for."""

    folder: RunFolder
    experiment: Experiment
    folds: tuple[Fold, ...]
    overrides: tuple[str, ...]
    """What the run was typed as, without its place: `onn-run` with these, and others, makes a new one."""
    flags: tuple[str, ...]
    notes: tuple[str, ...]
    """What the reader should know: versions that differ from those that the run was computed with."""

    def fold(self, number: int) -> Fold:
        """Raises ConfigError for a number that the run does not have."""
        for fold in self.folds:
            if fold.index == number:
                return fold
        numbers = ", ".join(str(fold.index) for fold in self.folds)
        raise ConfigError(f"{self.folder.path} has no fold {number}; its folds: {numbers}")

    def best(self, number: int, *, twin: bool = False) -> StartResult:
        """The start that counts. Raises ConfigError where the fold's training has not ended, or without a result."""
        from onn_runner.trainer.result import read_status

        result = read_status(self.job(number, twin=twin).folder)
        whose = f"fold {number}{' of the baseline' if twin else ''} in {self.folder.path}"
        if result is None or result.status in ("running", "interrupted"):
            raise ConfigError(f"{whose} is not trained to its end: go on with onn-run resume={self.folder.path}")
        if result.best is None:
            raise ConfigError(f"{whose} diverged in every start: it has no weights to look at; choose another fold")
        return result.best

    def job(self, number: int, *, twin: bool = False) -> FoldJob:
        """What the trainer would need for the fold, of the model or of its twin."""
        fold, folder = self.fold(number), self.folder.path / f"fold_{number:02d}"
        chosen = self.experiment
        if twin:
            other = chosen.of_twin()
            if other is None:
                raise ConfigError(f"{self.folder.path} has no baseline: it was not run with one, such as baseline=conv")
            chosen, folder = other, folder / TWIN
        return chosen.job(fold, folder)

    def engine(self, number: int, *, twin: bool = False) -> Engine:
        """The fold's network, `scored`, with its best weights and ready for evaluation. Raises as `best` and RunError.

        Torch's random state stays.
        """
        from onn_runner.trainer.device import Randomness, choose_device
        from onn_runner.trainer.engine import Engine
        from onn_runner.trainer.fold import check
        from onn_runner.trainer.weights import load_best

        best, job = self.best(number, twin=twin), self.job(number, twin=twin)
        monitor = check(job)[0]
        weights = load_best(job.folder / monitor.file).network
        with Randomness(choose_device(job.settings.device)).forked():
            engine = Engine(job, best.start, higher=monitor.higher)
        engine.load_network(weights)
        engine.scored.eval()
        return engine

    def network(self, number: int, *, twin: bool = False) -> nn.Module:
        """`engine`'s network, with its best weights, in evaluation mode."""
        return self.engine(number, twin=twin).scored


def open_run(folder: Path | str, *, device: str = "auto") -> Opened:
    """Raises ConfigError where the folder is no run, is of another version, or its data are not what they were."""
    path = path_of(folder)
    record = _record(path)
    config = _stored(path)
    command = stored_command(record, path)
    experiment = _experiment(config, command, name=_name(path), device=device)
    return Opened(
        folder=RunFolder(path),
        experiment=experiment,
        folds=tuple(_folds(path, experiment)),
        overrides=command.overrides,
        flags=(*command.composing_flags, *(f"{argv.MODULE}{name}" for name in targets.allowed())),
        notes=_differences(record),
    )


def initial_of(config: DictConfig) -> Callable[[Fold, str], nn.Module] | None:
    """start_from's networks by fold, opened when they are asked for; None without start_from.

    They raise ConfigError where the run is none, is not finished, or has other folds or data.
    """
    folder = config.get("start_from")
    if folder is None:
        return None

    @functools.cache
    def opened() -> Opened:
        try:
            return open_run(folder, device="cpu")
        except ConfigError as error:
            raise ConfigError(f"start_from: {error}") from error

    def initial(fold: Fold, fingerprint: str) -> nn.Module:
        run = opened()
        try:
            theirs = run.fold(fold.index)
            network = run.network(fold.index)
        except ConfigError as error:
            raise ConfigError(f"start_from: {error}") from error
        if theirs != fold or run.experiment.source.fingerprint() != fingerprint:
            raise ConfigError(
                f"start_from={folder}: fold {fold.index} there has other items, so that what is tested may have been "
                "trained on; use the data and the partition of that run"
            )
        return network

    return initial


def _record(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise ConfigError(f"{path}: there is no such folder; give a run's, such as outputs/<name>/<time-stamp>")
    if not (path / "run.json").is_file():
        inside = sorted(found.parent for found in path.glob("*/run.json"))
        hint = f"; the newest run in it is {inside[-1]}" if inside else ""
        raise ConfigError(f"{path} is not a run folder (it has no run.json){hint}")
    try:
        RunFolder(path).refuse_links()
        return RunFolder(path).read_record()
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix("resume=")) from error


def _stored(path: Path) -> dict[str, Any]:
    config = plain.read_yaml(path / "config.yaml")
    if not isinstance(config, dict) or "network" not in config:
        raise ConfigError(f"{path}: config.yaml is empty or damaged; the run cannot be opened")
    return config


def _experiment(stored: dict[str, Any], command: argv.Command, *, name: str, device: str) -> Experiment:
    from onn_runner import experiment

    resolvers.register()
    stored = {**stored, "dry_run": False, "name": name}
    config = OmegaConf.create(_literal(stored))
    assert isinstance(config, DictConfig)
    request = experiment.Request(
        command=(),
        overrides=command.overrides,
        flags=command.composing_flags,
        choices={"baseline": _twin(command)},
        config_dirs=command.folders,
    )
    built: Experiment = experiment.build(config, stored, request)
    settings = replace(built.settings, device=device, precision="fp32", compile=False, threads=None)
    return replace(built, settings=settings)


def _twin(command: argv.Command) -> str:
    """The option of `baseline`, which the stored config does not tell."""
    chosen = [argv.parse(text) for text in command.overrides if text.startswith("baseline=")]
    return str(chosen[-1].value()) if chosen else TWIN


def _literal(value: Any) -> Any:
    """The same containers with every ${ escaped: what is stored is resolved, and a folder's name may hold it."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    if isinstance(value, dict):
        return {key: _literal(one) for key, one in value.items()}
    return [_literal(one) for one in value] if isinstance(value, list) else value


def _name(path: Path) -> str:
    """The run's name as its results have it; before there are any, its folder's."""
    try:
        return plain.printable(str(plain.read_json(path / "results.json")["name"]))
    except (ConfigError, LookupError, TypeError):
        return path.resolve().name


def _folds(path: Path, experiment: Experiment) -> list[Fold]:
    source = experiment.source
    return splitting.from_plain(
        plain.read_json(path / "split.json"), fingerprint=source.fingerprint(), items=len(source)
    )


def _differences(record: dict[str, Any]) -> tuple[str, ...]:
    began, now = record.get("versions", {}), folders.versions()
    changed = [
        f"{name} {began[name]} -> {now.get(name, 'absent')}"
        for name in ("onn-runner", "torch")
        if name in began and began[name] != now.get(name)
    ]
    return (f"opened with other versions than the run's ({', '.join(changed)})",) if changed else ()
