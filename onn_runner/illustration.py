"""Pictures of a trained fold and of a run: image strips, classes, learned nodal functions, learning curves."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from onn_runner import storage
from onn_runner.class_pictures import class_pictures
from onn_runner.errors import Interrupted, RunError
from onn_runner.kept_items import keep, shown_arrays
from onn_runner.network.summary import layers_of
from onn_runner.partition.split import whole_groups
from onn_runner.report.kept import FILE as KEPT
from onn_runner.report.ranking import Choice, chosen, ranking, read_items
from onn_runner.report.table import UNITS, figure, words
from onn_runner.trainer import batches, records
from onn_runner.trainer.device import Randomness, choose_device, matmul_precision
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.fold import check
from onn_runner.trainer.job import FoldJob
from onn_runner.trainer.monitor import Monitor
from onn_runner.trainer.progress import Reporter
from onn_runner.trainer.result import FoldResult, read_status
from onn_runner.trainer.weights import load_best

if TYPE_CHECKING:
    from onn_runner.report.figures_curves import Curve
    from onn_runner.report.pixels import Strip

FOLDER = "pictures"
RECORD = "pictures.json"
NEURONS = 4
"""Of each layer that are drawn."""
SEEN_ITEMS = 16
"""Training items from which layers get the x at which they are looked at."""
TROUBLE = (
    *(OSError, RuntimeError, MemoryError, ImportError),
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
)
"""What drawing may fail with, in a user's data, metrics and operators too: the run goes on without the picture."""


def draw_fold(job: FoldJob, result: FoldResult, reporter: Reporter) -> None:
    """`pictures/` of the fold's folder, with the best weights; nothing where they are there already or not wanted.

    What cannot be drawn is a warning with the reason. Raises Interrupted only.
    """
    best, folder = result.best, job.folder / FOLDER
    if best is None:
        # Those of fewer epochs, where going on diverged.
        shutil.rmtree(folder, ignore_errors=True)
    if not job.settings.pictures or best is None:
        return
    made_of = f"start {best.start}, epoch {best.best_epoch}"
    if best.averaged:
        made_of += f", mean of epochs {', '.join(map(str, best.averaged))}"
    if _is_drawn(folder, made_of):
        return
    with _told(str(job.folder), reporter):
        device = choose_device(job.settings.device)
        with Randomness(device).forked(), matmul_precision(job.settings.precision):
            drawn, kept = _FoldPictures(job, best.start, f"fold {job.fold.index}, best epoch {best.best_epoch}").all()
        _keep(folder, drawn, made_of, kept=kept)
        if job.settings.tensorboard:
            write_events(folder, drawn, best.best_epoch or 0)


def draw_run(run: Path, below: str, *, name: str, monitor: str, folds: Sequence[int], reporter: Reporter) -> None:
    """`pictures/learning_curves.png` from metrics.csv, where that has changed since; warnings as `draw_fold`.

    `below`: the folder in the run's and in every fold's that holds the tables, "" where they are there themselves.
    """
    table = run / below / records.METRICS
    with _told(f"{name}, learning curves", reporter):
        if not table.is_file():
            return
        results = {number: read_status(run / f"fold_{number:02d}" / below) for number in folds}
        content = table.read_bytes() + repr(results).encode()
        made_of = hashlib.blake2b(content, digest_size=16).hexdigest()
        if _is_drawn(table.parent / FOLDER, made_of):
            return
        found = _curves(table, {number: result for number, result in results.items() if result is not None})
        if found:
            from onn_runner.report.figures_curves import learning_curves

            metric = monitor.partition("/")[2]
            picture = learning_curves(found, metric=metric, label=_label(metric), title=f"{name}: learning curves")
            _keep(table.parent / FOLDER, {"learning_curves": picture}, made_of)


