"""Optuna asked and told: the same points however often a search is interrupted, fronts, pruning by fold."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from onn_runner.cli.search_settings import SearchSettings, directions_of, read
from onn_runner.cli.search_space import Choice, Real, Space, Whole
from onn_runner.errors import ConfigError, Pruned

optuna = pytest.importorskip("optuna", reason="a search needs the extra: pip install 'onn-runner[sweep]'")
from onn_runner.cli.search_parts import MedianPruner, check  # noqa: E402
from onn_runner.cli.search_study import FoldReports, Search, open_search  # noqa: E402

SPACE = Space({"lr": Real(1e-4, 1.0, log=True), "q": Choice(("1", "3", "5")), "w": Whole(4, 64, log=True)}, ())
FINITE = Space({"x": Real(0.0, 1.0, 0.5), "q": Choice(("1", "3")), "w": Whole(1, 2)}, ("seed=0",))


def opened(
    folder: Path, space: Space = SPACE, *, directions: tuple[str, ...] = ("maximize",), **settings: Any
) -> Search:
    objectives = ("score", "macs")[: len(directions)]
    chosen = SearchSettings(objectives=objectives, **settings)
    folder.mkdir(exist_ok=True)
    return open_search(chosen, space, directions, folder=folder, code="1", note=lambda text: None)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsgaii", "random", "grid"])
@pytest.mark.parametrize("directions", [("maximize",), ("maximize", "minimize")])
def test_every_sampler_bears_worst_values_and_failures(
    sampler: str, directions: tuple[str, ...], tmp_path: Path
) -> None:
    space = FINITE if sampler == "grid" else SPACE
    options = {"n_startup_trials": 4} if sampler in ("tpe", "gp") else {}
    search = opened(tmp_path, space, directions=directions, sampler=sampler, sampler_options=options, n_trials=8)
    points = []
    while search.left():
        trial = search.ask()
        points.append(trial.overrides)
        number = len(points)
        values = [None, 3.0] if number % 4 == 1 else [number / 2, float(number)]
        search.tell(trial, None if number % 5 == 0 else values[: len(directions)])
    assert len(points) == 8
    assert len(set(points)) == (8 if sampler == "grid" else len(set(points)))
    assert search.best()


def test_the_front_is_what_none_beats(tmp_path: Path) -> None:
    search = opened(tmp_path, directions=("maximize", "minimize"), sampler="random", n_trials=20)
    values = [((7 * number) % 11, (5 * number) % 13) for number in range(20)]
    for score, macs in values:
        search.tell(search.ask(), [score, macs])
    front = {one.number for one in search.best()}
    for number, (score, macs) in enumerate(values):
        beaten = any(a >= score and b <= macs and (a, b) != (score, macs) for a, b in values)
        assert (number in front) is not beaten


def test_the_same_seed_asks_for_the_same_points_in_whatever_process(tmp_path: Path) -> None:
    options = {"seed": 3, "sampler_options": {"n_startup_trials": 3}}

    def points(folder: str, *, again: bool) -> list[tuple[str, ...]]:
        search, found = opened(tmp_path / folder, **options), []
        for number in range(8):
            if again:
                search = opened(tmp_path / folder, **options)
            trial = search.ask()
            found.append(trial.overrides)
            search.tell(trial, [number % 5])
        return found

    assert points("a", again=False) == points("b", again=True)


def test_a_journal_serves_where_files_are_shared(tmp_path: Path) -> None:
    search = opened(tmp_path, storage=str(tmp_path / "search.log"))
    search.tell(search.ask(), [1.0])
    assert len(opened(tmp_path, storage=str(tmp_path / "search.log")).ended()) == 1


@pytest.mark.parametrize("storage", ["nothing://here", "sqlite:////no/such/folder/search.db", "words"])
def test_a_storage_that_cannot_be_used_is_named(storage: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hydra\.sweeper\.storage=.* cannot be used"):
        opened(tmp_path, storage=storage)


def test_trials_of_another_folder_are_left_to_it(tmp_path: Path) -> None:
    shared = f"sqlite:///{tmp_path}/shared.db"
    first = opened(tmp_path / "one", storage=shared, study_name="both")
    second = opened(tmp_path / "two", storage=shared, study_name="both")
    trial = first.ask()
    assert second.unfinished() == []
    assert first.unfinished() == [trial]


def pruned_at(folder: Path, search: Search, values: list[float], number: int) -> int | None:
    """After how many folds a trial of these fold values is ended."""
    reports = FoldReports(search.settings, folder=folder, number=number)
    for step, value in enumerate(values, start=1):
        try:
            reports(step, step - 1, value)
        except Pruned:
            return step
    return None


@pytest.mark.parametrize(
    ("directions", "sign"), [(("maximize",), 1), (("minimize",), -1)], ids=["maximize", "minimize"]
)
def test_a_trial_is_ended_where_its_mean_is_worse_than_the_others(
    directions: tuple[str, ...], sign: int, tmp_path: Path
) -> None:
    """The first fold is easy: a trial's best fold says nothing, its mean does."""
    options = {"n_startup_trials": 2, "n_warmup_steps": 1}
    search = opened(tmp_path, directions=directions, pruner="median", pruner_options=options)

    def trial(*values: float) -> int | None:
        asked = search.ask()
        step = pruned_at(tmp_path, search, [sign * value for value in values], asked.number)
        if step is None:
            search.tell(asked, [sign * sum(values) / len(values)])
        else:
            search.tell_pruned(asked)
        return step

    assert trial(40, 20, 20) is None
    assert trial(40, 10, 10) is None
    assert trial(40, 14, 20) == 2
    assert trial(39, 18, 18) is None
    assert trial(20, 50, 20) is None
    assert trial(40, -math.inf, 50) == 2


