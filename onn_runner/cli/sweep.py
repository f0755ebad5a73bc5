"""Many runs from one command: Hydra's sweepers and launchers, without jobs that would only repeat another one."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra.core.override_parser.types import Override, ValueType
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from onn_runner.cli import check, job
from onn_runner.cli.argv import Command, parse, quote
from onn_runner.cli.compose import compose, translated
from onn_runner.errors import ConfigError
from onn_runner.report import folder as run_folder


def sweep(hydra: Hydra, command: Command) -> int:
    """Run every job of a checked sweep; the exit code is the worst of the jobs'."""
    refuse_intervals(command)
    config = _master_config(hydra, command)
    where = Path(str(config.hydra.sweep.dir))
    context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
    context.callbacks.on_multirun_start(config=config, config_name=command.name)
    with translated():
        sweeper = Plugins.instance().instantiate_sweeper(
            config=config, hydra_context=context, task_function=job.carry_out
        )
    if type(sweeper) is BasicSweeper:
        sweeper = DistinctSweeper(hydra, command, sweeper)
        sweeper.setup(hydra_context=context, task_function=job.carry_out, config=config)
    try:
        with translated():
            sweeper.sweep(arguments=list(job.as_typed(config.hydra)))
        context.callbacks.on_multirun_end(config=config, config_name=command.name)
    except KeyboardInterrupt:
        given = (
            [] if any(word.startswith("hydra.sweep.dir=") for word in command.typed) else [f"hydra.sweep.dir={where}"]
        )
        again = shlex.join(["onn-run", *command.typed, *given])
        print(f"onn-run: stopped. What is finished stays so; to go on: {again}", file=sys.stderr)
        raise
    finally:
        code = report(where)
    return code


def refuse_intervals(command: Command) -> None:
    """Raises ConfigError where a search range is given to the sweeper that tries every value."""
    basic = not any(text.startswith("hydra/sweeper=") for text in command.overrides)
    for text in command.overrides:
        if basic and parse(text).value_type is ValueType.INTERVAL_SWEEP:
            raise ConfigError(f"{text}: an interval needs a sweeper that searches, such as hydra/sweeper=optuna")


def _master_config(hydra: Hydra, command: Command) -> DictConfig:
    overrides = list(command.overrides)
    if not any(text.startswith("hydra.sweep.dir=") for text in overrides):
        folder = run_folder.create("multirun", root=Path(".")).path
        overrides.append(f"hydra.sweep.dir={quote(folder.as_posix())}")
    overrides.append("hydra.mode=MULTIRUN")
    with translated():
        config = hydra.compose_config(config_name=command.name, overrides=overrides, run_mode=RunMode.MULTIRUN)
    OmegaConf.set_struct(config, True)
    return config


class DistinctSweeper(BasicSweeper):
    """The product of all values, without jobs that differ only in what their model does not use.

    A failed job does not end it: `job.carry_out` keeps what went wrong.
    """

    def __init__(self, hydra: Hydra, command: Command, like: BasicSweeper) -> None:
        super().__init__(max_batch_size=like.max_batch_size, params=like.params)
        self.hydra = hydra
        self.command = command
        self.groups = frozenset(check.catalogue_of(command).groups)
        self.composed: dict[tuple[str, ...], DictConfig] = {}

    def split_arguments(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:  # type: ignore[override]
        jobs = BasicSweeper.split_arguments(overrides, None)[0]
        distinct = distinct_jobs(jobs, self._useful)
        twice = len(jobs) - len(distinct_jobs(jobs, list))
        idle = len(jobs) - len(distinct) - twice
        idle_reason = (
            "without what their model does not use (operators, operators' parameters) they are the same as another job"
        )
        reasons = {"the same job twice": twice, idle_reason: idle}
        for reason, count in reasons.items():
            if count:
                print(f"onn-run: {count} of {len(jobs)} jobs left out: {reason}", file=sys.stderr)
        return list(self.split_overrides_to_chunks(distinct, max_batch_size))

    def _useful(self, overrides: Sequence[str]) -> list[str]:
        parts = {text: text.lstrip("+~").partition("=")[0].split(".")[0] for text in overrides}
        deciding = tuple(text for text, part in parts.items() if part in self.groups)
        if deciding not in self.composed:
            self.composed[deciding] = compose(self.hydra, self.command, deciding)
        return check.useful(self.composed[deciding], overrides)


def distinct_jobs(jobs: Iterable[list[str]], useful: Any) -> list[list[str]]:
    """Each job reduced to its useful overrides, the first of equal ones only."""
    reduced = (tuple(useful(job)) for job in jobs)
    return [list(job) for job in dict.fromkeys(reduced)]


def report(where: Path) -> int:
    """Print one line per job and every failure; the worst exit code: interrupted, then failed, then refused."""
    records = job.records(where)
    print(f"\nsweep {where}: {len(records)} jobs")
    width = max((len(record.status) for record in records), default=0)
    for record in records:
        score = "" if record.score is None else f"{record.score:.4g}"
        print(
            f"  {record.number:>3}  {record.status:<{width}}  {score:>9}  {' '.join(record.overrides) or '(defaults)'}"
        )
    for record in records:
        if record.error:
            print(f"onn-run: job {record.number} {record.status}: {record.error} ({record.folder})", file=sys.stderr)
    codes = {record.exit_code for record in records}
    return next((code for code in (130, 1, 2) if code in codes), max(codes, default=0))
