"""A sweep that searches: Optuna asks for points, jobs are launched for them, and their records are told to it."""

from __future__ import annotations

import csv
import importlib.util
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.hydra import Hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from onn_runner import storage
from onn_runner.cli import argv, job, sweep_folder
from onn_runner.cli.argv import Command
from onn_runner.cli.compose import compose, translated
from onn_runner.cli.search_settings import directions_of, read, without_hydra
from onn_runner.cli.search_space import Space, space_of
from onn_runner.cli.sweep import DistinctSweeper
from onn_runner.cli.sweep_folder import Job, Plan
from onn_runner.errors import ConfigError
from onn_runner.report import screen

if TYPE_CHECKING:
    from onn_runner.cli.search_study import Search, Told, Trial

PARETO = "pareto.csv"


class SearchSweeper(DistinctSweeper):
    """Trials in batches; what their jobs came to is read from the jobs' folders, whichever launcher computed them."""

    def __init__(self, hydra: Hydra, command: Command, config: DictConfig) -> None:
        """`config`: of the sweep, with Hydra's node. Raises ConfigError for settings and ranges that make no search."""
        self.settings = read(config.hydra.sweeper)
        params = {str(key): str(value) for key, value in self.settings.params.items()}
        super().__init__(hydra, command, params=params)
        if importlib.util.find_spec("optuna") is None:
            raise ConfigError("hydra/sweeper=optuna is not installed: pip install 'onn-runner[sweep]'")
        self.space = self._space(job.as_typed(config.hydra))
        first = {key: _example(dimension) for key, dimension in self.space.dimensions.items()}
        self.example = without_hydra(compose(hydra, command, self.space.overrides(first)))
        self._refuse_idle()
        self.directions = directions_of(self.settings, self.example)
        self.search: Search | None = None
        from onn_runner.cli.search_parts import check

        check(self.settings, self.space)

    def _refuse_idle(self) -> None:
        """Raises ConfigError for keys of a preset's own (search.width_0) to which nothing refers any more."""
        written = str(OmegaConf.to_container(self.example, resolve=False))
        idle = [key for key in self.space.dimensions if key.startswith("search.") and f"${{{key}}}" not in written]
        if idle:
            raise ConfigError(
                f"{', '.join(idle)} would change nothing: what they choose was typed instead (such as network.channels "
                "or model.layers); leave that out, or search without this preset"
            )

    def sweep(self, arguments: list[str]) -> None:
        from onn_runner.cli.search_study import open_search
        from onn_runner.code_version import code_version

        assert self.config is not None
        where = Path(str(self.config.hydra.sweep.dir))
        plan = self._begin(where)
        OmegaConf.save(self.config, where / "multirun.yaml")
        code = code_version(OmegaConf.to_container(self.example, resolve=False))  # type: ignore[arg-type]
        search = open_search(self.settings, self.space, self.directions, folder=where, code=code, note=_note)
        if OmegaConf.select(self.config, "sweep.retry_failed", default=False):
            search.retry_failed()
        try:
            plan = self._trials(search, plan, where)
            plan = replace(plan, status="finished")
        finally:
            plan = sweep_folder.read(where) or plan if plan.status == "running" else plan
            replace(plan, status="stopped" if plan.status == "running" else plan.status).write(where)
            self.search = search

    def _begin(self, where: Path) -> Plan:
        """sweep.json, with the jobs of earlier starts."""
        assert self.config is not None
        earlier = sweep_folder.read(where)
        launcher = str(self.config.hydra.runtime.choices.get("hydra/launcher", "basic"))
        return sweep_folder.begin(
            where,
            Plan(
                command=("onn-run", *self.command.typed),
                constants=sweep_folder.constants(self.space.constants, self._swept()),
                launcher="local" if launcher == "basic" else launcher,
                jobs=earlier.jobs if earlier is not None else (),
                trials=self.settings.n_trials,
            ),
        )

    def _trials(self, search: Search, plan: Plan, where: Path) -> Plan:
        """Every trial, in batches; those that a killed process left come first."""
        pending = search.unfinished()
        size = self._together()
        while pending or search.left():
            batch, pending = pending[:size], pending[size:]
            while len(batch) < size and search.left():
                batch.append(search.ask())
            plan = self._batch(search, batch, plan, where)
        return plan

    def _batch(self, search: Search, batch: Sequence[Trial], plan: Plan, where: Path) -> Plan:
        """Launch what is new of a batch and tell all of it."""
        jobs: dict[Job, list[Trial]] = {}
        for trial in batch:
            jobs.setdefault(self._job(trial), []).append(trial)
        plan = replace(plan, jobs=tuple(dict.fromkeys([*plan.jobs, *jobs])))
        plan.write(where)
        assert self.config is not None
        retry = bool(OmegaConf.select(self.config, "sweep.retry_failed", default=False))
        settled = {one for one in jobs if self._settled(one, where, retry=retry)}
        numbers = {one.folder: trials[0].number for one, trials in jobs.items()}
        pending = [one for one in jobs if one not in settled]
        while pending:
            with_number = [replace(one, overrides=(*one.overrides, _numbered(numbers[one.folder]))) for one in pending]
            left = {one.folder for one in self._launch(with_number, where)}
            pending = [one for one in pending if one.folder in left]
        for one, trials in jobs.items():
            for trial in trials:
                if one in settled or trial != trials[0]:
                    _note(f"trial {trial.number}: {one.folder} was computed before, its result counts again")
                self._tell(search, trial, where / one.folder)
        return plan

    def _job(self, trial: Trial) -> Job:
        """Without what its model does not use: trials that differ in nothing else share a job."""
        useful = self._useful(trial.overrides)
        return Job(sweep_folder.job_name(useful, self._swept()), tuple(useful))

    def _tell(self, search: Search, trial: Trial, folder: Path) -> None:
        record = job.read(folder)
        if record is not None and record.status == job.PRUNED:
            search.tell_pruned(trial)
            return
        diverged = job.diverged(folder)
        if record is None or not (record.status == job.FINISHED or diverged):
            search.tell(trial, None)
            return
        measured = {"score": record.score, **record.objectives}
        search.tell(trial, [measured.get(name) for name in self.settings.objectives])

    def _swept(self) -> set[str]:
        return {key.lstrip("+~") for key in self.space.dimensions}

    def _together(self) -> int:
        """hydra.sweeper.n_jobs, or what the launcher computes at once where it says so (joblib)."""
        if self.settings.n_jobs is not None:
            return self.settings.n_jobs
        assert self.config is not None
        launchers = OmegaConf.select(self.config, "hydra.launcher.n_jobs", default=1)
        return launchers if isinstance(launchers, int) and launchers > 0 else 1

    def _space(self, arguments: Sequence[str]) -> Space:
        """Of hydra.sweeper.params and what was typed, which counts where both name a key."""
        with translated():
            texts = argv.merge([f"{key}={value}" for key, value in self.params.items()], arguments)
            return space_of(OverridesParser.create(config_loader=self.hydra.config_loader).parse_overrides(list(texts)))

    def show(self, where: Path) -> None:
        """Best trials on the screen; of several objectives, the front as pareto.csv as well."""
        if self.search is None or self.example.get("dry_run"):
            return
        ended, best = self.search.ended(), self.search.best()
        counts = {state: sum(one.state == state for one in ended) for state in ("complete", "pruned", "fail")}
        told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        print(f"\nsearch {screen.relative(where)}: {len(ended)} trials ({told or 'none has ended'})")
        several = len(self.settings.objectives) > 1
        if several:
            print(f"not beaten in {' and '.join(self.settings.objectives)} together ({PARETO}):")
            storage.write_text(where / PARETO, self._table(best))
        for one in best:
            values = "  ".join(map(_measured, self.settings.objectives, one.values))
            varied = " ".join(text for text in one.overrides if text not in self.space.constants)
            print(f"  {'' if several else 'best: '}trial {one.number}  {values}  {varied}")

    def _table(self, best: Iterable[Told]) -> str:
        """CSV: trial, folder, objectives, what was varied."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(["trial", "folder", *self.settings.objectives, *map(_bare, self.space.dimensions)])
        for one in best:
            folder = sweep_folder.job_name(self._useful(one.overrides), self._swept())
            values = [text.partition("=")[2] for text in one.overrides[len(self.space.constants) :]]
            measured = [int(value) if value.is_integer() else value for value in one.values]
            writer.writerow([one.number, folder, *measured, *values])
        return buffer.getvalue()


def _example(dimension: Any) -> Any:
    return dimension.options[0] if hasattr(dimension, "options") else dimension.low


def _bare(key: str) -> str:
    return key.lstrip("+~")


def _measured(name: str, value: float) -> str:
    return f"{name} {value:,.0f}" if name in ("macs", "parameters") else f"{name} {value:.5g}"


def _numbered(trial: int) -> str:
    return f"++sweep.trial={trial}"


def _note(text: str) -> None:
    print(f"onn-run: {text}", file=sys.stderr)
