"""Small folders in the layouts of CIFAR-10, CIFAR-100 and MNIST, with pictures that can be learned."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def learnable(labels: list[int], *, side: int, channels: int, seed: int) -> Bytes:
    """[N, C, side, side]: a pattern and a colour of each class, shifted by up to two pixels, with noise."""
    draw = np.random.default_rng(seed)
    patterns = np.random.default_rng(0).uniform(40, 215, size=(max(labels) + 1, channels, 4, 4))
    patterns = patterns.repeat(side // 4, axis=2).repeat(side // 4, axis=3)
    pictures = np.empty((len(labels), channels, side, side), np.uint8)
    for number, label in enumerate(labels):
        shifted = np.roll(patterns[label], draw.integers(-2, 3, size=2), axis=(1, 2))
        pictures[number] = np.clip(shifted + draw.normal(0, 25, size=shifted.shape), 0, 255)
    return pictures


def write_cifar10(root: Path, *, training: int = 200, test: int = 50) -> Path:
    """root/cifar-10-batches-py with so many pictures (training: in five files), classes in turn; returns root."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for number in range(1, 6):
        _write_batch(folder / f"data_batch_{number}", training // 5, "labels", seed=number)
    _write_batch(folder / "test_batch", test, "labels", seed=6)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    _write(folder / "batches.meta", {"label_names": names})
    return root


def write_cifar100(root: Path, *, training: int = 200, test: int = 100) -> Path:
    """root/cifar-100-python; fine class k is of the coarse class k // 5; returns root."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, count, seed in (("train", training, 1), ("test", test, 2)):
        labels = [index % 100 for index in range(count)]
        pictures = learnable(labels, side=32, channels=3, seed=seed)
        coarse = [label // 5 for label in labels]
        _write(folder / name, {"data": pictures.reshape(count, -1), "fine_labels": labels, "coarse_labels": coarse})
    names = {"fine_label_names": [f"fine {k}" for k in range(100)]}
    _write(folder / "meta", names | {"coarse_label_names": [f"coarse {k}" for k in range(20)]})
    return root


def write_mnist(folder: Path, *, training: int = 100, test: int = 30, gzipped: bool = True) -> Path:
    """The four files of MNIST and Fashion-MNIST, classes in turn."""
    folder.mkdir(parents=True)
    for prefix, count, seed in (("train", training, 1), ("t10k", test, 2)):
        labels = [index % 10 for index in range(count)]
        pictures = learnable(labels, side=28, channels=1, seed=seed)[:, 0]
        write_idx(folder / f"{prefix}-images-idx3-ubyte", pictures, gzipped=gzipped)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", np.array(labels, np.uint8), gzipped=gzipped)
    return folder


def write_idx(path: Path, values: Bytes, *, gzipped: bool) -> None:
    content = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()
    if gzipped:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content, 1))
    else:
        path.write_bytes(content)


def _write_batch(path: Path, count: int, key: str, *, seed: int) -> None:
    labels = [index % 10 for index in range(count)]
    pictures = learnable(labels, side=32, channels=3, seed=seed)
    _write(path, {"data": pictures.reshape(count, -1), key: labels})


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(pickle.dumps(content, protocol=2))
