"""Events that TensorBoard reads back: scalars, pictures, starts side by side, nothing doubled after a kill."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_fold import make_job

from onn_runner.errors import RunError
from onn_runner.seeding import generator
from onn_runner.trainer import QuietReporter, StopRequest, board, checkpoint, train_fold

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def run(folder: Path, **changes: Any) -> None:
    job = make_job(folder, tensorboard=True, **changes)
    train_fold(job, reporter=QuietReporter(), stop=StopRequest(), resume=True)


def read(folder: Path) -> Any:
    events = event_accumulator.EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0})
    events.Reload()
    return events


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = read(folder)
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def expected(folder: Path) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    history = checkpoint.load(folder / "last.pt").history
    for key in history[0]:
        if key != "epoch":
            yield key, [(number + 1, float(torch.tensor(row[key]))) for number, row in enumerate(history)]


def test_scalars_are_the_history_and_the_test_scores_at_the_best_epoch(tmp_path: Path) -> None:
    run(tmp_path)
    found = scalars(tmp_path)
    for key, values in expected(tmp_path):
        assert found.pop(key) == values
    assert set(found) == {f"{split}/{name}" for split in ("test", "photo") for name in ("loss", "psnr", "mae")}
    assert [step for step, _ in found["test/psnr"]] == [checkpoint.load(tmp_path / "best.pt").epoch]


def test_pictures_are_of_the_same_items_in_the_first_last_and_every_fifth_epoch(tmp_path: Path) -> None:
    run(tmp_path, epochs=6, preview_items=2)
    events = read(tmp_path)
    pictures = events.Images("input_output_target")
    assert [event.step for event in pictures] == [1, 5, 6]
    # Input, output and target, eight pixels each, of two items.
    assert {(event.width, event.height) for event in pictures} == {(24, 16)}


def test_starts_overlay_as_runs_of_their_own(tmp_path: Path) -> None:
    run(tmp_path, starts=2, epochs=1)
    for name in ("start_00", "start_01"):
        assert len(scalars(tmp_path / name)["val/psnr"]) == 1
    assert not list(tmp_path.glob("events*"))


def test_events_after_the_last_checkpoint_are_hidden_on_resume(tmp_path: Path) -> None:
    run(tmp_path, epochs=3, build_scheduler=None)
    # As if the process had been killed after the events of epoch 3, and before its checkpoint.
    (tmp_path / "last.previous.pt").rename(tmp_path / "last.pt")
    (tmp_path / "status.json").unlink()
    run(tmp_path, epochs=4, build_scheduler=None)
    found = scalars(tmp_path)
    for key, values in expected(tmp_path):
        assert found[key] == values


def test_events_from_before_the_first_checkpoint_are_hidden_on_resume(tmp_path: Path) -> None:
    run(tmp_path, epochs=1, preview_items=2, build_scheduler=None)
    for path in [*tmp_path.glob("*.pt"), tmp_path / "status.json"]:
        path.unlink()
    run(tmp_path, epochs=2, preview_items=2, build_scheduler=None)
    found = scalars(tmp_path)
    for key, values in expected(tmp_path):
        assert found[key] == values
    assert [event.step for event in read(tmp_path).Images("input_output_target")] == [1, 2]


def test_scores_of_a_test_whose_record_was_lost_are_not_doubled(tmp_path: Path) -> None:
    run(tmp_path, epochs=3)
    before = scalars(tmp_path)
    # As if the process had been killed between the events of the test and the fold's record.
    (tmp_path / "status.json").unlink()
    run(tmp_path, epochs=3)
    assert scalars(tmp_path) == before


def test_scores_of_fewer_epochs_stay_where_going_on_does_not_better_them(tmp_path: Path) -> None:
    run(tmp_path, epochs=2, build_scheduler=None)
    run(tmp_path, epochs=4, build_scheduler=None)
    for points in scalars(tmp_path).values():
        steps = [step for step, _ in points]
        assert steps == sorted(set(steps))


def test_events_do_not_change_a_number(tmp_path: Path) -> None:
    run(tmp_path / "with", epochs=2)
    train_fold(make_job(tmp_path / "without", epochs=2), reporter=QuietReporter(), stop=StopRequest())
    assert (tmp_path / "with/metrics.csv").read_bytes() == (tmp_path / "without/metrics.csv").read_bytes()


def test_preview_items_have_their_own_key() -> None:
    one = torch.randperm(99, generator=generator("preview", 0, 0))
    assert torch.equal(one, torch.randperm(99, generator=generator("preview", 0, 0)))
    assert not torch.equal(one, torch.randperm(99, generator=generator("preview", 0, 1)))


def test_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        board.open_board(tmp_path / "file" / "events", epoch=0, wanted=True)
