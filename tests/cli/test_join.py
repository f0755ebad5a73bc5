"""Folds as jobs: a fold trained alone is that of the whole run, and joined folds are the whole run, bit for bit."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from onn_runner.cli.join import join_parts, parts_in
from onn_runner.cli.run import main
from onn_runner.errors import ConfigError
from onn_runner.trainer import checkpoint

SMALL = (
    *("data.photographs=[camera,coins,moon,page]", "data.patches=4", "data.patch=16", "data.max_side=64"),
    *("network.channels=[3]", "trainer.epochs=1", "trainer.batch_size=8", "partition.folds=3", "model=self_onn"),
    *("metric=[psnr,mse]", "baseline=conv", "trainer.pictures=false", "trainer.tensorboard=false"),
)
TIMES = {"seconds", "seconds_per_epoch", "peak_memory", "energy", "cost"}


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An undivided run, the same as a sweep of one job a fold, and two of its three folds as separate commands."""
    folder = tmp_path_factory.mktemp("folds")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*SMALL, "hydra.run.dir=whole", "name=undivided"]) == 0
        sweep = ["-m", *SMALL, "partition.only=1,2,0", "hydra.sweep.dir=sweep"]
        assert main(sweep) == 0
        assert main([*SMALL, "partition.only=[0,2]", "hydra.run.dir=parts/two"]) == 0
        yield folder


@pytest.fixture
def joined(where: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(where)
    shutil.rmtree(where / "sweep" / "joined", ignore_errors=True)
    (folder,) = join_parts(where / "sweep")
    return folder


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def results(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = without_times(json.loads((run / "results.json").read_text()))
    del found["name"]
    return found


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def jobs(where: Path) -> list[Path]:
    return sorted(path.parent for path in (where / "sweep").glob("*/run.json"))


def test_a_fold_trained_alone_is_the_fold_of_the_whole_run(where: Path) -> None:
    whole = results(where / "whole")
    for number, job in enumerate(jobs(where)):
        alone = results(job)
        (fold,) = alone["folds"]
        assert fold == whole["folds"][number]
        assert alone["twin"]["folds"] == [whole["twin"]["folds"][number]]
        assert alone["part"] == {"folds": [number], "of": 3}
        assert whole["part"] is None
        assert f"fold {number} of 3" in (job / "table.md").read_text()
        name = f"fold_{number:02d}"
        for table in ("metrics.csv", "test_items.csv", "baseline_items.csv", "baseline/test_items.csv"):
            assert (job / name / table).read_bytes() == (where / "whole" / name / table).read_bytes()
        split = json.loads((job / "split.json").read_text())
        of_whole = json.loads((where / "whole" / "split.json").read_text())
        assert split == {**of_whole, "folds": [of_whole["folds"][number]]}
    assert "folds 0 and 2 of 3" in (where / "parts" / "two" / "table.md").read_text()


def test_joined_folds_are_the_undivided_run(where: Path, joined: Path) -> None:
    whole = where / "whole"
    assert joined.parent == where / "sweep" / "joined"
    assert results(joined) == results(whole)
    for table in ("metrics.csv", "test_items.csv", "baseline_items.csv", "baseline/metrics.csv", "split.json"):
        assert (joined / table).read_bytes() == (whole / table).read_bytes(), table
    for path in sorted(whole.glob("fold_*/**/best.pt")):
        copied = checkpoint.load(joined / path.relative_to(whole)).network
        assert all(bool((copied[key] == value).all()) for key, value in checkpoint.load(path).network.items())
    config, of_whole = (yaml.safe_load((run / "config.yaml").read_text()) for run in (joined, whole))
    assert config == {**of_whole, "name": None}
    # The last column is a time, the first line has the name.
    mine, theirs = (
        [line.split(" | ")[:-1] for line in (run / "table.md").read_text().splitlines()[1:]] for run in (joined, whole)
    )
    assert mine == theirs
    assert list(joined.glob("events.out.tfevents.*"))
    record = json.loads((joined / "run.json").read_text())
    assert record["status"] == "done"
    assert [part["folds"] for part in record["joined"]] == [[0], [1], [2]]
    assert not any("partition.only" in text for text in record["overrides"])


def test_a_joined_run_is_a_run_to_go_on_with(where: Path, joined: Path) -> None:
    before = {str(job): contents(job) for job in jobs(where)}
    expected = results(joined)["cv"]
    assert main([f"resume={joined}"]) == 0
    assert results(joined)["cv"] == expected
    assert main([f"resume={joined}", "trainer.epochs=2"]) == 0
    assert {start["epochs_run"] for fold in results(joined)["folds"] for start in fold["starts"]} == {2}
    assert {str(job): contents(job) for job in jobs(where)} == before


def test_joining_again_replaces_what_was_joined_and_changes_no_part(where: Path, joined: Path) -> None:
    before = {str(job): contents(job) for job in jobs(where)}
    (joined / "old").touch()
    assert join_parts(where / "sweep") == [joined]
    assert not (joined / "old").exists()
    assert [path.name for path in joined.parent.iterdir()] == [joined.name]
    assert {str(job): contents(job) for job in jobs(where)} == before


def test_parts_of_separate_commands(where: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onn_runner.cli.join import join

    shutil.copytree(jobs(where)[1], tmp_path / "b" / "one")
    shutil.copytree(where / "parts" / "two", tmp_path / "a" / "two")
    join([tmp_path / "a" / "two", tmp_path / "b", tmp_path / "a"])
    (made,) = (tmp_path / "joined").iterdir()
    assert results(made) == results(where / "whole")
    assert f"Joined: {made}" in capsys.readouterr().out
    join([tmp_path], out=tmp_path / "elsewhere")
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [made.name]


def test_what_is_no_whole_is_told(where: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, job in enumerate(jobs(where)[:2]):
        shutil.copytree(job, tmp_path / str(number))

    def told() -> str:
        assert join_parts(tmp_path) == []
        return capsys.readouterr().err

    assert "fold 2 of 3 is missing" in told()
    shutil.copytree(where / "parts" / "two", tmp_path / "two")
    assert "fold 0 is in " in told()
    shutil.rmtree(tmp_path / "0")
    for file, changes, words in (
        ("results.json", {"status": "interrupted"}, "fold 1 of 3 is not finished"),
        ("split.json", {"fingerprint": "another"}, "was computed with other data than"),
        ("run.json", {"code": "another"}, "was computed with other code than"),
    ):
        path = tmp_path / "1" / file
        before = path.read_text()
        path.write_text(json.dumps({**json.loads(before), **changes}))
        assert words in told()
        path.write_text(before)
    assert len(join_parts(tmp_path)) == 1
    # Nothing is said of a sweep without such jobs.
    capsys.readouterr()
    assert join_parts(where / "whole") == []
    assert capsys.readouterr() == ("", "")


def test_what_cannot_be_joined_is_refused(where: Path, tmp_path: Path) -> None:
    from onn_runner.cli.join import join

    with pytest.raises(ConfigError, match="there is no such folder"):
        list(parts_in([tmp_path / "nowhere"]))
    with pytest.raises(ConfigError, match="no run of a part of its folds"):
        join([where / "whole"])
    with pytest.raises(ConfigError, match="nothing was joined"):
        join([jobs(where)[0]])
