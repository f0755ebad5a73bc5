"""Optuna, asked for points and told what came of them; a database keeps what is known, so that a search can go on."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from onn_runner.cli.search_settings import KEY, SearchSettings
from onn_runner.cli.search_space import Choice, Dimension, Space, Whole
from onn_runner.errors import ConfigError, Pruned, unknown
from onn_runner.seeding import derive

DATABASE = "search.db"
SECONDS = 120
"""So long a process waits for others that write into an SQLite file."""
SPACE, CODE, FOLDER, RETRIED = "space", "code", "folder", "retried"
"""What is noted of a study, and of a trial (FOLDER): the sweep's folder."""
MAXIMIZE = optuna.study.StudyDirection.MAXIMIZE
DIRECTIONS = {"maximize": MAXIMIZE, "minimize": optuna.study.StudyDirection.MINIMIZE}

optuna.logging.set_verbosity(optuna.logging.ERROR)


@dataclass(frozen=True)
class Trial:
    number: int
    overrides: tuple[str, ...]
    """Everything that composes its job, the same for the same point."""


@dataclass(frozen=True)
class Told:
    """What is known of a trial that has ended."""

    number: int
    state: str
    """complete, pruned, fail."""
    values: tuple[float, ...]
    point: Mapping[str, Any]
    overrides: tuple[str, ...]


class Grid(optuna.samplers.GridSampler):
    """Every point once; ended by the caller, since `stop` is for Optuna's own loop."""

    def after_trial(self, *args: Any, **more: Any) -> None:
        """Nothing to stop."""


class MedianPruner(optuna.pruners.BasePruner):
    """Whether the mean over a trial's folds is worse than the median of those of others after as many folds.

    Optuna's own compares a trial's best fold so far: where the first fold is an easy one, it never prunes.
    """

    def __init__(self, *, n_startup_trials: int = 5, n_warmup_steps: int = 1) -> None:
        """Prune only beside so many others that came as far, and only after more than so many folds."""
        for name, value in (("n_startup_trials", n_startup_trials), ("n_warmup_steps", n_warmup_steps)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} (={value}) must be a whole number from 0 on")
        self.n_startup_trials = n_startup_trials
        self.n_warmup_steps = n_warmup_steps

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        step = trial.last_step
        if step is None or step <= self.n_warmup_steps:
            return False
        # With pruned ones: beside survivors alone, every new trial would have to be among the best.
        others = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        values = [other.intermediate_values[step] for other in others if step in other.intermediate_values]
        if len(values) < max(1, self.n_startup_trials):
            return False
        mine, middle = trial.intermediate_values[step], statistics.median(values)
        return mine < middle if study.direction == MAXIMIZE else mine > middle


SAMPLERS: Mapping[str, type[optuna.samplers.BaseSampler]] = {
    "tpe": optuna.samplers.TPESampler,
    "gp": optuna.samplers.GPSampler,
    "nsgaii": optuna.samplers.NSGAIISampler,
    "random": optuna.samplers.RandomSampler,
    "grid": Grid,
}
PRUNERS: Mapping[str, type[optuna.pruners.BasePruner]] = {
    "median": MedianPruner,
    "successive_halving": optuna.pruners.SuccessiveHalvingPruner,
    "wilcoxon": optuna.pruners.WilcoxonPruner,
}


