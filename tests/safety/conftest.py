"""A box to open hostile files in: code that would run leaves a canary, and nothing else may be left either."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from onn_runner.cli import onn
from onn_runner.cli.run import main

EVIL = """
import pathlib
from os import system

def run(*words, **more):
    pathlib.Path({canary!r}).touch()

class Evil:
    __init__ = __call__ = run

run()
"""
SMALL = (
    *("model=conv", "network.channels=[2]", "network.kernels=[3,3]", "name=base", "partition=hold_out"),
    *("data.photographs=[camera,coins,moon,page]", "data.patches=2", "data.patch=16", "data.max_side=64"),
    *("trainer.epochs=1", "trainer.pictures=false", "trainer.tensorboard=false"),
)
"""A run of a second."""


@dataclass(frozen=True)
class Box:
    folder: Path
    elsewhere: Path
    """A folder that hostile files point at; nothing may appear in it."""
    tell: Callable[[], str]

    @property
    def canary(self) -> Path:
        return self.elsewhere / "canary"

    @property
    def touch(self) -> str:
        """A command that would leave the canary."""
        return f"touch {self.canary}"

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def onn_run(self, *words: str) -> tuple[int, str]:
        """(exit code, what was printed)."""
        return main(words), self.tell()

    def onn(self, *words: str) -> tuple[int, str]:
        sys.argv = ["onn", *words]
        try:
            onn.main()
        except SystemExit as ended:
            return int(ended.code or 0), self.tell()
        return 0, self.tell()

    def refused(self, told: tuple[int, str], code: int = 2) -> str:
        """The one sentence of a refusal, after which nothing was run, written elsewhere or printed as it stood."""
        assert told[0] == code, told[1]
        self.unharmed(told[1])
        assert not {"outputs", "multirun"} & {path.name for path in self.folder.iterdir()}
        (line,) = told[1].strip().splitlines()
        assert line.startswith(("onn-run: ", "onn: ")), line
        return line

    def unharmed(self, printed: str) -> None:
        assert "evil" not in sys.modules
        assert list(self.elsewhere.iterdir()) == []
        assert "Traceback" not in printed
        assert "\x1b" not in printed


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Box]:
    """The working directory, with evil.py in it."""
    folder, elsewhere = tmp_path / "box", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    made = Box(folder, elsewhere, lambda: "".join(capsys.readouterr()))
    made.write("evil.py", EVIL.format(canary=str(made.canary)))
    yield made
    sys.modules.pop("evil", None)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, to be copied."""
    folder, before = tmp_path_factory.mktemp("finished"), Path.cwd()
    os.chdir(folder)
    try:
        assert main(SMALL) == 0
    finally:
        os.chdir(before)
    (run,) = folder.glob("outputs/base/*")
    return run


@pytest.fixture
def run(box: Box, finished: Path) -> Path:
    """A copy of a finished run, to be spoilt."""
    shutil.copytree(finished, box.folder / "run")
    return box.folder / "run"
