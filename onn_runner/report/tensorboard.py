"""The run's own TensorBoard events: cross-validated means, one HParams row, and a layout that overlays the folds."""

from __future__ import annotations

import csv
import math
import os
import statistics
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.plugins.hparams.api_pb2 import Status
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from onn_runner.report.results import best_start

FAILED = HParamsPluginData(version=0, session_end_info=SessionEndInfo(status=Status.Value("STATUS_FAILURE")))


def clear(folder: Path) -> None:
    """Empty the run's own events (not the folds'), so that a resumed run does not show points twice.

    A TensorBoard at work waits for ever where the file that it reads has vanished; from an empty one it goes on to the
    next.
    """
    for events in folder.glob("events.out.tfevents.*"):
        if events.stat().st_size:
            os.truncate(events, 0)
        else:
            events.unlink()


def write_run(folder: Path, results: Mapping[str, Any], *, parameters: Mapping[str, Any], failed: bool) -> None:
    """cv/<metric>_mean and _std, mean validation curves, the HParams row with cv means, each fold's score and the
    difference to the twin; the twin's means and curves below `baseline`, so that they overlay.

    best/ repeats what is monitored: TensorBoard shows the first few scores by name, and that is what was asked for.
    """
    if results.get("twin"):
        _write_twin(folder / "baseline", results)
    clear(folder)
    # Points that a TensorBoard at work has read already are taken back.
    writer = SummaryWriter(str(folder), purge_step=0)
    try:
        tags = _write_scores(writer, results)
        _write_curves(writer, folder / "metrics.csv")
        _write_layout(writer, results)
        kept = (bool, int, float, str)
        scalars = {key: value for key, value in hyperparameters(parameters).items() if isinstance(value, kept)}
        # The experiment record is left out: TensorBoard then finds the columns of all runs itself.
        _, start, end = hparams(scalars, tags)
        if failed:
            end.value[0].metadata.plugin_data.content = FAILED.SerializeToString()
        file = writer._get_file_writer()
        file.add_summary(start)
        file.add_summary(end)
    finally:
        writer.close()


def _write_twin(folder: Path, results: Mapping[str, Any]) -> None:
    clear(folder)
    # Points that a TensorBoard at work has read already are taken back.
    writer = SummaryWriter(str(folder), purge_step=0)
    try:
        _write_scores(writer, {**results["twin"], "monitor": results["monitor"]})
        _write_curves(writer, folder / "metrics.csv")
    finally:
        writer.close()


def _write_scores(writer: SummaryWriter, results: Mapping[str, Any]) -> dict[str, float]:
    tags: dict[str, float] = {}
    for key, entry in results["cv"].items():
        for statistic in ("mean", "std"):
            if entry[statistic] is not None:
                tags[f"cv/{_tag(key)}_{statistic}"] = entry[statistic]
    metric = results["monitor"].partition("/")[2]
    for key in (f"test/{metric}", results["monitor"]):
        names = [f"{_tag(key)}_{statistic}" for statistic in ("mean", "std")]
        tags |= {f"best/{name}": tags[f"cv/{name}"] for name in names if f"cv/{name}" in tags}
    for fold in results["folds"]:
        chosen = best_start(fold)
        if chosen and chosen["test"].get(f"test/{metric}") is not None:
            tags[f"folds/{metric}_fold_{fold['fold']:02d}"] = chosen["test"][f"test/{metric}"]
    tags |= _differences(results)
    for tag, value in tags.items():
        writer.add_scalar(tag, value, 0)
    return tags


def _differences(results: Mapping[str, Any]) -> dict[str, float]:
    """difference/psnr_to_conv: the mean over photographs, and the ends of its interval."""
    name = (results.get("twin") or {}).get("name")
    tags: dict[str, float] = {}
    for key, entry in results.get("comparison", {}).get("to", {}).get(name, {}).items():
        ends = {"": "mean", "_low": "low", "_high": "high"}
        values = {f"difference/{_tag(key)}_to_{name}{end}": entry["groups"][part] for end, part in ends.items()}
        tags |= {tag: value for tag, value in values.items() if value is not None}
    return tags


def _write_curves(writer: SummaryWriter, path: Path) -> None:
    """Per epoch, mean and std over the folds of every validation metric (first start)."""
    points: dict[tuple[str, int], list[float]] = defaultdict(list)
    if not path.is_file():
        return
    with path.open(newline="") as handle:
        for row in csv.DictReader(handle):
            if row["split"] == "val" and row["start"] == "0":
                points[row["metric"], int(row["epoch"])].append(float(row["value"]))
    for (metric, epoch), values in sorted(points.items()):
        writer.add_scalar(f"cv_curves/val_{metric}_mean", statistics.fmean(values), epoch)
        if len(values) > 1 and all(map(math.isfinite, values)):
            writer.add_scalar(f"cv_curves/val_{metric}_std", statistics.stdev(values), epoch)


def _write_layout(writer: SummaryWriter, results: Mapping[str, Any]) -> None:
    """Custom scalars: one chart a metric with a line for every fold."""
    charts: dict[str, Any] = {"loss": ["Multiline", ["train/loss", "val/loss"]]}
    charts |= {metric: ["Multiline", [f"val/{metric}"]] for metric in results["higher_is_better"]}
    writer.add_custom_scalars({"folds": charts})


def _tag(key: str) -> str:
    """test/psnr -> psnr, photo/psnr -> photo_psnr, val/psnr -> val_psnr."""
    part, _, metric = key.partition("/")
    return metric if part == "test" else f"{part}_{metric}"


def hyperparameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """One level of scalars for the HParams row: operators as "sine+exp", parameters only of those, no class paths."""
    ops = config.get("ops", "-")
    used = list(ops) if isinstance(ops, Mapping) else []
    named = {name: value for name, value in config.get("operators", {}).items() if name in used}
    flat = _flat({**config, "operators": named, "ops": "+".join(used) or "-", "metrics": "+".join(config["metrics"])})
    for kind in ("model", "baseline"):
        flat[kind] = option_of(str(config.get(kind, {}).get("_target_", "-")))
    # A sweep's name is no parameter, and every job has its own already.
    return {key: value for key, value in flat.items() if not key.endswith("_target_") and key != "name"}


def option_of(target: str) -> str:
    """`self_onn` of onn_runner.model.self_onn.SelfONN, as one types it; of a user's factory its own name."""
    package, _, name = target.rpartition(".")
    if not package.startswith("onn_runner."):
        return name
    module = package.rpartition(".")[2]
    return {"operational": "onn"}.get(module, module)


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"optimizer": {"lr": 1}} -> {"optimizer.lr": 1}; lists become "a,b"."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{name}.")
        elif isinstance(value, list | tuple):
            flat[name] = ",".join(str(item) for item in value)
        elif value is not None:
            flat[name] = value
    return flat
