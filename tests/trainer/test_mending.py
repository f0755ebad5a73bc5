"""Damaged checkpoints: set aside, told, and the fold ends with the same numbers as if nothing had happened."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from test_resume import numbers
from tiny_fold import make_job

from onn_runner.errors import Interrupted, RunError
from onn_runner.trainer import QuietReporter, StopRequest, train_fold

CHANGES: dict[str, Any] = {"epochs": 3, "keep_best": ["val/mae"]}


@pytest.fixture(scope="module", params=[1, 2], ids=["one start", "two starts"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The changes of a job, and the folder of an undisturbed training."""
    folder = tmp_path_factory.mktemp("whole")
    changes = {**CHANGES, "starts": request.param}
    train(folder, changes, resume=False)
    return changes, folder


def train(folder: Path, changes: dict[str, Any], *, resume: bool = True) -> list[str]:
    reporter = QuietReporter()
    train_fold(make_job(folder, **changes), reporter=reporter, stop=StopRequest(), resume=resume)
    return reporter.warnings


def stopped(folder: Path, changes: dict[str, Any], epochs: int) -> None:
    """A training that was interrupted after so many epochs."""
    stop = StopRequest()

    class Stopping(QuietReporter):
        left = epochs

        def epoch_done(self, *words: object, **kinds: object) -> None:
            self.left -= 1
            if not self.left:
                stop.request("a test")

    with pytest.raises(Interrupted):
        train_fold(make_job(folder, **changes), reporter=Stopping(), stop=stop)


def damage(paths: Iterable[Path]) -> None:
    for path in paths:
        content = path.read_bytes()
        middle = len(content) // 2
        # The other name of a hard link is damaged with it, as on a disk.
        with path.open("r+b") as file:
            file.write(content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :])


def last_folder(folder: Path, changes: dict[str, Any]) -> Path:
    return folder if changes["starts"] == 1 else folder / "start_00"


def undisturbed(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if not name.endswith((".damaged", ".unused"))}


def test_the_state_before_is_gone_on_from(whole: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    changes, expected = whole
    stopped(tmp_path, changes, 2)
    where = last_folder(tmp_path, changes)
    damage([where / "last.pt"])
    (told,) = train(tmp_path, changes)
    assert "last.pt is damaged: its checksum does not fit. It is kept as last.pt.damaged." in told
    assert "Going on from last.previous.pt, saved after epoch 2" in told or "after epoch 1" in told
    assert (where / "last.pt.damaged").exists()
    assert undisturbed(numbers(tmp_path)) == numbers(expected)
    assert train(tmp_path, changes) == []


def test_a_start_without_a_whole_state_is_trained_anew(whole: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    changes, expected = whole
    stopped(tmp_path, changes, 2)
    where = last_folder(tmp_path, changes)
    damage([where / "last.pt", where / "last.previous.pt"])
    (told,) = train(tmp_path, changes)
    assert told.count("is damaged") == 2
    assert told.endswith("There is no earlier one: this start is trained anew.")
    assert {"last.pt.damaged", "last.previous.pt.damaged"} <= {path.name for path in where.iterdir()}
    assert undisturbed(numbers(tmp_path)) == numbers(expected)


def test_finished_starts_of_an_unfinished_fold_keep_their_epochs(tmp_path: Path) -> None:
    changes = {**CHANGES, "starts": 2}
    stopped(tmp_path / "cut", changes, 4)
    train(tmp_path / "whole", changes, resume=False)
    damage([tmp_path / "cut/start_00/last.pt", tmp_path / "cut/start_00/last.previous.pt"])
    (told,) = train(tmp_path / "cut", changes)
    assert "start_00/last.pt is damaged" in told
    assert undisturbed(numbers(tmp_path / "cut")) == numbers(tmp_path / "whole")


@pytest.mark.parametrize("gone", [False, True])
def test_best_weights_of_a_finished_fold_come_from_their_copy(
    whole: tuple[dict[str, Any], Path], tmp_path: Path, gone: bool
) -> None:
    changes, expected = whole
    shutil.copytree(expected, tmp_path / "fold")
    for path in list((tmp_path / "fold").rglob("best*.pt")):
        if gone:
            path.unlink()
        else:
            damage([path])
    warnings = train(tmp_path / "fold", changes)
    assert all("written again from" in told for told in warnings)
    # Missing best weights of the last epoch are those of a process that was killed just then: nothing to tell.
    assert gone or len(warnings) == changes["starts"]
    assert undisturbed(numbers(tmp_path / "fold")) == numbers(expected)
    assert train(tmp_path / "fold", changes) == []


def test_best_weights_that_are_nowhere_else_are_trained_anew(
    whole: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    changes, expected = whole
    shutil.copytree(expected, tmp_path / "fold")
    damage((tmp_path / "fold").rglob("best*.pt"))
    for path in (tmp_path / "fold").rglob("*.safetensors"):
        path.unlink()
    warnings = train(tmp_path / "fold", changes)
    assert any("this start is trained anew" in told or "from the last checkpoint" in told for told in warnings)
    assert undisturbed(numbers(tmp_path / "fold")) == numbers(expected)
    assert train(tmp_path / "fold", changes) == []


def test_older_weights_are_no_copy(tmp_path: Path) -> None:
    """A kill between best.pt and its copy leaves the copy of an earlier epoch."""
    train(tmp_path / "whole", CHANGES, resume=False)
    shutil.copytree(tmp_path / "whole", tmp_path / "fold")
    stopped(tmp_path / "one", CHANGES, 1)
    shutil.copy(tmp_path / "one/best.safetensors", tmp_path / "fold/best.safetensors")
    damage([tmp_path / "fold/best.pt"])
    (told,) = train(tmp_path / "fold", CHANGES)
    assert "best.pt is damaged" in told
    assert "written again from best.safetensors" not in told
    assert undisturbed(numbers(tmp_path / "fold")) == numbers(tmp_path / "whole")


def test_a_full_disk_at_any_write_stops_with_one_sentence_and_is_gone_on_from(
    whole: tuple[dict[str, Any], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, expected = whole
    written = 0

    def count(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written == full_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for full_at in range(1, 40, 5):
        folder, written = tmp_path / str(full_at), 0
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", count)
            with contextlib.suppress(RunError):
                train(folder, changes, resume=False)
                assert written < full_at, "the failure was swallowed"
        assert train(folder, changes) == []
        assert numbers(folder) == numbers(expected), f"full at write {full_at}"


def test_a_finished_fold_keeps_its_results_without_states(whole: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    changes, expected = whole
    shutil.copytree(expected, tmp_path / "fold")
    where = last_folder(tmp_path / "fold", changes)
    damage([where / "last.pt", where / "last.previous.pt", where / "best.pt"])
    (told,) = train(tmp_path / "fold", changes)
    assert "There is no earlier one: its results stay." in told
    assert told.endswith("It is written again from best.safetensors.")
    stayed = undisturbed(numbers(tmp_path / "fold"))
    before = numbers(expected)
    assert {name: value for name, value in before.items() if name in stayed} == stayed
    assert {Path(name).name for name in before if name not in stayed} == {"last.pt"}
