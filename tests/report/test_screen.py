"""What is printed fits where it is printed, and nothing that matters is cut."""

import io

from rich.console import Console

from onn_runner.report import screen
from onn_runner.report.table import Table

TABLE = Table(
    "a run",
    ("", "epoch", "PSNR [dB]", "SSIM", "MSE", "whole PSNR [dB]", "s/epoch"),
    (
        ("fold 0", "3", "29.31", "0.8012", "0.00271", "28.91", "1.25"),
        ("mean ± std", "", "29.31 ± 0.42", "", "", "", ""),
    ),
    (1,),
    ("a note",),
)


def printed(width):
    stream = io.StringIO()
    screen.show_table(Console(file=stream, width=width), TABLE)
    return stream.getvalue()


def test_a_wide_terminal_shows_every_column():
    text = printed(180)
    assert all(heading in text for heading in TABLE.headings)
    assert "no room" not in text


def test_a_narrow_terminal_shows_what_matters_and_says_what_it_left_out():
    text = printed(60)
    lines = text.splitlines()
    assert any("fold 0" in line and "29.31" in line and "28.91" in line for line in lines)
    assert any("mean ± std" in line for line in lines)
    assert "no room here for" in text
    assert "MSE" in text.partition("no room")[2]


def test_text_is_never_read_as_markup():
    stream = io.StringIO()
    screen.show_rows(Console(file=stream, width=100), "[red]title[/red]", ("[bold]a",), (("[/nothing]",),))
    assert "[/nothing]" in stream.getvalue()
    assert "[red]title[/red]" in stream.getvalue()


def test_without_a_terminal_the_width_is_fixed(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert screen.console(io.StringIO()).width == screen.PLAIN_WIDTH
