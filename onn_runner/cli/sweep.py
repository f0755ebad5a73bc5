"""Many runs from one command: Hydra's sweepers and launchers, without jobs that would only repeat another one."""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf

from onn_runner import locking
from onn_runner.cli import argv, check, job, sweep_folder, sweep_report
from onn_runner.cli.argv import Command, parse, quote
from onn_runner.cli.compose import compose, translated
from onn_runner.cli.sweep_folder import Job, Plan
from onn_runner.cli.watching import watched
from onn_runner.errors import ConfigError, OnnRunnerError, RunError

if TYPE_CHECKING:
    from onn_runner.cli.search import SearchSweeper

EVERY_VALUE = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
MOST_DEATHS = 2
"""So often may a job's process vanish, in one start of the sweep, before the job counts as failed."""


def sweep(hydra: Hydra, command: Command) -> int:
    """Run every job of a checked sweep; the exit code is the worst of the jobs'."""
    from onn_runner.cli.search import SearchSweeper
    from onn_runner.cli.search_settings import searches

    draft = _master_config(hydra, command, Path("multirun"))
    search = SearchSweeper(hydra, command, draft) if searches(draft) else None
    if search is None:
        refuse_intervals(draft)
    with sweep_folder.opened(command) as where:
        return _sweep(hydra, command, _master_config(hydra, command, where), search)


def _sweep(hydra: Hydra, command: Command, config: DictConfig, search: SearchSweeper | None) -> int:
    where = Path(str(config.hydra.sweep.dir))
    context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
    task = partial(job.carry_out, modules=command.modules)
    context.callbacks.on_multirun_start(config=config, config_name=command.name)
    sweeper: Any = search
    if search is None:
        with translated():
            sweeper = Plugins.instance().instantiate_sweeper(config=config, hydra_context=context, task_function=task)
    # By name: Hydra makes the classes of its plugins anew when it looks for them.
    if type(sweeper).__name__ == "BasicSweeper":
        sweeper = DistinctSweeper(hydra, command, params=sweeper.params, max_batch_size=sweeper.max_batch_size)
    if isinstance(sweeper, DistinctSweeper):
        sweeper.setup(hydra_context=context, task_function=task, config=config)
    try:
        with translated():
            sweeper.sweep(arguments=list(job.as_typed(config.hydra)))
        context.callbacks.on_multirun_end(config=config, config_name=command.name)
    except KeyboardInterrupt:
        again = shlex.join(["onn-run", *command.typed])
        print(f"onn-run: stopped. What is finished stays so; to go on, the same command: {again}", file=sys.stderr)
        _show(sweeper, where)
        raise
    except RunError:
        _show(sweeper, where)
        raise
    return _show(sweeper, where)


def _show(sweeper: Any, where: Path) -> int:
    from onn_runner.cli.search import SearchSweeper

    searching = isinstance(sweeper, SearchSweeper)
    code = sweep_report.show(where, names=getattr(sweeper, "names", None), searching=searching)
    if searching:
        sweeper.show(where)
    return code


def refuse_intervals(config: DictConfig) -> None:
    """Raises ConfigError where a search range is given to the sweeper that tries every value."""
    params = OmegaConf.select(config, "hydra.sweeper.params") or {}
    typed = [f"{key}={value}" for key, value in params.items()] + list(job.as_typed(config.hydra))
    for text in typed if OmegaConf.select(config, "hydra.sweeper._target_") == EVERY_VALUE else ():
        if parse(text).value_type is ValueType.INTERVAL_SWEEP:
            raise ConfigError(f"{text}: an interval needs a sweeper that searches: add sweep=optuna")


def _master_config(hydra: Hydra, command: Command, where: Path) -> DictConfig:
    overrides = [text for text in command.overrides if not text.startswith("hydra.sweep.dir=")]
    overrides += [f"hydra.sweep.dir={quote(where.as_posix())}", "hydra.mode=MULTIRUN"]
    with translated():
        config = hydra.compose_config(config_name=command.name, overrides=overrides, run_mode=RunMode.MULTIRUN)
    OmegaConf.set_struct(config, True)
    return config


