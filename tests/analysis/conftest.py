"""One small finished run with a twin, for all tests that look at runs."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from onn_runner.cli.run import main

SMALL = (
    "model=self_onn",
    "baseline=conv",
    "data.photographs=[camera,coins,moon,motorcycle]",
    "data.patches=6",
    "data.patch=24",
    "data.max_side=96",
    "network.channels=[3,4]",
    "metric=[psnr,mae]",
    "partition.folds=2",
    "trainer.epochs=2",
    "trainer.batch_size=6",
    "trainer.pictures=false",
    "trainer.tensorboard=false",
)


@pytest.fixture(scope="session")
def _trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with contextlib.chdir(folder):
        assert main([*SMALL, f"hydra.run.dir={folder / 'run'}"]) == 0
    return folder / "run"


@pytest.fixture
def finished(_trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run in a working directory of its own."""
    shutil.copytree(_trained, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return Path("run")
