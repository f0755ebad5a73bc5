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
