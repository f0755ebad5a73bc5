"""A working directory of its own, and a run that only notes how it was asked for."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from onn_runner import experiment
from onn_runner.cli.run import main


@dataclass
class Runs:
    """What `experiment.run` was asked for; `answer` says what comes of it."""

    configs: list[Any] = field(default_factory=list)
    requests: list[experiment.Request] = field(default_factory=list)
    answer: Callable[[Any], experiment.Outcome] = lambda config: experiment.Outcome(0, 1.5, None)

    def __call__(self, config: Any, *, request: experiment.Request) -> experiment.Outcome:
        self.configs.append(config)
        self.requests.append(request)
        return self.answer(config)


@pytest.fixture
def _restored_logging() -> Iterator[None]:
    """A sweep sets up logging for its process, which here goes on."""
    loggers = [logging.getLogger(name) for name in (None, "hydra", "hydra_plugins")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture
def runs(_restored_logging: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    recorded = Runs()
    monkeypatch.setattr(experiment, "run", recorded)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return recorded


@dataclass
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def onn_run(runs: Runs, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """`onn_run("ops=sine", "-m")` as if typed, in this process."""

    def call(*typed: str) -> Answer:
        code = main(typed)
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A user's --config-dir with an operator of its own."""
    folder = tmp_path / "mine"
    (folder / "ops").mkdir(parents=True)
    (folder / "ops" / "mine.yaml").write_text(
        "# @package _global_\n# My operator\noperators:\n  mine:\n    _target_: mine.Mine\n    gain: 1.0\n"
        "ops:\n  mine: ${operators.mine}\n"
    )
    return folder
