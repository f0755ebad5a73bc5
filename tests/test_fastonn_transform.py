"""experiment=fastonn_transform on stand-in data: the recipe's sizes, folds and parameters."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from onn_runner.cli.run import main

COUNTS = {"conv": "32,481", "self_onn": "97,345", "onn": "32,481"}
"""Parameters of tiers [16, 32, 1] with kernels [21, 7, 3]; of self_onn with q = 3."""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """20 pairs of the recipe's names, size and type, under a name that Hydra's grammar does not read."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    path = tmp_path / "a b=c.h5"
    with h5py.File(path, "w") as file:
        for name in ("noisy", "clean"):
            file[name] = random.integers(0, 256, (20, 60, 60), dtype=np.uint8)
    return str(path)


@pytest.mark.parametrize("model", COUNTS)
def test_the_recipe(data: str, capsys: pytest.CaptureFixture[str], model: str) -> None:
    ops = ["ops=mul,sine,exp"] if model == "onn" else []
    assert main(["experiment=fastonn_transform", f"model={model}", *ops, f"data.path={data}", "dry_run=true"]) == 0
    printed = capsys.readouterr().out
    assert "10 folds x 3 starts x 240 epochs" in printed
    assert "20 items from" in printed
    assert "1x60x60, uint8, values 0 to 255; range 0 to 255 by its type, scaled to [-1, 1]" in printed
    assert printed.count("train 2 items of 2 groups, no validation, test 18 items of 18 groups") == 10
    assert COUNTS[model] in printed