@pytest.mark.parametrize("pruner", ["successive_halving", "wilcoxon"])
def test_optunas_pruners_end_what_is_clearly_worse(pruner: str, tmp_path: Path) -> None:
    options = {"p_threshold": 0.2} if pruner == "wilcoxon" else {"reduction_factor": 2}
    search = opened(tmp_path, pruner=pruner, pruner_options=options)

    def ended_after(level: float) -> int | None:
        asked = search.ask()
        step = pruned_at(tmp_path, search, [level + fold / 10 for fold in range(6)], asked.number)
        search.tell(asked, [level])
        return step

    assert [ended_after(30), ended_after(31)] == [None, None]
    assert ended_after(10) is not None


def test_median_pruner_waits_for_others() -> None:
    study = optuna.create_study(direction="maximize", pruner=MedianPruner(n_startup_trials=1, n_warmup_steps=0))
    trial = study.ask()
    trial.report(1.0, 1)
    assert not trial.should_prune()
    assert not MedianPruner().prune(study, study.trials[0])


def test_a_busy_database_costs_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = SearchSettings(pruner="median", storage="sqlite:////no/such/folder/search.db")
    FoldReports(settings, folder=tmp_path, number=0)(1, 0, 20.0)
    assert "fold 0 is not judged" in capsys.readouterr().err


def test_a_space_of_no_more_points_than_trials_is_tried_whole(tmp_path: Path) -> None:
    search = opened(tmp_path, FINITE, n_trials=100)
    points = []
    while search.left():
        trial = search.ask()
        points.append(trial.overrides)
        search.tell(trial, [1.0])
    assert len(points) == len(set(points)) == FINITE.count == 12


def test_a_point_that_is_asked_for_again_ends_no_search_early(tmp_path: Path) -> None:
    search = opened(tmp_path, FINITE, sampler="random", n_trials=11)
    while search.left():
        search.tell(search.ask(), [1.0])
    assert len(search.ended()) == 11


def test_a_search_goes_where_it_was_good(tmp_path: Path) -> None:
    """Ten trials at random, then near the best: a tenth of the range holds twice what chance would put there."""
    search = opened(tmp_path, Space({"lr": Real(1e-5, 1.0, log=True)}, ()), n_trials=30)
    rates = []
    while search.left():
        trial = search.ask()
        rates.append(math.log10(float(trial.overrides[0].partition("=")[2])))
        search.tell(trial, [30 - (rates[-1] + 2) ** 2])
    assert sum(abs(rate + 2) < 0.25 for rate in rates[10:]) >= 4


