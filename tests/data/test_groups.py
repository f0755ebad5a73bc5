"""Groups by file, folder, pattern and CSV; names without one are listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from onn_runner.data.groups import group_names
from onn_runner.errors import ConfigError

NAMES = ["a/01_x.png", "a/02_y.png", "b/c/01_ü (1).jpg", "top.png"]


def test_files_and_folders() -> None:
    assert group_names(NAMES, "file") == NAMES
    assert group_names(NAMES, "folder") == ["a", "a", "b/c", "."]


def test_a_pattern_is_searched_in_the_path() -> None:
    assert group_names(NAMES[:3], r"(\d+)_") == ["01", "02", "01"]
    assert group_names(NAMES[:3], "^(.)/") == ["a", "a", "b"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("column", ["file", "Item", "name"])
def test_csv_names_with_and_without_suffix(delimiter: str, column: str, tmp_path: Path) -> None:
    rows = [(column, "site", "group"), ("./a/01_x.png", "p", "one"), ("a\\02_y", "p", "two words")]
    # Letters as macOS decomposes them: u and two dots.
    rows += [("b/c/01_u\u0308 (1).jpg", "q", "one"), ("top.png", "q", "3"), ("absent.png", "q", "4")]
    path = tmp_path / "groups of mine.csv"
    path.write_text("\ufeff" + "\r\n".join(delimiter.join(row) for row in rows) + "\r\n\r\n", encoding="utf-8")
    assert group_names(NAMES, str(path)) == ["one", "two words", "one", "3"]


def test_items_can_be_numbers(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("item,group\n0,a\n1,b\n")
    assert group_names(["1", "0"], str(tmp_path / "g.csv")) == ["b", "a"]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (None, r"data.groups \(=None\) must be file, folder, a pattern"),
        ("", r"data.groups \(=''\) must be"),
        (r"\d+_", r"has 0 groups in parentheses"),
        (r"(\d)(\d)", r"has 2 groups in parentheses"),
        ("(", r"no pattern either: missing \)"),
        (r"(\d+)_", r"finds nothing in top.png: write a pattern that each name fits"),
        ("(z)?a", r"finds nothing in a/01_x.png, a/02_y.png, b/c/01_ü \(1\).jpg, top.png"),
        ("nowhere.csv", r"data.groups \(=nowhere.csv\) cannot be read: No such file"),
    ],
)
def test_what_gives_no_group_is_refused(how: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        group_names(NAMES, how)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must begin with the columns file and group; it begins with nothing"),
        (b"path,group\na,b\n", "it begins with path, group"),
        (b"file,group\na/01_x.png,\n", "row 2 has no file or no group"),
        (b"file,group\na\n", "row 2 has no file or no group"),
        (b"file,group\na,1\na,2\n", "a has two groups, 1 and 2"),
        (b"file,group\na/01_x,1\n", "has no row for a/02_y.png, b/c/01_ü \\(1\\).jpg, top.png: add one each"),
        (b"file,group\n\xff\xfe,1\n", "not text in UTF-8"),
        (b'file,group\n"a,1\n', "is not a CSV file: unexpected end of data"),
    ],
)
def test_bad_tables_are_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        group_names(NAMES, str(tmp_path / "g.csv"))


def test_at_most_ten_names_are_listed() -> None:
    with pytest.raises(ConfigError, match=r"finds nothing in n0, n1, .*n9 and 15 more"):
        group_names([f"n{number}" for number in range(25)], "(x)")
