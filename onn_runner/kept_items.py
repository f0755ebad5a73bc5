"""What a fold keeps for a comparison of runs: outputs of a few items at fixed places, and its confusions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from onn_runner.report import kept
from onn_runner.trainer import batches
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.job import FoldJob

Array = npt.NDArray[np.float32]


def shown_arrays(job: FoldJob, engine: Engine, batch: Any) -> tuple[Array, Array, Array] | None:
    """Input, output and target of a batch's first item, [C, *S] each; None where they are no pictures or signals of
    one shape.
    """
    with torch.no_grad():
        output = job.task.eval_step(engine.evaluating, batch)
    prediction, target, given = output.prediction, output.target, batch["input"]
    if not isinstance(prediction, Tensor) or not isinstance(target, Tensor):
        return None
    if prediction.shape != target.shape or target.ndim not in (3, 4, 5) or given.ndim != target.ndim:
        return None
    first, second, third = (values[0].detach().float().cpu().numpy() for values in (given, prediction, target))
    return first, second, third


def keep(job: FoldJob, engine: Engine, confusions: kept.Kept | None) -> bytes | None:
    """kept.npz's content; None where there is nothing to keep. `confusions`: those of a fold with classes."""
    if confusions is not None:
        return kept.to_bytes(confusions)
    part = job.fold.test or job.fold.train
    view: Dataset[Any] = job.source.fixed(part)
    scored = len(part)
    if job.settings.limit_batches is not None:
        scored = min(scored, job.settings.limit_batches * job.settings.eval_batch_size)
    items = []
    for place in kept.places(scored):
        arrays = shown_arrays(job, engine, batches.collate(view, [place], engine.device))
        if arrays is None:
            return None
        name = job.source.names[part[place]]
        items.append(kept.reduced_item(name, place, *arrays, data_range=job.source.data_range))
    return kept.to_bytes(kept.Kept("test" if job.fold.test else "fitted", tuple(items))) if items else None
