"""What needs no training, on the same fold: the untouched input, filters against noise, blur and small size.

Their one parameter is chosen on patches of the fold's training part, never on the part that is tested.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from onn_runner.data.base import Item, Source
from onn_runner.data.deblur import Deblur
from onn_runner.data.noise import GREY_LEVELS, Gaussian, SaltAndPepper
from onn_runner.data.super_resolution import SuperResolution, resized
from onn_runner.metric.base import ItemMetric
from onn_runner.partition.base import Fold
from onn_runner.partition.split import whole_groups
from onn_runner.task.deconvolution import richardson_lucy, wiener

Array = npt.NDArray[np.float32]
Metrics = Callable[[], dict[str, ItemMetric]]
Progress = Callable[[str], None]
Range = tuple[float, float]
Row = tuple[int | str, ...]

CHOSEN_ON = 64
# scikit-image's own example; patches of 7 within a distance of 11 gain 0.3 dB for three times the time.
PATCH_SIZE, PATCH_DISTANCE = 5, 6


@dataclass(frozen=True)
class Method:
    """A filter of one parameter, and the values among which the training part chooses."""

    function: Callable[[Array, float], Array]
    """(noisy [C, *S], parameter) -> [C, *S]"""
    grid: tuple[float, ...]
    note: str


@dataclass(frozen=True)
class BaselineResult:
    """Scores of one baseline on one fold, keys as in `test/psnr` and `photo/psnr`."""

    means: dict[str, float]
    items: dict[str, tuple[float, ...]]
    """Per item: `test/` in the order of `fold.test`, `photo/` in the order of `_whole(...)`; NaN: not defined."""
    left_out: dict[str, int]
    note: str
    """What was chosen: "deviation 1.2 pixels"."""
    seconds: float


def evaluate(
    source: Source, fold: Fold, metrics: Metrics, progress: Progress | None = None, *, clip: Range | None = None
) -> dict[str, dict[str, float]]:
    """Baseline -> its mean scores."""
    return {name: result.means for name, result in measure(source, fold, metrics, progress, clip=clip).items()}


def measure(
    source: Source,
    fold: Fold,
    metrics: Metrics,
    progress: Progress | None = None,
    *,
    clip: Range | None = None,
    most: Mapping[str, int] | None = None,
) -> dict[str, BaselineResult]:
    """Baseline -> its result; none where the target is not of the input's shape. `progress` is told each name.

    `clip`: the range to which the task clips a network's predictions; the parameter is chosen on clipped results too.
    `most`: how many items of `test` and `photo` are scored, the first ones, where a network is tested on so many only.
    """
    results = {}
    for name, method in methods(source).items():
        if progress is not None:
            progress(name)
        results[name] = _measured(method if clip is None else clipped(method, clip), source, fold, metrics, most or {})
    return results


ITEMS_HEADER = ("fold", "baseline", "item", "split", "metric", "value")


def item_rows(fold_index: int, results: Mapping[str, BaselineResult], source: Source, fold: Fold) -> list[Row]:
    """(fold, baseline, item, split, metric, value) of every item; an empty value where a score is not defined."""
    names = {"test": [source.names[index] for index in fold.test], "photo": _whole(source, fold)[1]}
    rows: list[Row] = []
    for baseline, result in results.items():
        for key, values in result.items.items():
            split, _, metric = key.partition("/")
            for item, value in zip(names[split][: len(values)], values, strict=True):
                rows.append((fold_index, baseline, item, split, metric, "" if math.isnan(value) else repr(value)))
    return rows


def clipped(method: Method, limits: Range) -> Method:
    return replace(method, function=lambda noisy, parameter: np.clip(method.function(noisy, parameter), *limits))


def methods(source: Source) -> dict[str, Method]:
    """The baselines that suit what was done to the source's items, and their shape."""
    kind: object = source
    if isinstance(kind, SuperResolution):
        return enlarging(kind)
    if isinstance(kind, Deblur):
        return deblurring(kind)
    if source.shape.input != source.shape.target:
        return {}
    found = {
        "untouched input": Method(untouched, (0.0,), ""),
        "gaussian blur": Method(blurred, (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0), "deviation {:g} pixels"),
    }
    if isinstance(getattr(source, "noise", None), SaltAndPepper):
        found["median filter"] = Method(median_filtered, (3, 5, 7), "window {:g} pixels")
    if len(source.shape.input) == 3:
        known = known_deviation(source)

        def non_local(noisy: Array, strength: float) -> Array:
            return non_local_means(noisy, strength, estimated_deviation(noisy) if known is None else known)

        found["non-local means"] = Method(non_local, (0.4, 0.6, 0.8, 1.0), "strength {:g} of the noise's deviation")
    return found


def enlarging(source: SuperResolution) -> dict[str, Method]:
    """From the small picture, or from the enlarged one where that is the input."""

    def enlarged(small: Array) -> Array:
        if source.enlarge:
            return small
        return cast(Array, resized(torch.from_numpy(small), source.reduction).numpy())

    def sharpened(small: Array, amount: float) -> Array:
        smooth = enlarged(small)
        return smooth + np.float32(amount) * (smooth - blurred(smooth, source.reduction / 2))

    grid = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
    return {
        "bicubic": Method(lambda small, _: enlarged(small), (0.0,), ""),
        "bicubic, sharpened": Method(sharpened, grid, "unsharp mask, amount {:g}"),
    }


