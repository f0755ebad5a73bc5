"""Runs sorted into methods: what is one method, which run of a seed counts, and what is left out is said."""

import dataclasses
import json
from pathlib import Path

import pytest
from study_examples import config, diverged_start, write_run, write_sweep, write_troubled

from onn_runner import storage
from onn_runner.study import labels
from onn_runner.study.gathering import gather, study_of
from onn_runner.study.records import Run


def labelled(*runs: Run) -> list[str]:
    return [method.label for method in study_of(runs).methods if method.kind == "model"]


def a_run(model: str = "conv", *, overrides: tuple[str, ...] = (), folder: str = "run", **changes: object) -> Run:
    """A run that never was on a disk, with a whole result of one fold."""
    start = {"start": 0, "test": {"test/psnr": 20.0}, "validation": {}, "diverged": None}
    fold = {"fold": 0, "status": "done", "starts": [start], "best_start": 0}
    results = {
        "monitor": "val/psnr", "higher_is_better": {"psnr": True}, "cv": {"test/psnr": {}}, "baselines": {},
        "folds": [fold], "network": {}, "name": model,
    }  # fmt: skip
    split = {"fingerprint": "a", "folds": [{"index": 0, "train": [0], "validation": [], "test": [1]}]}
    plain = config(model, **changes)
    return Run(
        folder=Path(folder), name=model, status="done", config=plain, overrides=overrides or (f"model={model}",),
        results=results, split=split, fingerprint="a", seed=plain["seed"], folds_done=1, folds_planned=1,
    )  # fmt: skip


def test_seeds_of_a_config_are_one_method(tmp_path: Path) -> None:
    study = gather([write_sweep(tmp_path / "sweep", ("conv", "onn", "quadratic"), (2, 0, 11))])
    assert {m.label: m.seeds for m in study.methods if m.kind == "model"} == {
        "conv": (0, 2, 11),
        "onn sine": (0, 2, 11),
        "quadratic": (0, 2, 11),
    }
    assert study.monitor == "val/psnr"
    assert dict(study.metrics) == {"test/psnr": True, "test/ssim": True, "photo/psnr": True}
    assert (study.failures, study.empty, study.notes) == ((), (), ())


def test_labels_are_made_of_what_differs_alone() -> None:
    assert labelled(a_run("conv"), a_run("quadratic")) == ["conv", "quadratic"]
    types = labelled(a_run("quadratic"), a_run("quadratic", model__type="t2"), a_run("conv"))
    assert types == ["quadratic t4", "quadratic t2", "conv"]
    rates = labelled(a_run(), a_run(optimizer__lr=0.001), a_run("quadratic"), a_run("self_onn", optimizer__lr=1e-08))
    assert rates == ["conv, lr 0.01", "conv, lr 0.001", "quadratic, lr 0.01", "self_onn, lr 1e-08"]
    unequal = labelled(a_run(model__activation=None), a_run(model__activation="relu"))
    assert unequal == ["conv, activation none", "conv relu"]
    assert labelled(a_run(network__channels=[6, 12]), a_run()) == ["conv, channels [6, 12]", "conv, channels [6]"]


def test_what_most_share_is_said_once() -> None:
    study = study_of([a_run(), a_run("self_onn"), a_run("quadratic"), a_run(optimizer__lr=0.001)])
    assert [method.label for method in study.methods] == ["conv", "self_onn", "quadratic", "conv, lr 0.001"]
    assert study.notes == ("where a label does not say otherwise: lr 0.01",)


def test_operators_are_named_and_their_parameters_where_they_differ() -> None:
    sine = {"_target_": "onn_runner.ops.nodal.Sine", "k": 1.0}
    cubic = {"_target_": "onn_runner.ops.nodal.Cubic"}
    assert labelled(a_run("onn"), a_run("onn", ops={"sine": sine, "cubic": cubic})) == ["onn sine", "onn sine+cubic"]
    scaled = {"sine": sine | {"k": 3.0}}
    both = a_run("onn", operators={"sine": sine}), a_run("onn", ops=scaled, operators=scaled)
    assert labelled(*both) == ["onn sine, k 1", "onn sine, k 3"]


def test_how_a_run_is_shown_makes_no_method() -> None:
    changes = {"trainer__tensorboard": False, "name": "mine", "sweep": {"retry_failed": True}, "metrics": {}}
    runs = [a_run(seed=number, **({key: value})) for number, (key, value) in enumerate(changes.items())]
    assert labelled(*runs, a_run(seed=9)) == ["conv"]