class Search:
    """One study and the space in which it looks."""

    def __init__(self, study: optuna.Study, space: Space, settings: SearchSettings, folder: Path) -> None:
        self.study = study
        self.space = space
        self.settings = settings
        self.folder = str(folder)
        self.distributions = {key: distribution_of(one) for key, one in space.dimensions.items()}
        self.worst = tuple(-math.inf if one == MAXIMIZE else math.inf for one in study.directions)

    def left(self) -> int:
        """How many trials may still be asked for; those that are running count."""
        counted = len(self._trials()) - len(self._retried())
        points = self.space.count
        if points is not None:
            ended = {self.space.overrides(one.params) for one in self._trials() if one.number not in self._retried()}
            if len(ended) >= points:
                return 0
        return max(0, self.settings.n_trials - counted)

    def ask(self) -> Trial:
        """The next point, the same whether or not the search was interrupted before it."""
        with quiet():
            self.study.sampler = sampler_of(self.settings, self.space, len(self.study.trials))
            asked = self.study.ask(fixed_distributions=self.distributions)
            asked.set_user_attr(FOLDER, self.folder)
        return Trial(asked.number, self.space.overrides(asked.params))

    def unfinished(self) -> list[Trial]:
        """Trials whose process ended before they did: their jobs go on."""
        found = []
        for one in self._trials(TrialState.RUNNING):
            if set(one.params) != set(self.distributions):
                self.study.tell(one.number, state=TrialState.FAIL)
            elif one.user_attrs.get(FOLDER) == self.folder:
                found.append(Trial(one.number, self.space.overrides(one.params)))
        return found

    def tell(self, trial: Trial, values: Sequence[float | None] | None) -> None:
        """`values`: one per objective, the worst in place of None; None: the job failed."""
        if values is None:
            self.study.tell(trial.number, state=TrialState.FAIL)
            return
        finite = all(value is not None and math.isfinite(value) for value in values)
        # A small network that diverges must not be on the front for its few MACs.
        told = [float(value) for value in values if value is not None] if finite else list(self.worst)
        with quiet():
            self.study.tell(trial.number, told)

    def tell_pruned(self, trial: Trial) -> None:
        self.study.tell(trial.number, state=TrialState.PRUNED)

    def retry_failed(self) -> None:
        """Ask for the points of failed trials again, beside the others."""
        failed = [one for one in self._trials(TrialState.FAIL) if one.number not in self._retried()]
        for one in failed:
            if set(one.params) == set(self.distributions):
                with quiet():
                    self.study.enqueue_trial(one.params)
        self.study.set_user_attr(RETRIED, [*self._retried(), *(one.number for one in failed)])

    def ended(self) -> list[Told]:
        return [
            Told(
                one.number,
                one.state.name.lower(),
                tuple(one.values or ()) if one.state == TrialState.COMPLETE else (),
                one.params,
                self.space.overrides(one.params),
            )
            for one in self._trials(TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
            if set(one.params) == set(self.distributions)
        ]

    def best(self) -> list[Told]:
        """The best trial, or of several objectives those that no other one beats in all; the first of equal ones."""
        complete = [one for one in self.ended() if one.state == "complete" and all(map(math.isfinite, one.values))]
        distinct = list({one.overrides: one for one in reversed(complete)}.values())
        signs = [-1 if one == MAXIMIZE else 1 for one in self.study.directions]
        costs = {one.number: [sign * value for sign, value in zip(signs, one.values, strict=True)] for one in distinct}
        front = [
            one for one in distinct if not any(beats(costs[other.number], costs[one.number]) for other in distinct)
        ]
        front.sort(key=lambda one: (costs[one.number], one.number))
        return front if len(signs) > 1 else front[:1]

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        chosen = states or (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.RUNNING)
        return self.study.get_trials(deepcopy=False, states=chosen)

    def _retried(self) -> list[int]:
        return list(self.study.user_attrs.get(RETRIED, []))


def beats(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether the costs `first` are nowhere above `second` and somewhere below."""
    pairs = list(zip(first, second, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def open_search(
    settings: SearchSettings,
    space: Space,
    directions: Sequence[str],
    *,
    folder: Path,
    code: str,
    note: Callable[[str], None],
) -> Search:
    """The study, new or from its storage. Raises ConfigError where that holds another search."""
    where = storage_of(settings, folder)
    name = settings.study_name or folder.name
    with usable(f"{KEY}.storage={settings.storage or DATABASE}"), quiet():
        study = optuna.create_study(
            storage=where,
            study_name=name,
            directions=[DIRECTIONS[one] for one in directions],
            pruner=pruner_of(settings),
            load_if_exists=True,
        )
    earlier = [one.name.lower() for one in study.directions]
    if earlier != list(directions) or study.user_attrs.get(SPACE, space.as_text()) != space.as_text():
        raise ConfigError(
            f"the study '{name}' in {settings.storage or folder / DATABASE} has another space or other objectives: "
            "give this search a folder of its own with name=<word>"
        )
    before = study.user_attrs.get(CODE, code)
    if before != code and study.trials:
        note(f"earlier trials were computed by other code ({before}, now {code}); they count as they are")
    study.set_user_attr(SPACE, space.as_text())
    study.set_user_attr(CODE, code)
    return Search(study, space, settings, folder)


def storage_of(settings: SearchSettings, folder: Path) -> optuna.storages.BaseStorage:
    """Raises ConfigError where it cannot be opened."""
    given = settings.storage
    with usable(f"{KEY}.storage={given or DATABASE}"), quiet():
        if given is not None and given.endswith(".log") and "://" not in given:
            return optuna.storages.JournalStorage(JournalFileBackend(given))
        url = given or f"sqlite:///{folder / DATABASE}"
        options = {"connect_args": {"timeout": SECONDS}} if url.startswith("sqlite:") else {}
        return optuna.storages.RDBStorage(url, engine_kwargs=options)


@contextlib.contextmanager
def usable(what: str) -> Iterator[None]:
    """What a database or Optuna refuses becomes one sentence naming `what`."""
    try:
        yield
    except ConfigError:
        raise
    except (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError, ValueError, LookupError, OSError) as error:
        reason = " ".join(str(error).split("\n(Background")[0].split())
        raise ConfigError(f"{what} cannot be used: {reason}") from error


def quiet() -> warnings.catch_warnings:
    """Without Optuna's warnings of experimental parts, and that worst values are clipped to the worst finite one."""
    return warnings.catch_warnings(action="ignore")


def distribution_of(dimension: Dimension) -> BaseDistribution:
    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.options)
    if isinstance(dimension, Whole):
        return IntDistribution(dimension.low, dimension.high, log=dimension.log, step=dimension.step)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log, step=dimension.step)


