"""Whole runs on data with classes: the data chooses task, scores and monitor; twin, baselines, pictures, resume."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir

from onn_runner.cli.catalogue import config_folder
from onn_runner.cli.run import main

SMALL = (
    *("data=digits", "data.items=80", "network.depth=8", "network.channels=4", "partition.folds=2"),
    *("trainer.epochs=1", "trainer.batch_size=16", "trainer.tensorboard=false"),
)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def only_run(where: Path) -> Path:
    (run,) = (path.parent for path in where.glob("outputs/*/*/run.json"))
    return run


def test_a_run_with_a_twin_and_its_resume(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model=quadratic", "baseline=conv", "task.class_weights=balanced", "task.mixup=0.2", *SMALL]) == 0
    run = only_run(work)
    results = json.loads((run / "results.json").read_text())
    assert results["monitor"] == "val/accuracy"
    assert list(results["higher_is_better"].values()) == [True, True, True, False, False]
    named = ["majority class", "nearest class mean", "nearest neighbours", "logistic regression"]
    assert list(results["baselines"]) == named
    to = results["comparison"]["to"]
    assert list(to) == ["conv", *named]
    assert (to["conv"]["test/accuracy"]["items"], to["conv"]["test/accuracy"]["groups"]["n"]) == (80, 80)
    for name in ("conv", "logistic regression"):
        part = to[name]["test/f1"]
        assert (part["groups"]["n"], part["folds"]["n"]) == (0, 2)
        theirs = results["twin"]["cv"] if name == "conv" else results["baselines"][name]["cv"]
        difference = results["cv"]["test/f1"]["mean"] - theirs["test/f1"]["mean"]
        assert part["folds"]["mean"] == pytest.approx(difference)
    table = (run / "table.md").read_text()
    assert "ACCURACY [%] ↑" in table
    assert "CROSS ENTROPY ↓" in table
    assert "compared over folds alone" in table
    for folder in (run / "fold_00", run / "fold_01" / "baseline"):
        assert {"confusion_matrix.png", "mistakes.png"} <= {path.name for path in (folder / "pictures").iterdir()}
    stored = (run / "config.yaml").read_text()
    assert "monitor: val/accuracy" in stored
    capsys.readouterr()
    (run / "results.json").unlink()
    assert main([f"resume={run}"]) == 0
    again = json.loads((run / "results.json").read_text())
    assert {**again, "seconds": 0} == {**results, "seconds": 0}


def test_fit_and_every_check(work: Path) -> None:
    changes = ("partition=fit", "partition.folds=1", "experiment=debug", "trainer.score_training=true")
    typed = [word for word in SMALL if not word.startswith("partition")]
    assert main(["model=conv", *typed, *changes, "trainer.monitor=train/accuracy", "trainer.pictures=true"]) == 0
    run = only_run(work)
    assert "train ACCURACY [%] ↑" in (run / "table.md").read_text()
    assert (run / "fold_00" / "pictures" / "confusion_matrix.png").is_file()


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["metric=[psnr]"], "metric=psnr compares pictures and signals, and the data has classes"),
        (["task=restore"], "the data has classes: task=classify learns them"),
        (["task.class_weights=[1,2]"], "task.class_weights (=[1, 2]) must be null, balanced, or a list of 10"),
        (["data=denoise", "metric=[accuracy]"], "metric=accuracy scores classes, and the data has none"),
        (["data=denoise", "task=classify"], "task=classify needs data with classes"),
        (["trainer.monitor=val/psnr"], "unknown metric in trainer.monitor=val/psnr"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    typed: list[str], message: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data=digits", *typed]) == 2
    assert message in capsys.readouterr().err
    assert not (work / "outputs").exists()


def test_a_metric_of_torchmetrics_is_told_how_many_classes_there_are(work: Path) -> None:
    (work / "mine" / "metric").mkdir(parents=True)
    node = {"metrics": {"kappa": {"_target_": "torchmetrics.classification.MulticlassCohenKappa"}}}
    (work / "mine" / "metric" / "kappa.yaml").write_text(f"# @package _global_\n# Cohen's kappa\n{json.dumps(node)}\n")
    typed = ["--config-dir", "mine", "metric=[kappa,accuracy]", "model=conv", "trainer.pictures=false", *SMALL]
    assert main([*typed, "trainer.monitor=val/accuracy"]) == 0
    results = json.loads((only_run(work) / "results.json").read_text())
    assert -1 <= results["cv"]["test/kappa"]["mean"] <= 1
    assert not math.isnan(results["cv"]["test/kappa"]["mean"])


DATA = sorted(path.stem for path in (config_folder() / "data").glob("*.yaml"))


@pytest.mark.parametrize("data", DATA)
def test_the_first_score_is_one_of_the_datas_kind(data: str) -> None:
    with initialize_config_dir(str(config_folder()), version_base=None):
        config: Any = compose("config", [f"data={data}"])
    kind = "classify" if "resnet." in config.network._target_ else "restore"
    assert f".{kind}." in config.task._target_
    assert next(iter(config.metrics)) == ("accuracy" if kind == "classify" else "psnr")
    assert config.trainer.monitor is None


def test_the_weights_of_classes_are_those_of_the_training_part(work: Path) -> None:
    from onn_runner.crossvalidation import Experiment
    from onn_runner.data.digits import Digits
    from onn_runner.partition.base import Fold
    from onn_runner.task.classify import Classify

    source = Digits()
    task = Classify(classes=source.classes, class_weights="balanced")
    experiment = Experiment(
        name="x", config={}, seed=0, source=source, partition=None, task=task, build_network=torch.nn.Identity,
        build_optimizer=torch.optim.SGD, schedule=None, build_metrics=dict, settings=None,
    )  # type: ignore[arg-type]  # fmt: skip
    train = tuple(index for index in range(400) if source.labels[index] < 2 or index % 2)
    made: Any = experiment.job(Fold(0, train, (), ()), work).task
    counts = [sum(source.labels[index] == each for index in train) for each in range(10)]
    assert made.weights == pytest.approx([len(train) / (10 * count) for count in counts])