def test_a_key_of_a_later_version_makes_no_method() -> None:
    assert labelled(a_run(), a_run(seed=1, trainer__later=True)) == ["conv"]


def test_an_option_is_called_as_it_was_typed() -> None:
    mine = a_run("quadratic", overrides=("model=my_quadratic",))
    assert labelled(a_run(), mine) == ["conv", "my_quadratic"]
    sneaky = a_run("quadratic", overrides=("model=a|b<script>",))
    assert labelled(a_run(), sneaky) == ["conv", "quadratic"]


def test_other_data_and_other_folds_are_other_methods() -> None:
    first, split = a_run(), a_run().split
    assert split is not None
    data = dataclasses.replace(first, fingerprint="b")
    folds = dataclasses.replace(
        first, split={**split, "folds": [{"index": 0, "train": [1], "validation": [], "test": [0]}]}
    )
    assert labelled(first, data) == ["conv (data a)", "conv (data b)"]
    found = labelled(first, folds)
    assert len(set(found)) == 2
    assert all(label.startswith("conv (folds ") for label in found)


def test_what_is_not_whole_is_left_out_and_listed(tmp_path: Path) -> None:
    study = gather([write_troubled(tmp_path / "sweep")])
    assert {method.label: method.seeds for method in study.methods} == {
        "conv": (0, 1), "onn sine": (0, 1), "untouched input": (0,),
    }  # fmt: skip
    assert [method.label for method in study.empty] == ["self_onn"]
    assert len(study.failures) == 8
    assert "conv: 1 run left out of its means, listed with the reasons" in study.notes
    assert "self_onn: no whole run, so that there is nothing to average" in study.notes


