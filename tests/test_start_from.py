"""start_from: a run of other neurons that begins with a first-order run's weights, fold by fold."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from onn_runner.cli.run import main

SMALL = (
    *("data=digits", "data.items=200", "network=vgg", "network.depth=7", "network.channels=[6,8]", "network.norm=none"),
    *("partition.folds=2", "trainer.batch_size=16", "trainer.tensorboard=false", "trainer.pictures=false"),
)
EXACT = {
    "quadralib": ("model=quadratic",),
    "qres": ("model=quadratic", "model.type=qres"),
    "self_onn": ("model=self_onn",),
    "mul": ("model=onn", "ops=mul"),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "run"
    assert main([*SMALL, "model=conv", "trainer.epochs=8", "optimizer.lr=0.01", f"hydra.run.dir={folder}"]) == 0
    return folder


def scores(folder: Path) -> list[float]:
    """Test accuracy of each fold."""
    folds = json.loads((folder / "results.json").read_text())["folds"]
    return [fold["starts"][0]["test"]["test/accuracy"] for fold in folds]


@pytest.mark.parametrize("kind", EXACT)
def test_what_was_learned_is_there(source: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With a rate too small to change a weight: the source's scores to the last item."""
    words = [*SMALL, *EXACT[kind], f"start_from={source}", "trainer.epochs=1", "optimizer.lr=1e-30"]
    assert main([*words, f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    assert scores(tmp_path / "run") == scores(source)
    told = re.findall(r"fold (\d), start 0 begins with .*val/accuracy ([\d.]+)", "".join(capsys.readouterr()))
    folds = json.loads((source / "results.json").read_text())["folds"]
    wanted = [fold["starts"][0]["validation"]["val/accuracy"] for fold in folds]
    assert [float(value) for _, value in told] == pytest.approx(wanted, rel=1e-3)
    assert "start_from" in (tmp_path / "run/config.yaml").read_text()


def test_training_goes_on_from_there_and_resumes_without_the_source(source: Path, tmp_path: Path) -> None:
    own = shutil.copytree(source, tmp_path / "source")
    words = [*SMALL, "model=quadratic", f"start_from={own}", "optimizer.lr=0.003"]
    assert main([*words, "trainer.epochs=1", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    shutil.rmtree(own)
    assert main([f"resume={tmp_path / 'run'}", "trainer.epochs=4"]) == 0
    assert sum(scores(tmp_path / "run")) >= sum(scores(source))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("model=quadratic", "model.type=t3"), "start_from: .*layer1"),
        (("model=quadratic", "partition.seed=5"), "fold 0 there has other items"),
        (("model=quadratic", "data.items=190"), "fold 0 there has other items"),
        (("model=quadratic", "network.channels=[6,9]"), "start_from"),
        (("model=quadratic", "network.depth=11", "network.channels=[6,8]"), "start_from"),
        (("model=quadratic", "model.activation=sigmoid"), "has the activation tanh there and sigmoid here"),
        (("model=onn", "ops=sine"), "start_near=true"),
        (("model=quadratic", "start_near=maybe"), "start_near"),
    ],
)
def test_what_cannot_begin_there_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, *words, f"start_from={source}", "trainer.epochs=1"]) == 2
    error = capsys.readouterr().err
    assert re.search(sentence, error), error
    assert "Traceback" not in error
    assert not (tmp_path / "outputs").exists()


def test_near_is_near(source: Path, tmp_path: Path) -> None:
    words = [*SMALL, "model=onn", "ops=sine", f"start_from={source}", "start_near=true", "optimizer.lr=1e-30"]
    assert main([*words, "trainer.epochs=1", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    assert scores(tmp_path / "run") == pytest.approx(scores(source), abs=10)


@pytest.mark.parametrize("given", ["nowhere", "."])
def test_what_is_no_run_is_refused(tmp_path: Path, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, "model=quadratic", f"start_from={tmp_path / given}", "trainer.epochs=1"]
    assert main([*words, f"hydra.run.dir={tmp_path / 'run'}"]) == 2
    assert "start_from: " in capsys.readouterr().err


def test_near_without_a_start_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "model=quadratic", "start_near=true", f"hydra.run.dir={tmp_path / 'run'}"]) == 2
    assert "start_from=<run folder>" in capsys.readouterr().err
