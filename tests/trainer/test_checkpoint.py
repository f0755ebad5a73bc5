"""Checkpoints: whole, plain, verified; a full disk or a closed folder loses nothing."""

import dataclasses
import errno
import functools
import os
from pathlib import Path

import pytest
import torch

from onn_runner import storage
from onn_runner.errors import RunError
from onn_runner.trainer import checkpoint
from onn_runner.trainer.checkpoint import Checkpoint, Damaged


def made(epoch: int) -> Checkpoint:
    return Checkpoint(
        config={"data": {"sigma": 25}, "ops": ["sine"]},
        seed=0,
        fold=1,
        start=2,
        epoch=epoch,
        network={"weight": torch.arange(600.0) * epoch, "extra": {"plans": {"terms": 8}}},
        best={"val/psnr": {"epoch": 1.0, "value": 30.5}},
        history=[{"epoch": 1.0, "val/psnr": 30.5}],
    )


def test_comes_back_as_it_was(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "a.pt", made(3))
    loaded = checkpoint.load(tmp_path / "a.pt")
    assert torch.equal(loaded.network["weight"], made(3).network["weight"])
    assert loaded.network["extra"] == {"plans": {"terms": 8}}
    assert (loaded.config, loaded.history, loaded.best) == (made(3).config, made(3).history, made(3).best)
    assert (loaded.threads, loaded.torch) == (torch.get_num_threads(), str(torch.__version__))
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_is_plain_enough_for_anyone(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "a.pt", made(3))
    assert torch.load(tmp_path / "a.pt", weights_only=True)["epoch"] == 3


@pytest.mark.parametrize("position", [0.0, 0.2, 0.5, 0.8])
def test_flipped_bytes_are_noticed(tmp_path: Path, position: float) -> None:
    path = tmp_path / "a.pt"
    checkpoint.save(path, made(1))
    content = bytearray(path.read_bytes())
    data = content.find(b"\x00\x00\x80\x3f\x00\x00\x00\x40")
    at = data + 64 if position == 0.0 else int(position * len(content))
    content[at : at + 40] = bytes(byte ^ 0xFF for byte in content[at : at + 40])
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"a\.pt is damaged"):
        checkpoint.load(path)


@pytest.mark.parametrize("length", [0, 1, 100, -1, -100])
def test_truncated_files_are_noticed(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.pt"
    checkpoint.save(path, made(1))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(RunError, match=r"a\.pt is damaged"):
        checkpoint.load(path)


@pytest.mark.parametrize("content", [b"not a checkpoint", b"PK\x03\x04"])
def test_other_files_are_noticed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(RunError, match="is damaged"):
        checkpoint.load(tmp_path / "a.pt")


def test_other_contents_missing_files_and_later_formats_are_told_apart(tmp_path: Path) -> None:
    torch.save({"state_dict": {}}, tmp_path / "other.pt")
    with pytest.raises(RunError, match="is damaged"):
        checkpoint.load(tmp_path / "other.pt")
    with pytest.raises(RunError, match=r"missing\.pt does not exist"):
        checkpoint.load(tmp_path / "missing.pt")
    torch.save({"format": 99}, tmp_path / "later.pt")
    with pytest.raises(RunError, match="has format 99; this onn-runner reads up to 3"):
        checkpoint.load(tmp_path / "later.pt")


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "a.pt"
    checkpoint.save(path, dataclasses.replace(made(1), network={"weight": torch.arange(3.0)}, config={}))
    return path.read_bytes()


def test_every_truncation_and_every_flipped_byte_is_noticed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.pt"
    cut = [content[:length] for length in range(0, len(content), 7)]
    flipped = [
        content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :] for at in range(0, len(content), 3)
    ]
    zeros = [content[:at] + bytes(16) + content[at + 16 :] for at in range(0, len(content), 16)]
    others = [bytes(len(content)), content + b"\0", content + content, content[1:]]
    for damaged in (*cut, *flipped, *filter(content.__ne__, zeros), *others):
        path.write_bytes(damaged)
        with pytest.raises(Damaged, match=r"a\.pt is damaged"):
            checkpoint.load(path)
    path.write_bytes(content)
    assert checkpoint.load(path).epoch == 1


def test_checkpoints_of_earlier_versions_are_read_and_checked_as_far_as_they_can_be(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    checkpoint.save(path, made(1))
    plain = torch.load(path, weights_only=True)
    del plain["usage"]
    torch.save({**plain, "format": 2, "seconds": 7.5}, path)
    assert checkpoint.load(path).used.seconds == 7.5
    before = path.read_bytes()
    at = before.find(b"\x00\x00\x80\x3f\x00\x00\x00\x40")
    path.write_bytes(before[:at] + b"\1" + before[at + 1 :])
    with pytest.raises(Damaged, match=r"the checksum of .* does not fit"):
        checkpoint.load(path)


def test_what_is_not_damaged_is_not_called_so(tmp_path: Path) -> None:
    for make, words in ((Path.mkdir, "cannot be read"), (lambda path: None, "does not exist")):
        path = tmp_path / words
        make(path)
        with pytest.raises(RunError, match=words) as caught:
            checkpoint.load(path)
        assert not isinstance(caught.value, Damaged)


def test_last_keeps_one_predecessor(tmp_path: Path) -> None:
    assert checkpoint.load_last(tmp_path) is None
    for epoch in (1, 2, 3):
        checkpoint.save_last(tmp_path, made(epoch))
    newest = checkpoint.load_last(tmp_path)
    assert newest is not None
    assert newest.epoch == 3
    # Killed between the two renamings of a save.
    (tmp_path / "last.pt").unlink()
    earlier = checkpoint.load_last(tmp_path)
    assert earlier is not None
    assert earlier.epoch == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_full_disk_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save_last(tmp_path, made(1))
    before = (tmp_path / "last.pt").read_bytes()
    full = functools.partial(open, "/dev/full", "wb")
    monkeypatch.setattr(storage, "open", lambda *words, **kinds: full(), raising=False)
    with pytest.raises(
        RunError,
        match=r"cannot write .*last\.pt: the disk is full: make room, .*\. What was saved before is intact",
    ):
        checkpoint.save_last(tmp_path, made(2))
    assert (tmp_path / "last.pt").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


@pytest.mark.parametrize("name", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_failures_at_any_point_leave_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    checkpoint.save(tmp_path / "best.pt", made(1))

    def fail(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with pytest.raises(RunError, match=r"cannot write .*best\.pt: .*saved before is intact") as caught:
            checkpoint.save(tmp_path / "best.pt", made(2))
    assert ("make room" in str(caught.value)) is (code != errno.EIO)
    assert checkpoint.load(tmp_path / "best.pt").epoch == 1
    assert [path.name for path in tmp_path.iterdir()] == ["best.pt"]


@pytest.mark.skipif(not Path("/sys").exists(), reason="needs a folder where not even root may write")
def test_closed_folder_is_named() -> None:
    with pytest.raises(RunError, match=r"cannot write /sys/last\.pt: no permission to write there"):
        storage.write(Path("/sys/last.pt"), b"x")


def test_publish_shows_the_newest_under_a_second_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, shown = tmp_path / "one", tmp_path / "two", tmp_path / "shown"
    storage.write(one, b"1")
    storage.write(two, b"2")
    for source in (one, two, two, one):
        storage.publish(source, shown)
        assert shown.read_bytes() == source.read_bytes()
    storage.write(one, b"3")
    assert shown.read_bytes() == b"1"

    def refuse(*arguments: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    storage.publish(one, shown)
    assert shown.read_bytes() == b"3"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "shown", "two"]