def test_a_fold_that_diverged_leaves_its_run_out_and_a_start_does_not(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", status="diverged")
    results = json.loads((folder / "results.json").read_text())
    results["folds"][1]["starts"].append(diverged_start(1))
    storage.write_json(folder / "results.json", results)
    study = gather([folder])
    assert [method.seeds for method in study.methods if method.kind == "model"] == [(0,)]
    assert any(
        "fold 1 start 1 diverged at epoch 2" in note and "the other starts count" in note for note in study.notes
    )
    results["folds"][1] |= {"starts": [diverged_start(0)], "best_start": None, "status": "diverged"}
    storage.write_json(folder / "results.json", results)
    study = gather([folder])
    assert not study.methods
    assert "fold 1 start 0 diverged at epoch 2" in study.failures[0].reason


def test_of_a_seed_that_was_run_twice_the_newest_counts() -> None:
    old, new = (
        dataclasses.replace(a_run(folder=name), started=f"2026-01-0{day}T00:00:00+00:00")
        for name, day in (("old", 1), ("new", 2))
    )
    (method,) = study_of([new, old]).methods
    assert [run.folder.name for run in method.runs] == ["new"]
    assert method.left_out[0].reason == "seed 0 again: new counts"


def part(run: Run, index: int, **changes: object) -> Run:
    """A run of one of two folds."""
    assert run.split is not None
    assert run.results is not None
    fold = {**run.split["folds"][0], "index": index, "test": [index]}
    results = {**run.results, "folds": [{**run.results["folds"][0], "fold": index}]}
    return dataclasses.replace(run, split={**run.split, "folds": [fold], "of": 2}, results=results, **changes)


def test_joined_parts_are_counted_once() -> None:
    parts = [part(a_run(partition__only=index, folder=f"part-{index}"), index) for index in (0, 1)]
    assert parts[0].split is not None
    assert parts[1].split is not None
    assert parts[0].results is not None
    assert parts[1].results is not None
    whole = dataclasses.replace(
        parts[0],
        folder=Path("joined"),
        config=config(),
        split={**parts[0].split, "folds": parts[0].split["folds"] + parts[1].split["folds"]},
        results={**parts[0].results, "folds": parts[0].results["folds"] + parts[1].results["folds"]},
    )
    study = study_of([*parts, whole])
    assert [[run.folder.name for run in method.runs] for method in study.methods] == [["joined"]]
    assert study.notes == ("2 runs of single folds are counted once, in the runs that they were joined to",)
    assert not study.failures


def test_parts_that_were_not_joined_are_left_out() -> None:
    parts = [part(a_run(partition__only=index, folder=f"part-{index}"), index) for index in (0, 1)]
    study = study_of(parts)
    assert not study.methods
    assert [run.reason for run in study.failures] == [
        "fold 0 of 2 only, not joined with the others (onn join)",
        "fold 1 of 2 only, not joined with the others (onn join)",
    ]


def test_parts_whose_others_have_not_begun_are_left_out() -> None:
    typed = ("model=conv", "partition.only=0"), ("model=conv", "partition.only=1")
    first = part(a_run(partition__only=0, overrides=typed[0]), 0)
    waiting = Run(folder=Path("later"), name="later", status="waiting", overrides=typed[1], seed=0)
    study = study_of([first, waiting])
    assert not study.methods
    assert [run.reason for run in study.failures] == ["fold 0 of 2 only, not joined with the others (onn join)", ""]


def test_one_fold_of_every_method_is_a_study_of_it() -> None:
    study = study_of([part(a_run(model, partition__only=0), 0) for model in ("conv", "quadratic")])
    assert [method.label for method in study.methods] == ["conv", "quadratic"]
    assert "conv: fold 0 of 2 only" in study.notes


def test_twins_are_methods_of_their_own_once_for_each_seed(tmp_path: Path) -> None:
    write_sweep(tmp_path / "a", ("onn", "quadratic"), (0, 1), twin="conv")
    study = gather([tmp_path])
    assert [(m.label, m.kind, m.seeds) for m in study.methods] == [
        ("onn sine", "model", (0, 1)), ("quadratic", "model", (0, 1)),
        ("conv (twin)", "twin", (0, 1)), ("untouched input", "untrained", (0,)),
    ]  # fmt: skip
    assert not study.failures
    assert not study.notes


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_twin_that_diverged_is_left_out_and_its_model_counts(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    sweep = write_sweep(tmp_path / "sweep", ("onn",), seeds, twin="conv")
    path = sweep / "model-onn_seed-0" / "results.json"
    results = json.loads(path.read_text())
    results["twin"]["folds"][1] |= {"starts": [diverged_start(0)], "best_start": None, "status": "diverged"}
    storage.write_json(path, results)
    study = gather([sweep])
    assert study.method("onn sine").seeds == seeds
    assert [run.reason for run in study.failures] == ["conv (twin): not every fold has a result"]
    if len(seeds) > 1:
        assert study.method("conv (twin)").seeds == (1,)
    else:
        assert [method.label for method in study.empty] == ["conv (twin)"]


def test_a_twin_that_is_one_of_the_models_is_shown_once(tmp_path: Path) -> None:
    write_run(tmp_path / "conv", "conv")
    onn = write_run(tmp_path / "onn", "onn", twin="conv")
    results = json.loads((onn / "results.json").read_text())
    results["twin"]["folds"] = json.loads((tmp_path / "conv" / "results.json").read_text())["folds"]
    storage.write_json(onn / "results.json", results)
    study = gather([tmp_path])
    assert [method.label for method in study.methods] == ["conv", "onn sine", "untouched input"]
    assert study.notes == ("conv (twin) is conv, computed again with the same scores: shown once",)


def test_other_code_in_one_study_is_said(tmp_path: Path) -> None:
    write_run(tmp_path / "a", code="0.1.0+a")
    write_run(tmp_path / "b", seed=1, code="0.1.0+b")
    write_run(tmp_path / "c", seed=2, code=None)
    (note,) = gather([tmp_path]).notes
    assert note == ("the runs were computed with different code: 0.1.0+a (1 run), 0.1.0+b (1 run), unknown (1 run)")


@pytest.mark.parametrize("value", [{}, {"model": None}, {"model": 3, "ops": []}, {"ops": {"x": [1]}}])
def test_a_config_of_any_shape_has_a_label(value: dict[str, object]) -> None:
    flat = labels.flat(value)
    assert labels.label(a_run(), flat, list(flat), common={})


def test_what_a_search_pruned_is_listed_without_a_row(tmp_path: Path) -> None:
    write_run(tmp_path / "s" / "lr-1", "conv", optimizer__lr=0.1)
    for number in (2, 3):
        write_run(tmp_path / "s" / f"lr-{number}", "conv", optimizer__lr=0.1**number, done=1, status="pruned")
    study = gather([tmp_path / "s"])
    assert study.empty == ()
    assert [run.status for run in study.failures] == ["pruned", "pruned"]
    assert [note for note in study.notes if "pruned" in note] == [
        "2 settings that a search pruned have no row; its runs are listed with those that do not count"
    ]