class DistinctSweeper(Sweeper):
    """The product of all values, without jobs that differ only in what their model does not use.

    A failed job does not end it: `job.carry_out` keeps what went wrong. Neither does a job whose process is killed: the
    others are launched again, and it as well, until it has died `MOST_DEATHS` times.
    """

    def __init__(
        self, hydra: Hydra, command: Command, *, params: Mapping[str, Any], max_batch_size: int | None = None
    ) -> None:
        """`params`: hydra.sweeper.params, what a preset sweeps over. `max_batch_size`: jobs of one launch."""
        self.hydra = hydra
        self.command = command
        self.params = params
        self.max_batch_size = max_batch_size
        self.hydra_context: HydraContext | None = None
        self.config: DictConfig | None = None
        self.launcher: Launcher | None = None
        self.groups = frozenset(check.catalogue_of(command).groups)
        self.composed: dict[tuple[str, ...], DictConfig] = {}
        self.deaths: Counter[str] = Counter()
        self.names: list[str] | None = None
        """The jobs' folders; None where they are not known before."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context = hydra_context
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def preset(self) -> list[str]:
        """What hydra.sweeper.params varies, as overrides."""
        return [f"{key}={value}" for key, value in self.params.items()]

    def sweep(self, arguments: list[str]) -> None:
        assert self.config is not None
        assert self.launcher is not None
        where = Path(str(self.config.hydra.sweep.dir))
        plan = self._plan(arguments, where)
        OmegaConf.save(self.config, where / "multirun.yaml")
        retry = bool(OmegaConf.select(self.config, "sweep.retry_failed", default=False))
        jobs = [one for one in plan.jobs if one.folder in set(self.names or ())]
        pending = [one for one in jobs if not self._settled(one, where, retry=retry)]
        if len(pending) < len(jobs):
            done = len(jobs) - len(pending)
            print(f"onn-run: {done} of {len(jobs)} jobs have ended already ({where})", file=sys.stderr)
        try:
            while pending:
                pending = self._launch(pending, where)
            plan = replace(plan, status="finished")
        finally:
            replace(plan, status="stopped" if plan.status == "running" else plan.status).write(where)

    def _plan(self, arguments: list[str], where: Path) -> Plan:
        """The jobs, written into the folder. Raises ConfigError where the folder has another sweep's."""
        params = argv.merge(self.preset(), arguments)
        assert self.hydra_context is not None
        assert self.config is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        overrides = parser.parse_overrides(list(params))
        # One value of a key that an earlier command varied here is one more of it.
        swept = sweep_folder.swept_keys(params) | sweep_folder.varied(sweep_folder.read(where))
        launcher = str(self.config.hydra.runtime.choices.get("hydra/launcher", "basic"))
        jobs = [Job(sweep_folder.job_name(texts, swept), tuple(texts)) for texts in self._distinct(overrides)]
        self.names = [one.folder for one in jobs]
        return sweep_folder.begin(
            where,
            Plan(
                command=("onn-run", *self.command.typed),
                constants=sweep_folder.constants(params, swept),
                launcher="local" if launcher == "basic" else launcher,
                jobs=tuple(jobs),
            ),
        )

    def _distinct(self, overrides: list[Override]) -> list[list[str]]:
        from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

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
        return distinct

    def _useful(self, overrides: Sequence[str]) -> list[str]:
        parts = {text: text.lstrip("+~").partition("=")[0].split(".")[0] for text in overrides}
        if not {"ops", "operators"} & set(parts.values()):
            return list(overrides)
        deciding = tuple(text for text, part in parts.items() if part in self.groups)
        if deciding not in self.composed:
            self.composed[deciding] = compose(self.hydra, self.command, deciding)
        return check.useful(self.composed[deciding], overrides)

    def _settled(self, one: Job, where: Path, *, retry: bool) -> bool:
        """Whether nothing is to be done for a job any more: finished, or failed and not to be tried again."""
        folder = where / one.folder
        record = job.read(folder)
        if record is None or record.status not in (job.FINISHED, job.FAILED, job.PRUNED):
            return False
        if record.status == job.FAILED and retry:
            return False
        from onn_runner.cli.standing import standing

        whole = compose(self.hydra, self.command, one.overrides)
        config = OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"])
        try:
            found = standing(folder, record, config, job.request_of(config, whole.hydra, folder))
        except OnnRunnerError:
            # What is wrong with it now is told by the job itself.
            return False
        return found.state in ("finished", "failed")

    def _launch(self, pending: Sequence[Job], where: Path) -> list[Job]:
        """Launch the jobs; those that have to be launched again, since a process of theirs was killed."""
        assert self.launcher is not None
        lost: Exception | None = None
        for jobs in self._batches(pending):
            first = pending.index(jobs[0])
            batch = [[*one.overrides, f"hydra.sweep.subdir={one.folder}"] for one in jobs]
            try:
                with self._told(jobs, where):
                    results = self.launcher.launch(batch, initial_job_idx=first)
                    # What a job could not keep to itself.
                    _ = [result.return_value for result in results]
            except launchers_failures() as error:
                lost = error
        left = [one for one in pending if not _ended(job.read(where / one.folder))]
        if not left:
            return []
        return self._after_deaths(left, where, lost, all_of=len(pending))

    def _batches(self, pending: Sequence[Job]) -> list[list[Job]]:
        """What is launched together. Where a dead process takes its neighbours along, suspects run one by one."""
        alone = [one for one in pending if self.deaths[one.folder]] if _pooled(self.launcher) else []
        others = [one for one in pending if one not in alone]
        size = self.max_batch_size or max(1, len(others))
        return [others[first : first + size] for first in range(0, len(others), size)] + [[one] for one in alone]

    def _told(self, jobs: Sequence[Job], where: Path) -> AbstractContextManager[None]:
        """Jobs in this process tell themselves how far they are; of others their folders do."""
        if type(self.launcher).__name__ == "BasicLauncher":
            return nullcontext()
        plan = sweep_folder.read(where)
        return watched(where, [one.folder for one in jobs], total=len(jobs) if plan is None else len(plan.jobs))

    def _after_deaths(self, left: Sequence[Job], where: Path, lost: Exception | None, *, all_of: int) -> list[Job]:
        """Count whose process died. Raises RunError where nothing has come of a whole round."""
        for one in left:
            while locking.held(where / one.folder / job.LOCK):
                time.sleep(1)
        died = 0
        again = []
        for one in left:
            record = job.read(where / one.folder)
            if _ended(record):
                continue
            if record is not None and record.status == job.RUNNING:
                died += 1
                self.deaths[one.folder] += 1
                if self.deaths[one.folder] >= MOST_DEATHS:
                    reason = f"its process vanished {MOST_DEATHS} times (killed, or out of memory)"
                    record.write(status=job.FAILED, exit_code=1, error=reason)
                    continue
            again.append(one)
        if again and not died and len(left) == all_of:
            raise RunError(f"the launcher could not start the jobs: {lost or 'no reason given'}") from lost
        if again:
            whose = "1 job lost its process" if died == 1 else f"{died} jobs lost their processes"
            print(f"onn-run: {whose}; {len(again)} are launched again", file=sys.stderr)
        return again


def _pooled(launcher: object) -> bool:
    """Whether its processes end together: joblib's pool ends when one of them is killed."""
    return type(launcher).__name__ == "JoblibLauncher"


def _ended(record: job.Record | None) -> bool:
    return record is not None and record.status in (job.FINISHED, job.FAILED, job.PRUNED)


def launchers_failures() -> tuple[type[Exception], ...]:
    """What launchers raise when a process of theirs dies; ray's errors where ray is in use."""
    ray = sys.modules.get("ray")
    return (RuntimeError, OSError, *([ray.exceptions.RayError] if ray is not None else []))


def distinct_jobs(jobs: Iterable[list[str]], useful: Any) -> list[list[str]]:
    """Each job reduced to its useful overrides, the first of equal ones only."""
    reduced = (tuple(useful(job)) for job in jobs)
    return [list(job) for job in dict.fromkeys(reduced)]
