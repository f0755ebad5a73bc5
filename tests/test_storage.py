"""A file is the old one or the new one, whatever happens in between."""

import errno
import json
import math
import os

import pytest

from onn_runner import storage
from onn_runner.errors import RunError


def test_the_new_content_takes_the_place_of_the_old(tmp_path):
    path = tmp_path / "a.json"
    storage.write_json(path, {"a": 1})
    storage.write_json(path, {"a": (math.nan, -math.inf, 2.5), "b": {"c": None}})
    assert json.loads(path.read_text()) == {"a": [None, None, 2.5], "b": {"c": None}}
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_file_before_is_kept_where_it_is_named(tmp_path):
    path, previous = tmp_path / "a.txt", tmp_path / "b.txt"
    for text in (b"1", b"2", b"3"):
        storage.write(path, text, previous=previous)
    assert (path.read_bytes(), previous.read_bytes()) == (b"3", b"2")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "no permission"),
        (errno.EDQUOT, "quota"),
    ],
)
def test_a_failed_write_names_the_file_and_the_remedy(tmp_path, monkeypatch, code, words):
    path = tmp_path / "a.txt"
    storage.write_text(path, "old")

    def fail(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError, match=rf"a\.txt.*{words}.*saved before is intact"):
        storage.write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_vanished_folder_is_named(tmp_path):
    with pytest.raises(RunError, match="its folder has vanished"):
        storage.write_text(tmp_path / "gone" / "a.txt", "x")


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    storage.write_text(tmp_path / "a.txt", "x")
    (tmp_path / "b.txt").write_text("x")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "b.txt").stat().st_mode


def test_names_of_files_that_are_written_often_are_made_durable_once_a_second(tmp_path, monkeypatch):
    clock, flushed, real = [100.0], [], os.fsync

    def fsync(descriptor):
        flushed.append(os.path.isdir(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(storage.time, "monotonic", lambda: clock[0])
    for _ in range(3):
        storage.write(tmp_path / "a.pt", b"1", often=True)
        storage.publish(tmp_path / "a.pt", tmp_path / "b.pt", often=True)
    assert flushed == [False, True, False, False], "every content, one folder"
    clock[0] += storage.FLUSH_SECONDS
    storage.write(tmp_path / "a.pt", b"2", often=True)
    assert flushed[4:] == [False, True]
    storage.write(tmp_path / "status.json", b"3")
    assert flushed[6:] == [False, True], "what is written once is durable at once"
