"""`onn report`: the verb writes its files and says what; a request that makes no sense is one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest
from study_examples import write_run, write_sweep, write_troubled
from typer.testing import CliRunner

from onn_runner.cli.onn import app
from onn_runner.cli.run import main
from onn_runner.errors import ConfigError

FILES = {"table.csv", "scores.csv", "comparisons.csv", "table.md", "table.tex", "report.html"}


def report(*words: object) -> str:
    result = CliRunner().invoke(app, ["report", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_sweep_is_reported_in_its_own_folder(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", ("conv", "onn"), (0, 1))
    shown = report(sweep)
    assert {path.name for path in (sweep / "report").iterdir()} == FILES
    for text in (
        "2 methods, 4 runs: test scores",
        "difference to conv",
        "signed-rank by item (6 photographs)",
        "Written",
    ):
        assert text in shown
    # Its own files are no runs.
    assert report(sweep) == shown


def test_what_went_wrong_is_shown(tmp_path: Path) -> None:
    shown = report(write_troubled(tmp_path / "sweep"), "--out", tmp_path / "out")
    assert "8 runs left out of all means and tests" in shown
    assert "no such type: 'x'" in shown
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES


def test_baseline_and_scores_can_be_chosen(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", ("conv", "onn"), (0,))
    shown = report(sweep, "--baseline", "onn", "--metric", "test/ssim")
    assert "difference to onn sine" in shown
    assert "PSNR" not in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere: there is no such folder"),
        (["empty"], "empty: no run in there"),
        (["half"], "half: no run has a result for every fold"),
        (["run", "--baseline", "cnov"], "unknown baseline 'cnov'. Did you mean conv?"),
        (["run", "--out", "file"], "file is no folder: give another one with --out"),
        (["run", "--metric", "acuracy"], "unknown --metric 'acuracy'"),
    ],
)
def test_a_request_that_makes_no_sense_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("file").touch()
    write_run(Path("half"), done=1, status="interrupted")
    write_run(Path("run"))
    with pytest.raises(ConfigError) as raised:
        CliRunner().invoke(app, ["report", *words], catch_exceptions=False)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_reading_a_study_needs_no_torch(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", ("conv", "onn"), (0,))
    lines = (
        "import sys, pathlib",
        "from onn_runner.cli.report import found",
        "from onn_runner.study import gathering, page, writing",
        "writing.write(pathlib.Path(sys.argv[1]), found(gathering.gather(sys.argv[2:]), None))",
        "sys.exit('torch' in sys.modules)",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines), tmp_path, sweep], check=True, timeout=120)


def test_runs_as_the_runner_writes_them_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = [
        "data=denoise", "data.photographs=[camera,coins,moon]", "data.patch=16", "data.patches=2", "data.max_side=64",
        "network.channels=[2]", "partition.folds=3", "trainer.epochs=1", "trainer.pictures=false", "metric=[psnr]",
        "trainer.tensorboard=false",
    ]  # fmt: skip
    assert main(["-m", *small, "model=conv,quadratic", "hydra.sweep.dir=sweep"]) == 0
    capfd.readouterr()
    shown = report("sweep")
    assert "2 methods, 2 runs: test scores" in shown
    assert "signed-rank by item (3 photographs)" in shown
    assert "left out" not in shown
    assert {path.name for path in Path("sweep/report").iterdir()} == FILES
