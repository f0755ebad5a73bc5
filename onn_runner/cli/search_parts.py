"""What a search takes from Optuna: samplers, pruners, storages and ranges, made of checked settings."""

from __future__ import annotations

import contextlib
import inspect
import statistics
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from onn_runner.cli.search_settings import KEY, SearchSettings
from onn_runner.cli.search_space import Choice, Dimension, Space, Whole
from onn_runner.errors import ConfigError, unknown
from onn_runner.seeding import derive

DATABASE = "search.db"
SECONDS = 120
"""So long a process waits for others that write into an SQLite file."""
MAXIMIZE = optuna.study.StudyDirection.MAXIMIZE

optuna.logging.set_verbosity(optuna.logging.ERROR)


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
