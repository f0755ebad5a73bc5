"""Every preset, an epoch of it on stand-in data of the right layout: it runs, and its scores are numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import h5py
import numpy as np
import pytest
from cifar_layout import write_cifar10
from PIL import Image

from onn_runner.cli.catalogue import config_folder
from onn_runner.cli.run import main
from onn_runner.model.quadratic import TYPES

PRESETS = sorted(path.stem for path in (config_folder() / "experiment").glob("*.yaml"))
SHIPPED = ("data.photographs=[camera,coins,moon,page]", "data.max_side=96", "partition.folds=2")
PICTURES = ("data.patch=24", "data.patches=4")
CIFAR = [preset for preset in PRESETS if preset.endswith("_cifar10")]
DATA: dict[str, tuple[str, ...]] = {
    "fastonn_transform": ("data.path=pairs.h5", "partition.folds=2"),
    "onn_synthesis": ("data.max_side=96", "data.patch=24", "data.inputs=4", "data.targets=2", "partition.folds=2"),
    "self_onn_sidd": ("data.inputs=sidd/Data", *PICTURES, "partition.folds=2"),
    **dict.fromkeys(CIFAR, ("data.path=cifar", "data.items=120")),
    "quadratic_types": ("data.items=120", "partition.folds=2"),
}
"""Where a preset does not run on scikit-image's photographs."""
NETWORK: dict[str, tuple[str, ...]] = {
    "deblur": ("network.channels=[4,4,4]",),
    "debug": (),
    "self_onn_denoise": ("network.channels=[4,4,4]",),
    "self_onn_sidd": ("network.channels=[4,4,4]",),
    **dict.fromkeys(CIFAR, ("network.width=0.0625",)),
    "quadratic_types": ("network.channels=[2,2,2]",),
}
TRAINING = ("trainer.epochs=1", "trainer.starts=1", "trainer.device=cpu", "trainer.pictures=false")