def sampler_of(settings: SearchSettings, space: Space, count: int) -> optuna.samplers.BaseSampler:
    """The sampler for the trial after `count` others; its seed follows from that.

    So a search that goes on asks for what it would have asked for without an interruption. A space of no more points
    than trials is tried whole.
    """
    points = space.count
    if settings.sampler == "grid" or (points is not None and points <= settings.n_trials):
        return _grid(settings, space)
    given = {"seed": derive("search", settings.seed, count) % 2**31}
    return made("sampler", settings.sampler, SAMPLERS[settings.sampler], settings.sampler_options, given)


def _grid(settings: SearchSettings, space: Space) -> optuna.samplers.BaseSampler:
    """Every point once, in an order of the seed's. Raises ConfigError for a space without end."""
    endless = [key for key, dimension in space.dimensions.items() if dimension.count is None]
    if endless:
        raise ConfigError(
            f"{KEY}.sampler=grid tries every value, and {', '.join(endless)} has no end of them: give "
            "range(...) or choice(...), or another sampler"
        )
    grid = {key: dimension.grid() for key, dimension in space.dimensions.items()}
    return Grid(grid, seed=settings.seed)


def check(settings: SearchSettings, space: Space) -> None:
    """Raises ConfigError for options that the sampler or the pruner does not take, and a grid without end."""
    sampler_of(settings, space, 0)
    # Also where the space is small enough for a grid.
    given = {"seed": 0, "search_space": {}} if settings.sampler == "grid" else {"seed": 0}
    made("sampler", settings.sampler, SAMPLERS[settings.sampler], settings.sampler_options, given)
    pruner_of(settings)


def pruner_of(settings: SearchSettings) -> optuna.pruners.BasePruner:
    if settings.pruner is None:
        return optuna.pruners.NopPruner()
    return made("pruner", settings.pruner, PRUNERS[settings.pruner], settings.pruner_options, {})


def made(kind: str, name: str, build: Any, options: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """`build` with the options of hydra.sweeper.<kind>_options. Raises ConfigError for those that it does not take."""
    accepted = [one for one in inspect.signature(build.__init__).parameters if one not in ("self", *given)]
    for option in options:
        if option not in accepted:
            raise unknown(f"option of {name} in {KEY}.{kind}_options:", str(option), accepted)
    try:
        with quiet():
            return build(**given, **options)
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{KEY}.{kind}_options of {name}: {' '.join(str(error).split())}") from error


class FoldReports:
    """Tells the study of a trial what its folds gave, and ends the run where its pruner says so."""

    def __init__(self, settings: SearchSettings, *, folder: Path, number: int) -> None:
        self.settings = settings
        self.folder = folder
        self.number = number
        self.values: list[float] = []

    def __call__(self, step: int, fold: int, value: float) -> None:
        """`value`: of the fold that was finished as number `step`. Raises Pruned."""
        self.values.append(value)
        try:
            pruned = self._report(step)
        except ConfigError as error:
            # A database that is busy is no reason to lose a run.
            print(f"onn-run: fold {fold} is not judged: {error}", file=sys.stderr)
            return
        if pruned:
            raise Pruned(f"after {step} folds: {self.settings.pruner} found it worse than other trials")

    def _report(self, step: int) -> bool:
        """Whether the study does not want the rest of the trial."""
        # The signed-rank test pairs the folds of two trials; the others compare means over as many folds.
        told = self.values[-1] if self.settings.pruner == "wilcoxon" else mean(self.values)
        with usable(f"{KEY}.storage={self.settings.storage or DATABASE}"), quiet():
            trial = self._trial
            trial.report(told, step)
            return trial.should_prune()

    @functools.cached_property
    def _trial(self) -> optuna.trial.Trial:
        study = optuna.load_study(
            storage=storage_of(self.settings, self.folder),
            study_name=self.settings.study_name or self.folder.name,
            pruner=pruner_of(self.settings),
        )
        return optuna.trial.Trial(study, study.trials[self.number]._trial_id)


def mean(values: Sequence[float]) -> float:
    """Of values that may be infinite, all in one direction."""
    return next((value for value in values if not math.isfinite(value)), sum(values) / len(values))
