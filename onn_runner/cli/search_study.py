"""Optuna, asked for points and told what came of them; a database keeps what is known, so that a search can go on."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from onn_runner.cli.search_parts import (
    DATABASE,
    MAXIMIZE,
    distribution_of,
    pruner_of,
    quiet,
    sampler_of,
    storage_of,
    usable,
)
from onn_runner.cli.search_settings import KEY, SearchSettings
from onn_runner.cli.search_space import Space
from onn_runner.errors import ConfigError, Pruned

SPACE, CODE, FOLDER, RETRIED = "space", "code", "folder", "retried"
"""What is noted of a study, and of a trial (FOLDER): the sweep's folder."""
DIRECTIONS = {"maximize": MAXIMIZE, "minimize": optuna.study.StudyDirection.MINIMIZE}


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
