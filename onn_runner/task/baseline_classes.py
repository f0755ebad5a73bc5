"""What tells classes apart without a network, on the same fold: majority, class means, neighbours, logistic regression.

All see the values of the training part, pictures reduced to sides of 32 and of large parts 5,000 items. Their one
parameter is chosen on a fifth of these, which is learned from as well after that.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from onn_runner.data.base import Source
from onn_runner.partition.base import Fold
from onn_runner.task.baseline import BaselineResult, Metrics, Progress

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Learned = Callable[[Array], Array]
"""[M, D] -> probabilities [M, K]"""

LEARNED_FROM = 5000
SIDE = 32
"""Longest sides of pictures that are looked at; signals keep so many samples squared."""
LARGEST = 3e8
"""Items x values x classes of the logistic regression, whose time they are."""


@dataclass(frozen=True)
class Method:
    learn: Callable[[Array, Labels, int, float], Learned]
    """(values [N, D], classes [N], number of classes, parameter)"""
    grid: tuple[float, ...]
    note: str


def measure(
    source: Source,
    fold: Fold,
    metrics: Metrics,
    tell: Progress | None = None,
    *,
    most: Mapping[str, int] | None = None,
) -> dict[str, BaselineResult]:
    """Baseline -> its result. `tell` hears of what is left out; `most` as in task/baseline.py."""
    labels, count = source.labels, source.shape.target[0]
    assert labels is not None
    part = fold.train[:: max(1, -(-len(fold.train) // LEARNED_FROM))]
    seen = values(source, part)
    classes = np.array([labels[index] for index in part])
    tested = fold.test[: (most or {}).get("test")]
    asked = values(source, tested)
    target = torch.tensor([labels[index] for index in tested])
    results = {}
    for name, chosen in METHODS.items():
        if name == "logistic regression" and seen.size * count > LARGEST:
            if tell is not None:
                tell(f"{name} left out: {len(seen)} items of {seen.shape[1]} values in {count} classes take too long")
            continue
        started = time.perf_counter()
        parameter = _chosen(chosen, seen, classes, count)
        logits = torch.from_numpy(np.log(_learned(chosen, seen, classes, count, parameter)(asked))).float()
        note = chosen.note.format(parameter)
        results[name] = _scored(logits, target, metrics, note, time.perf_counter() - started)
    return results


def values(source: Source, part: Sequence[int]) -> Array:
    """[N, D]: the items without augmentation, means over squares where they are large."""
    view = source.fixed(part)
    inputs = [_reduced(view[place]["input"]) for place in range(len(part))]
    return torch.stack(inputs).double().numpy() if inputs else np.empty((0, 0))


def _reduced(item: torch.Tensor) -> torch.Tensor:  # [C, *S] -> [D]
    if item.ndim == 2:
        item = functional.adaptive_avg_pool1d(item, min(item.shape[1], SIDE**2))
    elif item.ndim == 3:
        item = functional.adaptive_avg_pool2d(item, (min(item.shape[1], SIDE), min(item.shape[2], SIDE)))
    return item.flatten()


def majority(seen: Array, classes: Labels, count: int, parameter: float) -> Learned:
    """Each class as often as in training."""
    shares = np.bincount(classes, minlength=count) / len(classes)
    return lambda asked: np.broadcast_to(shares, (len(asked), count))


def nearest_mean(seen: Array, classes: Labels, count: int, softness: float) -> Learned:
    """Softmax of minus the squared distance over `softness` times its mean in training."""
    known = np.unique(classes)
    means = np.stack([seen[classes == each].mean(0) for each in known])
    scale = softness * max(float(_squares(seen, means).mean()), 1e-12)

    def probabilities(asked: Array) -> Array:
        found = np.zeros((len(asked), count))
        found[:, known] = torch.from_numpy(-_squares(asked, means) / scale).softmax(1).numpy()
        return found

    return probabilities


def neighbours(seen: Array, classes: Labels, count: int, number: float) -> Learned:
    """Votes of the nearest items."""
    from sklearn.neighbors import NearestNeighbors

    tree = NearestNeighbors(n_neighbors=min(int(number), len(seen)), algorithm="brute").fit(seen)
    votes = np.eye(count)[classes]
    return lambda asked: votes[tree.kneighbors(asked, return_distance=False)].mean(1)


def logistic(seen: Array, classes: Labels, count: int, weight: float) -> Learned:
    """Multinomial, of the values brought to mean 0 and deviation 1 together."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    known = np.unique(classes)
    if len(known) == 1:
        return majority(seen, classes, count, 0.0)
    middle, spread = seen.mean(), seen.std() or 1.0
    model = LogisticRegression(C=weight, max_iter=100)
    with warnings.catch_warnings():
        # A hundred steps of its solver are enough for a baseline.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((seen - middle) / spread, classes)

    def probabilities(asked: Array) -> Array:
        found = np.zeros((len(asked), count))
        found[:, known] = model.predict_proba((asked - middle) / spread)
        return found

    return probabilities


def _squares(points: Array, means: Array) -> Array:
    """Squared distances [N, D], [M, D] -> [N, M]."""
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(points, means, "sqeuclidean"))


METHODS = {
    "majority class": Method(majority, (0.0,), ""),
    "nearest class mean": Method(nearest_mean, tuple(2.0**power for power in range(-8, 3)), "softness {:g}"),
    "nearest neighbours": Method(neighbours, (1, 3, 5, 9, 15), "{:g} neighbours"),
    "logistic regression": Method(logistic, (0.01, 0.1, 1.0), "inverse penalty {:g}"),
}


def _learned(method: Method, seen: Array, classes: Labels, count: int, parameter: float) -> Learned:
    """With one more item of each class counted, so that nothing is impossible: Laplace's rule."""
    learned = method.learn(seen, classes, count, parameter)
    return lambda asked: (len(seen) * learned(asked) + 1) / (len(seen) + count)


def _chosen(method: Method, seen: Array, classes: Labels, count: int) -> float:
    """The parameter of the least cross-entropy on a fifth of the items, learned from the others."""
    if len(method.grid) == 1 or len(seen) < 10:
        return method.grid[-1]
    # Of items that are ordered by class every fifth has all classes.
    held = np.arange(len(seen)) % 5 == 0

    def loss(parameter: float) -> float:
        learned = _learned(method, seen[~held], classes[~held], count, parameter)
        return float(-np.log(learned(seen[held])[np.arange(held.sum()), classes[held]]).mean())

    return min(method.grid, key=loss)


def _scored(logits: torch.Tensor, target: torch.Tensor, metrics: Metrics, note: str, seconds: float) -> BaselineResult:
    fresh = {f"test/{name}": metric for name, metric in metrics().items()}
    for metric in fresh.values():
        metric.update(logits, target)
    return BaselineResult(
        means={key: metric.value() for key, metric in fresh.items()},
        items={key: tuple(metric.items().tolist()) for key, metric in fresh.items()},
        left_out={key: metric.left_out for key, metric in fresh.items()},
        note=note,
        seconds=seconds,
    )
