"""Small synthetic studies in the runner's own formats: folders as a sweep leaves them, with scores that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from onn_runner import storage
from onn_runner.partition.base import Fold
from onn_runner.partition.split import as_plain
from onn_runner.report import results as reporting

GROUPS, PATCHES = ("brick", "camera", "coins", "grass", "moon", "page"), 4
NAMES = tuple(f"{group}[{patch},0]" for group in GROUPS for patch in range(PATCHES))
METRICS: Mapping[str, bool | None] = {"psnr": True, "ssim": True}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "conv": {"model": {"_target_": "onn_runner.model.conv.Conv", "activation": "tanh"}, "ops": "-"},
    "onn": {
        "model": {"_target_": "onn_runner.model.operational.Operational", "pool": "sum", "activation": "tanh"},
        "ops": {"sine": {"_target_": "onn_runner.ops.nodal.Sine", "k": 1.0}},
    },
    "self_onn": {"model": {"_target_": "onn_runner.model.self_onn.SelfONN", "q": 3, "activation": "tanh"}, "ops": "-"},
    "quadratic": {
        "model": {"_target_": "onn_runner.model.quadratic.Quadratic", "type": "t4", "activation": "tanh"},
        "ops": "-",
    },
}
EFFECTS = {"conv": 0.0, "onn": 0.4, "self_onn": 0.25, "quadratic": -0.1}
"""What a method's PSNR is above the convolution's, in dB, before chance."""


def split(folds: int = 3) -> list[Fold]:
    """Whole photographs are tested, in turn; one fold tests a third of them."""
    numbers, parts = range(len(NAMES)), folds if folds > 1 else 3
    found = []
    for index in range(folds):
        test = tuple(item for item in numbers if (item // PATCHES) % parts == index)
        validation = tuple(item for item in numbers if (item // PATCHES) % parts == (index + 1) % parts)
        train = tuple(item for item in numbers if item not in test and item not in validation)
        found.append(Fold(index, train or validation, validation if train else (), test))
    return found


def config(model: str = "conv", *, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """As config.yaml; `changes`: whole nodes, or single keys as `optimizer__lr`."""
    plain: dict[str, Any] = {
        "task": {"_target_": "onn_runner.task.restore.Restore", "loss": "mse"},
        **{key: dict(node) if isinstance(node, dict) else node for key, node in MODELS[model].items()},
        "compute": {"name": "auto"},
        "network": {"_target_": "onn_runner.network.compact.Compact", "channels": [6], "kernels": 3},
        "partition": {"_target_": "onn_runner.partition.kfold.GroupKFold", "seed": 0, "folds": 3, "repeats": 1},
        "optimizer": {"_target_": "torch.optim.Adam", "lr": 0.01},
        "trainer": {"_target_": "onn_runner.trainer.settings.Settings", "epochs": 3, "monitor": "val/psnr"},
        "metrics": {"psnr": {"_target_": "onn_runner.metric.image.Psnr"}},
        "data": {"_target_": "onn_runner.data.denoise.Denoise", "sigma": 25, "seed": 0},
        "seed": seed,
    }
    for key, value in changes.items():
        *path, last = key.split("__")
        node = plain
        for word in path:
            node = node[word]
        node[last] = value
    return plain


def item_scores(fold: Fold, *, effect: float, chance: np.random.Generator) -> dict[str, list[tuple[str, float]]]:
    """Score key -> (item, score): a photograph's own level, the method's effect, chance of the run and of the item."""
    run = chance.normal(0, 0.05)
    psnr = [
        20.0 + (item // PATCHES) + 0.1 * (item % PATCHES) + effect + run + chance.normal(0, 0.1) for item in fold.test
    ]
    ssim = [1 - 1 / value for value in psnr]
    names = [NAMES[item] for item in fold.test]
    groups = dict.fromkeys(GROUPS[item // PATCHES] for item in fold.test)
    whole = [(group, 20.5 + GROUPS.index(group) + effect + run) for group in groups]
    return {
        "test/psnr": list(zip(names, psnr, strict=True)),
        "test/ssim": list(zip(names, ssim, strict=True)),
        "photo/psnr": whole,
    }


def start(number: int, scores: Mapping[str, float], *, seconds: float | None = 12.0, **changes: Any) -> dict[str, Any]:
    """One start of results.json; `seconds` None: of an earlier version, which did not count costs."""
    costs = {} if seconds is None else {"seconds": seconds, "peak_memory": 300 * 2**20, "energy": None}
    return {
        "start": number, "status": "done", "epochs_run": 3, "stopped_early": False, "seconds_per_epoch": 0.5,
        "best_epoch": 2, "averaged": [], "best": {"val/psnr": 21.0},
        "validation": {"val/psnr": scores.get("test/psnr", 0.0) - 0.1}, "test": dict(scores), "left_out": {},
        "diverged": None, **costs, **changes,
    }  # fmt: skip


def diverged_start(number: int) -> dict[str, Any]:
    where = {"epoch": 2, "step": 3, "layer": "layers.0", "what": "output is not finite"}
    return start(number, {}, status="diverged", best_epoch=None, best={}, validation={}, diverged=where)


def fold_entry(fold: Fold, starts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    finished = [one["start"] for one in starts if one["diverged"] is None]
    return {
        "fold": fold.index, "status": "done" if finished else "diverged", "monitor": "val/psnr",
        "starts": list(starts), "best_start": finished[0] if finished else None,
    }  # fmt: skip


def scored(
    folds: Sequence[Fold], *, effect: float, chance: np.random.Generator, seconds: float | None = 12.0
) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
    """(folds of results.json, rows of test_items.csv)."""
    entries, rows = [], []
    for fold in folds:
        items = item_scores(fold, effect=effect, chance=chance)
        means = {key: float(np.mean([value for _, value in values])) for key, values in items.items()}
        entries.append(fold_entry(fold, [start(0, means, seconds=seconds)]))
        for key, values in items.items():
            part, _, metric = key.partition("/")
            rows += [(fold.index, 0, name, part, metric, value) for name, value in values]
    return entries, rows


def write_run(
    folder: Path,
    model: str = "conv",
    *,
    seed: int = 0,
    folds: int = 3,
    done: int | None = None,
    status: str = "done",
    effect: float | None = None,
    twin: str | None = None,
    fingerprint: str = "d1fb7375a7aa646d",
    code: str | None = "0.1.0+0123456789",
    seconds: float | None = 12.0,
    stored_groups: bool = True,
    **changes: Any,
) -> Path:
    """A run folder; `done`: how many folds are finished, all by default; `changes` as in `config`."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = config(model, seed=seed, **{"partition__folds": folds, **changes})
    if twin is not None:
        plain["baseline"] = MODELS[twin]["model"]
    (folder / "config.yaml").write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")
    parts = split(folds)
    written = as_plain(parts, fingerprint=fingerprint, names=NAMES)
    if stored_groups:
        written |= {"groups": [GROUPS[item // PATCHES] for item in range(len(NAMES))], "originals": {}}
    storage.write_json(folder / "split.json", written)
    overrides = [f"model={model}", f"seed={seed}", *(f"{k.replace('__', '.')}={v}" for k, v in changes.items())]
    overrides += [f"baseline={twin}"] if twin else []
    storage.write_json(
        folder / "run.json",
        {
            "schema": 1, "status": status, "command": ["onn-run", *overrides], "overrides": overrides, "flags": [],
            "started": "2026-01-01T00:00:00+00:00", "resumed": [], "versions": {"onn-runner": "0.1.0"}, "git": None,
            **({} if code is None else {"code": code}),
        },
    )  # fmt: skip
    finished = parts[:done]
    chance = np.random.default_rng([seed, *model.encode()])
    entries, rows = scored(
        finished, effect=EFFECTS[model] if effect is None else effect, chance=chance, seconds=seconds
    )
    reporting.write_table(folder / "test_items.csv", reporting.TABLES["test_items.csv"], rows)
    of_twin = None
    if twin is not None:
        chance = np.random.default_rng([seed, *twin.encode(), 7])
        theirs, twin_rows = scored(finished, effect=EFFECTS[twin], chance=chance)
        (folder / "baseline").mkdir(exist_ok=True)
        reporting.write_table(folder / "baseline" / "test_items.csv", reporting.TABLES["test_items.csv"], twin_rows)
        of_twin = {"name": twin, "network": {"rows": [], "parameters": 115, "macs": 110592}, "folds": theirs}
    baselines, baseline_rows = _untrained(finished)
    reporting.write_table(folder / "baseline_items.csv", reporting.TABLES["baseline_items.csv"], baseline_rows)
    results = reporting.collect(
        name=f"{model}-denoise",
        status=status,
        monitor="val/psnr",
        higher_is_better=METRICS,
        network={"rows": [], "parameters": 115 + 60 * sorted(MODELS).index(model), "macs": 110592, "warnings": []},
        folds=entries,
        twin=of_twin,
        baselines=baselines,
        comparison={"unit": "photographs", "to": {}},
        warnings=[],
        seconds=40.0,
    )
    storage.write_json(folder / "results.json", results)
    return folder


def _untrained(folds: Sequence[Fold]) -> tuple[dict[int, Any], list[tuple[Any, ...]]]:
    rows: list[tuple[Any, ...]] = []
    means: dict[int, Any] = {}
    for fold in folds:
        items = item_scores(fold, effect=-2.0, chance=np.random.default_rng([9, fold.index]))
        means[fold.index] = {
            "untouched input": {key: float(np.mean([v for _, v in values])) for key, values in items.items()}
        }
        for key, values in items.items():
            part, _, metric = key.partition("/")
            rows += [(fold.index, "untouched input", name, part, metric, value) for name, value in values]
    return means, rows


def write_job(folder: Path, *, overrides: Sequence[str], status: str = "finished", **changes: Any) -> None:
    """job.json in a job's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "number": 0, "overrides": list(overrides), "status": status, "exit_code": 0, "score": None,
        "objectives": {"score": None, "macs": None, "parameters": None, "seconds": None}, "error": "",
        "started": "2026-01-01T00:00:00+00:00", "ended": None, "host": "here", "pid": 1, "code": "0.1.0+0123456789",
    }  # fmt: skip
    storage.write_json(folder / "job.json", content | changes)


def write_sweep(
    folder: Path, models: Sequence[str] = ("conv", "onn", "quadratic"), seeds: Sequence[int] = (0, 1), **run: Any
) -> Path:
    """A finished sweep over models and seeds; `run` as in `write_run`."""
    jobs = []
    for model in models:
        for seed in seeds:
            name, overrides = f"model-{model}_seed-{seed}", [f"model={model}", f"seed={seed}"]
            write_run(folder / name, model, seed=seed, **run)
            write_job(folder / name, overrides=overrides)
            jobs.append({"folder": name, "overrides": overrides})
    write_plan(folder, jobs)
    return folder


def write_plan(folder: Path, jobs: Sequence[Mapping[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plan = {
        "schema": 1, "command": ["onn-run", "-m"], "constants": [], "jobs": list(jobs), "trials": None,
        "launcher": "local", "started": "2026-01-01T00:00:00+00:00", "status": "finished",
    }  # fmt: skip
    storage.write_json(folder / "sweep.json", plan)


def write_troubled(folder: Path) -> Path:
    """A sweep in which much went wrong: conv and onn are whole for seeds 0 and 1, of the other jobs each fails so."""
    write_sweep(folder, ("conv", "onn"), (0, 1))
    write_run(folder / "model-onn_seed-2", "onn", seed=2, done=1, status="interrupted")
    write_run(folder / "model-conv_seed-2", "conv", seed=2, done=2, status="running")
    write_run(folder / "model-self_onn_seed-0", "self_onn", seed=0)
    (folder / "model-self_onn_seed-0" / "results.json").write_text("{ half", encoding="utf-8")
    overrides = ["model=quadratic", "seed=0"]
    write_job(
        folder / "model-quadratic_seed-0", overrides=overrides, status="failed", exit_code=2, error="no such type: 'x'"
    )
    jobs = [
        {"folder": f"model-{model}_seed-{seed}", "overrides": [f"model={model}", f"seed={seed}"]}
        for model in ("conv", "onn", "self_onn", "quadratic")
        for seed in range(3)
    ]
    write_plan(folder, [*jobs, {"folder": "../../elsewhere", "overrides": []}])
    return folder
