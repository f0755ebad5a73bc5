"""Seconds per training step, measured on a scratch network that is thrown away."""

from __future__ import annotations

import time

from onn_runner.trainer import batches
from onn_runner.trainer.device import Randomness, choose_device, matmul_precision, threads
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.job import FoldJob

STEPS = 4


def seconds_per_step(job: FoldJob) -> float:
    """Loading included; the fastest of a few steps after a first one. Writes nothing."""
    settings, train = job.settings, job.fold.train
    device = choose_device(settings.device)
    with threads(settings.threads), matmul_precision(settings.precision), Randomness(device).forked():
        engine = Engine(job, 0, higher=True)
        data = job.source.training(train, key=(job.seed, job.fold.index, 0, 0))
        order = batches.shuffled(len(train), settings.batch_size, (job.seed, job.fold.index, 0, 0))
        engine.network.train()
        seconds = []
        for number in range(STEPS):
            began = time.perf_counter()
            batch = batches.collate(data, order[number % len(order)], engine.device)
            job.task.train_step(engine.training, batch, engine.step)
            seconds.append(time.perf_counter() - began)
    return min(seconds[1:])