@pytest.mark.parametrize(
    "other", [{"directions": ("minimize",)}, {"directions": ("maximize", "minimize")}, {"space": FINITE}]
)
def test_another_search_needs_another_folder(other: dict[str, Any], tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(ConfigError, match="has another space or other objectives"):
        opened(tmp_path, **other)


def test_other_code_is_told(tmp_path: Path) -> None:
    notes: list[str] = []
    for code in ("0.1+a", "0.1+a", "0.2+b"):
        search = open_search(SearchSettings(), SPACE, ("maximize",), folder=tmp_path, code=code, note=notes.append)
        search.tell(search.ask(), [1.0])
    assert notes == ["earlier trials were computed by other code (0.1+a, now 0.2+b); they count as they are"]


@pytest.mark.parametrize(
    ("metrics", "monitor", "given", "directions"),
    [
        (("psnr", "mse"), None, None, ("maximize",)),
        (("mse", "psnr"), None, None, ("minimize",)),
        (("psnr",), "val/loss", None, ("minimize",)),
        (("accuracy",), "train/accuracy", None, ("maximize",)),
        (("psnr",), None, "minimize", ("minimize",)),
        (("psnr",), None, [None, "maximize"], ("maximize", "maximize")),
        (("psnr",), None, ["minimize", None], ("minimize", "minimize")),
    ],
)
def test_the_direction_is_the_metrics(
    metrics: tuple[str, ...], monitor: str | None, given: Any, directions: tuple[str, ...]
) -> None:
    targets = {
        "psnr": "onn_runner.metric.image.Psnr",
        "mse": "onn_runner.metric.image.Mse",
        "accuracy": "onn_runner.metric.classification.Accuracy",
    }
    config = OmegaConf.create(
        {"trainer": {"monitor": monitor}, "metrics": {name: {"_target_": targets[name]} for name in metrics}}
    )
    objectives = ["score", "macs"][: len(directions)]
    settings = read(OmegaConf.create({"objectives": objectives, "direction": given}))
    assert directions_of(settings, config) == directions


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pruner": "mean"}, r"unknown pruner in hydra.sweeper.pruner: 'mean'"),
        ({"objectives": ["score", "mac"]}, r"unknown objective in hydra.sweeper.objectives: 'mac'. Did you mean macs"),
        ({"objectives": []}, r"must name one or several of score, macs"),
        ({"objectives": ["macs", "macs"]}, r"each once"),
        ({"direction": ["maximize", "minimize"]}, r"2 entries for 1 objectives"),
        ({"direction": "up"}, r"unknown direction in hydra.sweeper.direction: 'up'"),
        ({"pruner": "median", "objectives": ["score", "macs"]}, r"needs a single objective"),
        ({"pruner": "median", "objectives": "macs"}, r"judges folds by their score"),
        ({"n_trials": 0}, r"hydra.sweeper.n_trials \(=0\) must be a whole number from 1 on"),
        ({"n_trials": True}, r"hydra.sweeper.n_trials \(=True\)"),
        ({"seed": "x"}, r"hydra.sweeper.seed \(=x\) must be a whole number"),
        ({"sampler_options": 3}, r"hydra.sweeper.sampler_options \(=3\) must be names with values"),
        ({"storage": 3}, r"hydra.sweeper.storage \(=3\)"),
        ({"sampler_options": {"gama": 1}}, r"unknown option of tpe"),
        ({"pruner": "median", "pruner_options": {"n_startup_trials": "x"}}, r"n_startup_trials \(=x\) must be"),
        ({"sampler": "nsgaii", "sampler_options": {"population_size": 1}}, r"hydra.sweeper.sampler_options of nsgaii"),
        ({"trials": 3}, r"unknown key 'hydra.sweeper.trials'. Did you mean hydra.sweeper.n_trials"),
    ],
)
def test_what_makes_no_search(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(read(OmegaConf.create(given)), SPACE)