def picture(size: tuple[int, ...], seed: int) -> np.ndarray:
    """uint8, smooth enough to hold something to restore."""
    values = np.random.RandomState(seed).rand(*size)
    for axis in (0, 1):
        values = (values + np.roll(values, 1, axis) + np.roll(values, 2, axis)) / 3
    return np.rint(255 * (values - values.min()) / (values.max() - values.min())).astype(np.uint8)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that holds what a user brings for the presets, much smaller."""
    monkeypatch.chdir(tmp_path)
    with h5py.File("pairs.h5", "w") as file:
        for seed, name in enumerate(("noisy", "clean")):
            file[name] = np.stack([picture((60, 60), 10 * item + seed) for item in range(4)])
    for scene in range(4):
        folder = tmp_path / "sidd" / "Data" / f"{scene:04}_{scene + 1:03}_S6_00100_00060_3200_L"
        folder.mkdir(parents=True)
        clean = picture((50, 60, 3), scene)
        noise = np.random.RandomState(scene).normal(0, 20, clean.shape)
        Image.fromarray(clean).save(folder / f"{scene:04}_GT_SRGB_010.PNG")
        noisy = np.clip(clean + noise, 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{scene:04}_NOISY_SRGB_010.PNG")
    write_cifar10(tmp_path / "cifar", training=100, test=50)
    (tmp_path / "own folder=1").mkdir()
    for number in range(4):
        Image.fromarray(picture((40, 52), number)).save(tmp_path / "own folder=1" / f"{number}.png")
    return tmp_path


def smaller(preset: str) -> list[str]:
    """Overrides with which an epoch takes a second."""
    data = DATA.get(preset, (*SHIPPED, *PICTURES))
    return [*data, *NETWORK.get(preset, ("network.channels=[4,4]",)), *TRAINING]


def run(*words: str) -> dict[str, object]:
    """The results of the one run in the working directory."""
    assert main(list(words)) == 0
    [results] = Path().glob("outputs/*/*/results.json")
    found = json.loads(results.read_text())
    assert found["status"] == "done"
    return found


def checked(results: dict[str, object]) -> None:
    scores = {key: value["mean"] for key, value in results["cv"].items()}  # type: ignore[attr-defined]
    assert any(key.startswith(("test/", "fitted/")) for key in scores)
    assert all(math.isfinite(value) for value in scores.values()), scores


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_runs_and_scores(work: Path, preset: str) -> None:
    checked(run(f"experiment={preset}", *smaller(preset)))


@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset not in (*DATA, "debug")])
def test_a_folder_of_ones_own_serves_where_photographs_do(work: Path, preset: str) -> None:
    own = [word for word in smaller(preset) if not word.startswith("data.photographs")]
    checked(run(f"experiment={preset}", "model=conv", "data.path=own folder=1", *own))


def test_a_folder_of_bsd_as_the_preset_says(work: Path) -> None:
    own = [word for word in smaller("self_onn_denoise") if not word.startswith("data.photographs")]
    checked(run("experiment=self_onn_denoise", "data=images", "data.path=own folder=1", "data.sigma=90", *own))


@pytest.mark.parametrize("model", [("conv",), ("onn", "ops=mul,sine,exp")])
def test_the_models_that_the_transformation_is_compared_with(work: Path, model: tuple[str, ...]) -> None:
    checked(run("experiment=fastonn_transform", f"model={model[0]}", *model[1:], *smaller("fastonn_transform")))


def test_debugging_goes_with_another_preset(work: Path) -> None:
    results = run("experiment=onn_denoise,debug", *smaller("onn_denoise"), "partition.folds=4")
    checked(results)
    assert [fold["fold"] for fold in results["folds"]] == [0, 1]  # type: ignore[attr-defined]
    assert "trainer.limit_folds=2: the other folds are left out" in results["warnings"]  # type: ignore[operator]


def test_debugging_compares_the_items_that_it_scores(work: Path) -> None:
    """Two batches of three patches a fold, of sixteen, and two whole photographs: of the model, twin and baselines."""
    small = ("data.photographs=[camera,coins,moon,page,text,brick]", "partition.folds=2", "trainer.eval_batch_size=3")
    results = run("experiment=onn_denoise,debug", "baseline=conv", *smaller("onn_denoise"), *small)
    checked(results)
    comparison = results["comparison"]["to"]  # type: ignore[index]
    assert set(comparison) == {"conv", *results["baselines"]}  # type: ignore[misc]
    for scores in comparison.values():
        assert scores["test/psnr"]["items"] == 2 * 6
        assert scores["photo/psnr"]["items"] == 2 * 2
    items = Path(next(iter(Path().glob("outputs/*/*/baseline_items.csv")))).read_text().splitlines()
    assert sum(line.startswith("0,untouched input,") and ",test,psnr," in line for line in items) == 6


def test_the_network_enlarges_where_the_data_does_not(work: Path) -> None:
    words = [word for word in smaller("onn_super_resolution") if not word.startswith("network.")]
    small = ("data.enlarge=false", "data.factor=3", "network=resnet_restore", "network.channels=4", "network.blocks=1")
    results = run("experiment=onn_super_resolution", *small, *words)
    checked(results)
    assert set(results["baselines"]) == {"bicubic", "bicubic, sharpened"}  # type: ignore[call-overload]


def test_all_quadratic_types_in_one_sweep(work: Path) -> None:
    words = ["-m", "experiment=quadratic_types", *smaller("quadratic_types"), "partition=hold_out"]
    words.remove("partition.folds=2")
    assert main(words) == 0
    jobs = [json.loads(path.read_text()) for path in Path().glob("multirun/*/*/job.json")]
    chosen = {word for job in jobs for word in job["overrides"] if word.startswith("model.type=")}
    assert chosen == {f"model.type={name}" for name in TYPES}
    assert {job["status"] for job in jobs} == {"finished"}