def deblurring(source: Deblur) -> dict[str, Method]:
    """With the kernel that blurred."""
    kernel = source.kernel
    balances = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0)
    return {
        "untouched input": Method(untouched, (0.0,), ""),
        "wiener filter": Method(lambda x, balance: wiener(x, kernel, balance), balances, "balance {:g}"),
        "richardson-lucy": Method(
            lambda x, iterations: richardson_lucy(x, kernel, iterations), (2, 5, 10, 20), "{:g} iterations"
        ),
    }


def untouched(noisy: Array, _: float) -> Array:
    return noisy


def blurred(
    noisy: Array,  # [C, *S]
    deviation: float,
) -> Array:
    from scipy.ndimage import gaussian_filter

    return cast(Array, gaussian_filter(noisy, (0, *[deviation] * (noisy.ndim - 1)), mode="nearest"))


def median_filtered(
    noisy: Array,  # [C, *S]
    window: float,
) -> Array:
    from scipy.ndimage import median_filter

    return cast(Array, median_filter(noisy, (1, *[int(window)] * (noisy.ndim - 1)), mode="nearest"))


def non_local_means(
    noisy: Array,  # [C, H, W]
    strength: float,
    deviation: float,
) -> Array:
    """`deviation`: the noise's, in the values' units; its variance is taken off the distances between patches."""
    from skimage.restoration import denoise_nl_means

    options: dict[str, Any] = {"patch_size": PATCH_SIZE, "patch_distance": PATCH_DISTANCE, "fast_mode": True}
    options |= {"h": strength * deviation, "sigma": deviation}
    if len(noisy) == 1:
        return cast(Array, denoise_nl_means(noisy[0], **options)[None])
    return cast(Array, denoise_nl_means(noisy, channel_axis=0, **options))


def known_deviation(source: Source) -> float | None:
    """The deviation of Gaussian noise that was not clipped; None: to be estimated."""
    noise = getattr(source, "noise", None)
    return noise.deviation if isinstance(noise, Gaussian) and not getattr(source, "clip", False) else None


def estimated_deviation(
    noisy: Array,  # [C, H, W]
) -> float:
    """Median of |diagonal Haar detail| / 0.6745, at least one grey level.

    Source: Donoho and Johnstone, Ideal spatial adaptation by wavelet shrinkage, 1994, with the shortest wavelet.
    """
    height, width = (side - side % 2 for side in noisy.shape[1:])
    even = noisy[:, :height, :width]
    detail = (even[:, ::2, ::2] - even[:, ::2, 1::2] - even[:, 1::2, ::2] + even[:, 1::2, 1::2]) / 2
    return max(float(np.median(np.abs(detail))) / 0.6745, 1 / GREY_LEVELS) if detail.size else 1 / GREY_LEVELS


def _measured(method: Method, source: Source, fold: Fold, metrics: Metrics, most: Mapping[str, int]) -> BaselineResult:
    started = time.perf_counter()
    parameter = _chosen(method, source, fold)
    views: dict[str, Dataset[Item] | None] = {"test": source.fixed(fold.test), "photo": _whole(source, fold)[0]}
    scored: dict[str, ItemMetric] = {}
    for split, view in views.items():
        fresh = metrics()
        for noisy, target in _pairs(view, most.get(split)):
            result = torch.from_numpy(method.function(noisy, parameter))[None]
            for metric in fresh.values():
                metric.update(result, torch.from_numpy(target)[None])
        if view is not None:
            scored |= {f"{split}/{name}": metric for name, metric in fresh.items()}
    return BaselineResult(
        means={key: float(metric.compute()) for key, metric in scored.items()},
        items={key: tuple(metric.items().tolist()) for key, metric in scored.items()},
        left_out={key: metric.left_out for key, metric in scored.items()},
        note=method.note.format(parameter),
        seconds=time.perf_counter() - started,
    )


def _whole(source: Source, fold: Fold) -> tuple[Dataset[Item] | None, list[str]]:
    """The whole originals on which a network is tested too, and their names."""
    groups = whole_groups(fold, source)
    view = source.whole(groups) if groups else None
    if view is None:
        return None, []
    count = len(view)  # type: ignore[arg-type]
    unnamed = groups if len(groups) == count else [f"whole[{place}]" for place in range(count)]
    return view, list(getattr(view, "names", unnamed))


def _chosen(method: Method, source: Source, fold: Fold) -> float:
    """The parameter with the best mean PSNR over some training patches (the mean of -log mse, whatever the range)."""
    if len(method.grid) == 1:
        return method.grid[0]
    step = max(1, len(fold.train) // CHOSEN_ON)
    patches = list(_pairs(source.fixed(fold.train[::step][:CHOSEN_ON])))

    def loss(parameter: float) -> float:
        errors = [float(np.mean((method.function(noisy, parameter) - target) ** 2)) for noisy, target in patches]
        return math.fsum(math.log(max(error, 1e-12)) for error in errors)

    return min(method.grid, key=loss)


def _pairs(view: Dataset[Item] | None, most: int | None = None) -> Sequence[tuple[Array, Array]]:
    """(input, target) of each item, or of the first `most`; none without a view."""
    if view is None:
        return []
    items = [view[place] for place in range(len(view))[:most]]  # type: ignore[arg-type]
    return [(item["input"].numpy(), item["target"].numpy()) for item in items]