@contextlib.contextmanager
def _told(what: str, reporter: Reporter) -> Iterator[None]:
    try:
        yield
    except Interrupted:
        raise
    except TROUBLE as error:
        reason = " ".join(str(error).split()) or "no reason given"
        kind = "" if isinstance(error, RunError) else f"{type(error).__name__}: "
        reporter.warn(f"{what}: no pictures ({kind}{reason}); training and scores are not affected.")


def _is_drawn(folder: Path, made_of: str) -> bool:
    try:
        known = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return bool(known["made_of"] == made_of) and all((folder / name).is_file() for name in known["files"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _keep(folder: Path, pictures: Mapping[str, bytes], made_of: str, *, kept: bytes | None = None) -> None:
    """The record last: what is interrupted is drawn again. `kept`: what is set beside other runs', if anything."""
    try:
        folder.mkdir(exist_ok=True)
        (folder / RECORD).unlink(missing_ok=True)
    except OSError as error:
        raise storage.failure(folder, error) from error
    files = {f"{name}.png": picture for name, picture in pictures.items()}
    if kept is None:
        storage.remove(folder / KEPT)
    else:
        files[KEPT] = kept
    for name, content in files.items():
        storage.write(folder / name, content)
    storage.write_json(folder / RECORD, {"made_of": made_of, "files": list(files)})


def write_events(folder: Path, pictures: Mapping[str, bytes], epoch: int) -> None:
    """The same for TensorBoard, in place of what an earlier process wrote: neither doubled nor lost by resuming."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from torch.utils.tensorboard import SummaryWriter

    for path in folder.glob("events.out.tfevents.*"):
        path.unlink()
    writer = SummaryWriter(str(folder))
    try:
        for name, content in pictures.items():
            # A PNG's size stands at the beginning of its header.
            width, height = struct.unpack(">II", content[16:24])
            image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=content)
            value = Summary.Value(tag=f"{FOLDER}/{name}", image=image)
            writer._get_file_writer().add_summary(Summary(value=[value]), epoch)
    finally:
        writer.close()


class _FoldPictures:
    """The best weights of a fold's best start, and what is drawn of them."""

    def __init__(self, job: FoldJob, start: int, title: str) -> None:
        self.job, self.title = job, title
        self.monitor: Monitor = check(job)[0]
        self.metrics = job.build_metrics()
        self.engine = Engine(job, start, higher=self.monitor.higher)
        self.network = self.engine.scored
        self.network.eval()

    def all(self) -> tuple[dict[str, bytes], bytes | None]:
        """Name -> PNG; only of what there is something to be seen. And kept.npz."""
        job, pictures = self.job, {}
        before = self._layers()
        self.engine.load_network(load_best(job.folder / self.monitor.file).network)
        tables = read_items(job.folder / records.ITEMS) if (job.folder / records.ITEMS).is_file() else {}
        groups = whole_groups(job.fold, job.source)
        parts: list[tuple[str, str, str, Callable[[], Dataset[Any] | None]]] = [
            ("test", "strips", "test items", lambda: job.source.fixed(job.fold.test)),
            ("photo", "strips_whole", "whole originals of the test part", lambda: job.source.whole(groups)),
            ("fitted", "strips_training", "training items", lambda: job.source.fixed(job.fold.train)),
        ]
        for split, name, shown, view in parts:
            picture = self._strips(tables.get(split, []), shown, view)
            if picture is not None:
                pictures[name] = picture
        kinds = [layer.facts().kind for _, layer in layers_of(self.network)]
        of_classes, confusions = class_pictures(job, self.engine, ", ".join([*kinds[:1], self.title]))
        pictures |= of_classes
        after = self._layers()
        if after:
            from onn_runner.report.figures_nodal import arguments, nodal_functions

            pictures["nodal_functions"] = nodal_functions(after, title=f"Learned nodal functions, {self.title}")
            pictures["arguments"] = arguments(after, before=before, title=f"Arguments of the operators, {self.title}")
        return pictures, keep(job, self.engine, confusions)

    def _strips(
        self, rows: Sequence[tuple[str, Mapping[str, float]]], shown: str, view: Callable[[], Dataset[Any] | None]
    ) -> bytes | None:
        metric = ranking(rows, self.monitor.key.partition("/")[2], self.metrics)
        dataset = view() if metric is not None else None
        if metric is None or dataset is None:
            return None
        better = self.metrics[metric].higher_is_better
        found = [self._strip(dataset, choice, metric) for choice in chosen(rows, metric, higher=bool(better))]
        if any(strip is None for strip in found):
            return None
        from onn_runner.report.figures_strips import strips

        title = f"{shown[0].upper()}{shown[1:]}, {self.title}: worst to best {_label(metric)} of {len(rows)}"
        return strips([strip for strip in found if strip], title=title, data_range=self.job.source.data_range)

    def _strip(self, dataset: Dataset[Any], choice: Choice, metric: str) -> Strip | None:
        """None where output and target are no pictures or signals of one shape."""
        from onn_runner.report.pixels import Strip

        batch = batches.collate(dataset, [choice.place], self.engine.device)
        arrays = shown_arrays(self.job, self.engine, batch)
        if arrays is None:
            return None
        names = [name for name in dict.fromkeys((metric, "psnr", "ssim")) if name in choice.scores]
        given, _, target = (torch.from_numpy(values)[None] for values in arrays)
        lines = [self._score_line(name, given, target, choice.scores[name]) for name in names[:3]]
        return Strip(choice.rank, choice.name, lines, *arrays)

    def _score_line(self, name: str, given: Tensor, target: Tensor, score: float) -> str:
        """`PSNR 20.17 → 28.11 dB`: of the input, where it has the target's shape, and of the output as scored."""
        unit = f" {UNITS[name]}" if name in UNITS else ""
        before = ""
        if given.shape == target.shape:
            limits = getattr(self.job.task, "clip_range", None)
            metric = self.job.build_metrics()[name].to(target.device)
            metric.update(given if limits is None else given.clamp(*limits), target)
            before = f"{figure(float(metric.items()[0]), name)} → "
        return f"{words(name)} {before}{figure(score, name)}{unit}"

    def _layers(self) -> list[Any]:
        """What the layers do on the same training items, with the weights of the moment."""
        from onn_runner.report import layer_use

        if not list(layer_use.layers(self.network)):
            return []
        job = self.job
        items = job.fold.train[:: max(1, len(job.fold.train) // SEEN_ITEMS)][:SEEN_ITEMS]
        batch = batches.collate(job.source.fixed(items), range(len(items)), self.engine.device)
        with torch.no_grad():
            seen = layer_use.inputs_of(self.network, lambda: job.task.eval_step(self.engine.evaluating, batch))
        return layer_use.uses(self.network, seen, neurons=NEURONS)


def _curves(table: Path, results: Mapping[int, FoldResult]) -> list[Curve]:
    """Every start of every fold in metrics.csv."""
    from onn_runner.report.figures_curves import Curve

    values: dict[tuple[int, int], dict[str, dict[int, float]]] = {}
    with table.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            if row["split"] in ("train", "val"):
                keys = values.setdefault((int(row["fold"]), int(row["start"])), {})
                keys.setdefault(f"{row['split']}/{row['metric']}", {})[int(row["epoch"])] = float(row["value"])
    found = []
    for (fold, start), keys in sorted(values.items()):
        result = results.get(fold)
        done = next((s for s in result.starts if s.start == start), None) if result else None
        diverged = done is not None and done.status == "diverged"
        is_best = result is not None and result.best_start == start
        found.append(Curve(fold, start, keys, done.best_epoch if done else None, diverged, is_best))
    return found


def _label(metric: str) -> str:
    """`PSNR [dB]`"""
    return words(metric) + (f" [{UNITS[metric]}]" if metric in UNITS else "")
